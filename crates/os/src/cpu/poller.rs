//! Sleeping on a handful of descriptors at once.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Tokens that one call reports.
pub const READY_MAX: usize = 8;

/// Is a descriptor looked at? One that is paused stays known: changing between the two is one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Wake when it is readable.
    Readable,
    /// Leave it alone for now.
    Paused,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Interest::Readable => epoll::EventFlags::IN,
            Interest::Paused => epoll::EventFlags::empty(),
        }
    }
}

/// A set of descriptors with tokens (epoll, level-triggered: what is not taken away is reported again).
///
/// A descriptor must be removed before it is closed: the kernel forgets it only with its last duplicate.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// Of nothing.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Add a descriptor; its token is what [`Poller::wait`] reports.
    ///
    /// # Errors
    /// It is there already, or cannot be waited for (an ordinary file).
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, source, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Look at it, or not.
    ///
    /// # Errors
    /// It is not there.
    pub fn set(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, source, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Forget it.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, source)?)
    }

    /// Sleep until something is readable (or hung up, or in error: also for paused ones), or the time is over; `None`: for as long as it
    /// takes (limits of more than 11 days end early). Reports each token once, [`READY_MAX`] at most. A signal handler ends the sleep early, with no tokens.
    ///
    /// # Errors
    /// Those of the kernel, none of which is expected.
    pub fn wait(&self, timeout: Option<Duration>, mut ready: impl FnMut(u64)) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| Timespec {
            // What the oldest kernels can count in milliseconds, 11 days, is as good as forever: the caller looks and sleeps again.
            tv_sec: timeout.as_secs().min(1_000_000).cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
        let events = match epoll::wait(&self.0, &mut room, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        for event in &*events {
            ready({ event.data }.u64());
        }
        Ok(events.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Interest, Poller};
    use crate::cpu::Event;
    use std::time::{Duration, Instant};

    fn ready(poller: &Poller) -> Vec<u64> {
        let mut tokens = Vec::new();
        poller.wait(Some(Duration::ZERO), |token| tokens.push(token)).unwrap();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn reports_what_is_signalled_until_it_is_cleared() {
        let (poller, a, b) = (Poller::new().unwrap(), Event::new().unwrap(), Event::new().unwrap());
        poller.add(&a, 1, Interest::Readable).unwrap();
        poller.add(&b, u64::MAX, Interest::Readable).unwrap();
        assert!(poller.add(&a, 3, Interest::Readable).is_err(), "twice");
        assert_eq!(ready(&poller), []);
        a.signal();
        b.signal();
        assert_eq!(ready(&poller), [1, u64::MAX]);
        a.clear();
        assert_eq!(ready(&poller), [u64::MAX]);
        poller.set(&b, 2, Interest::Paused).unwrap();
        assert_eq!(ready(&poller), []);
        poller.set(&b, 2, Interest::Readable).unwrap();
        assert_eq!(ready(&poller), [2]);
        poller.remove(&b).unwrap();
        assert_eq!(ready(&poller), []);
        assert!(poller.remove(&b).is_err() && poller.set(&b, 2, Interest::Readable).is_err());
    }

    #[test]
    fn a_signal_from_another_thread_ends_a_sleep_without_limit() {
        let (poller, event) = (Poller::new().unwrap(), Event::new().unwrap());
        poller.add(&event, 5, Interest::Readable).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| event.signal());
            let mut tokens = Vec::new();
            while tokens.is_empty() {
                poller.wait(None, |token| tokens.push(token)).unwrap();
            }
            assert_eq!(tokens, [5]);
        });
    }

    /// Never shorter than asked (nothing is claimed about how much longer), and finer than a millisecond.
    #[test]
    fn the_time_limit_ends_a_sleep() {
        let poller = Poller::new().unwrap();
        for limit in [Duration::from_micros(50), Duration::from_millis(2)] {
            let begun = Instant::now();
            assert_eq!(poller.wait(Some(limit), |_| ()).unwrap(), 0);
            assert!(begun.elapsed() >= limit);
        }
    }
}
