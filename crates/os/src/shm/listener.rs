//! Listener for connections of local peers, on Unix sockets under a name of the network namespace
//! and in a directory.

use crate::descriptor::not_standard;
use crate::processes::origin::Origin;
use crate::shm::control_socket::ControlSocket;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Backlog of each socket. The kernel may permit less (net.core.somaxconn).
const WAITING: i32 = 512;
/// Maximum number of connections that wait at one moment. The kernel keeps one more than the
/// backlog, at both sockets.
pub const CALLERS_MAX: usize = 2 * (WAITING as usize + 1);
/// Prefix of the socket files' names, in a directory that may hold other files.
const PREFIX: &str = "oikaze-";
/// Prefix of a socket file before its process listens. Until then the kernel refuses connections,
/// as if the process had died.
const UNFINISHED: &str = ".oikaze-";
/// Age after which an unfinished file belongs to a process that was killed.
const UNFINISHED_TIME: Duration = Duration::from_secs(60);

const _: () = assert!(
    WAITING as usize > oikaze_protocol::limits::LOCAL_PEERS_MAX,
    "all local peers may call at once"
);

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .and_then(not_standard)?)
}

/// Accepts connections of local peers. Dropping the listener removes its file, if it has one.
#[derive(Debug)]
pub struct Listener {
    by_name: OwnedFd,
    in_directory: Option<(OwnedFd, PathBuf)>,
    origin: Origin,
}

impl Listener {
    /// Listens under a name that no other socket has.
    ///
    /// # Errors
    /// No descriptor left; the name is taken.
    pub fn open(name: &str) -> io::Result<Listener> {
        let by_name = open()?;
        bind(&by_name, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&by_name, WAITING)?;
        Ok(Listener { by_name, in_directory: None, origin: Origin::here() })
    }

    /// Listens also on a file of that name, in a directory that other network namespaces see too.
    /// Removes files that dead processes have left there.
    ///
    /// # Errors
    /// The directory is not there, or not writable; its path is too long for a socket (108 bytes).
    pub fn open_in(&mut self, directory: &Path, name: &str) -> io::Result<()> {
        remove_stale(directory);
        let (path, unfinished) = (
            directory.join(format!("{PREFIX}{name}")),
            directory.join(format!("{UNFINISHED}{name}")),
        );
        let socket = open()?;
        bind(&socket, &SocketAddrUnix::new(&unfinished)?)?;
        // Other processes may be scanning the directory now. So the file gets its own name only
        // once it accepts connections.
        let finish = || {
            chmod(&unfinished, Mode::RUSR | Mode::WUSR)?;
            listen(&socket, WAITING)?;
            std::fs::rename(&unfinished, &path)
        };
        if let Err(why) = finish() {
            let _ = std::fs::remove_file(&unfinished);
            return Err(why);
        }
        self.in_directory = Some((socket, path));
        Ok(())
    }

