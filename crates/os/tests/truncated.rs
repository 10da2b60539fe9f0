//! MEM-1.15: a file that is made shorter while a region maps it. Real processes, for they end by
//! it.

use oikaze_os::memory::{Region, nameless_file};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

/// Set in the process that is to end.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const LEN: usize = 1 << 16;
/// Exit status of the program's handler.
const HANDLED: i32 = 42;

extern "C" fn exit_at_once(_signal: libc::c_int) {
    // SAFETY: ends the process; async-signal-safe.
    unsafe { libc::_exit(HANDLED) };
}

/// Not a test by itself: touches what is not there any more.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "handler" {
        let handler: extern "C" fn(libc::c_int) = exit_at_once;
        // SAFETY: the handler is async-signal-safe.
        assert_ne!(unsafe { libc::signal(libc::SIGBUS, handler as usize) }, libc::SIG_ERR);
    }
    let path = std::env::temp_dir().join(format!("oikaze-truncated-{}", std::process::id()));
    let file = nameless_file(&path).unwrap();
    file.set_len(2 * LEN as u64).unwrap();
    let gone = Region::of_file(file.as_fd(), 0, LEN, true).unwrap();
    let region = Region::of_file(file.as_fd(), LEN as u64, LEN, true).unwrap();
    drop(gone);
    file.set_len(4096).unwrap();
    let mut byte = [0];
    let mut read = move || region.read(5000, &mut byte);
    if role == "library thread" {
        let _ = oikaze_os::signals::spawn("oikaze test", read).unwrap().join();
    } else {
        read().unwrap();
    }
}

fn touch(role: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_its_role", "--nocapture"]).env(ROLE, role).output().unwrap()
}

fn assert_named(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    let line =
        said.lines().find(|line| line.starts_with("oikaze: ")).unwrap_or_else(|| panic!("{said}"));
    let byte = format!(
        "touching byte 5000 of a region ended this process (SIGBUS): byte {} of its file",
        LEN + 5000
    );
    assert!(line.contains(&byte) && line.contains("/oikaze-truncated-"), "{line}");
    assert!(line.contains("the file was made shorter while it was mapped"), "{line}");
}

/// MEM-1.15.
#[test]
fn touch_of_truncated_file_names_it_and_ends_by_the_signal() {
    for role in ["plain", "library thread"] {
        let output = touch(role);
        assert_named(&output);
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{role}: {}", output.status);
    }
}

/// MEM-1.15.
#[test]
fn handler_of_the_program_is_called_after_the_message() {
    let output = touch("handler");
    assert_named(&output);
    assert_eq!(output.status.code(), Some(HANDLED), "{}", output.status);
}
