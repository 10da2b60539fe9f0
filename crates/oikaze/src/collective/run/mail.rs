//! Parcels that came before their step (COLL-1.3), and the credit for them (COLL-1.4).

use super::long::LONG_MIN;
use oikaze_engine::ParcelBody;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveCall, DataCallPosition, ParcelHead, RoundNumber};
use oikaze_protocol::limits::{GROUP_BODY_MIN, MESSAGE_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of unread parcels that a rank may have at another one, in one team. The parcel that
/// exceeds it is still sent.
const CREDIT: u64 = 1 << 20;
/// Bytes that a parcel costs beyond its body.
const OVERHEAD: u64 = 1 << 10;
/// Bytes read at which the reader reports them.
const TOLD_TOGETHER: u64 = CREDIT / 4;
/// Number of whole vectors that a receiver may not have read, by its credit: each has at least
/// [`GROUP_BODY_MIN`] bytes, and the one that exceeds the credit is still sent.
const WHOLE_UNREAD_MAX: usize = (CREDIT / (OVERHEAD + GROUP_BODY_MIN)) as usize + 2;

/// A parcel that waits for its step.
pub(super) struct UnreadParcel {
    pub call: CollectiveCall,
    /// `None`: the sender waits, and sent no data.
    pub body: Option<ParcelBody>,
    /// Number of collectives of coherence that the sender had called before, if it waits.
    pub after: Option<u64>,
}

/// Traffic with one rank, in bytes with their overhead.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    sent: u64,
    /// Bytes that the other has read, of those sent.
    granted: u64,
    arrived: u64,
    read: u64,
    /// Bytes read that the other knows of.
    told: u64,
}

impl Traffic {
    /// Returns the bytes read that the other does not know of.
    fn unreported(&self) -> u64 {
        self.read - self.told
    }

    /// Returns `true` if another parcel may be sent.
    fn has_credit(&self) -> bool {
        self.sent - self.granted < CREDIT
    }
}

/// Parcels of a team that were not read.
#[derive(Default)]
pub(super) struct Mail {
    kept: BTreeMap<(u64, RoundNumber, Rank), UnreadParcel>,
    traffic: BTreeMap<Rank, Traffic>,
    /// Long parcels that have come, of remembered collectives. They may come again (COLL-1.5).
    came: BTreeSet<(u64, RoundNumber, Rank)>,
    /// Number of the oldest remembered collective.
    oldest: u64,
    /// The latest broadcasts of which this rank sent the whole to all at once (COLL-2.7).
    whole: VecDeque<u64>,
    /// Some rank is owed a report.
    owes_reports: bool,
}

fn cost(len: u64) -> u64 {
    OVERHEAD + len
}

impl Mail {
    /// Notes that a parcel with `len` bytes of data comes. Returns `true` if it has come before.
    pub fn is_repeated(&mut self, from: Rank, head: &ParcelHead, len: u64) -> bool {
        let is_noted = len >= LONG_MIN as u64 && head.number >= self.oldest;
        is_noted && !self.came.insert((head.number, head.round, from))
    }

    /// Forgets what has come of collectives below `oldest`.
    pub fn forget_repeated(&mut self, oldest: u64) {
        self.oldest = self.oldest.max(oldest);
        if self.came.first().is_some_and(|(number, ..)| *number < self.oldest) {
            self.came = self.came.split_off(&(self.oldest, 0, 0));
        }
    }

    /// Notes that this rank sends all values of a broadcast at once.
    pub fn note_whole(&mut self, number: u64) {
        if self.whole.len() >= WHOLE_UNREAD_MAX {
            self.whole.pop_front();
        }
        self.whole.push_back(number);
    }

    /// Returns `true` if this rank has sent all values of this broadcast at once, and some rank may
    /// not have read them.
    pub fn has_sent_whole(&self, number: u64) -> bool {
        self.whole.contains(&number)
    }

    /// Counts a parcel that has come. Returns `false` if its sender exceeds its credit.
    pub fn arrived(&mut self, from: Rank, len: u64) -> bool {
        let traffic = self.traffic.entry(from).or_default();
        traffic.arrived += cost(len);
        // Reports of credit may be under way, so the bound holds for all that is not reported.
        traffic.arrived - traffic.told <= 2 * (CREDIT + MESSAGE_MAX + OVERHEAD)
    }

    /// Keeps a parcel for its step, or a notice with what its sender had called before.
    pub fn keep(
        &mut self,
        from: Rank,
        head: &ParcelHead,
        body: Option<ParcelBody>,
        after: Option<u64>,
    ) {
        // A parcel without data has the last round, which no data uses.
        let round = if body.is_some() { head.round } else { RoundNumber::MAX };
        if let Some(old) = self
            .kept
            .insert((head.number, round, from), UnreadParcel { call: head.call, body, after })
        {
            self.read(from, old.body.as_ref());
        }
    }

    /// Returns `true` if no parcel waits for its step, and no rank for a report.
    pub fn is_quiet(&self) -> bool {
        self.kept.is_empty() && !self.owes_reports
    }

    /// Takes the parcel of this step.
    pub fn take(&mut self, number: u64, round: RoundNumber, from: Rank) -> Option<ParcelBody> {
        self.kept.remove(&(number, round, from))?.body
    }

    /// Returns all that came for a collective: senders, and what they call.
    pub fn of(&self, number: u64) -> impl Iterator<Item = (Rank, &CollectiveCall)> {
        self.kept
            .range((number, 0, 0)..=(number, RoundNumber::MAX, Rank::MAX))
            .map(|((.., from), kept)| (*from, &kept.call))
    }

