//! Control socket between two local peers: a connected Unix socket that preserves message
//! boundaries.

use crate::shm::planted::{Bug, planted};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use rustix::time::Timespec;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Maximum number of bytes of a message.
pub const CONTROL_MESSAGE_MAX: usize = 256;
/// Message of a wakeup: a local peer has put something into a ring, or settled it.
const WAKE: [u8; 1] = [0];

/// Error: the process at the other end belongs to another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process at the other end is of user {theirs}, not of user {mine}")]
pub struct WrongUser {
    /// The user of this process.
    pub mine: u32,
    /// The user of the other process, in terms of this process's user namespace.
    pub theirs: u32,
}

/// One end of a control socket.
#[derive(Debug)]
pub struct ControlSocket {
    socket: OwnedFd,
    /// Descriptor that is readable when the other process has ended, even if a child of that
    /// process still holds its end of the line.
    process: Option<OwnedFd>,
    /// User of the other process.
    user: u32,
    /// Number of the other process in this pid namespace, or 0.
    pid: i32,
}

/// A received message.
#[derive(Debug)]
pub struct ControlMessage {
    bytes: [u8; CONTROL_MESSAGE_MAX],
    len: usize,
    /// Descriptor that came with the message.
    pub descriptor: Option<OwnedFd>,
}

impl ControlMessage {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl ControlSocket {
    /// Takes a connected socket, whose other end must belong to the same user.
    ///
    /// # Errors
    /// A [`WrongUser`] (`PermissionDenied`), or the kernel does not say.
    pub(super) fn new(socket: OwnedFd) -> io::Result<ControlSocket> {
        let mine = geteuid().as_raw();
        Self::of_user(socket, |theirs| theirs == mine)
    }

    /// Takes a connected socket, whose other end must belong to a user that is accepted.
    ///
    /// # Errors
    /// As [`ControlSocket::new`].
    pub(super) fn of_user(
        socket: OwnedFd,
        accepts: impl FnOnce(u32) -> bool,
    ) -> io::Result<ControlSocket> {
        let (pid, theirs) = peer_of(&socket)?;
        if !accepts(theirs) {
            let mine = geteuid().as_raw();
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                WrongUser { mine, theirs },
            ));
        }
        let process = process_of(&socket, pid);
        Ok(ControlSocket { socket, process, user: theirs, pid })
    }

    /// Returns the user of the other process.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Returns the number of the process that connected, or that listened. `None` means a process
    /// of another pid namespace.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        (self.pid > 0).then_some(self.pid)
    }

    /// Returns a descriptor that is readable when the other process has ended, if the kernel offers
    /// one.
    #[must_use]
    pub fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Returns `true` if the kernel says that the other process has ended.
    #[must_use]
    pub fn process_has_ended(&self) -> bool {
        let process = match &self.process {
            Some(_) if planted(Bug::TrustClosedSocket) => &self.socket,
            Some(process) => process,
            None => return false,
        };
        let mut asked = [PollFd::new(process, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
    }

    /// Shuts the connection down in both directions. The other side sees the end even if this end
    /// is still open somewhere.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends a message, with a descriptor if one is given. Never waits.
    ///
    /// # Errors
    /// The other end is gone, or has not listened for long.
    pub fn say(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        loop {
            match sendmsg(
                &self.socket,
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Wakes the other side. If the socket is full of earlier wakeups, the other side is awake, or
    /// will be.
    pub fn wake(&self) {
        let _ = self.say(&WAKE, None);
    }

    /// Receives the next message, wakeups (one zero byte) included. Returns `None` if there is none
    /// now.
    ///
    /// # Errors
    /// `UnexpectedEof`: the other end is gone. Else what the kernel says.
    pub fn hear(&self) -> io::Result<Option<ControlMessage>> {
        let mut said = ControlMessage { bytes: [0; CONTROL_MESSAGE_MAX], len: 0, descriptor: None };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut said.bytes)],
                &mut control,
                flags,
            ) {
                Ok(received) => break received,
                // The kernel reports once that the other end closed with unread messages. The
                // messages that the other end had sent come after that.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(why) => return Err(why.into()),
            }
        };
        // Descriptors beyond the first are closed by the kernel, for want of space, or here.
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptors.for_each(|descriptor| {
                    said.descriptor = said.descriptor.take().or(Some(descriptor))
                });
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more was said than anybody says",
            ));
        }
        said.len = received.bytes;
        Ok(Some(said))
    }

    /// Returns `true` if the message is only a wakeup.
    #[must_use]
    pub fn is_wake(said: &ControlMessage) -> bool {
        said.bytes() == WAKE && said.descriptor.is_none()
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the process at the other end (0 if it has no number here) and its user, as of when that
/// process connected or began to listen.
fn peer_of(socket: &OwnedFd) -> io::Result<(i32, u32)> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure has the room that `len` says, and any bytes are valid in it.
    let refused = unsafe {
        let to = (&raw mut who).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    };
    if refused != 0 { Err(io::Error::last_os_error()) } else { Ok((who.pid, who.uid)) }
}

/// Returns a descriptor that is readable when the process at the other end has ended. `pid` is that
/// process's number here, or 0 for a process of another pid namespace. For such a process the
/// socket itself yields the descriptor from Linux 6.5 on. Before Linux 6.5, only the line's end is
/// seen.
fn process_of(socket: &OwnedFd, pid: i32) -> Option<OwnedFd> {
    let mut process: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the number has the room that `len` says, and any bytes are valid in it.
    let refused = unsafe {
        let to = (&raw mut process).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERPIDFD, to, &raw mut len)
    };
    if refused == 0 && process >= 0 {
        // SAFETY: a fresh descriptor that nobody else owns.
        return Some(unsafe { OwnedFd::from_raw_fd(process) });
    }
    Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok())
}

