//! Path MTU discovery: finds how large a datagram the path carries (WIND-8; RFC 8899, but beginning
//! at the top).
//!
//! RFC 8899's states map as follows. *Base* and *Search* are [`Search::Open`], without or with a
//! size found above the base. *Search Complete* is [`Search::Closed`]. *Error*, a path that does
//! not even carry the base, is a silent peer.

pub(crate) mod black_hole;
pub(crate) mod path;
use crate::limits::{DATAGRAM_MIN, MTU_LOSSES, MTU_RAISE_MAX, MTU_RAISE_MIN, MTU_STEP};
use crate::time::Time;
use black_hole::SizeEvidence;
use core::time::Duration;

/// Sizes of datagrams that fit common links: tunnels, Ethernet and jumbo frames. They leave room
/// for IPv6's headers and, at 1500 and 9000 bytes, also for IPv4's.
const COMMON: [usize; 8] =
    [1420 - 48, 1450 - 48, 1500 - 48, 1500 - 28, 4096 - 48, 8950 - 48, 9000 - 48, 9000 - 28];

/// Counts of datagrams that arrived and were lost, of those whose size is not in doubt. The counts
/// decay.
#[derive(Clone, Copy, Debug, Default)]
struct OtherSizes {
    acked: u32,
    lost: u32,
}

impl OtherSizes {
    fn note(&mut self, acked: u32, lost: u32) {
        self.acked = self.acked.saturating_add(acked);
        self.lost = self.lost.saturating_add(lost);
        while self.acked.saturating_add(self.lost) > MEMORY {
            self.acked /= 2;
            self.lost /= 2;
        }
    }

    /// Returns `true` if that many lost datagrams of one size in a row cannot be chance, given the
    /// loss of the others (WIND-8.3).
    fn refute(self, in_a_row: u32) -> bool {
        let (acked, lost) = (u64::from(self.acked), u64::from(self.lost));
        acked > 0 && u64::from(in_a_row) * acked >= u64::from(MTU_LOSSES) * (acked + lost)
    }
}

/// State of the search for a larger size.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// The search is trying this size.
    Open { size: usize, lost: u32 },
    /// The search has ended for now.
    Closed,
}

/// Path MTU of one peer.
#[derive(Clone, Debug)]
pub(crate) struct Mtu {
    ceiling: usize,
    /// Size in use, in bytes.
    current: usize,
    /// Smallest size in bytes that is not worth trying.
    refuted: usize,
    /// Large datagrams lost in a row, and the size of the shortest of them.
    lost: u32,
    least_lost: usize,
    others: OtherSizes,
    search: Search,
    /// Time from which a closed search may be opened again. The pauses before it grow.
    raise_at: Time,
    raise_after: Duration,
    care: Care,
    /// Size of the size probe in flight.
    in_flight: Option<usize>,
    /// Time from which a size probe may be sent, if none is in flight.
    next_probe: Time,
}

/// Doubt about the size in use (WIND-8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    None,
    /// The probe timer ran out, and nothing was acknowledged since.
    Unanswered,
    /// Only small datagrams were acknowledged since.
    Verifying,
}

/// Number of latest datagrams from which the loss rate is estimated.
const MEMORY: u32 = 512;
/// Time that never comes.
const NEVER: Time = Time(u64::MAX);

impl Mtu {
    /// Starts at the size that the routes of both ends promise (WIRE-1.2, WIND-8.1).
    pub fn new(ceiling: usize) -> Mtu {
        let ceiling = ceiling.max(DATAGRAM_MIN);
        Mtu {
            ceiling,
            current: ceiling,
            refuted: ceiling + 1,
            lost: 0,
            least_lost: usize::MAX,
            others: OtherSizes::default(),
            search: Search::Closed,
            raise_at: NEVER,
            raise_after: MTU_RAISE_MIN,
            care: Care::None,
            in_flight: None,
            next_probe: NEVER,
        }
    }