    /// Returns the notices of collectives from number `first` on: the place of each call in the
    /// order of its rank, the rank, and the call.
    pub fn notices_from(
        &self,
        first: u64,
    ) -> impl Iterator<Item = (DataCallPosition, Rank, &CollectiveCall)> {
        self.kept.range((first, 0, 0)..).filter_map(|((number, _, from), kept)| {
            let position = DataCallPosition { number: *number, after: kept.after? };
            Some((position, *from, &kept.call))
        })
    }

    /// Drops what is left of a collective, and of those before it.
    pub fn forget(&mut self, number: u64) {
        let next = (number + 1, 0, 0);
        if self.kept.first_key_value().is_none_or(|(key, _)| *key >= next) {
            return;
        }
        let later = self.kept.split_off(&next);
        for ((.., from), kept) in std::mem::replace(&mut self.kept, later) {
            self.read(from, kept.body.as_ref());
        }
    }

    fn read(&mut self, from: Rank, body: Option<&ParcelBody>) {
        if let Some(body) = body {
            self.has_read(from, body.len());
        }
    }

    /// Counts a parcel as read.
    pub fn has_read(&mut self, from: Rank, len: u64) {
        let traffic = self.traffic.entry(from).or_default();
        traffic.read += cost(len);
        self.owes_reports |= traffic.unreported() >= TOLD_TOGETHER;
    }

    /// Returns the bytes to report to this rank, if they are many.
    pub fn report(&mut self, to: Rank) -> Option<u64> {
        let traffic = self.traffic.get_mut(&to)?;
        (traffic.unreported() >= TOLD_TOGETHER).then(|| {
            traffic.told = traffic.read;
            traffic.read
        })
    }

    #[cfg(test)]
    pub fn unreported(&self, to: Rank) -> u64 {
        self.traffic.get(&to).map_or(0, Traffic::unreported)
    }

    /// Returns the bytes to report, for each rank for which they are many.
    pub fn reports(&mut self) -> Vec<(Rank, u64)> {
        if !std::mem::take(&mut self.owes_reports) {
            return Vec::new();
        }
        let ranks: Vec<Rank> = self.traffic.keys().copied().collect();
        ranks.into_iter().filter_map(|rank| Some((rank, self.report(rank)?))).collect()
    }

    /// Notes what a rank has read, of all that it was sent.
    pub fn granted(&mut self, by: Rank, bytes: u64) {
        let traffic = self.traffic.entry(by).or_default();
        traffic.granted = traffic.granted.max(bytes.min(traffic.sent));
    }

    /// Takes back the credit of a parcel that was withdrawn and is not sent again.
    pub fn withdrawn(&mut self, to: Rank, len: u64) {
        let traffic = self.traffic.entry(to).or_default();
        // Its receiver may have read it all the same.
        traffic.sent = traffic.sent.saturating_sub(cost(len)).max(traffic.granted);
    }

    /// Returns `true` if there is credit for a parcel to this rank.
    pub fn has_credit(&self, to: Rank) -> bool {
        self.traffic.get(&to).is_none_or(Traffic::has_credit)
    }

    /// Counts a parcel to be sent. Returns `false` if there is no credit for it.
    pub fn may_send(&mut self, to: Rank, len: u64) -> bool {
        let traffic = self.traffic.entry(to).or_default();
        let may = traffic.has_credit();
        if may {
            traffic.sent += cost(len);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// COLL-1.4: a sender never stops for good while its receiver reads.
    #[test]
    fn credit_comes_back_before_it_is_used_up() {
        let (mut sender, mut receiver) = (Mail::default(), Mail::default());
        let mut unread = 0;
        for n in 0..10_000usize {
            let len = [0_u64, 8, 4096, 3 << 20][n % 4];
            if !sender.may_send(1, len) {
                let bytes = receiver.report(0);
                assert!(bytes.is_some(), "all was read, and nothing is reported");
                sender.granted(1, bytes.unwrap_or(0));
                assert!(sender.may_send(1, len));
            }
            assert!(receiver.arrived(0, len));
            receiver.has_read(0, len);
            unread += 1;
        }
        assert_eq!(unread, 10_000);
    }

    /// COLL-1.4: a parcel that does not come takes no credit.
    #[test]
    fn withdrawn_parcel_gives_its_credit_back() {
        let mut sender = Mail::default();
        assert!(sender.may_send(1, CREDIT) && !sender.may_send(1, 8));
        sender.withdrawn(1, CREDIT);
        assert!(sender.may_send(1, 8));
        sender.granted(1, cost(8));
        sender.withdrawn(1, 8);
        assert!(sender.may_send(1, CREDIT), "the receiver has read it all the same");
    }

    /// COLL-2.7: the root knows of all whole vectors that a rank may wait for.
    #[test]
    fn whole_vectors_are_remembered_while_a_rank_may_lack_them() {
        let mut sender = Mail::default();
        let mut number = 0;
        while sender.may_send(1, GROUP_BODY_MIN) {
            sender.note_whole(2 * number);
            number += 1;
        }
        assert!((0..number).all(|number| sender.has_sent_whole(2 * number)));
        assert!((0..number).all(|number| !sender.has_sent_whole(2 * number + 1)));
        (number..10_000).for_each(|number| sender.note_whole(2 * number));
        assert!(sender.whole.len() as u64 <= number + 1, "{}", sender.whole.len());
    }

    #[test]
    fn unread_parcels_are_bounded() {
        let mut sender = Mail::default();
        let sent = (0..100_000).filter(|_| sender.may_send(1, 8)).count() as u64;
        assert!(sent <= CREDIT / OVERHEAD + 1, "{sent}");
        let mut receiver = Mail::default();
        let taken = (0..10).filter(|_| receiver.arrived(0, MESSAGE_MAX)).count();
        assert!(taken < 4, "{taken}");
    }
}
