//! Datagrams that were sent and are neither acknowledged nor lost (WIND-5). They are small records
//! in two rings, without an allocation for each datagram.

mod detect;
pub(crate) use super::flow::Acked;
use super::flow::{FlowRecord, News};
use super::pto::Probe;
use super::rtt::RoundTrip;
use super::skips::Skips;
use crate::limits::DATAGRAM_MIN;
use crate::time::Time;
use crate::wind::mtu::black_hole::BlackHoleDetector;
use crate::wind::progress::Progress;
use crate::wind::recovery::spurious::SuspectedLosses;
use crate::wind::send::mode::{Evidence, FastPath, SendMode};
use crate::wire::FIRST_NUMBER;
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::header::Lane;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;

/// Part of a datagram's content that matters when the datagram is acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A whole message.
    Message(u64),
    /// Bytes of a message's body.
    Fragment { message: u64, offset: u64, len: u32 },
    /// A withdrawal of a message.
    Withdrawal(u64),
    /// An ACK frame of this lane up to this datagram number, with refusals up to this count.
    AckSent { lane: Lane, largest: u64, refusals: u64 },
    /// Padding of a size probe (WIND-8.2), which carries nothing else.
    SizeProbe,
    /// A GROUP_ACK frame for the followed stream of this key, like `AckSent`.
    GroupAckSent { key: u32, largest: u64, refusals: u64 },
    /// A SETTLED frame with this number.
    SettledSent(u64),
}

impl Item {
    /// Returns `true` if the item belongs to a message.
    pub(crate) fn is_content(self) -> bool {
        matches!(self, Item::Message(_) | Item::Fragment { .. } | Item::Withdrawal(_))
    }
}

/// Reason why a datagram counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    Reordering,
    Time,
    Probe,
    /// The path has become too narrow for the datagram (WIND-8.4).
    Size,
    /// Nothing of the datagram's flow arrives, while other flows carry (WIND-14.5).
    Silence,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Sent {
    at: Time,
    first_item: u64,
    /// Bytes on the wire. 0 once acknowledged or lost, and for datagrams that need no
    /// acknowledgement.
    bytes: u16,
    items: u16,
    kind: Evidence,
    flow: u8,
    /// Whether the datagram carries parts of messages.
    content: bool,
}

const _: () = assert!(size_of::<Sent>() == 24, "each acknowledgement reads many");

#[derive(Clone, Debug, Hash)]
pub(crate) struct Flight {
    first: u64,
    sent: VecDeque<Sent>,
    first_item: u64,
    items: VecDeque<Item>,
    open_items: u32,
    in_flight: u64,
    datagrams: usize,
    /// The first flow, which every lane has.
    record: FlowRecord,
    /// Flows beyond the first.
    more: Box<[FlowRecord]>,
    /// Flow of the datagram being written.
    pub flow: u8,
    loss_time: Option<Time>,
    /// Time when the latest datagram that must be acknowledged was sent, or when the latest
    /// acknowledgement with news came.
    last_step: Time,
    /// Whether that datagram asked to be acknowledged at once.
    asked: bool,
    /// Deadline by which a datagram must follow, if a size probe was sent last. The acknowledgement
    /// of that datagram shows whether the probe was lost (WIND-8.2).
    unfollowed: Option<Time>,
    suspected: SuspectedLosses,
    skips: Skips,
    /// Evidence about losses by datagram size.
    pub sizes: BlackHoleDetector,
    pub probe: Probe,
    pub progress: Progress,
    /// Evidence about segmentation offload.
    pub trains: FastPath,
    /// Evidence about kernel bypass.
    pub bypass: FastPath,
}

