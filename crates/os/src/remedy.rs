//! Remedies for errors of system calls.

use rustix::io::Errno;

/// Returns the remedy that an error's text ends with, after the system's own message. Returns an
/// empty string if there is none.
#[must_use]
pub fn remedy(why: Errno) -> &'static str {
    match why {
        Errno::MFILE => "; raise ulimit -n",
        Errno::NFILE => "; raise fs.file-max",
        Errno::AGAIN => "; more threads than ulimit -u or the container's pids limit allows?",
        Errno::NOMEM | Errno::NOBUFS => {
            "; use less memory, or look at ulimit -v and the container's memory limit"
        }
        Errno::PERM | Errno::ACCESS => "; the sandbox forbids it: see `oikaze doctor`",
        Errno::FBIG => {
            "; a file (in memory, too) may not grow beyond ulimit -f: use `ulimit -f unlimited`"
        }
        _ => "",
    }
}