/// Creates both ends of a line.
pub(super) fn line_pair() -> io::Result<(ControlSocket, ControlSocket)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh descriptors that nobody else owns.
    let [one, other] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    Ok((ControlSocket::new(one)?, ControlSocket::new(other)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fstat, memfd_create};
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    /// Environment variable of a test process that connects to the path in it, and waits to be
    /// killed.
    const CALL: &str = "OIKAZE_TEST_CALL";

    /// Not a test by itself.
    #[test]
    fn calls_and_waits() {
        if let Some(path) = std::env::var_os(CALL) {
            let _ = UnixStream::connect(path).unwrap().read(&mut [0]);
        }
    }

    /// Environment variable of a test process that may open no more descriptors.
    const SHORT: &str = "OIKAZE_TEST_SHORT_OF_DESCRIPTORS";

    /// Not a test by itself.
    #[test]
    fn hears_where_no_descriptor_is_free() {
        if std::env::var_os(SHORT).is_none() {
            return;
        }
        let (one, other) = line_pair().unwrap();
        let file = memfd_create("oikaze-test", MemfdFlags::CLOEXEC).unwrap();
        one.say(b"this", Some(file.as_fd())).unwrap();
        one.say(b"that", None).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
        let heard = [other.hear().unwrap().unwrap(), other.hear().unwrap().unwrap()];
        assert!(heard.iter().all(|said| said.descriptor.is_none()));
        assert_eq!(heard.each_ref().map(ControlMessage::bytes), [b"this", b"that"]);
        println!("heard");
    }

    /// A message is received even if its descriptor is lost.
    #[test]
    fn a_descriptor_that_finds_no_room_is_missing_and_nothing_else() {
        let mut called = Command::new(std::env::current_exe().unwrap());
        called
            .args([
                "--exact",
                "shm::control_socket::tests::hears_where_no_descriptor_is_free",
                "--nocapture",
            ])
            .env(SHORT, "1");
        let output = called.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("heard"), "{output:?}");
    }

    /// MEM-18.6: the operations of a killed local peer are over, even if it was of another pid
    /// namespace.
    #[test]
    fn the_end_of_a_process_without_a_number_is_seen_after_the_line_has_ended() {
        let place = std::env::temp_dir().join(format!("oikaze-line-{}", std::process::id()));
        let listener = UnixListener::bind(&place).unwrap();
        let mut called = Command::new(std::env::current_exe().unwrap());
        let mut caller = called
            .args(["--exact", "shm::control_socket::tests::calls_and_waits"])
            .env(CALL, &place)
            .spawn()
            .unwrap();
        let socket = OwnedFd::from(listener.accept().unwrap().0);
        std::fs::remove_file(&place).unwrap();
        let Some(process) = process_of(&socket, 0) else {
            // A kernel before 6.5 does not say.
            caller.kill().and_then(|()| caller.wait()).unwrap();
            return;
        };
        let line = ControlSocket { socket, process: Some(process), user: 0, pid: 0 };
        assert!(!line.process_has_ended());
        caller.kill().unwrap();
        caller.wait().unwrap();
        line.end();
        assert!(line.process_has_ended());
    }

    #[test]
    fn what_is_said_is_heard_with_its_descriptor_and_an_end_is_an_end() {
        let (one, other) = line_pair().unwrap();
        assert!(other.hear().unwrap().is_none());
        one.wake();
        let file = memfd_create("said", MemfdFlags::CLOEXEC).unwrap();
        one.say(b"here", Some(file.as_fd())).unwrap();
        let said = other.hear().unwrap().unwrap();
        assert!(ControlSocket::is_wake(&said));
        let said = other.hear().unwrap().unwrap();
        assert_eq!(said.bytes(), b"here");
        let inode = |file: &OwnedFd| fstat(file).unwrap().st_ino;
        assert_eq!(inode(said.descriptor.as_ref().unwrap()), inode(&file));
        one.say(&[7; CONTROL_MESSAGE_MAX + 1], None).unwrap();
        assert_eq!(other.hear().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(one);
        assert_eq!(other.hear().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        other.wake();
    }

    /// COH-16.6: survivors close the socket of a silent process, which may still have its guards.
    #[test]
    fn a_socket_that_is_closed_is_not_the_end_of_a_process() {
        let (one, other) = line_pair().unwrap();
        other.end();
        assert_eq!(one.hear().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(other);
        assert!(one.process().is_some(), "the kernel names the process");
        assert!(!one.process_has_ended());
    }

    /// The kernel first reports that the other end has left messages unread, and then delivers what
    /// the other end had sent.
    #[test]
    fn what_was_said_before_the_end_is_heard_also_if_the_other_end_has_not_heard_all() {
        let (one, other) = line_pair().unwrap();
        let file = memfd_create("oikaze-test", MemfdFlags::CLOEXEC).unwrap();
        other.say(b"this", Some(file.as_fd())).unwrap();
        one.wake();
        drop(other);
        let said = one.hear().unwrap().unwrap();
        assert_eq!((said.bytes(), said.descriptor.is_some()), (b"this".as_slice(), true));
        assert_eq!(one.hear().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_sleeper_that_does_not_hear_keeps_nobody_waiting() {
        let (one, _other) = line_pair().unwrap();
        (0..10_000).for_each(|_| one.wake());
        assert!(one.say(b"more", None).is_err());
    }
}