impl Flight {
    /// Creates the state before the first datagram. `skip_seed` chooses the numbers that are
    /// skipped.
    pub fn new(failure_time: Duration, skip_seed: u64) -> Flight {
        Flight {
            first: FIRST_NUMBER,
            sent: VecDeque::new(),
            first_item: 0,
            items: VecDeque::new(),
            open_items: 0,
            in_flight: 0,
            datagrams: 0,
            record: FlowRecord::default(),
            more: Box::default(),
            flow: 0,
            loss_time: None,
            last_step: Time(0),
            asked: false,
            unfollowed: None,
            suspected: SuspectedLosses::default(),
            skips: Skips::new(skip_seed),
            sizes: BlackHoleDetector::default(),
            probe: Probe::new(failure_time),
            progress: Progress::default(),
            trains: FastPath::default(),
            bypass: FastPath::default(),
        }
    }

    /// Sets the number of flows, which may grow at any time. Those that go have nothing in flight.
    pub fn set_flows(&mut self, count: usize) {
        if self.more.is_empty() && count > 1 {
            self.record.share_mut().in_flight = self.in_flight;
        }
        let mut more = core::mem::take(&mut self.more).into_vec();
        more.resize_with(count.saturating_sub(1), FlowRecord::default);
        self.more = more.into_boxed_slice();
        self.suspected.forget_flows(u8::try_from(count).unwrap_or(u8::MAX));
        if self.more.is_empty() {
            self.record.forget_share();
        }
        if usize::from(self.flow) >= count {
            self.flow = 0;
        }
    }

    /// Returns `true` if anything is in flight by a flow, even without use of its window.
    pub fn carries(&self, flow: u8) -> bool {
        self.sent.iter().any(|sent| sent.bytes > 0 && sent.flow == flow)
    }

    /// Returns what is known of a flow.
    pub fn flow(&self, flow: u8) -> &FlowRecord {
        let beyond = usize::from(flow).checked_sub(1).and_then(|at| self.more.get(at));
        beyond.unwrap_or(&self.record)
    }

    /// Like [`flow`](Self::flow), but mutable.
    pub fn flow_mut(&mut self, flow: u8) -> &mut FlowRecord {
        let beyond = usize::from(flow).checked_sub(1).and_then(|at| self.more.get_mut(at));
        beyond.unwrap_or(&mut self.record)
    }

    /// Returns all flows, the first one first.
    pub fn flows_mut(&mut self) -> impl Iterator<Item = &mut FlowRecord> {
        core::iter::once(&mut self.record).chain(&mut self.more)
    }

    fn flows(&self) -> impl Iterator<Item = &FlowRecord> {
        core::iter::once(&self.record).chain(&self.more)
    }

    /// Returns the round trip of the first flow.
    pub fn rtt(&self) -> &RoundTrip {
        &self.record.rtt
    }

    /// Returns the round trip of the slowest flow.
    pub fn slowest(&self) -> &RoundTrip {
        if self.more.is_empty() {
            return &self.record.rtt;
        }
        let slowest = self.flows().max_by_key(|flow| flow.rtt.smoothed());
        &slowest.unwrap_or(&self.record).rtt
    }

    /// Returns the number of the datagram being written.
    pub fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Lets the next datagram have this number, as if all before it were acknowledged.
    #[cfg(test)]
    pub fn skip_to(&mut self, number: u64) {
        assert!(self.sent.is_empty() && number >= self.first);
        self.first = number;
    }

    /// Lets the next datagram have this number. The numbers before it belong to datagrams that went
    /// to other members of a stream (WIND-12.2).
    pub fn advance_to(&mut self, number: u64) {
        if self.sent.is_empty() {
            self.first = self.first.max(number);
        }
        let first_item = self.first_item + self.items.len() as u64;
        while self.next_number() < number {
            let (at, kind) = (self.last_step, Evidence::Plain);
            let (bytes, items, content, flow) = (0, 0, false, 0);
            self.sent.push_back(Sent { at, first_item, bytes, items, kind, flow, content });
        }
    }

    /// Returns `true` if a datagram of this number was sent.
    pub fn has_sent(&self, number: u64) -> bool {
        number < self.next_number()
    }

