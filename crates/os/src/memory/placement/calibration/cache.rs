//! File of the user's that holds the calibration, valid until the machine reboots. The file is
//! believed if no other user can have written it and its checksum is right.

use super::{Calibration, Crossovers};
use crate::memory::mapping::page_size;
use crate::replace_file::{self, FileRights};
use oikaze_protocol::fnv::fnv1a;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// First words of every version of the file.
const KIND: &str = "oikaze placement ";
/// First line of this version. A file of another version is measured anew.
const FORM: &str = "oikaze placement 4";

/// Reason why a file is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CacheRejection {
    #[error("it cannot be read, or is not a file")]
    Unreadable,
    #[error("others can write it")]
    Foreign,
    #[error("it is damaged")]
    Damaged,
}

/// Returns the file's path in the user's cache directory, or else in the runtime directory, or
/// `None` if there is neither.
pub(super) fn file() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache.or_else(|| absolute("XDG_RUNTIME_DIR"))?.join("oikaze").join("placement"))
}

/// Identifies the machine as far as it matters. Another boot, kernel or processor is another
/// machine, and so is one with huge pages switched off.
fn machine() -> String {
    let text = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let processor = text("/proc/cpuinfo");
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |pair| pair.1);
    let huge = super::super::super::huge_page().unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} {} {model}, {cores} cores, {huge}",
        text("/proc/sys/kernel/random/boot_id"),
        text("/proc/sys/kernel/osrelease")
    )
}

/// Reads the file's calibration. Returns `None` if the file is missing, of another machine or of
/// another version.
pub(super) fn read(file: &Path) -> Result<Option<Calibration>, CacheRejection> {
    /// Maximum length in bytes of a file of ours.
    const LONGEST: u64 = 4096;
    // Do not follow a link, and do not wait for a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = match open(file, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(_) => return Err(CacheRejection::Unreadable),
    };
    let metadata =
        opened.metadata().ok().filter(fs::Metadata::is_file).ok_or(CacheRejection::Unreadable)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(CacheRejection::Foreign);
    }
    let mut text = String::new();
    opened.take(LONGEST + 1).read_to_string(&mut text).map_err(|_| CacheRejection::Damaged)?;
    parse(&text, &machine())
}

/// Replaces the file atomically, so that no reader sees half of it.
pub(super) fn write(file: &Path, found: &Calibration) -> io::Result<()> {
    fs::create_dir_all(file.parent().ok_or(io::ErrorKind::NotFound)?)?;
    replace_file::write(file, text(found, &machine()).as_bytes(), FileRights::Private)
}

fn fields(of: &Crossovers) -> [Option<usize>; 5] {
    [of.moving, of.taking, of.exchange, of.install, of.huge]
}

fn text(found: &Calibration, machine: &str) -> String {
    let line = |name: &str, of: &Crossovers| {
        let words = fields(of).map(|from| from.map_or("never".to_owned(), |from| from.to_string()));
        format!("{name} {}\n", words.join(" "))
    };
    let text = format!(
        "{FORM}\n{machine}\n{}{}",
        line("alone", &found.alone),
        line("beside", &found.beside)
    );
    format!("{text}{:016x}\n", fnv1a(text.bytes()))
}

fn parse(text: &str, machine: &str) -> Result<Option<Calibration>, CacheRejection> {
    let rest = match text.split_once('\n') {
        Some((FORM, rest)) => rest,
        Some((other, _)) if other.starts_with(KIND) => return Ok(None),
        _ => return Err(CacheRejection::Damaged),
    };
    let (of, rest) = rest.split_once('\n').ok_or(CacheRejection::Damaged)?;
    if of != machine {
        return Ok(None);
    }
    calibration(text, rest).map(Some).ok_or(CacheRejection::Damaged)
}

