//! One descriptor for all lines of a node.

use crate::shm::control_socket::ControlSocket;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::Timespec;
use std::io;

/// Maximum number of events taken by one call.
const AT_ONCE: usize = 32;
/// Flag of an event that reports a process's end. The other bits are the line's number.
const PROCESS: u64 = 1 << 32;

/// An event on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Number of the line.
    pub number: u32,
    /// `true` if the other end is closed, or its process has ended.
    pub ended: bool,
}

/// A descriptor that is readable while a line has a message, or has ended.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Creates a watch without lines.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a line, under this number.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn add(&self, number: u32, line: &ControlSocket) -> io::Result<()> {
        let on = |data: u64| epoll::EventData::new_u64(data);
        epoll::add(
            &self.0,
            line,
            on(number.into()),
            epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        )?;
        if let Some(process) = line.process() {
            epoll::add(&self.0, process, on(PROCESS | u64::from(number)), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Stops watching a line.
    pub fn remove(&self, line: &ControlSocket) {
        // Removing a line that is not watched is not an error.
        let _ = epoll::delete(&self.0, line);
        if let Some(process) = line.process() {
            let _ = epoll::delete(&self.0, process);
        }
    }

    /// Passes the events of all lines to `tell`. Asks the kernel, and does not wait.
    pub fn look(&self, mut tell: impl FnMut(Called)) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; AT_ONCE];
        let count =
            epoll::wait(&self.0, events.as_mut_slice(), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
                .unwrap_or(0);
        for event in events.iter().take(count) {
            let (data, flags) = (event.data.u64(), event.flags);
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR;
            tell(Called {
                number: data as u32,
                ended: data & PROCESS != 0 || flags.intersects(gone),
            });
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