    /// Returns a skipped number, if the acknowledgement claims that its datagram arrived
    /// (WIND-7.11).
    pub fn skipped_in(&self, ack: &Acknowledgement<'_>) -> Option<u64> {
        let latest = self.skips.latest().filter(|latest| *latest <= ack.largest)?;
        ack.ranges().any(|range| range.contains(&latest)).then_some(latest)
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub fn datagrams(&self) -> usize {
        self.datagrams
    }

    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// Returns `true` if a datagram is in flight that is longer than every path must carry.
    pub fn has_large(&self) -> bool {
        self.sent.iter().any(|sent| usize::from(sent.bytes) > DATAGRAM_MIN)
    }

    /// Adds an item to the datagram being written.
    pub fn carry(&mut self, item: Item) {
        self.items.push_back(item);
        self.open_items += 1;
    }

    /// Completes the datagram being written, which may be sent by `mode`. `elicits` tells whether
    /// it must be acknowledged, and `asks` whether it asks for that at once.
    pub fn commit(&mut self, now: Time, bytes: usize, mode: SendMode, elicits: bool, asks: bool) {
        let items = core::mem::take(&mut self.open_items);
        let bytes = if elicits { u16::try_from(bytes).unwrap_or(u16::MAX) } else { 0 };
        let flow = self.flow;
        let first_item = self.first_item + self.items.len() as u64 - u64::from(items);
        let kind = self.kind(now, bytes, mode);
        let content =
            elicits && self.items.iter().rev().take(items as usize).any(|item| item.is_content());
        self.sent.push_back(Sent {
            at: now,
            first_item,
            bytes,
            items: items as u16,
            kind,
            flow,
            content,
        });
        if self.skips.skip(self.next_number()) {
            let (bytes, items, content) = (0, 0, false);
            let first_item = self.first_item + self.items.len() as u64;
            self.sent.push_back(Sent { at: now, first_item, bytes, items, kind, flow, content });
        }
        if self.items.back() == Some(&Item::SizeProbe) && items > 0 {
            // A size probe counts neither for the window nor for the probe timeout.
            self.unfollowed = Some(now + self.probe.timeout(self.slowest(), asks));
        } else if elicits {
            self.unfollowed = None;
            self.in_flight += u64::from(bytes);
            self.datagrams += 1;
            if !self.more.is_empty() {
                let share = self.flow_mut(flow).share_mut();
                share.in_flight += u64::from(bytes);
                share.sent += 1;
            }
            self.progress.sent(now, content);
            (self.last_step, self.asked) = (now, asks);
        } else {
            self.trim();
        }
    }

    /// Returns what the fate of the datagram being sent will tell about fast paths. A link sends
    /// datagrams as one train that are equally long and are sent at once.
    fn kind(&mut self, now: Time, bytes: u16, mode: SendMode) -> Evidence {
        match (mode, self.sent.back_mut()) {
            (SendMode::Plain, _) => Evidence::Plain,
            (SendMode::Any, Some(before))
                if before.at == now
                    && before.bytes == bytes
                    && before.flow == self.flow
                    && before.kind != Evidence::Plain =>
            {
                before.kind = Evidence::Segment;
                Evidence::Segment
            }
            _ => Evidence::Alone,
        }
    }

    /// Returns the index of a datagram in the records.
    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok().filter(|at| *at < self.sent.len())
    }

    /// Takes a datagram out of flight, and returns its record and items.
    fn retire(&mut self, at: usize) -> Option<(Sent, Range<usize>)> {
        let sent = self.sent.get_mut(at).filter(|sent| sent.bytes > 0)?;
        let record = *sent;
        sent.bytes = 0;
        let start = usize::try_from(record.first_item - self.first_item).ok()?;
        let items = start..start + usize::from(record.items);
        if record.content {
            self.progress.carrier_retired();
        }
        if self.is_size_probe(&items) {
            self.unfollowed = None;
        } else {
            self.in_flight -= u64::from(record.bytes);
            self.datagrams -= 1;
            if !self.more.is_empty() {
                self.flow_mut(record.flow).share_mut().in_flight -= u64::from(record.bytes);
            }
        }
        Some((record, items))
    }