    /// Returns an MTU that never changes and may be below that of any real path. A model uses it,
    /// because every byte costs there.
    #[cfg(test)]
    pub fn fixed(size: usize) -> Mtu {
        Mtu { ceiling: size, current: size, refuted: size + 1, ..Mtu::new(size) }
    }

    /// Returns the bytes of the largest datagram to send now, with its tag.
    #[inline]
    pub fn size(&self) -> usize {
        if self.care == Care::None { self.current } else { DATAGRAM_MIN }
    }

    /// Returns the bytes that the routes of both ends promise and the bytes that the path carries,
    /// if a search found these to be fewer.
    pub fn narrower(&self) -> Option<(usize, usize)> {
        let found = matches!(self.search, Search::Closed)
            && self.care == Care::None
            && self.current < self.ceiling;
        found.then_some((self.ceiling, self.current))
    }

    /// Returns `true` if a size probe may be sent now.
    #[inline]
    pub fn probe_due(&self, now: Time) -> bool {
        now >= self.next_probe && self.in_flight.is_none()
    }

    /// Returns when larger datagrams may be tried again, if nothing else happens before (WIND-8.7).
    #[inline]
    pub fn raise_time(&self) -> Option<Time> {
        let waits = self.care == Care::None
            && matches!(self.search, Search::Closed)
            && self.in_flight.is_none();
        (waits && self.raise_at != NEVER).then_some(self.raise_at)
    }

    /// Returns the size of the size probe that is about to be sent.
    pub fn probe(&mut self) -> usize {
        let size = match self.search {
            _ if self.care != Care::None => self.current,
            Search::Open { size, .. } => size,
            Search::Closed => {
                // WIND-8.7.
                self.raise_after = (self.raise_after * 2).min(MTU_RAISE_MAX);
                self.refuted = self.ceiling + 1;
                self.open(self.ceiling);
                self.ceiling
            }
        };
        self.in_flight = Some(size);
        size
    }

    /// Called when the size probe in flight was acknowledged.
    pub fn probe_acked(&mut self, now: Time) {
        let Some(size) = self.in_flight.take().filter(|size| *size >= self.current) else { return };
        self.believe();
        if size > self.current {
            self.current = size;
            self.refuted = self.refuted.max(size + 1);
            self.raise_after = MTU_RAISE_MIN;
            self.go_on(now);
        }
        self.arm();
    }

    /// Called when the size probe in flight was lost. `overtaken` tells whether later datagrams
    /// were acknowledged.
    pub fn probe_lost(&mut self, overtaken: bool) {
        let probed = self.in_flight.take();
        match &mut self.search {
            _ if !overtaken => {}
            _ if probed == Some(self.current) => {
                self.lost += 1;
                self.least_lost = self.least_lost.min(self.current);
            }
            Search::Open { size, lost } if probed == Some(*size) => *lost += 1,
            _ => {}
        }
    }

    /// Called when the probe timer ran out.
    pub fn timed_out(&mut self) {
        if self.current > DATAGRAM_MIN {
            self.care = Care::Unanswered;
            self.arm();
        }
    }

    /// Evaluates acknowledged and lost datagrams other than size probes. Returns `true` if the size
    /// in use was refuted, and then the base is used from now on.
    pub fn weigh(&mut self, now: Time, seen: SizeEvidence) -> bool {
        // While only small datagrams are sent, no large arrival can show that the losses had other
        // causes. Size probes decide instead.
        let in_a_row = if self.care == Care::None { seen.large_lost } else { 0 };
        self.others.note(seen.acked, seen.lost + seen.large_lost - in_a_row);
        if let Search::Open { size, lost } = self.search
            && self.others.refute(lost)
        {
            self.refuted = size;
            self.go_on(now);
        }
        if seen.longest_acked > DATAGRAM_MIN {
            self.care = Care::None;
        } else if self.care == Care::Unanswered && seen.acked > 0 {
            self.care = Care::Verifying;
        }
        if seen.longest_acked >= self.least_lost {
            // Those losses had other causes than the size.
            self.others.note(0, self.lost);
            self.believe();
        }
        if in_a_row > 0 {
            self.lost = self.lost.saturating_add(in_a_row);
            self.least_lost = self.least_lost.min(seen.least_lost);
        }
        let fallen = self.current > DATAGRAM_MIN && seen.acked > 0 && self.others.refute(self.lost);
        if fallen {
            let left = self.shrink(DATAGRAM_MIN);
            self.refuted = left + 1;
            self.open(left);
        }
        self.arm();
        fallen
    }

