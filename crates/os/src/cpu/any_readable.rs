//! One descriptor for several: for `poll`, `select` and async runtimes of a program.

use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptor that is readable while any of some descriptors is (epoll(7)).
#[derive(Debug)]
pub struct AnyReadable(OwnedFd);

impl AnyReadable {
    /// Gathers these descriptors.
    ///
    /// # Errors
    /// No descriptor to be had (`ulimit -n`), or one of them cannot be waited for.
    ///
    /// ```
    /// use oikaze_os::cpu::{AnyReadable, Event};
    /// use std::os::fd::AsFd;
    /// # fn main() -> std::io::Result<()> {
    /// let (a, b) = (Event::new()?, Event::new()?);
    /// let any = AnyReadable::new([a.as_fd(), b.as_fd()])?;
    /// b.signal();
    /// # let _ = any.as_fd();
    /// # Ok(())
    /// # }
    /// ```
    pub fn new<'f>(of: impl IntoIterator<Item = BorrowedFd<'f>>) -> io::Result<AnyReadable> {
        let any = create(CreateFlags::CLOEXEC)?;
        for fd in of {
            add(&any, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(AnyReadable(any))
    }
}

impl AsFd for AnyReadable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::AnyReadable;
    use crate::cpu::event::Event;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::AsFd;

    #[test]
    fn it_is_readable_while_one_of_them_is() {
        let events = [Event::new().unwrap(), Event::new().unwrap()];
        let any = AnyReadable::new(events.iter().map(AsFd::as_fd)).unwrap();
        let is_readable = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&any, PollFlags::IN)], Some(&now)).unwrap() == 1
        };
        assert!(!is_readable());
        for event in &events {
            event.signal();
            assert!(is_readable() && is_readable());
            event.clear();
            assert!(!is_readable());
        }
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(AnyReadable::new([file.as_fd()]).is_err(), "a file is always readable");
    }
}
