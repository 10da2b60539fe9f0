//! A flag with a descriptor: what another thread signals to end a sleep.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Signalled or not. Any thread may signal; the descriptor is readable while it is signalled, so
/// that it can be polled together with sockets (also by `select` and async runtimes).
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Not signalled.
    ///
    /// # Errors
    /// No descriptor to be had (`ulimit -n`).
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Signal. Signals do not add up: one [`Event::clear`] takes back all that came before it.
    pub fn signal(&self) {
        // The only failure of a write of one to an eventfd that is open is a counter at its
        // maximum: then it is signalled already.
        while let Err(Errno::INTR) = write(&self.0, &1u64.to_ne_bytes()) {}
    }

    /// No longer signalled. Was it?
    ///
    /// Look at whatever the signal stands for *after* this call: what is signalled later is then
    /// not missed.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match read(&self.0, &mut count) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // Would block: it was not.
                Err(_) => return false,
            }
        }
    }

    /// The descriptor; readable while signalled.
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
