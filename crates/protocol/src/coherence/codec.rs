//! Encodes and decodes coherence's own messages (COH-9). Numbers of bodies are LEB128, and
//! every field is checked (COH-9.1).

use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::fetching::limits::{FETCH_PAGES_MAX, FETCH_RUNS_MAX};
use crate::coherence::fetching::target_op::TargetOp;
use crate::coherence::types::LockMode;
use crate::coherence::updating::head::{CountedUpdates, UpdateHead};
use crate::rma::MessageKind;
use crate::traffic::MessagePurpose;
use crate::wind::{Head, Refusal};
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// First byte of the head of every coherence message. The engine passes such messages to this
/// module.
pub const KIND: u8 = MessageKind::Coherence as u8;

/// Type and fields of a message (COH-9.2): second byte of the head, then fixed little-endian
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Headline {
    /// Requests the pages of this run and of those in the body. `id` is the requester's number.
    Fetch(RequestedRun),
    /// Answers with the pages of one requested run.
    Pages(PageRun),
    /// Changes to pages homed at the receiver, in the body.
    Diff { array: u32 },
    /// Arrival at a collective. The body holds everything else.
    Arrive { epoch: u64 },
    /// End of a collective.
    Depart { epoch: u64 },
    /// Request for a lock.
    Acquire { lock: u64, request: u64, mode: LockMode },
    /// Grant of a lock, as of this epoch.
    Grant { lock: u64, request: u64, epoch: u64 },
    /// Return of a lock.
    Unlock { lock: u64, request: u64, epoch: u64 },
    /// Request that gets the lock after the receiver's request, in the body (COH-7.9).
    Next { lock: u64, request: u64 },
    /// The sender has granted the lock to the request in the body (COH-7.9).
    Passed { lock: u64, request: u64 },
    /// Note that no thread of the sender waits for a request any longer, or that one does again
    /// (COH-7.15).
    Abandon { lock: u64, request: u64, abandoned: bool },
    /// Report that this node is dead.
    Died { rank: u32 },
    /// Question whether the receiver still owes this to the sender (COH-13).
    Question { wait: Wait },
    /// Reply to a question: `owed` is `true` if the answer is owed.
    Reply { wait: Wait, owed: bool },
    /// Written bytes for a reader (COH-10).
    Update(UpdateHead),
    /// The sender wants updates of pages homed at the receiver, or does not.
    Subscribe { array: u32, change: SubscriptionChange, first: u64, count: u64 },
    /// The nodes that want updates of pages homed at the sender, in the body.
    Subscribers { array: u32 },
    /// Operation on elements at the receiver, which is their home (COH-12).
    Target { array: u32, op: TargetOp, offset: u64, id: u64 },
    /// The operation is done. The body has its result.
    TargetDone { id: u64 },
    /// The sender leaves the job after `epoch` collectives. With `silent` it sends no more messages
    /// either (COH-6.7).
    Leaving { epoch: u64, silent: bool },
    /// The sender has released for the receiver (COH-15.4).
    Notify { epoch: u64, updates: CountedUpdates },
}

/// Whether updates of pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum SubscriptionChange {
    Begin,
    End,
}

/// Answer for which a node waits (COH-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Wait {
    /// End of the collective that follows `epoch` passed ones, at which the sender has told
    /// `reported` arrivals.
    Collective { epoch: u64, reported: u64 },
    /// Grant of a lock, from its manager.
    Lock { lock: u64, request: u64 },
    /// Pages, from their home.
    Pages { id: u64 },
    /// Return of a lock, from the node that holds it.
    Holder { lock: u64, request: u64 },
    /// Updates that a departure or a notification counts, from their writer.
    Updates { epoch: u64 },
    /// Answer to an operation on elements, from their home.
    Target { id: u64 },
    /// Nothing that the receiver owes: the manager asks whether this request has got the lock
    /// (COH-7.11).
    Granted { lock: u64, request: u64 },
    /// Grant of a lock to this request of another node, from the holder that has passed it on. The
    /// manager asks for that node.
    Sent { lock: u64, request: u64 },
}

impl Wait {
    fn fields(self) -> [u64; 3] {
        match self {
            Wait::Collective { epoch, reported } => [0, epoch, reported],
            Wait::Lock { lock, request } => [1, lock, request],
            Wait::Pages { id } => [2, id, 0],
            Wait::Holder { lock, request } => [3, lock, request],
            Wait::Updates { epoch } => [4, epoch, 0],
            Wait::Target { id } => [5, id, 0],
            Wait::Granted { lock, request } => [6, lock, request],
            Wait::Sent { lock, request } => [7, lock, request],
        }
    }

