//! Gets an agent on another host: finds an `oikaze` command of this version there, or sends this
//! one.
//!
//! [`Installer`] answers the lines of the script `install.sh`, which runs on the other host. The
//! script looks for the command (LAUNCH-8.1), writes what it receives (LAUNCH-8.2), and chooses the
//! directory (LAUNCH-8.3). [`binary`] is the file that the launcher sends.

pub mod binary;

use crate::launcher::error::LaunchError;
use binary::Binary;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// First command that runs on the other host. It is one word, so that it does not matter whether a
/// shell splits it there.
pub const COMMAND: &str = "sh";
/// Begins each line of the script for the launcher.
pub const PREFIX: &[u8] = b"OIKAZE-INSTALL ";

const SCRIPT: &str = include_str!("install.sh");
/// Remedy where a command cannot be sent.
const BY_HAND: &str = "install Oikaze there, or name its command by --agent";

/// Finds or installs the command on the hosts of one job.
pub struct Installer {
    /// Path at which the command lies here, and perhaps there, too.
    pub path: PathBuf,
    /// Version that `oikaze agent --version` prints.
    pub version: String,
    /// Directory for commands, if the user names one (`OIKAZE_CACHE_DIR`).
    pub cache: Option<OsString>,
    /// Set if the command may be sent.
    pub may_send: bool,
    /// File to send.
    pub binary: Binary,
}

/// Answer of the launcher to a line of the script.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// The script goes on.
    GoesOn,
    /// The command has been sent, and becomes this file if it arrives intact.
    Sent(String),
}

impl Installer {
    /// Returns the script, with its variables. `token` differs for each host of each job.
    #[must_use]
    pub fn script(&self, token: &str) -> Vec<u8> {
        let cache = self.cache.as_deref().unwrap_or_default();
        let mut script = Vec::new();
        for (name, value) in [
            ("path", self.path.as_os_str()),
            ("version", OsStr::new(&self.version)),
            ("cache", cache),
            ("token", OsStr::new(token)),
        ] {
            script.extend(
                [b"oikaze_", name.as_bytes(), b"=", quoted(value).as_bytes(), b"\n"].concat(),
            );
        }
        script.extend(SCRIPT.as_bytes());
        script
    }

    /// Answers a line of the script, which follows [`PREFIX`].
    ///
    /// # Errors
    /// No agent can be had on this host. The text says why, and what to do.
    pub fn answer(&self, line: &[u8], input: &mut impl Write) -> Result<Answered, String> {
        let line = readable(line);
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "WANTS" => {
                self.check(rest)?;
                let digest = self.binary.digest().map_err(|why| unreadable(&why))?;
                let may_send = if self.may_send { "send" } else { "-" };
                put(input, format!("{digest} {} {may_send}\n", self.binary.len).as_bytes())?;
                Ok(Answered::GoesOn)
            }
            "FORBIDDEN" => Err(format!(
                "there is no `oikaze` {}, and --no-ship forbids sending it: {BY_HAND}, or leave \
                 --no-ship out",
                self.version
            )),
            "SEND" => {
                unless_closed(self.binary.send(input)).map_err(|why| unreadable(&why))?;
                Ok(Answered::Sent(rest.to_owned()))
            }
            "UNFIT" => Err(format!(
                "the command that was sent does not run there ({rest}): {}",
                if self.binary.is_static() { BY_HAND } else { STATIC }
            )),
            "FAILED" => Err(format!(
                "the command could not be kept there ({}): let OIKAZE_CACHE_DIR name a directory \
                 of that host with {} of free space, in which programs may run",
                rest.trim_end_matches([';', ' ']),
                megabytes(self.binary.len),
            )),
            _ => Err(format!("the script there is of another release: {BY_HAND}")),
        }
    }

    /// Checks that the command runs on a host of this system and machine (LAUNCH-8.4).
    fn check(&self, there: &str) -> Result<(), String> {
        let uname = rustix::system::uname();
        let here =
            format!("{} {}", uname.sysname().to_string_lossy(), uname.machine().to_string_lossy());
        if here != there {
            return Err(format!(
                "there is no `oikaze` {}, and this one does not run there (built for {here}, and \
                 that host is {there}): {BY_HAND}",
                self.version
            ));
        }
        Ok(())
    }

    /// Returns the line that tells the user what was done.
    #[must_use]
    pub fn report(&self, host: &str, file: &str) -> String {
        let kind = if self.binary.is_static() { "" } else { ", linked dynamically" };
        let size = megabytes(self.binary.len);
        format!("host {host}: sent this command ({size}{kind}) to {file}")
    }
}

const STATIC: &str = "it is linked dynamically, and its libraries are not those of that host; \
                      `cargo xtask dist` builds one that needs none";

/// Opens the file of this command, to send it.
///
/// # Errors
/// The file cannot be opened.
pub fn own_binary() -> Result<Binary, LaunchError> {
    Binary::own().map_err(LaunchError::system("open the oikaze command itself"))
}