    /// Drops finished records at the front.
    fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.bytes == 0) {
            if let Some(sent) = self.sent.pop_front() {
                self.first += 1;
                self.first_item += u64::from(sent.items);
                self.items.drain(..usize::from(sent.items));
            }
        }
    }

    /// Processes an ACK frame of datagrams that [were sent](Self::has_sent). Calls `on_item` for
    /// each newly acknowledged item.
    pub fn acknowledge(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        mut on_item: impl FnMut(Item),
    ) -> Acked {
        let mut acked = Acked::default();
        let mut news = None;
        let several = !self.more.is_empty();
        if several {
            for share in self.flows_mut().map(FlowRecord::share_mut) {
                (share.acked, share.news) = (Acked::default(), None);
            }
        }
        // A peer answers questions even if it has no room for what else is in flight (WIND-5.4).
        let mut answers = !self.probe.is_silent();
        let mut content = false;
        for range in ack.ranges() {
            if !self.suspected.is_empty() {
                let mut note = |item: Item| {
                    content |= item.is_content();
                    on_item(item);
                };
                self.clear_doubts(now, &range, &mut note, &mut acked, &mut news);
            }
            let Some(last) = self.index(*range.end()) else { continue };
            let first = self.index(*range.start()).unwrap_or(0);
            for at in (first..=last).rev() {
                let Some((sent, items)) = self.retire(at) else { continue };
                acked.datagrams += 1;
                content |= sent.content;
                self.arrived(sent.kind);
                acked.latest = acked.latest.max(sent.at);
                News::add(&mut news, self.first + at as u64, sent.at);
                let is_size_probe = self.is_size_probe(&items);
                if !is_size_probe {
                    acked.bytes += u64::from(sent.bytes);
                    self.sizes.acked(self.first + at as u64, u32::from(sent.bytes));
                }
                if several {
                    self.note_flow(sent, self.first + at as u64, is_size_probe);
                }
                for &item in self.items.range(items) {
                    answers |= item.is_content();
                    on_item(item);
                }
            }
        }
        if let Some(news) = news {
            if answers || acked.spurious > 0 || self.is_empty() {
                self.probe.answered();
            } else {
                self.probe.only_heard();
            }
            acked.round_trip = match several {
                false => self.learn(now, news, ack),
                true => self.learn_flows(now, ack),
            };
            self.last_step = self.last_step.max(now);
            self.trim();
            self.progress.acknowledged(now, content, self.datagrams > 0);
        }
        acked
    }

    /// Notes a datagram of one of several flows that was acknowledged.
    fn note_flow(&mut self, sent: Sent, number: u64, is_size_probe: bool) {
        let flow = self.flow_mut(sent.flow);
        flow.forgive();
        let share = flow.share_mut();
        share.acked.datagrams += 1;
        share.acked.latest = share.acked.latest.max(sent.at);
        share.acked.bytes += if is_size_probe { 0 } else { u64::from(sent.bytes) };
        News::add(&mut share.news, number, sent.at);
    }

    /// Notes that a datagram of this kind has arrived.
    fn arrived(&mut self, kind: Evidence) {
        match kind {
            Evidence::Segment => self.trains.arrived(),
            Evidence::Alone => {
                self.trains.others_arrive();
                self.bypass.arrived();
            }
            Evidence::Plain => {
                self.trains.others_arrive();
                self.bypass.others_arrive();
            }
        }
    }

    /// Clears those of the acknowledged numbers that had been declared lost (WIND-5.6).
    fn clear_doubts(
        &mut self,
        now: Time,
        range: &RangeInclusive<u64>,
        on_item: &mut impl FnMut(Item),
        acked: &mut Acked,
        news: &mut Option<News>,
    ) {
        let Flight { suspected, record, more, sizes, trains, bypass, .. } = self;
        suspected.clear(range, on_item, |doubt| {
            // The path that the datagram took is not remembered, so no fast path is blamed.
            trains.arrived();
            bypass.arrived();
            acked.spurious += 1;
            sizes.acked(doubt.number, doubt.bytes);
            let several = !more.is_empty();
            let flow = match usize::from(doubt.flow).checked_sub(1) {
                None => Some(&mut *record),
                Some(beyond) => more.get_mut(beyond),
            };
            // A late arrival of a flow that is not used any more says nothing of the others.
            let Some(flow) = flow else { return };
            News::add(news, doubt.number, doubt.sent);
            let undo = flow.episode.arrived(doubt.event);
            acked.undo |= undo;
            if several {
                flow.forgive();
                let share = flow.share_mut();
                share.acked.undo |= undo;
                News::add(&mut share.news, doubt.number, doubt.sent);
            }
            match doubt.cause {
                Cause::Time => flow.reordering.widen(&flow.rtt, now),
                Cause::Reordering => flow.reordering.seen(),
                Cause::Probe => acked.probed_in_vain = true,
                Cause::Size | Cause::Silence => {}
            }
        });
    }

    /// Updates the estimates of a lane with one flow after an acknowledgement with news. Returns
    /// the round trip, if the acknowledgement shows one.
    fn learn(&mut self, now: Time, news: News, ack: &Acknowledgement<'_>) -> Option<Duration> {
        let (number, sent) = news.newest;
        let largest = self.record.largest_acked();
        // The peer counts its delay from the arrival of the largest number. That may be a datagram
        // that needs no acknowledgement, such as an ACK.
        let shows = match ack.largest {
            acked if acked == number => Some(sent),
            acked if acked > largest => {
                self.index(acked).and_then(|at| self.sent.get(at)).map(|sent| sent.at)
            }
            _ => None,
        };
        let delay = Duration::from_nanos(u64::from(ack.fields.delay));
        let round_trip = shows.map(|sent| self.record.rtt.sample(now - sent, delay));
        self.record.note_order(now, news);
        round_trip
    }

    /// Updates the estimates of several flows. Returns the round trip that the largest number
    /// shows.
    fn learn_flows(&mut self, now: Time, ack: &Acknowledgement<'_>) -> Option<Duration> {
        let mut shown = None;
        for flow in self.flows_mut() {
            let Some(news) = flow.share_mut().news.take() else { continue };
            let (number, sent) = news.newest;
            // The peer counts its delay for the largest number only. Others have waited as long at
            // the most, or came after later ones and are acknowledged at once (WIND-3.3).
            let delay = Duration::from_nanos(u64::from(ack.fields.delay));
            let is_largest = number == ack.largest;
            let is_exact = flow.rtt.smoothed().is_none_or(|smoothed| delay <= smoothed / 4);
            if is_largest || is_exact {
                let delay = if is_largest { delay } else { Duration::ZERO };
                let round_trip = flow.rtt.sample(now - sent, delay);
                flow.share_mut().acked.round_trip = Some(round_trip);
                shown = shown.or(is_largest.then_some(round_trip));
            }
            flow.note_order(now, news);
        }
        shown
    }

    fn is_size_probe(&self, items: &Range<usize>) -> bool {
        !items.is_empty() && self.items.get(items.start) == Some(&Item::SizeProbe)
    }

    /// Returns the largest number that was acknowledged, or 0 if none was.
    pub fn largest_acked(&self) -> u64 {
        self.flows().map(FlowRecord::largest_acked).max().unwrap_or(0)
    }

    pub fn loss_time(&self) -> Option<Time> {
        self.loss_time
    }

    /// Returns when the probe timer runs out.
    pub fn probe_time(&self) -> Option<Time> {
        (self.datagrams > 0)
            .then(|| self.last_step + self.probe.timeout(self.slowest(), self.asked))
    }

    /// Returns when a datagram must follow a size probe.
    pub fn follow_time(&self) -> Option<Time> {
        self.unfollowed
    }

    /// Called when the datagram is to follow now.
    pub fn followed(&mut self) {
        self.unfollowed = None;
    }

    /// Returns the number of datagrams on record.
    #[cfg(test)]
    pub fn records(&self) -> usize {
        self.sent.len()
    }

    /// Gives memory back while idle.
    pub fn shrink(&mut self) {
        self.sent.shrink_to(16);
        self.items.shrink_to(16);
        self.suspected.forget();
    }
}
