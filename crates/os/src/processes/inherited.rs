//! Descriptors that a process hands to its children: a few bytes that do not belong into their
//! environment or arguments, or a socket.
//!
//! Bytes lie in a sealed memory file. It passes through any number of programs that leave open
//! descriptors open (`sh`, `env`, `numactl`, `ip netns exec`). The first process that reads it
//! closes it there, so its own children do not get it.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, pread, pwrite};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Name of the memory file, by which a process recognises it.
const NAME: &str = "oikaze inherited";
/// Scripts and shells use low descriptors for themselves (`exec 3>file`, dash from 10 on), so a
/// high one is used if there is one.
const LEAST: i32 = 100;
/// Standard input, output and error never hold the bytes.
const STANDARD: i32 = 3;
/// Maximum number of bytes.
pub const LEN_MAX: usize = 256;

/// Descriptor for children: a memory file with bytes, or a socket.
pub struct Inheritance {
    open: OwnedFd,
}

impl Inheritance {
    /// Puts bytes into a memory file that this process's own children do not inherit unless told
    /// to.
    ///
    /// # Errors
    /// Too many bytes, or no descriptor or memory is left.
    pub fn new(bytes: &[u8]) -> io::Result<Inheritance> {
        if bytes.len() > LEN_MAX {
            return Err(Errno::FBIG.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // As in `memory::memfd`: Linux before 6.3 does not know the flag.
        let file = memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL).or_else(|why| {
            if why == Errno::INVAL { memfd_create(NAME, flags) } else { Err(why) }
        })?;
        if pwrite(&file, bytes, 0)? != bytes.len() {
            return Err(Errno::IO.into());
        }
        fcntl_add_seals(
            &file,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
        )?;
        Inheritance::of(&file)
    }

    /// Copies a descriptor for children. This process's own children do not inherit the copy unless
    /// told to.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(open: impl AsFd) -> io::Result<Inheritance> {
        // Fewer descriptors may be allowed than that.
        let open = match fcntl_dupfd_cloexec(&open, LEAST) {
            Ok(high) => high,
            Err(_) => fcntl_dupfd_cloexec(&open, STANDARD)?,
        };
        Ok(Inheritance { open })
    }

    /// Number of the descriptor, here and in children.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.open.as_raw_fd()
    }

    /// Lets the child that `command` will start inherit it. This value must still live then.
    pub fn pass_to(&self, command: &mut Command) {
        let number = self.number();
        let open = move || {
            // SAFETY: `fcntl` is async-signal-safe and changes only a flag of a descriptor of this
            // process.
            if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            }
        };
        // SAFETY: runs between fork and exec, calls one async-signal-safe function and allocates
        // nothing.
        unsafe { command.pre_exec(open) };
    }
}

/// Reads the bytes that this process inherited at this number, and closes the descriptor.
///
/// # Errors
/// `NotFound`: the descriptor is closed, or is not that of an [`Inheritance`]; it is left alone.
pub fn take(number: i32) -> io::Result<Vec<u8>> {
    if !is_inherited(number) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: the descriptor was inherited (see above), and no other code of this process knows it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let mut bytes = vec![0; LEN_MAX];
    let len = pread(&file, &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Returns `true` if this process has inherited bytes that it has not [taken](take).
#[must_use]
pub fn is_waiting() -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Collected, because the list itself is open while it is read.
    let numbers: Vec<i32> = numbers.collect();
    numbers.into_iter().any(is_inherited)
}

/// Returns `true` if the descriptor of this number is that of an [`Inheritance`] which this process
/// has inherited.
fn is_inherited(number: i32) -> bool {
    if number < STANDARD {
        return false;
    }
    // An inherited descriptor is open across exec; one that this process has opened itself is not
    // (all of Rust's are not). SAFETY: the descriptor is used for one call that fails if it is
    // closed.
    let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    let name = std::fs::read_link(format!("/proc/self/fd/{number}"));
    flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
        && name.is_ok_and(|name| name.to_string_lossy().starts_with(&format!("/memfd:{NAME}")))
}

/// Returns a copy of a socket that this process has inherited and may share with a library of
/// another project. The number stays open.
///
/// # Errors
/// The descriptor is closed, or is not a socket.
pub fn shared_socket(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: used for two calls that fail if the descriptor is closed.
    let shared = unsafe { BorrowedFd::borrow_raw(number) };
    let name = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
    if !name.to_string_lossy().starts_with("socket:") {
        return Err(Errno::NOTSOCK.into());
    }
    Ok(fcntl_dupfd_cloexec(shared, STANDARD)?)
}

/// Returns the listening socket that a service manager has passed to this process
/// (`sd_listen_fds(3)`), if there is one.
///
/// # Errors
/// The manager has passed more than one, or the descriptor is closed.
pub fn listening_socket() -> io::Result<Option<OwnedFd>> {
    /// Number of the first descriptor that a service manager passes.
    const FIRST: i32 = 3;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    if number("LISTEN_FDS") != Some(1) {
        let why = "the service manager must pass one socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: used for one call that fails if the descriptor is closed.
    let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(FIRST) })?;
    // A descriptor that this process has opened itself is closed on exec; all of Rust's are.
    if flags.contains(FdFlags::CLOEXEC) {
        let why = "the socket of the service manager was taken already";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: the manager has passed the descriptor to this process (LISTEN_PID), nobody else has
    // taken it (see above), and the flag makes a second call find it taken.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// LAUNCH-6.3.
    #[test]
    fn bytes_pass_through_a_shell_and_only_to_children_that_are_given_them() {
        let bytes = Inheritance::new(b"handed over\n").unwrap();
        let script = format!("sh -c 'cat /proc/self/fd/{}'", bytes.number());
        let mut given = Command::new("/bin/sh");
        bytes.pass_to(given.args(["-c", &script]));
        assert_eq!(given.output().unwrap().stdout, b"handed over\n");
        let not_given =
            Command::new("/bin/sh").args(["-c", &script]).stderr(Stdio::null()).output().unwrap();
        assert!(not_given.stdout.is_empty());
    }

    #[test]
    fn descriptors_that_were_not_inherited_are_left_alone() {
        let bytes = Inheritance::new(b"own").unwrap();
        for number in [-1, 0, 1, 2, bytes.number(), 100_000] {
            assert_eq!(take(number).unwrap_err().kind(), io::ErrorKind::NotFound, "{number}");
        }
        // As if inherited.
        let copy = fcntl_dupfd_cloexec(&bytes.open, LEAST).unwrap();
        rustix::io::fcntl_setfd(&copy, FdFlags::empty()).unwrap();
        let number = rustix::fd::IntoRawFd::into_raw_fd(copy);
        assert_eq!(take(number).unwrap(), b"own");
        assert!(take(number).is_err(), "closed");
        assert!(Inheritance::new(&[0; LEN_MAX + 1]).is_err());
    }
}