    fn from_fields([sort, a, b]: [u64; 3]) -> Result<Wait, Refusal> {
        Ok(match (sort, b) {
            (0, reported) => Wait::Collective { epoch: a, reported },
            (1, request) => Wait::Lock { lock: a, request },
            (2, 0) => Wait::Pages { id: a },
            (3, request) => Wait::Holder { lock: a, request },
            (4, 0) => Wait::Updates { epoch: a },
            (5, 0) => Wait::Target { id: a },
            (6, request) => Wait::Granted { lock: a, request },
            (7, request) => Wait::Sent { lock: a, request },
            _ => return Err(Refusal::Malformed),
        })
    }
}

/// Flag in the first field of a reply whose answer is owed.
const OWED: u64 = 1 << 8;

/// Consecutive pages of one array and one home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct PageRun {
    pub array: u32,
    pub count: u32,
    pub first: u64,
    pub id: u64,
}

/// Run of a fetch. Runs after the first one are in the body, and have the numbers that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct RequestedRun {
    pub pages: PageRun,
    /// Number of pages, from the first one on, that a thread needs. The others are read ahead.
    pub demanded: u32,
}

impl Headline {
    /// Returns `true` if a message of this type may have a body.
    pub fn has_body(&self) -> bool {
        !matches!(
            self,
            Headline::Leaving { .. }
                | Headline::Subscribe { .. }
                | Headline::Question { .. }
                | Headline::Reply { .. }
                | Headline::Died { .. }
        )
    }

    pub fn write(self) -> Head {
        let (code, fields): (u8, [u64; 3]) = match self {
            Headline::Fetch(run) => (1, run.fields()),
            Headline::Pages(r) => (2, r.fields()),
            Headline::Diff { array } => (3, [u64::from(array), 0, 0]),
            Headline::Arrive { epoch } => (4, [epoch, 0, 0]),
            Headline::Depart { epoch } => (5, [epoch, 0, 0]),
            Headline::Acquire { lock, request, mode } => {
                (6, [lock, request, u64::from(mode.tries) | u64::from(mode.reads) << 1])
            }
            Headline::Grant { lock, request, epoch } => (7, [lock, request, epoch]),
            Headline::Unlock { lock, request, epoch } => (8, [lock, request, epoch]),
            Headline::Died { rank } => (9, [u64::from(rank), 0, 0]),
            Headline::Leaving { epoch, silent } => (10, [epoch, u64::from(silent), 0]),
            Headline::Question { wait } => (11, wait.fields()),
            Headline::Reply { wait, owed } => {
                let [sort, a, b] = wait.fields();
                (12, [sort | if owed { OWED } else { 0 }, a, b])
            }
            Headline::Update(update) => (13, update.fields()),
            Headline::Subscribe { array, change, first, count } => {
                let begins = u64::from(change == SubscriptionChange::Begin);
                (14, [u64::from(array) | begins << 32, first, count])
            }
            Headline::Subscribers { array } => (15, [u64::from(array), 0, 0]),
            Headline::Target { array, op, offset, id } => {
                let (code, element) = op.encode();
                let a = u64::from(array) | u64::from(code) << 32 | u64::from(element) << 40;
                (16, [a, offset, id])
            }
            Headline::TargetDone { id } => (17, [id, 0, 0]),
            Headline::Notify { epoch, updates } => (18, [epoch, updates.epoch, updates.count]),
            Headline::Next { lock, request } => (19, [lock, request, 0]),
            Headline::Passed { lock, request } => (20, [lock, request, 0]),
            Headline::Abandon { lock, request, abandoned } => {
                (21, [lock, request, u64::from(abandoned)])
            }
        };
        let mut head = Head::new();
        head.push(KIND);
        head.push(code);
        let [a, b, c] = fields;
        head.put_u64(a).put_u64(b).put_u64(c);
        head
    }

