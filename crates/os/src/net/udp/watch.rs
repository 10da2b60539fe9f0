//! One descriptor for sleeping threads that is readable when any socket is.

use super::UdpLink;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;

impl UdpLink {
    /// Adds or removes one sleeper. While there is any, all sockets are watched, and all datagrams
    /// go to the sockets.
    pub(super) fn watch_for_sleepers(&mut self, yes: bool) -> io::Result<()> {
        if !yes {
            self.sleepers = self.sleepers.saturating_sub(1);
            self.unwatch_if_nobody_sleeps();
            return Ok(());
        }
        self.looks.not_early();
        let early =
            self.early.as_mut().map_or(Ok(()), |early| watch_one(&self.watch, early.shut_gate()));
        let watched = early.and_then(|()| {
            self.all_sockets().try_for_each(|socket| watch_one(&self.watch, socket.fd.as_fd()))
        });
        if let Err(why) = watched {
            self.unwatch_if_nobody_sleeps();
            return Err(why.into());
        }
        self.sleepers += 1;
        Ok(())
    }

    fn unwatch_if_nobody_sleeps(&mut self) {
        if self.sleepers > 0 {
            return;
        }
        // A socket that is not in the set was closed meanwhile or was never added, so the error
        // does not matter.
        self.all_sockets().for_each(|socket| {
            let _ = epoll::delete(&self.watch, &socket.fd);
        });
        if let Some(early) = &mut self.early {
            let _ = epoll::delete(&self.watch, early.fd());
        }
        if self.may_receive_early()
            && let Some(early) = &mut self.early
        {
            early.open_gate();
        }
    }
}

/// Adds a descriptor to the watched ones.
pub(super) fn watch_one(watch: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match epoll::add(watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
        Err(Errno::EXIST) => Ok(()),
        done => done,
    }
}