    /// Called when the system reports that the path carries no more than `fits` bytes (WIND-8.8).
    /// Returns `true` if datagrams become smaller.
    pub fn limit_reported(&mut self, now: Time, fits: usize) -> bool {
        let fits = fits.max(DATAGRAM_MIN);
        if fits >= self.ceiling {
            return false;
        }
        let less = fits < self.current;
        if less {
            self.shrink(fits);
        }
        self.refuted = self.refuted.min(fits + 1);
        self.go_on(now);
        self.arm();
        less
    }

    /// Uses a smaller size from now on, and returns the size used so far.
    fn shrink(&mut self, size: usize) -> usize {
        self.believe();
        self.raise_after = MTU_RAISE_MIN;
        core::mem::replace(&mut self.current, size)
    }

    /// Clears all doubt about the size in use.
    fn believe(&mut self) {
        (self.care, self.lost, self.least_lost) = (Care::None, 0, usize::MAX);
    }

    fn open(&mut self, size: usize) {
        self.search = Search::Open { size, lost: 0 };
    }

    /// Chooses the next size to try, or ends the search (WIND-8.6).
    fn go_on(&mut self, now: Time) {
        let between = |size: &usize| self.current < *size && *size < self.refuted;
        let middle = usize::midpoint(self.current, self.refuted);
        match COMMON
            .into_iter()
            .rev()
            .find(between)
            .or((self.refuted - self.current > MTU_STEP).then_some(middle))
        {
            Some(size) => self.open(size),
            None => {
                self.search = Search::Closed;
                self.raise_at =
                    if self.current < self.ceiling { now + self.raise_after } else { NEVER };
            }
        }
    }

