//! Checks why an ELF file is not a program of this machine. Reads header and loader as far as the
//! kernel does.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// First bytes of an ELF file.
pub const MAGIC: &[u8] = b"\x7fELF";
/// Header types of a program at a fixed place, and of one at any place.
const TYPES: [u16; 2] = [2, 3];
/// Program header that names the loader.
const PT_INTERP: u32 = 3;
/// Maximum number of program headers that are read. Usual programs have about a dozen.
const HEADERS_MAX: u64 = 256;
/// Maximum length of the loader's path (PATH_MAX of Linux).
const PATH_MAX: usize = 4096;

/// Processors by their number in the header (`e_machine`), with the name that
/// `std::env::consts::ARCH` gives them.
const MACHINES: [(u16, &str); 12] = [
    (3, "x86"),
    (8, "mips"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (43, "sparc64"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
    (247, "bpf"),
];

/// Parts of a header that matter here.
struct Header {
    wide: bool,
    big: bool,
    kind: u16,
    machine: u16,
    table: u64,
    entry: u64,
    entries: u64,
}

fn number(bytes: &[u8], at: usize, len: usize, big: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    Some(if big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
}

/// Reads a header. Returns `None` if it is cut off or damaged.
fn header(bytes: &[u8]) -> Option<Header> {
    let (wide, big) = match (bytes.get(4)?, bytes.get(5)?) {
        (1, 1) => (false, false),
        (1, 2) => (false, true),
        (2, 1) => (true, false),
        (2, 2) => (true, true),
        _ => return None,
    };
    let at = |at, len| number(bytes, at, len, big);
    let (table, entry, entries) = if wide {
        (at(32, 8)?, at(54, 2)?, at(56, 2)?)
    } else {
        (at(28, 4)?, at(42, 2)?, at(44, 2)?)
    };
    let (kind, machine) = (u16::try_from(at(16, 2)?).ok()?, u16::try_from(at(18, 2)?).ok()?);
    Some(Header { wide, big, kind, machine, table, entry, entries })
}

/// Returns `true` if this machine runs programs of that processor, perhaps because the kernel was
/// built for it: 32 bits on 64.
fn runs(machine: u16, big: bool) -> bool {
    let fits = |name: &str| match std::env::consts::ARCH {
        "x86_64" => name == "x86_64" || name == "x86",
        "aarch64" => name == "aarch64" || name == "arm",
        "powerpc64" => name == "powerpc64" || name == "powerpc",
        here => name == here,
    };
    let known = MACHINES.iter().any(|(_, name)| fits(name));
    // On a processor that is not listed the kernel decides.
    !known
        || (big == cfg!(target_endian = "big")
            && MACHINES.iter().any(|(number, name)| *number == machine && fits(name)))
}

/// Returns why the kernel would refuse this ELF file, or `None` if nothing speaks against it.
pub fn why_not(file: &File) -> Option<String> {
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let damaged = "it begins like a program, but is cut off or damaged: copy or build it again";
    let Some(header) = header(bytes.get(..len)?) else { return Some(damaged.to_owned()) };
    if !runs(header.machine, header.big) {
        let name = MACHINES.iter().find(|(number, _)| *number == header.machine);
        let name = name.map_or_else(
            || format!("processor {}", header.machine),
            |(_, name)| (*name).to_owned(),
        );
        let here = std::env::consts::ARCH;
        return Some(format!(
            "it is built for another machine ({name}, and this one is {here}): build it for {here}"
        ));
    }
    if !TYPES.contains(&header.kind) {
        return Some(
            "it is an object file or a core dump, not a program: link it first".to_owned(),
        );
    }
    match loader(file, &header) {
        Err(()) => Some(damaged.to_owned()),
        Ok(None) => None,
        Ok(Some(loader)) => {
            let path = Path::new(OsStr::from_bytes(&loader));
            std::fs::metadata(path).err()?;
            Some(format!(
                "its loader {} is not there: it is built for another distribution, C library or word length; install \
                 that one, or build the program here",
                path.display()
            ))
        }
    }
}

/// Returns `true` if this is a program that needs no loader.
pub fn is_static(file: &File) -> bool {
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    let header = bytes.get(..len).filter(|bytes| bytes.starts_with(MAGIC)).and_then(header);
    header.is_some_and(|header| loader(file, &header) == Ok(None))
}

/// Returns the path of the loader that a dynamically linked program names.
fn loader(file: &File, header: &Header) -> Result<Option<Vec<u8>>, ()> {
    let least = if header.wide { 56 } else { 32 };
    if header.entries > 0 && header.entry < least {
        return Err(());
    }
    for index in 0..header.entries.min(HEADERS_MAX) {
        let mut entry = [0; 56];
        let entry = entry.get_mut(..if header.wide { 56 } else { 32 }).ok_or(())?;
        let at = header.table.checked_add(index * header.entry).ok_or(())?;
        file.read_exact_at(entry, at).map_err(drop)?;
        let at = |at, len| number(entry, at, len, header.big).ok_or(());
        if at(0, 4)? != u64::from(PT_INTERP) {
            continue;
        }
        let (offset, len) =
            if header.wide { (at(8, 8)?, at(32, 8)?) } else { (at(4, 4)?, at(16, 4)?) };
        let len = usize::try_from(len).ok().filter(|len| (2..=PATH_MAX).contains(len)).ok_or(())?;
        let mut path = vec![0; len];
        file.read_exact_at(&mut path, offset).map_err(drop)?;
        path.truncate(path.iter().position(|&byte| byte == 0).ok_or(())?);
        return Ok(Some(path));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let (mut reading, name) =
            (None, format!("oikaze-elf-{}-{:?}", std::process::id(), std::thread::current().id()));
        let path = std::env::temp_dir().join(name);
        if std::fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).is_ok() {
            reading = File::open(&path).ok();
        }
        std::fs::remove_file(&path).unwrap();
        reading.unwrap()
    }

    fn own() -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let len = File::open(std::env::current_exe().unwrap())
            .and_then(|own| own.read_at(&mut bytes, 0))
            .unwrap();
        bytes.truncate(len);
        bytes
    }

    /// LAUNCH-6.1.
    #[test]
    fn elf_files_are_refused_for_what_is_wrong_with_them() {
        let good = own();
        assert_eq!(why_not(&file(&good)), None);
        let mut foreign = good.clone();
        foreign[18..20]
            .copy_from_slice(&if cfg!(target_arch = "s390x") { 62u16 } else { 22 }.to_ne_bytes());
        assert!(why_not(&file(&foreign)).unwrap().contains("another machine"));
        let mut object = good.clone();
        object[16..18].copy_from_slice(&1u16.to_ne_bytes());
        assert!(why_not(&file(&object)).unwrap().contains("object file"));
        assert!(why_not(&file(&good[..20])).unwrap().contains("cut off"));
        if let Some(at) =
            good.windows(5).position(|window| window == b"/lib6" || window == b"/lib/")
        {
            let mut unloadable = good.clone();
            unloadable[at + 1] = b'x';
            let why = why_not(&file(&unloadable)).unwrap();
            assert!(why.contains("its loader /xib"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(at in 0usize..200, changed in proptest::collection::vec(any::<u8>(), 0..40), len in 0usize..300) {
            let mut bytes = own();
            for (byte, new) in bytes.iter_mut().skip(at).zip(changed) {
                *byte = new;
            }
            bytes.truncate(len);
            let _ = why_not(&file(&bytes));
        }
    }
}