    pub fn read(head: &[u8]) -> Result<Headline, Refusal> {
        let mut reader = ByteReader(head);
        if reader.u8()? != KIND {
            return Err(Refusal::Malformed);
        }
        let code = reader.u8()?;
        let [a, b, c] = [reader.u64()?, reader.u64()?, reader.u64()?];
        reader.end()?;
        let small = |value: u64| u32::try_from(value).map_err(|_| Refusal::Malformed);
        Ok(match code {
            1 => Headline::Fetch(RequestedRun::from_fields([a, b, c])),
            2 => Headline::Pages(PageRun::from_fields([a, b, c])),
            3 => Headline::Diff { array: small(a)? },
            4 => Headline::Arrive { epoch: a },
            5 => Headline::Depart { epoch: a },
            6 if c <= 3 => {
                let mode = LockMode { tries: c & 1 != 0, reads: c & 2 != 0 };
                Headline::Acquire { lock: a, request: b, mode }
            }
            7 => Headline::Grant { lock: a, request: b, epoch: c },
            8 => Headline::Unlock { lock: a, request: b, epoch: c },
            9 => Headline::Died { rank: small(a)? },
            10 if b <= 1 => Headline::Leaving { epoch: a, silent: b == 1 },
            11 => Headline::Question { wait: Wait::from_fields([a, b, c])? },
            12 => {
                Headline::Reply { wait: Wait::from_fields([a & !OWED, b, c])?, owed: a & OWED != 0 }
            }
            13 => Headline::Update(UpdateHead::from_fields([a, b, c])?),
            14 if a >> 33 == 0 && b.checked_add(c).is_some() => {
                let change = match a >> 32 {
                    1 => SubscriptionChange::Begin,
                    _ => SubscriptionChange::End,
                };
                Headline::Subscribe { array: a as u32, change, first: b, count: c }
            }
            15 => Headline::Subscribers { array: small(a)? },
            16 if a >> 48 == 0 => {
                let op = TargetOp::decode((a >> 32) as u8, (a >> 40) as u8)?;
                Headline::Target { array: a as u32, op, offset: b, id: c }
            }
            17 => Headline::TargetDone { id: a },
            18 => Headline::Notify { epoch: a, updates: CountedUpdates { epoch: b, count: c } },
            19 => Headline::Next { lock: a, request: b },
            20 => Headline::Passed { lock: a, request: b },
            21 if c <= 1 => Headline::Abandon { lock: a, request: b, abandoned: c == 1 },
            _ => return Err(Refusal::Malformed),
        })
    }
}

/// Returns the purpose of a coherence message, from its head.
#[must_use]
pub fn purpose(head: &[u8]) -> MessagePurpose {
    // The codes of [`Headline::write`].
    match head.get(1) {
        Some(1) => MessagePurpose::FetchRequest,
        Some(2) => MessagePurpose::Pages,
        Some(3) => MessagePurpose::Diff,
        Some(4 | 5 | 18) => MessagePurpose::Barrier,
        Some(6..=8 | 19..=21) => MessagePurpose::Lock,
        Some(13) => MessagePurpose::Update,
        Some(14 | 15) => MessagePurpose::Subscription,
        Some(16 | 17) => MessagePurpose::Atomic,
        _ => MessagePurpose::OtherShared,
    }
}

impl PageRun {
    fn fields(self) -> [u64; 3] {
        [u64::from(self.array) | u64::from(self.count) << 32, self.first, self.id]
    }

    fn from_fields([packed, first, id]: [u64; 3]) -> PageRun {
        PageRun { array: packed as u32, count: (packed >> 32) as u32, first, id }
    }
}

/// Lowest bit of the number of demanded pages in the first field of a fetch.
const DEMANDED_SHIFT: u32 = 48;
const _: () = assert!(FETCH_PAGES_MAX < 1 << 16);

impl RequestedRun {
    fn fields(self) -> [u64; 3] {
        let [packed, first, id] = self.pages.fields();
        [packed | u64::from(self.demanded) << DEMANDED_SHIFT, first, id]
    }

    fn from_fields([packed, first, id]: [u64; 3]) -> RequestedRun {
        let run = packed & ((1 << DEMANDED_SHIFT) - 1);
        RequestedRun {
            pages: PageRun::from_fields([run, first, id]),
            demanded: (packed >> DEMANDED_SHIFT) as u32,
        }
    }

    /// Encodes the runs after the first one, which are in order and disjoint (COH-9.2).
    pub fn write_rest(runs: &[RequestedRun]) -> Vec<u8> {
        let mut body = Vec::new();
        for (before, run) in runs.iter().zip(runs.iter().skip(1)) {
            let end = before.pages.first.saturating_add(u64::from(before.pages.count));
            body.put_leb128(run.pages.first.saturating_sub(end))
                .put_leb128(run.pages.count.into())
                .put_leb128(run.demanded.into());
        }
        body
    }

    /// Decodes the runs of a fetch that begins with this one, and checks that counts are within
    /// the limits. The caller checks that the pages exist.
    pub fn read_all(self, body: &[u8]) -> Result<ArrayVec<RequestedRun, FETCH_RUNS_MAX>, Refusal> {
        let mut reader = ByteReader(body);
        let mut runs = ArrayVec::new();
        let (mut next, mut pages) = (self, 0);
        loop {
            let PageRun { array, count, first, id } = next.pages;
            pages += count.min(FETCH_PAGES_MAX + 1);
            if next.demanded > count || pages > FETCH_PAGES_MAX {
                return Err(Refusal::Malformed);
            }
            runs.try_push(next).map_err(|_| Refusal::Malformed)?;
            if reader.end().is_ok() {
                return Ok(runs);
            }
            let end = first.checked_add(count.into()).ok_or(Refusal::OutOfBounds)?;
            let first = end.checked_add(reader.leb128()?).ok_or(Refusal::OutOfBounds)?;
            let (count, demanded) = (reader.leb128_u32()?, reader.leb128_u32()?);
            let id = id.checked_add(1).ok_or(Refusal::Malformed)?;
            next = RequestedRun { pages: PageRun { array, count, first, id }, demanded };
        }
    }
}

