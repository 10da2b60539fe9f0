//! Detects a process that a launcher has started, and that has lost the variables of its job.
//!
//! `env -i`, `sudo` and the like clear the environment. The process would be a job of one node, and
//! n processes would do the whole work n times (LAUNCH-6.7).

use crate::JobError;
use crate::environment::LOCAL;
use oikaze_os::inherited;

/// Maximum number of ancestors that are looked at.
const ANCESTORS_MAX: usize = 64;
/// Name of the command that launchers and agents are.
const COMMAND: &str = "oikaze";
/// Subcommands of that command that start nodes.
const STARTERS: [&str; 2] = ["run", "agent"];

const REMEDY: &str = "let the OIKAZE_ variables pass (sudo --preserve-env and --secret-in-environment; \
                      no env -i), or set OIKAZE_LOCAL=1 for a job of one node";

/// Checks a process without variables of a job.
///
/// # Errors
/// The process has inherited the secret of a job, so it is meant to be a node of that job.
pub fn check() -> Result<(), JobError> {
    if std::env::var_os(LOCAL).is_some() {
        return Ok(());
    }
    if inherited::is_waiting() {
        return Err(lost_variables());
    }
    if has_launcher() {
        eprintln!(
            "oikaze: this process is a job of one node, though `oikaze run` has started it or its \
             parents: the variables of the job are not set; {REMEDY}"
        );
    }
    Ok(())
}

/// Returns the error of a node of `oikaze run` that has lost the variables of its job.
pub fn lost_variables() -> JobError {
    JobError::LostVariables { remedy: REMEDY }
}

/// Returns `true` if a launcher or an agent is among this process's ancestors.
fn has_launcher() -> bool {
    let mut next = parent_of("self");
    for _ in 0..ANCESTORS_MAX {
        let Some(pid) = next.filter(|pid| *pid > 1) else { return false };
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if is_starter(&words) {
            return true;
        }
        next = parent_of(&pid.to_string());
    }
    false
}

/// Returns `true` for the command line of a launcher or an agent, as `/proc/PID/cmdline` has it.
fn is_starter(words: &[u8]) -> bool {
    let mut words = words.split(|byte| *byte == 0);
    let name = words.next().and_then(|path| path.rsplit(|byte| *byte == b'/').next());
    name == Some(COMMAND.as_bytes())
        && words.next().is_some_and(|word| STARTERS.iter().any(|known| known.as_bytes() == word))
}

/// Returns the parent of a process (proc_pid_stat(5)).
fn parent_of(pid: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LAUNCH-6.7.
    #[test]
    fn launchers_and_agents_are_known_by_their_command_line() {
        for (words, is) in [
            (&b"oikaze\0run\0-n\x002\0"[..], true),
            (b"/opt/bin/oikaze\0agent\0", true),
            (b"oikaze\0top\0", false),
            (b"oikaze-other\0run\0", false),
            (b"sh\0run\0", false),
            (b"oikaze\0", false),
            (b"", false),
        ] {
            assert_eq!(is_starter(words), is, "{}", String::from_utf8_lossy(words));
        }
    }

    #[test]
    fn parent_of_this_process_is_found() {
        assert_eq!(parent_of("self"), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent_of("no-such-process"), None);
    }
}
