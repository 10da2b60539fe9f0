//! System services for a launcher: signals as messages, and children that cannot outlive the
//! launcher.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes this process the leader of a session of its own, without a terminal. A process that leads
/// a group already stays where it is.
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Returns `true` if this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Raises the limit of open descriptors of this process (RLIMIT_NOFILE) to the most that it may
/// have without privileges. The usual limit of 1024 is that of programs that call select(2).
///
/// # Errors
/// The kernel refuses the call.
pub fn raise_descriptor_limit() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Returns the name of the calling thread for messages: `main`, or the system's name and number of
/// the thread, which `top -H` and debuggers show. Works in a thread that is ending, too.
#[must_use]
pub fn thread_name() -> String {
    let number = rustix::thread::gettid();
    if number == rustix::process::getpid() {
        return "main".to_owned();
    }
    let name = rustix::thread::name().unwrap_or_default();
    format!("{} {}", name.to_string_lossy(), number.as_raw_nonzero())
}

/// Signals that are read like messages instead of interrupting this process.
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Takes these signals out of normal delivery. Call it before any other thread is started:
    /// threads inherit the mask, and a thread without it would still be interrupted.
    ///
    /// Signals that this process was started to ignore (`nohup`) stay ignored. Blocked, they would
    /// be queued and read all the same. SIGCHLD is the exception: to a parent that ignores it, the
    /// kernel does not report how children end.
    ///
    /// # Errors
    /// A number that is not a signal, or no descriptor is left.
    pub fn take(signals: &[i32]) -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for &signal in signals {
            if is_ignored(signal) {
                // A shell ignores SIGQUIT for its jobs in the background. To the launcher it is a
                // question (LAUNCH-4.2).
                if !matches!(signal, libc::SIGCHLD | libc::SIGQUIT) {
                    continue;
                }
                // SAFETY: the default is not a handler.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            // SAFETY: the set is initialised; a wrong number is an error, not undefined.
            if unsafe { libc::sigaddset(&mut set, signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: blocks signals in this thread; the set is valid, the old mask is not wanted.
        let refused = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        // SAFETY: -1 asks for a new descriptor, the set is valid.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Those of `read`, except that an interruption is tried again.
    pub fn wait(&self) -> io::Result<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: `info` has room for `size` bytes.
            let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            if usize::try_from(got) == Ok(size) {
                // SAFETY: the kernel has filled the whole structure, of which every bit pattern is
                // valid.
                return Ok(unsafe { info.assume_init() }.ssi_signo as i32);
            }
            let why = io::Error::last_os_error();
            if why.kind() != io::ErrorKind::Interrupted {
                return Err(why);
            }
        }
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks, there is room for the answer, and should there be none (the number is
    // not a signal), zeros are valid.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Prepares the child that `command` will start. The child leads its own process group, so that its
/// own children can be reached with it, and has normal signal delivery. If `bound`, the kernel
/// kills the child when the *thread* that starts it ends.
///
/// The starting thread must therefore live as long as the child should. A launcher starts its
/// children from its main thread.
pub fn isolate(command: &mut Command, bound: bool) {
    command.process_group(0);
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: all three are async-signal-safe and touch only this process; the set is
        // initialised before it is used.
        unsafe {
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            if bound && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the kernel was asked to watch it.
            if bound && libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: runs between fork and exec and calls nothing but async-signal-safe functions; it
    // allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Runs `work` in a child of fork and waits for it. It serves tests of what a child may do. The
/// child ends without destructors, and its status is that of `work`. For a child that a signal
/// ended, the status is 128 plus the signal's number.
///
/// # Errors
/// The system grants no further process.
pub fn in_child_of_fork(work: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the C library readies its own locks for the child, which has one thread, and ends
    // here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = work();
        // SAFETY: ends this process.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above, whose number is no other process's until then.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
    Ok(if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    })
}

/// Returns the name of a signal, such as `SIGKILL`, or its number if this function knows no name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSYS => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_child_leads_its_own_group_with_an_empty_mask() {
        // Runs in its own thread: the mask must not leak into other tests, and the child may end
        // with this thread.
        let run = || {
            let signals = Signals::take(&[libc::SIGUSR1]).unwrap();
            // SAFETY: raises a blocked signal in this very thread.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
            assert_eq!(signals.wait().unwrap(), libc::SIGUSR1);
            let mut command = Command::new("/bin/sh");
            // A shell that waits for a child to start may block all signals meanwhile. So the shell
            // replaces itself by the program that reads the mask.
            command
                .args(["-c", "read line < /proc/$$/stat; echo \"$$ $line\"; exec grep SigBlk /proc/$$/status"])
                .stdout(Stdio::piped());
            isolate(&mut command, true);
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            // "$$", then stat's fields: pid, (comm), state, ppid, pgrp.
            assert_eq!(words[0], words[5], "{text}");
            assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(50), "signal 50");
    }
}
