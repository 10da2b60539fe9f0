//! Finds the program of a job, and says why it cannot be run.
//!
//! The kernel answers an exec with an error number that blames the program for what its interpreter
//! or loader lacks. The C library gives files of unknown format to `sh`. The launcher therefore
//! reads the file before it starts the program (LAUNCH-6.1).

pub(super) mod elf;

use super::error::LaunchError;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The kernel keeps the file of a running program under this name, even after another file has
/// taken its place.
pub const OWN: &str = "/proc/self/exe";
/// Number of bytes that the kernel reads of a script's first line (BINPRM_BUF_SIZE of Linux).
const LINE_MAX: usize = 256;
/// Maximum number of interpreters that are scripts themselves and that the kernel follows.
const SCRIPTS_MAX: u32 = 5;
/// Handlers of formats that the kernel does not know itself, such as programs of other processors.
const HANDLERS: &str = "/proc/sys/fs/binfmt_misc";

/// Name of the command that launchers and agents are. As the program of a job it means this same
/// file, because PATH may have another release or none (LAUNCH-6.6).
const COMMAND: &str = "oikaze";

/// Finds a program as a shell does, and checks that it can be run here. `own` is the file that this
/// process runs.
///
/// # Errors
/// The program is not there, or cannot be run.
pub fn find_program(
    program: &OsStr,
    own: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf, LaunchError> {
    let is_own = program == COMMAND && own.file_name() == Some(program) && own.is_file();
    let found = if is_own { own.to_owned() } else { find(program, path)? };
    match why_not(&found) {
        None => Ok(found),
        Some(why) => Err(LaunchError::NotExecutable { program: program.to_owned(), why }),
    }
}

fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let not_found = |place: &str, hint: String| LaunchError::NotFound {
        program: program.to_owned(),
        place: place.to_owned(),
        hint,
    };
    let refused =
        |why: &str| LaunchError::NotExecutable { program: program.to_owned(), why: why.to_owned() };
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(LaunchError::system("find the current directory"))
    };
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match std::fs::metadata(path) {
            Ok(meta) => executable(&meta).map_err(refused).and_then(|()| absolute(path)),
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                Err(refused("a directory on its path may not be entered (Permission denied)"))
            }
            Err(why) => Err(not_found("", format!("({why})"))),
        };
    }
    let mut found_but = None;
    for directory in path.map(std::env::split_paths).into_iter().flatten() {
        let candidate = directory.join(program);
        match std::fs::metadata(&candidate).map(|meta| executable(&meta)) {
            Ok(Ok(())) => return absolute(&candidate),
            Ok(Err(why)) => found_but = Some(why),
            Err(_) => {}
        }
    }
    match found_but {
        Some(why) => Err(refused(why)),
        None if !program.is_empty() && Path::new(program).is_file() => {
            let name = program.display();
            Err(not_found(
                "in PATH",
                format!("; there is one in this directory: did you mean ./{name}?"),
            ))
        }
        None => {
            Err(not_found("in PATH", "; give its path, or add its directory to PATH".to_owned()))
        }
    }
}

fn executable(meta: &std::fs::Metadata) -> Result<(), &'static str> {
    if meta.is_dir() {
        Err("it is a directory")
    } else if !meta.is_file() {
        Err("it is not a regular file")
    } else if meta.permissions().mode() & 0o111 == 0 {
        Err(
            "it is not executable; try `chmod +x`, or run it by its interpreter, e.g. `python3 PROGRAM`",
        )
    } else {
        Ok(())
    }
}

/// Returns why the system would refuse this file, or give it to the wrong program. Returns `None`
/// if nothing speaks against the file.
fn why_not(program: &Path) -> Option<String> {
    let mut path = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        // A program that can be run, but not read, is left to the kernel.
        let mut file = File::open(&path).ok()?;
        let mut head = Vec::new();
        (&mut file).take(LINE_MAX as u64).read_to_end(&mut head).ok()?;
        if has_handler(&head, &path) {
            return None;
        }
        let Some(line) = head.strip_prefix(b"#!") else {
            let of = if path == program {
                String::new()
            } else {
                format!("its interpreter {}: ", path.display())
            };
            return why_no_binary(&file, &head).map(|why| of + &why);
        };
        path = match interpreter(line) {
            Ok(interpreter) => interpreter,
            Err(why) => return Some(why),
        };
    }
    Some(format!("its interpreters are scripts, more than {SCRIPTS_MAX} one behind the other"))
}