/// Parses the lines after the machine's.
fn calibration(text: &str, rest: &str) -> Option<Calibration> {
    let mut lines = rest.strip_suffix('\n')?.split('\n');
    let found = Calibration {
        alone: crossovers(lines.next()?, "alone")?,
        beside: crossovers(lines.next()?, "beside")?,
    };
    let last = lines.next().filter(|_| lines.next().is_none())?;
    let summed = text.strip_suffix('\n')?.strip_suffix(last)?;
    (last == format!("{:016x}", fnv1a(summed.bytes()))).then_some(found)
}

fn crossovers(line: &str, name: &str) -> Option<Crossovers> {
    let mut words = line.strip_prefix(name)?.strip_prefix(' ')?.split(' ');
    let mut next = || match words.next()? {
        "never" => Some(None),
        // Measured sizes are whole pages.
        number => number
            .parse::<usize>()
            .ok()
            .filter(|from| *from > 0 && from.is_multiple_of(page_size()))
            .map(Some),
    };
    let (moving, taking, exchange, install, huge) = (next()?, next()?, next()?, next()?, next()?);
    words.next().is_none().then_some(Crossovers { moving, taking, exchange, install, huge })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn example() -> Calibration {
        let pages = |count| Some(count * page_size());
        let alone = Crossovers {
            moving: pages(1),
            taking: pages(17),
            exchange: None,
            install: pages(2),
            huge: pages(512),
        };
        Calibration { alone, beside: Crossovers { moving: None, ..alone } }
    }

    /// A folder for one test, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(
                std::env::temp_dir()
                    .join(format!("oikaze-test-placement-{name}-{}", std::process::id())),
            )
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_says_what_was_written() {
        let folder = Folder::new("written");
        let file = folder.0.join("deeper").join("placement");
        assert_eq!(read(&file), Ok(None));
        write(&file, &example()).unwrap();
        assert_eq!(read(&file), Ok(Some(example())));
        write(&file, &example()).unwrap();
        assert_eq!(read(&file), Ok(Some(example())));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_can_have_written_or_is_no_file_is_not_believed() {
        let folder = Folder::new("foreign");
        let file = folder.0.join("placement");
        write(&file, &example()).unwrap();
        let permit = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o620, 0o602] {
            permit(mode);
            assert_eq!(read(&file), Err(CacheRejection::Foreign), "{mode:o}");
        }
        permit(0o644);
        assert_eq!(read(&file), Ok(Some(example())));
        let link = folder.0.join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link), Err(CacheRejection::Unreadable));
        assert_eq!(read(&folder.0), Err(CacheRejection::Unreadable));
        for bad in [vec![b'x'; 5000], vec![0xff, 0xfe], vec![]] {
            fs::write(&file, bad).unwrap();
            assert_eq!(read(&file), Err(CacheRejection::Damaged));
        }
    }

    #[test]
    fn another_machine_says_nothing_and_a_damaged_file_is_known() {
        let good = text(&example(), "here");
        assert_eq!(parse(&good, "here"), Ok(Some(example())));
        assert_eq!(parse(&good, "elsewhere"), Ok(None));
        assert_eq!(parse(&good.replacen('4', "3", 1), "here"), Ok(None), "another form");
        for at in 0..good.len() {
            assert!(!matches!(parse(&good[..at], "here"), Ok(Some(_))), "cut at {at}");
        }
        // A changed digit may be a plausible size, which only the checksum detects.
        let page = page_size().to_string();
        for bad in
            ["0", "-1", "1", "99999999999999999999999", " 1", "1 1", &(2 * page_size()).to_string()]
        {
            let damaged = good.replace(&format!("alone {page}"), &format!("alone {bad}"));
            assert_eq!(parse(&damaged, "here"), Err(CacheRejection::Damaged), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_file_does_harm(text in "\\PC{0,200}") {
            prop_assert_eq!(parse(&text, "here"), Err(CacheRejection::Damaged));
        }

        /// Every single-bit error is detected.
        #[test]
        fn no_damage_is_believed(at in any::<prop::sample::Index>(), bit in 0..7_u8) {
            let mut bytes = text(&example(), "here").into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(!matches!(parse(std::str::from_utf8(&bytes).unwrap(), "here"), Ok(Some(_))));
        }
    }
}