fn unreadable(why: &io::Error) -> String {
    format!("the oikaze command itself cannot be read ({why}): install it again")
}

fn put(input: &mut impl Write, bytes: &[u8]) -> Result<(), String> {
    unless_closed(input.write_all(bytes).and_then(|()| input.flush()))
        .map_err(|why| format!("cannot write to the remote shell: {why}"))
}

/// Ignores that the reader has gone. The end of its output shows it, with a reason.
pub fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|why| if why.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(why) })
}

/// Returns text of another host without control characters, which a terminal would obey.
fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a number of bytes as people read it.
#[must_use]
pub fn megabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// Quotes a word for a shell.
#[must_use]
pub fn quoted(word: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return word.to_owned();
    }
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn installer(may_send: bool) -> Installer {
        Installer {
            path: "/it's/oikaze".into(),
            version: "0.1.0 (protocol 3)".into(),
            cache: None,
            may_send,
            binary: Binary::own().unwrap(),
        }
    }

    fn here() -> String {
        let uname = rustix::system::uname();
        format!("{} {}", uname.sysname().to_string_lossy(), uname.machine().to_string_lossy())
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/bin/oikaze".as_ref()), "/usr/bin/oikaze");
        assert_eq!(quoted("/a b/it's".as_ref()), r"'/a b/it'\''s'");
        assert_eq!(quoted("".as_ref()), "''");
    }

    #[test]
    fn script_begins_with_its_variables() {
        let script = String::from_utf8(installer(true).script("7-0")).unwrap();
        let begin = "oikaze_path='/it'\\''s/oikaze'\noikaze_version='0.1.0 (protocol 3)'\n\
                     oikaze_cache=''\noikaze_token=7-0\n";
        assert!(script.starts_with(begin), "{script}");
    }

    /// LAUNCH-8.2: the script gets digest and length, then all bytes.
    #[test]
    fn script_that_wants_the_command_gets_it() {
        let (installer, mut input) = (installer(true), Vec::new());
        let wants = format!("WANTS {}\r\n", here());
        assert_eq!(installer.answer(wants.as_bytes(), &mut input), Ok(Answered::GoesOn));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = format!("{} {} send\n", binary::digest(&own[..]).unwrap(), own.len());
        assert_eq!(String::from_utf8(std::mem::take(&mut input)).unwrap(), expected);
        let sent = installer.answer(b"SEND /cache/oikaze\n", &mut input);
        assert_eq!(sent, Ok(Answered::Sent("/cache/oikaze".into())));
        assert!(input == own);
    }

    /// LAUNCH-8.2: a launcher that goes away leaves no part of the command, whatever shell there
    /// is.
    #[test]
    fn script_that_is_cut_off_leaves_nothing() {
        for shell in [&["sh"][..], &["dash"], &["bash", "--posix"], &["busybox", "sh"]] {
            let home = format!("oikaze-test-{}-{}", std::process::id(), shell.join("-"));
            let home = std::env::temp_dir().join(home);
            let mut command = Command::new(shell[0]);
            command.args(&shell[1..]).env("HOME", &home).env_remove("XDG_CACHE_HOME");
            command.env("TMPDIR", &home).env_remove("OIKAZE_CACHE_DIR");
            let Ok(mut child) =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
            else {
                continue; // this machine lacks the shell
            };
            let (installer, mut input) = (installer(true), child.stdin.take().unwrap());
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut line = |word: &str| {
                let prefix = format!("{}{word}", String::from_utf8_lossy(PREFIX));
                lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(&prefix)).unwrap()
            };
            input.write_all(&installer.script("cut")).unwrap();
            let wants = line("WANTS");
            installer.answer(wants.as_bytes().strip_prefix(PREFIX).unwrap(), &mut input).unwrap();
            let sent = line("SEND");
            assert!(sent.contains(home.to_str().unwrap()), "{sent}");
            input.write_all(b"some bytes, but not all").unwrap();
            drop((input, lines));
            assert!(!child.wait().unwrap().success());
            let left = Command::new("find").arg(&home).args(["-type", "f"]).output().unwrap();
            assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
            std::fs::remove_dir_all(&home).unwrap();
        }
    }

    /// LAUNCH-8.4: each failure names its remedy.
    #[test]
    fn script_that_cannot_have_the_command_ends_with_a_remedy() {
        let mut input = Vec::new();
        for (may_send, line, words) in [
            (false, "FORBIDDEN", ["--no-ship forbids", "--agent"]),
            (true, "WANTS Linux pdp11", ["that host is Linux pdp11", "install Oikaze there"]),
            (true, "UNFIT no GLIBC_2.99", ["no GLIBC_2.99", "cargo xtask dist"]),
            (true, "FAILED /a: full; /b: noexec; ", ["/b: noexec)", "OIKAZE_CACHE_DIR"]),
            (true, "\x1b[2J", ["another release", "--agent"]),
        ] {
            let why = installer(may_send).answer(line.as_bytes(), &mut input).unwrap_err();
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
        }
        assert_eq!(input, b"");
    }
}
