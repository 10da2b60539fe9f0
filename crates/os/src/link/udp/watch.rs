//! One descriptor that is readable when any socket is, for those who sleep.

use super::UdpLink;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;

impl UdpLink {
    /// One more sleeper, or one less. While there is any, all sockets are watched, and all that
    /// comes goes to them.
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
        // One that is not in it was closed meanwhile or has never been: nothing is lost.
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

/// Have this one watched, too.
pub(super) fn watch_one(watch: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match epoll::add(watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
        Err(Errno::EXIST) => Ok(()),
        done => done,
    }
}