    /// Returns the path of the socket file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.in_directory.as_ref().map(|(_, path)| path.as_path())
    }

    /// Returns the descriptors that are readable when a connection waits.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&self.by_name).chain(self.in_directory.as_ref().map(|(socket, _)| socket))
    }

    /// Accepts the next connection, if one waits.
    ///
    /// # Errors
    /// It is of another user (`PermissionDenied`); else what the kernel says.
    pub fn accept(&self) -> Option<io::Result<ControlSocket>> {
        self.next().map(|socket| ControlSocket::new(socket?))
    }

    /// Accepts the next connection, if one waits, from any user that is accepted.
    ///
    /// # Errors
    /// It is of another user (`PermissionDenied`, with a [`WrongUser`](super::WrongUser)), or the
    /// kernel refuses.
    pub fn accept_of(
        &self,
        accepts: impl FnOnce(u32) -> bool,
    ) -> Option<io::Result<ControlSocket>> {
        self.next().map(|socket| ControlSocket::of_user(socket?, accepts))
    }

    /// Takes the next connection, if one waits.
    fn next(&self) -> Option<io::Result<OwnedFd>> {
        self.descriptors().find_map(|socket| {
            loop {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                return match accept_with(socket.as_fd(), flags).and_then(not_standard) {
                    Ok(line) => Some(Ok(line)),
                    Err(Errno::AGAIN) => None,
                    // This connection was closed again. Another one may wait behind it.
                    Err(Errno::CONNABORTED | Errno::INTR) => continue,
                    Err(why) => Some(Err(why.into())),
                };
            }
        })
    }

    /// Takes a socket that listens already, as a service manager passes it.
    ///
    /// # Errors
    /// The descriptor is not a socket that preserves message boundaries.
    pub fn inherited(socket: OwnedFd) -> io::Result<Listener> {
        if rustix::net::sockopt::socket_type(&socket)? != SocketType::SEQPACKET {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the inherited socket is not of type SEQPACKET (ListenSequentialPacket=)",
            ));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Listener { by_name: socket, in_directory: None, origin: Origin::here() })
    }

    /// Connects to a node by its name.
    ///
    /// # Errors
    /// No process listens there, or one of another user (`PermissionDenied`).
    pub fn call_name(name: &str) -> io::Result<ControlSocket> {
        call(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    /// Connects to a process by its name, if its user is accepted.
    ///
    /// # Errors
    /// As [`Listener::call_name`].
    pub fn call_name_of(
        name: &str,
        accepts: impl FnOnce(u32) -> bool,
    ) -> io::Result<ControlSocket> {
        let socket = open()?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        ControlSocket::of_user(socket, accepts)
    }

    /// Connects to a node by its file.
    ///
    /// # Errors
    /// As [`Listener::call_name`].
    pub fn call_file(path: &Path) -> io::Result<ControlSocket> {
        call(&SocketAddrUnix::new(path)?)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file is the parent's in a child of fork (MEM-24.2).
        if let Some((_, path)) = self.in_directory.as_ref().filter(|_| self.origin.is_here()) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn call(address: &SocketAddrUnix) -> io::Result<ControlSocket> {
    let socket = open()?;
    connect(&socket, address)?;
    ControlSocket::new(socket)
}

/// Removes sockets on which no process listens. Their processes ended without removing them.
fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        // Connections to other kinds of files are refused too.
        if !entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            continue;
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let stale = (name.starts_with(PREFIX) && refuses(&entry.path()))
            || (name.starts_with(UNFINISHED) && is_left(&entry));
        if stale {
            // In a directory like /tmp, this fails for files of other users.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns `true` if no process listens on this socket.
fn refuses(path: &Path) -> bool {
    let called =
        |address| open().is_ok_and(|socket| connect(&socket, &address) == Err(Errno::CONNREFUSED));
    SocketAddrUnix::new(path).is_ok_and(called)
}

/// Returns `true` if the file is older than [`UNFINISHED_TIME`].
fn is_left(entry: &std::fs::DirEntry) -> bool {
    let age = |modified| SystemTime::now().duration_since(modified).ok();
    let begun = entry.metadata().and_then(|data| data.modified());
    begun.ok().and_then(age).is_some_and(|age| age > UNFINISHED_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_heard_by_name_and_by_file_and_dead_files_go() {
        let directory =
            std::env::temp_dir().join(format!("oikaze-listener-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // A killed process leaves its socket behind. A living one keeps it.
        let stale = directory.join("oikaze-dead");
        let dead = open().unwrap();
        bind(&dead, &SocketAddrUnix::new(&stale).unwrap()).unwrap();
        drop(dead);
        // Files of the user with the same prefix must stay.
        let mine = [directory.join("oikaze-results"), directory.join("oikaze-link")];
        std::fs::write(&mine[0], b"mine").unwrap();
        std::os::unix::fs::symlink(&mine[0], &mine[1]).unwrap();
        let mut living = Listener::open(&format!("living-{}", std::process::id())).unwrap();
        living.open_in(&directory, "living").unwrap();

        let name = format!("tested-{}", std::process::id());
        let mut listener = Listener::open(&name).unwrap();
        listener.open_in(&directory, "tested").unwrap();
        assert!(!stale.exists() && living.file().unwrap().exists());
        assert!(listener.accept().is_none());
        let caller = Listener::call_name(&name).unwrap();
        caller.say(b"by name", None).unwrap();
        let line = listener.accept().unwrap().unwrap();
        assert_eq!(line.hear().unwrap().unwrap().bytes(), b"by name");
        let path = listener.file().unwrap().to_owned();
        let caller = Listener::call_file(&path).unwrap();
        caller.say(b"by file", None).unwrap();
        assert_eq!(
            listener.accept().unwrap().unwrap().hear().unwrap().unwrap().bytes(),
            b"by file"
        );
        drop((listener, living));
        assert!(!path.exists() && Listener::call_name(&name).is_err());
        mine.iter().for_each(|path| assert_eq!(std::fs::read(path).unwrap(), b"mine"));
        mine.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        std::fs::remove_dir(&directory).unwrap();
    }

    /// Creates a directory for one test.
    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("oikaze-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_socket_that_cannot_be_called_yet_is_not_taken_for_a_dead_one() {
        let directory = directory("unfinished");
        let [young, old] =
            ["young", "old"].map(|name| directory.join(format!("{UNFINISHED}{name}")));
        let sockets = [&young, &old].map(|path| {
            let socket = open().unwrap();
            bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
            socket
        });
        let long_ago = SystemTime::now() - UNFINISHED_TIME - Duration::from_secs(9);
        let since = long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let then = rustix::fs::Timespec { tv_sec: since.cast_signed(), tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: then, last_modification: then };
        rustix::fs::utimensat(rustix::fs::CWD, &old, &times, rustix::fs::AtFlags::empty()).unwrap();
        let mut listener = Listener::open(&format!("unfinished-{}", std::process::id())).unwrap();
        listener.open_in(&directory, "other").unwrap();
        assert!(young.exists() && !old.exists());
        drop((listener, sockets));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_listener_that_could_not_be_opened_has_no_file_and_leaves_none() {
        let directory = directory("failing");
        std::fs::create_dir(directory.join("oikaze-taken")).unwrap();
        let mut listener = Listener::open(&format!("failing-{}", std::process::id())).unwrap();
        assert!(listener.open_in(&directory, "taken").is_err());
        assert!(listener.open_in(&directory.join("missing"), "name").is_err());
        assert!(listener.open_in(&directory, &"long".repeat(40)).is_err());
        assert_eq!(listener.file(), None);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Nodes of one job open their listeners at the same time, while each removes files that seem
    /// dead.
    #[test]
    fn who_is_opening_is_not_taken_for_dead() {
        let directory = directory("together");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_stale(&directory);
                }
            });
            let outcome = (0..2000).try_for_each(|number| {
                let name = format!("together-{}-{number}", std::process::id());
                let mut listener = Listener::open(&name)?;
                listener.open_in(&directory, &name)?;
                std::fs::symlink_metadata(listener.file().ok_or(io::ErrorKind::NotFound)?).map(drop)
            });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome.unwrap();
        });
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
