//! Numbers of file descriptors.

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::os::fd::{AsRawFd, OwnedFd};

/// Number of the first descriptor that is not standard input, output or error.
const FIRST: i32 = 3;

/// Returns the file under a number above those of standard input, output and error.
///
/// A program that has closed its standard output, as daemons do, would otherwise print into the
/// memory behind the file.
///
/// # Errors
/// The process has no descriptor left.
pub(crate) fn not_standard(file: OwnedFd) -> Result<OwnedFd, Errno> {
    if file.as_raw_fd() >= FIRST { Ok(file) } else { fcntl_dupfd_cloexec(&file, FIRST) }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::memory::Region;
    use std::os::fd::FromRawFd;
    use std::process::{Command, Stdio};

    const CHILD: &str = "OIKAZE_TEST_WITHOUT_OUTPUT";

    /// Output of a program that has closed its standard output changes no memory of a region.
    #[test]
    fn memory_file_takes_no_standard_number() {
        if std::env::var_os(CHILD).is_some() {
            // SAFETY: the child of this test owns its standard output, and prints nothing by it.
            drop(unsafe { OwnedFd::from_raw_fd(1) });
            let region = Region::shared(4096).unwrap();
            let free = std::fs::File::open("/dev/null").unwrap();
            let took = free.as_raw_fd();
            std::mem::forget(free);
            region.store_u64(0, 7).unwrap();
            // 1 was left for the program.
            std::process::exit(if took == 1 && region.load_u64(0).unwrap() == 7 { 42 } else { 1 });
        }
        let name = "descriptor::tests::memory_file_takes_no_standard_number";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
        let status = command.env(CHILD, "1").stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(42));
    }
}