    /// Sets when the next size probe may be sent.
    fn arm(&mut self) {
        self.next_probe = match (self.care, self.search) {
            (Care::Unanswered, _) => NEVER,
            (Care::Verifying, _) | (_, Search::Open { .. }) => Time(0),
            (Care::None, Search::Closed) => self.raise_at,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Simulates one round trip of bulk over a path that carries `fits` bytes and loses nothing
    /// else. Returns `true` if the size in use was refuted.
    fn round_trip(mtu: &mut Mtu, now: Time, fits: usize) -> bool {
        if mtu.probe_due(now) {
            if mtu.probe() <= fits { mtu.probe_acked(now) } else { mtu.probe_lost(true) }
        }
        let mut seen =
            SizeEvidence { acked: 1, longest_acked: DATAGRAM_MIN, ..SizeEvidence::default() };
        if mtu.size() <= fits {
            (seen.acked, seen.longest_acked) = (10, mtu.size());
        } else {
            (seen.large_lost, seen.least_lost) = (10, mtu.size());
        }
        mtu.weigh(now, seen)
    }

    /// Runs until nothing changes any more, and returns the number of round trips.
    fn settle(mtu: &mut Mtu, now: Time, fits: usize) -> u32 {
        let mut quiet = 0;
        (0..1000)
            .find(|_| {
                let before = mtu.size();
                round_trip(mtu, now, fits);
                quiet = if mtu.size() == before && !mtu.probe_due(now) { quiet + 1 } else { 0 };
                quiet == 3
            })
            .expect("it comes to rest")
    }

    fn width() -> impl Strategy<Value = usize> {
        prop_oneof![DATAGRAM_MIN..9100usize, Just(DATAGRAM_MIN), Just(1452), Just(8952)]
    }

    proptest! {
        /// However the path changes, the size in use fits, is close to the most that fits, and
        /// grows back in time.
        #[test]
        fn follows_the_path(ceiling in width(), paths in prop::collection::vec(width(), 1..8)) {
            let mut mtu = Mtu::new(ceiling);
            let mut now = Time(0);
            for fits in paths {
                settle(&mut mtu, now, fits);
                // The search tries a wider path when the next raise is due.
                for _ in 0..2 {
                    now += MTU_RAISE_MAX;
                    settle(&mut mtu, now, fits);
                }
                let most = fits.min(ceiling);
                prop_assert!(mtu.size() <= most && mtu.size() + MTU_STEP > most, "{} of {most}", mtu.size());
                prop_assert!((DATAGRAM_MIN..=ceiling.max(DATAGRAM_MIN)).contains(&mtu.size()));
            }
        }

        /// WIND-8.8: a report of the system lowers the size, never raises it, and never below the
        /// base.
        #[test]
        fn words_only_lower(ceiling in width(), words in prop::collection::vec(0..10_000usize, 1..8)) {
            let mut mtu = Mtu::new(ceiling);
            for fits in words {
                let before = mtu.size();
                prop_assert_eq!(mtu.limit_reported(Time(0), fits), mtu.size() < before);
                prop_assert_eq!(mtu.size(), before.min(fits.max(DATAGRAM_MIN)));
            }
        }
    }

    #[test]
    fn a_search_is_short_and_common_sizes_are_found_at_once() {
        for (fits, most) in [(8952, 0), (8902, 8), (1472, 50), (1452, 30), (DATAGRAM_MIN, 60)] {
            let mut mtu = Mtu::new(8952);
            let took = settle(&mut mtu, Time(0), fits);
            assert!(took <= most + 3, "{fits}: {took} round trips");
            assert_eq!(mtu.size(), fits);
        }
    }

    /// Three losses in a row suffice where all else arrives, and more are needed where others are
    /// lost too.
    #[test]
    fn loss_of_all_sizes_is_no_proof() {
        for (others_lost, needed) in [(0, 3), (100, 6), (300, 12)] {
            let mut mtu = Mtu::new(8952);
            mtu.weigh(
                Time(0),
                SizeEvidence {
                    acked: 100,
                    longest_acked: 8952,
                    lost: others_lost,
                    ..SizeEvidence::default()
                },
            );
            let one = SizeEvidence { large_lost: 1, least_lost: 8952, ..SizeEvidence::default() };
            let small = SizeEvidence { acked: 1, longest_acked: 100, ..one };
            let took = (1..).find(|_| mtu.weigh(Time(0), small)).unwrap();
            assert!(
                (needed..=needed + 1).contains(&took) || took + 1 == needed,
                "{others_lost}: {took}"
            );
        }
    }

    /// WIND-8.5.
    #[test]
    fn after_a_timeout_small_ones_until_a_large_one_arrives() {
        let mut mtu = Mtu::new(8952);
        mtu.timed_out();
        assert!(mtu.size() == DATAGRAM_MIN && !mtu.probe_due(Time(1)), "nothing has been answered");
        assert!(!mtu.weigh(
            Time(1),
            SizeEvidence { acked: 2, longest_acked: 1000, ..SizeEvidence::default() }
        ));
        assert!(mtu.size() == DATAGRAM_MIN && mtu.probe_due(Time(1)));
        assert_eq!(mtu.probe(), 8952);
        mtu.probe_acked(Time(2));
        assert!(mtu.size() == 8952 && !mtu.probe_due(Time(u64::MAX - 1)));
    }
}
