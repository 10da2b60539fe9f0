//! Signals that a launcher handles.

use super::Event;
use crate::launcher::error::LaunchError;
use oikaze_os::process::Signals;
use std::sync::mpsc::Sender;

pub(in crate::launcher) const SIGHUP: i32 = 1;
pub(in crate::launcher) const SIGINT: i32 = 2;
pub(in crate::launcher) const SIGQUIT: i32 = 3;
pub(in crate::launcher) const SIGKILL: i32 = 9;
pub(in crate::launcher) const SIGUSR1: i32 = 10;
pub(in crate::launcher) const SIGUSR2: i32 = 12;
pub(in crate::launcher) const SIGTERM: i32 = 15;
pub(in crate::launcher) const SIGCHLD: i32 = 17;
pub(in crate::launcher) const SIGCONT: i32 = 18;
pub(in crate::launcher) const SIGSTOP: i32 = 19;
pub(in crate::launcher) const SIGTSTP: i32 = 20;
pub(in crate::launcher) const SIGTTIN: i32 = 21;
pub(in crate::launcher) const SIGTTOU: i32 = 22;
pub(in crate::launcher) const SIGXFSZ: i32 = 25;

/// Blocks the signals that a launcher handles, and returns a descriptor from which it reads them
/// (`signalfd(2)`). Called before any thread is started.
pub(in crate::launcher) fn take_signals() -> Result<Signals, LaunchError> {
    // SIGXFSZ is taken so that a write beyond `ulimit -f` fails with EFBIG, and does not kill
    // (LAUNCH-5.3). SIGTTOU is taken too: a launcher in the background writes its nodes' output to
    // the terminal even after `stty tostop`.
    let all = [
        SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN,
        SIGTTOU, SIGXFSZ,
    ];
    Signals::take(&all).map_err(LaunchError::system("take over signals"))
}

/// Returns `true` for the signals of job control that stop a process.
pub(in crate::launcher) fn stops(signal: i32) -> bool {
    matches!(signal, SIGTSTP | SIGTTIN | SIGTTOU)
}

/// Stops this process until SIGCONT. Uses SIGSTOP, because the kernel ignores SIGTSTP in an
/// orphaned process group (POSIX).
pub(in crate::launcher) fn stop_myself() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

/// Starts a thread that turns signals into events.
pub(in crate::launcher) fn forward_signals(
    signals: Signals,
    events: Sender<Event>,
) -> Result<(), LaunchError> {
    let forward = move || {
        while let Ok(signal) = signals.wait() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(forward)
        .map_err(LaunchError::system("start a thread"))?;
    Ok(())
}
