//! Wakeup of a thread by an eventfd, which another thread signals.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A flag that any thread may signal. Its descriptor is readable while it is signalled, so that it
/// can be polled together with sockets (also by `select` and async runtimes).
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Creates an event that is not signalled.
    ///
    /// # Errors
    /// No descriptor to be had (`ulimit -n`).
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Signals the event. Signals do not add up: one [`Event::clear`] takes back all earlier ones.
    pub fn signal(&self) {
        // A write of one to an open eventfd fails only if the counter is at its maximum, and then
        // the event is signalled already.
        while let Err(Errno::INTR) = write(&self.0, &1u64.to_ne_bytes()) {}
    }

    /// Clears the signal, and returns `true` if the event was signalled.
    ///
    /// Check the condition that the signal stands for *after* this call, so that a later signal is
    /// not missed.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match read(&self.0, &mut count) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // The read would block: the event was not signalled.
                Err(_) => return false,
            }
        }
    }

    /// Returns the descriptor, which is readable while the event is signalled.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn signals_do_not_add_up() {
        let event = Event::new().unwrap();
        assert!(!event.clear());
        event.signal();
        event.signal();
        assert!(event.clear());
        assert!(!event.clear());
    }

    #[test]
    fn a_signal_wakes_another_thread() {
        let (ping, pong) = (Event::new().unwrap(), Event::new().unwrap());
        let sleep = |event: &Event| {
            let mut fds = [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
            assert!(event.clear());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(&ping);
                pong.signal();
            });
            ping.signal();
            sleep(&pong);
        });
    }
}