/// Returns the interpreter that a script's first line names, behind `#!`. The error says what is
/// wrong with that line.
fn interpreter(line: &[u8]) -> Result<PathBuf, String> {
    const DOS: &str = "its first line ends with a carriage return, as DOS writes it; convert it, e.g. `sed -i 's/\\r$//' PROGRAM`";
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default();
    let shown = |name: &[u8]| OsStr::from_bytes(name).display().to_string();
    let path = Path::new(OsStr::from_bytes(name));
    match std::fs::metadata(path) {
        // `env` finds the program that is named next, but not with a carriage return at its end.
        Ok(_)
            if name.ends_with(b"/env")
                && words.next_back().is_some_and(|word| word.ends_with(b"\r")) =>
        {
            Err(DOS.to_owned())
        }
        Ok(meta) => match executable(&meta) {
            Ok(()) => Ok(path.to_owned()),
            Err(why) => {
                Err(format!("its first line names the interpreter {}, but {why}", shown(name)))
            }
        },
        Err(_) if name.is_empty() || name == b"\r" => {
            Err("its first line, `#!`, names no interpreter".to_owned())
        }
        Err(_) if name.ends_with(b"\r") => Err(format!(
            "its interpreter is {} with a carriage return: {DOS}",
            shown(name.trim_ascii_end())
        )),
        Err(_) => Err(format!(
            "its first line names the interpreter {}, which is not there: install it, or correct that line",
            shown(name)
        )),
    }
}

/// Returns why a file that is not a script is not a program of this machine. A file that looks like
/// text is one, because the C library gives it to `sh`.
fn why_no_binary(file: &File, head: &[u8]) -> Option<String> {
    if head.starts_with(elf::MAGIC) {
        return elf::why_not(file);
    }
    let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if !first.contains(&0) {
        return None;
    }
    let system = match head {
        [b'M', b'Z', ..] => "built for another machine (Windows)",
        [0xca, 0xfe, 0xba, 0xbe, ..] | [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] => {
            "built for another machine (macOS), or Java"
        }
        _ => "neither a program of Linux nor a script",
    };
    Some(format!("it is {system}"))
}

/// Returns `true` if the kernel has a handler for this format (binfmt_misc), such as an emulator.
fn has_handler(head: &[u8], path: &Path) -> bool {
    let Ok(handlers) = std::fs::read_dir(HANDLERS) else { return false };
    let texts = handlers.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    texts.into_iter().any(|text| handles(&text, head, path))
}

/// Returns `true` if the handler that `text` describes (as the kernel prints it) takes a file that
/// begins with `head`.
fn handles(text: &str, head: &[u8], path: &Path) -> bool {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if !text.starts_with("enabled") || value("interpreter").is_none() {
        return false;
    }
    if let Some(extension) = value("extension .") {
        return path.extension().is_some_and(|own| own == extension);
    }
    let bytes = |text: &str| -> Option<Vec<u8>> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        text.as_bytes().chunks(2).map(digits).collect()
    };
    let Some(magic) = value("magic").and_then(bytes) else { return false };
    let mask = value("mask").and_then(bytes).unwrap_or_else(|| vec![0xff; magic.len()]);
    let offset = value("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let Some(found) = head.get(offset..).filter(|found| found.len() >= magic.len()) else {
        return false;
    };
    found.iter().zip(&magic).zip(&mask).all(|((found, magic), mask)| found & mask == magic & mask)
}

