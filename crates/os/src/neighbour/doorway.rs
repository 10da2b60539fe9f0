//! Where a node can be called by others on its machine: Unix sockets, under a name of its network namespace, and in a directory.

use super::line::Line;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with};
use std::io;
use std::path::{Path, PathBuf};

/// Callers that wait to be heard.
const WAITING: i32 = 512;
/// What the files of sockets begin with, in a directory that may hold others.
const PREFIX: &str = "oikaze-";

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket that is called. Its file, if it has one, is removed when it is dropped.
#[derive(Debug)]
pub struct Doorway {
    by_name: OwnedFd,
    in_directory: Option<(OwnedFd, PathBuf)>,
}

impl Doorway {
    /// Called by a name nobody else has.
    ///
    /// # Errors
    /// No descriptor left; the name is taken.
    pub fn open(name: &str) -> io::Result<Doorway> {
        let by_name = open()?;
        bind(&by_name, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&by_name, WAITING)?;
        Ok(Doorway { by_name, in_directory: None })
    }

    /// Called also by a file of that name in a directory that other network namespaces see, too. What dead processes left there is removed.
    ///
    /// # Errors
    /// The directory is not there, or not writable; its path is too long for a socket (108 bytes).
    pub fn open_in(&mut self, directory: &Path, name: &str) -> io::Result<()> {
        remove_stale(directory);
        let path = directory.join(format!("{PREFIX}{name}"));
        let socket = open()?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // From here on it is removed in the end.
        self.in_directory = Some((socket, path.clone()));
        chmod(&path, Mode::RUSR | Mode::WUSR)?;
        if let Some((socket, _)) = &self.in_directory {
            listen(socket, WAITING)?;
        }
        Ok(())
    }

    /// The file by which it is called, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.in_directory.as_ref().map(|(_, path)| path.as_path())
    }

    /// The descriptors that are readable when somebody calls.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&self.by_name).chain(self.in_directory.as_ref().map(|(socket, _)| socket))
    }

    /// The next caller, if one waits.
    ///
    /// # Errors
    /// It is of another user (`PermissionDenied`); else what the kernel says.
    pub fn next_caller(&self) -> Option<io::Result<Line>> {
        self.descriptors().find_map(|socket| {
            match accept_with(socket.as_fd(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(line) => Some(Line::new(line)),
                // Nobody there, or gone again.
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => None,
                Err(why) => Some(Err(why.into())),
            }
        })
    }

    /// Call a node by its name.
    ///
    /// # Errors
    /// Nobody is there; it is of another user (`PermissionDenied`).
    pub fn call_name(name: &str) -> io::Result<Line> {
        call(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    /// Call a node by its file.
    ///
    /// # Errors
    /// As [`Doorway::call_name`].
    pub fn call_file(path: &Path) -> io::Result<Line> {
        call(&SocketAddrUnix::new(path)?)
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.in_directory {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn call(address: &SocketAddrUnix) -> io::Result<Line> {
    let socket = open()?;
    connect(&socket, address)?;
    Line::new(socket)
}

/// Remove sockets to which nobody listens: their processes have ended without doing so themselves.
fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        let refused = |address| open().map(|socket| connect(&socket, &address) == Err(Errno::CONNREFUSED)).unwrap_or(false);
        if SocketAddrUnix::new(&path).is_ok_and(refused) {
            // Another user's it cannot remove, if the directory is like /tmp.
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_heard_by_name_and_by_file_and_dead_files_go() {
        let directory = std::env::temp_dir().join(format!("oikaze-doorway-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // A process that was killed leaves its socket; one that lives keeps it.
        let stale = directory.join("oikaze-dead");
        let dead = open().unwrap();
        bind(&dead, &SocketAddrUnix::new(&stale).unwrap()).unwrap();
        drop(dead);
        let mut living = Doorway::open(&format!("living-{}", std::process::id())).unwrap();
        living.open_in(&directory, "living").unwrap();

        let name = format!("tested-{}", std::process::id());
        let mut doorway = Doorway::open(&name).unwrap();
        doorway.open_in(&directory, "tested").unwrap();
        assert!(!stale.exists() && living.file().unwrap().exists());
        assert!(doorway.next_caller().is_none());
        let caller = Doorway::call_name(&name).unwrap();
        caller.say(b"by name", None).unwrap();
        let line = doorway.next_caller().unwrap().unwrap();
        assert_eq!(line.hear().unwrap().unwrap().bytes(), b"by name");
        let path = doorway.file().unwrap().to_owned();
        let caller = Doorway::call_file(&path).unwrap();
        caller.say(b"by file", None).unwrap();
        assert_eq!(doorway.next_caller().unwrap().unwrap().hear().unwrap().unwrap().bytes(), b"by file");
        drop((doorway, living));
        assert!(!path.exists() && Doorway::call_name(&name).is_err());
        std::fs::remove_dir(&directory).unwrap();
    }
}
