//! Bytes of a Unix socket, with the process that sent them (`SO_PASSCRED`, unix(7)).
//!
//! Several processes may have inherited one end of a socket pair. The kernel tells which of them
//! has sent what.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;

/// Process that has sent bytes. The value stays with this process, even when the system gives its
/// number to another.
#[derive(Debug)]
pub struct Sender {
    pid: u32,
    process: OwnedFd,
}

impl Sender {
    /// Finds the process of this number. Returns `None` if it has ended, or the kernel is older
    /// than 5.3.
    #[must_use]
    pub fn of(pid: u32) -> Option<Sender> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
        Some(Sender { pid, process })
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns `true` until the process has ended. One that has ended and is not reaped has ended.
    #[must_use]
    pub fn is_living(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }
}

/// Lets [`receive`] at this socket know who sent what, from now on.
///
/// # Errors
/// It is not a Unix socket.
pub fn ask_for_senders(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket, true)?)
}

/// Reads bytes, all from one process. Returns their number, and that of the process if the kernel
/// tells it.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Room for the credentials only, and so for no descriptor. The words keep it aligned.
    // SAFETY: the macro computes from a number.
    const ROOM: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
    let mut room = [0_u64; ROOM.div_ceil(size_of::<u64>())];
    // SAFETY: `msghdr` is plain data for which zeros are valid.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message names a buffer and room for control data, which live for the call, with
    // their lengths.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled in the message and its control data. The header is null or lies
    // in the room, and its length covers the credentials, which need not be aligned.
    let pid = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_whole = |header: &libc::cmsghdr| {
            header.cmsg_level == libc::SOL_SOCKET
                && header.cmsg_type == libc::SCM_CREDENTIALS
                && header.cmsg_len >= libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as _
        };
        header
            .as_ref()
            .filter(|header| is_whole(header))
            .map(|_| libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().pid)
    };
    // Zero stands for a process that has no number here.
    Ok((len, pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    #[test]
    fn bytes_of_two_processes_come_apart() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ask_for_senders(&ours).unwrap();
        (&theirs).write_all(b"parent").unwrap();
        let input = Stdio::from(OwnedFd::from(theirs.try_clone().unwrap()));
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "printf child >&0"]).stdin(input).spawn().unwrap();
        let sender = Sender::of(child.id()).unwrap();
        child.wait().unwrap();
        assert!(!sender.is_living() && Sender::of(std::process::id()).unwrap().is_living());
        let mut bytes = [0; 64];
        for (said, pid) in [(&b"parent"[..], std::process::id()), (b"child", sender.pid())] {
            let (len, from) = receive(&ours, &mut bytes).unwrap();
            assert_eq!((&bytes[..len], from), (said, Some(pid)));
        }
        // The command has a copy for further children.
        drop((theirs, command));
        assert_eq!(receive(&ours, &mut bytes).unwrap().0, 0);
    }
}