/// Turns the system's refusal to start a program into its meaning.
pub fn refused(program: &Path, rank: u32, why: io::Error) -> LaunchError {
    let meaning = match Errno::from_io_error(&why) {
        Some(Errno::NOENT) => {
            "something that it needs to start does not exist: its interpreter, its loader, or the current directory"
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "the system forbids it: the program, its interpreter or its loader may not be executed, or lies where nothing may \
             (see `mount` for noexec)"
        }
        Some(Errno::NOEXEC) => "it is built for another machine, or is not a program",
        Some(Errno::TXTBSY) => {
            "it is being written; wait until the copy or the linker has finished"
        }
        Some(Errno::TOOBIG) => {
            "its arguments and environment together are longer than the system allows; put them into a file"
        }
        Some(Errno::ISDIR | Errno::LIBBAD | Errno::INVAL) => {
            "its loader or interpreter is damaged or no program"
        }
        Some(Errno::LOOP | Errno::NAMETOOLONG) => {
            "its path leads through too many links, or is too long"
        }
        _ => {
            return LaunchError::system(format!("start {} as node {rank}", program.display()))(why);
        }
    };
    LaunchError::NotExecutable {
        program: program.as_os_str().to_owned(),
        why: format!("{meaning} ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn programs() {
        let path = OsString::from("/nonexistent:/bin:/usr/bin");
        let own = Path::new("/some/launcher");
        let find = |name: &str, path| find_program(OsStr::new(name), own, path);
        assert!(find("sh", Some(&path)).unwrap().is_absolute());
        assert!(matches!(find("no-such-program", Some(&path)), Err(LaunchError::NotFound { .. })));
        assert!(matches!(
            find("./no-such-program", Some(&path)),
            Err(LaunchError::NotFound { .. })
        ));
        assert!(matches!(find("", None), Err(LaunchError::NotFound { .. })));
        for name in ["/etc/passwd", "/etc", "/dev/null"] {
            assert!(matches!(find(name, None), Err(LaunchError::NotExecutable { .. })));
        }
    }

    /// LAUNCH-6.6.
    #[test]
    fn word_oikaze_is_the_file_of_the_launcher() {
        let folder = std::env::temp_dir().join(format!("oikaze-own-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [own, other] = ["oikaze", "other"].map(|name| folder.join(name));
        for path in [&own, &other] {
            std::os::unix::fs::symlink("/bin/true", path).unwrap();
        }
        let find = |own: &Path| find_program(OsStr::new("oikaze"), own, Some(OsStr::new("/none")));
        assert_eq!(find(&own).unwrap(), own);
        assert!(matches!(find(&other), Err(LaunchError::NotFound { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// LAUNCH-6.1.
    #[test]
    fn first_lines_of_scripts_name_what_is_wrong() {
        assert_eq!(interpreter(b" /bin/sh -e\nexit"), Ok("/bin/sh".into()));
        assert_eq!(interpreter(b"/usr/bin/env sh\n"), Ok("/usr/bin/env".into()));
        for (line, word) in [
            (&b"/bin/sh\r\n"[..], "/bin/sh with a carriage return"),
            (b"/usr/bin/env python3\r\n", "carriage return"),
            (b"/no/such/interpreter -x\n", "/no/such/interpreter, which is not there"),
            (b"/etc\n", "/etc, but it is a directory"),
            (b"  \n", "names no interpreter"),
        ] {
            let why = interpreter(line).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn handler_takes_files_by_magic_mask_and_extension() {
        let text =
            "enabled\ninterpreter /usr/bin/qemu\nflags: \noffset 1\nmagic 454c00\nmask ffff00\n";
        assert!(handles(text, b"\x7fEL\xb7", Path::new("x")));
        assert!(!handles(text, b"\x7fEX\xb7", Path::new("x")));
        assert!(!handles(text, b"\x7fE", Path::new("x")));
        assert!(!handles(&text.replace("enabled", "disabled"), b"\x7fEL\xb7", Path::new("x")));
        let text = "enabled\ninterpreter /usr/bin/java\nflags: \nextension .jar\n";
        assert!(
            handles(text, b"PK", Path::new("a.jar")) && !handles(text, b"PK", Path::new("a.zip"))
        );
        assert!(!handles("enabled\n", b"x", Path::new("status")));
    }
}
