//! What was measured, in a file of the user's, valid until the machine starts again.

use super::{Calibration, Crossovers};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Of the file's form; another is measured anew.
const FORM: &str = "oikaze placement 2";

/// Where it is kept: the user's cache directory, else the runtime directory; `None` if there is neither.
pub(super) fn file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache.or_else(|| absolute("XDG_RUNTIME_DIR"))?.join("oikaze").join("placement"))
}

/// The machine, as far as it matters: another boot, kernel or processor is another machine, and so is one with huge pages switched off.
fn machine() -> String {
    let text = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let processor = text("/proc/cpuinfo");
    let model =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("unknown", |pair| pair.1);
    let huge = super::super::super::huge_page().unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} {} {model}, {cores} cores, {huge}", text("/proc/sys/kernel/random/boot_id"), text("/proc/sys/kernel/osrelease"))
}

/// What the file says; `None` if it is missing, damaged, or of another machine.
pub(super) fn read(file: &Path) -> Option<Calibration> {
    /// More is none of ours.
    const LONGEST: u64 = 4096;
    if fs::metadata(file).ok()?.len() > LONGEST {
        return None;
    }
    parse(&fs::read_to_string(file).ok()?, &machine())
}

/// Replaces the file at once, so that nobody reads half of it.
pub(super) fn write(file: &Path, found: &Calibration) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(folder)?;
    let new = folder.join(format!("placement.{}", std::process::id()));
    fs::write(&new, text(found, &machine())).and_then(|()| fs::rename(&new, file)).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

fn fields(of: &Crossovers) -> [Option<usize>; 5] {
    [of.moving, of.taking, of.exchange, of.install, of.huge]
}

fn text(found: &Calibration, machine: &str) -> String {
    let line = |name: &str, of: &Crossovers| {
        let words = fields(of).map(|from| from.map_or("never".to_owned(), |from| from.to_string()));
        format!("{name} {}\n", words.join(" "))
    };
    format!("{FORM}\n{machine}\n{}{}", line("alone", &found.alone), line("beside", &found.beside))
}

fn parse(text: &str, machine: &str) -> Option<Calibration> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != FORM || lines.next()? != machine {
        return None;
    }
    let found = Calibration { alone: crossovers(lines.next()?, "alone")?, beside: crossovers(lines.next()?, "beside")? };
    lines.next().is_none().then_some(found)
}

fn crossovers(line: &str, name: &str) -> Option<Crossovers> {
    let mut words = line.strip_prefix(name)?.strip_prefix(' ')?.split(' ');
    let mut next = || match words.next()? {
        "never" => Some(None),
        number => number.parse::<usize>().ok().filter(|from| *from > 0).map(Some),
    };
    let (moving, taking, exchange, install, huge) = (next()?, next()?, next()?, next()?, next()?);
    words.next().is_none().then_some(Crossovers { moving, taking, exchange, install, huge })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Calibration {
        let alone =
            Crossovers { moving: Some(4096), taking: Some(70_000), exchange: None, install: Some(8192), huge: Some(2 << 20) };
        Calibration { alone, beside: Crossovers { moving: None, ..alone } }
    }

    #[test]
    fn a_file_says_what_was_written() {
        let folder = std::env::temp_dir().join(format!("oikaze-test-placement-{}", std::process::id()));
        let file = folder.join("deeper").join("placement");
        assert_eq!(read(&file), None);
        write(&file, &example()).unwrap();
        assert_eq!(read(&file), Some(example()));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        fs::write(&file, vec![b'x'; 5000]).unwrap();
        assert_eq!(read(&file), None);
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(read(&file), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn another_machine_or_a_damaged_file_says_nothing() {
        let good = text(&example(), "here");
        assert_eq!(parse(&good, "here"), Some(example()));
        assert_eq!(parse(&good, "elsewhere"), None);
        for at in 0..good.len() {
            assert_eq!(parse(&good[..at], "here"), None, "cut at {at}");
        }
        for bad in ["alone 0", "alone -1", "alone 99999999999999999999999", "alone  1", "alone 1 1 1 1 1 1"] {
            assert_eq!(parse(&good.replace("alone 4096", bad), "here"), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_file_does_harm(text in "\\PC{0,200}") {
            prop_assert_eq!(parse(&text, "here"), None);
        }
    }
}
