//! Destinations for which the kernel refuses to cut datagrams (`UDP_SEGMENT`) although it has the
//! option. The cause is a device without checksum offload (`EIO`), or a transform (IPsec) on the
//! path.
//!
//! Only the kernel knows which device reaches a destination, and routes change. Refusals are
//! therefore remembered by destination, do not slow other destinations, and are tried again now and
//! then.

use std::net::IpAddr;

/// Number of datagrams that go one by one after a refusal, before `UDP_SEGMENT` is tried again. It
/// doubles with each refusal.
const PAUSE_DATAGRAMS_MIN: u32 = 10_000;
/// Maximum of that number.
const PAUSE_DATAGRAMS_MAX: u32 = 10_000_000;
/// Maximum number of remembered destinations. The oldest refusal makes room for a new one.
const DESTINATIONS_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    to: IpAddr,
    /// Datagrams left until the next attempt.
    left: u32,
    pause: u32,
}

/// Destinations to which datagrams go one by one.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Returns `true` if there are no refusals.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if a refusal for this destination stands.
    pub(super) fn contains(&self, to: IpAddr) -> bool {
        self.0.iter().any(|refusal| refusal.to == to)
    }

    /// Returns `true` if the next datagrams to this destination may go in one call. Called once for
    /// each call.
    pub(super) fn allow(&mut self, to: IpAddr) -> bool {
        if self.0.is_empty() {
            return true;
        }
        self.0.iter_mut().find(|refusal| refusal.to == to).is_none_or(|refusal| {
            refusal.left = refusal.left.saturating_sub(1);
            refusal.left == 0
        })
    }

    /// Records a refusal. Returns `true` if it is the first for this destination.
    pub(super) fn refused(&mut self, to: IpAddr) -> bool {
        if let Some(refusal) = self.0.iter_mut().find(|refusal| refusal.to == to) {
            refusal.pause = refusal.pause.saturating_mul(2).min(PAUSE_DATAGRAMS_MAX);
            refusal.left = refusal.pause;
            return false;
        }
        if self.0.len() == DESTINATIONS_MAX {
            self.0.remove(0);
        }
        self.0.push(Refusal { to, left: PAUSE_DATAGRAMS_MIN, pause: PAUSE_DATAGRAMS_MIN });
        true
    }

    /// Records that `UDP_SEGMENT` has worked for this destination.
    pub(super) fn worked(&mut self, to: IpAddr) {
        self.0.retain(|refusal| refusal.to != to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// Counts datagrams until the next attempt.
    fn pause(refusals: &mut Refusals, to: IpAddr) -> u32 {
        (1..).find(|_| refusals.allow(to)).unwrap()
    }

    #[test]
    fn each_destination_by_itself_and_tried_again_ever_more_rarely() {
        let mut refusals = Refusals::default();
        assert!(refusals.allow(address(1)));
        assert!(refusals.refused(address(1)), "news");
        assert!(!refusals.allow(address(1)) && refusals.allow(address(2)));
        assert_eq!(pause(&mut refusals, address(1)), PAUSE_DATAGRAMS_MIN - 1);
        assert!(!refusals.refused(address(1)), "no news");
        assert_eq!(pause(&mut refusals, address(1)), 2 * PAUSE_DATAGRAMS_MIN);
        assert!((0..20).all(|_| !refusals.refused(address(1))));
        assert_eq!(pause(&mut refusals, address(1)), PAUSE_DATAGRAMS_MAX);
        refusals.worked(address(1));
        assert!(refusals.is_empty() && refusals.allow(address(1)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut refusals = Refusals::default();
        (0..200).for_each(|n| assert!(refusals.refused(address(n))));
        assert_eq!(refusals.0.len(), DESTINATIONS_MAX);
        assert!(!refusals.allow(address(199)) && refusals.allow(address(0)));
    }
}
