//! One descriptor for sleeping threads that is readable when any socket is.

use super::link::UdpLink;
use super::sockets::bind::BindError;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;

/// Threads that sleep until a descriptor of the link is readable.
#[derive(Debug)]
pub(in crate::net) struct SleeperWatch {
    /// Epoll set that holds all sockets while a thread sleeps.
    epoll: OwnedFd,
    sleepers: u32,
}

impl SleeperWatch {
    pub(super) fn new() -> Result<SleeperWatch, BindError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|why| BindError::System { what: "watch sockets (epoll)", why })?;
        Ok(SleeperWatch { epoll, sleepers: 0 })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns `true` if a thread sleeps.
    pub(in crate::net) fn has_sleepers(&self) -> bool {
        self.sleepers > 0
    }

    /// Adds a descriptor to the watched ones.
    pub(in crate::net) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        match epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            Err(Errno::EXIST) => Ok(()),
            done => done,
        }
    }

    /// Removes a descriptor. One that is not in the set was closed meanwhile or was never added, so
    /// the error does not matter.
    pub(in crate::net) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }
}

impl UdpLink {
    /// Adds or removes one sleeper. While there is any, all sockets are watched.
    pub(super) fn watch_for_sleepers(&mut self, yes: bool) -> io::Result<()> {
        if !yes {
            self.watch.sleepers = self.watch.sleepers.saturating_sub(1);
            self.unwatch_if_nobody_sleeps();
            return Ok(());
        }
        if let Err(why) =
            self.sockets.all().try_for_each(|socket| self.watch.add(socket.fd.as_fd()))
        {
            self.unwatch_if_nobody_sleeps();
            return Err(why.into());
        }
        self.watch.sleepers += 1;
        Ok(())
    }

    fn unwatch_if_nobody_sleeps(&self) {
        if !self.watch.has_sleepers() {
            self.sockets.all().for_each(|socket| self.watch.remove(socket.fd.as_fd()));
        }
    }
}