/// Returns one message of each kind and form, with its purpose.
#[cfg(test)]
pub(crate) fn samples() -> Vec<(Headline, MessagePurpose)> {
    use crate::coherence::updating::head::{Form, UpdatePart};
    use crate::rma::{Accumulation, Combine, NumberKind, Width};

    let pages = PageRun { array: 1, count: 2, first: 3, id: 4 };
    let (lock, request, epoch) = (1, 2, 3);
    let waits = [
        Wait::Collective { epoch, reported: 4 },
        Wait::Lock { lock, request },
        Wait::Pages { id: 5 },
        Wait::Holder { lock, request },
        Wait::Updates { epoch },
        Wait::Target { id: 5 },
        Wait::Granted { lock, request },
        Wait::Sent { lock, request },
    ];
    let modes = [(false, false), (true, false), (false, true), (true, true)]
        .map(|(reads, tries)| LockMode { reads, tries });
    let mut all: Vec<(Headline, MessagePurpose)> = [
        (Headline::Fetch(RequestedRun { pages, demanded: 1 }), MessagePurpose::FetchRequest),
        (Headline::Pages(pages), MessagePurpose::Pages),
        (Headline::Diff { array: 1 }, MessagePurpose::Diff),
        (Headline::Arrive { epoch }, MessagePurpose::Barrier),
        (Headline::Depart { epoch }, MessagePurpose::Barrier),
        (Headline::Grant { lock, request, epoch }, MessagePurpose::Lock),
        (Headline::Unlock { lock, request, epoch }, MessagePurpose::Lock),
        (Headline::Next { lock, request }, MessagePurpose::Lock),
        (Headline::Passed { lock, request }, MessagePurpose::Lock),
        (Headline::Abandon { lock, request, abandoned: false }, MessagePurpose::Lock),
        (Headline::Abandon { lock, request, abandoned: true }, MessagePurpose::Lock),
        (Headline::Subscribers { array: 1 }, MessagePurpose::Subscription),
        (Headline::TargetDone { id: 1 }, MessagePurpose::Atomic),
        (
            Headline::Notify { epoch, updates: CountedUpdates { epoch, count: 4 } },
            MessagePurpose::Barrier,
        ),
        (Headline::Died { rank: 1 }, MessagePurpose::OtherShared),
        (Headline::Leaving { epoch, silent: false }, MessagePurpose::OtherShared),
        (Headline::Leaving { epoch, silent: true }, MessagePurpose::OtherShared),
    ]
    .into();
    all.extend(modes.map(|mode| (Headline::Acquire { lock, request, mode }, MessagePurpose::Lock)));
    let how = Accumulation { element: NumberKind::F64, combine: Combine::Max };
    let ops = [
        TargetOp::Read,
        TargetOp::Write,
        TargetOp::Combine(how),
        TargetOp::Accumulate(how),
        TargetOp::CompareExchange(Width::W64),
    ];
    all.extend(
        ops.map(|op| (Headline::Target { array: 1, op, offset: 2, id: 3 }, MessagePurpose::Atomic)),
    );
    let forms = [
        (Form::Range, 9, UpdatePart::Nothing),
        (Form::Range, 9, UpdatePart::Header),
        (Form::Range, 9, UpdatePart::Message),
        (Form::Changes, 0, UpdatePart::Nothing),
        (Form::Changes, 0, UpdatePart::Header),
    ];
    for (form, offset, through) in forms {
        all.extend([false, true].map(|pushed| {
            let (array, epoch, interval) = (1, 2, 5);
            let update = UpdateHead { array, form, pushed, through, epoch, offset, interval };
            (Headline::Update(update), MessagePurpose::Update)
        }));
    }
    for change in [SubscriptionChange::Begin, SubscriptionChange::End] {
        let head = Headline::Subscribe { array: 1, change, first: 0, count: 1 };
        all.push((head, MessagePurpose::Subscription));
    }
    for wait in waits {
        let replies = [false, true].map(|owed| Headline::Reply { wait, owed });
        let both = [Headline::Question { wait }].into_iter().chain(replies);
        all.extend(both.map(|head| (head, MessagePurpose::OtherShared)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_its_purpose() {
        for (message, expected) in samples() {
            let head = message.write();
            assert_eq!(MessagePurpose::of(&head), expected, "{message:?}");
            assert_eq!(Headline::read(&head), Ok(message));
        }
    }
}
