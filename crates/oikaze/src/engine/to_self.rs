//! Messages to our own rank: delivered without the network, in order, in the stage that posts replies.
//!
//! The user's take of this node's credit, as any peer's do (MEM-8.1): else a program that sends to itself and does not read would fill its
//! memory. What needs none passes those that wait for it, as in a ring (MEM-16.3).

use super::Engine;
use super::upward::Upward;
use oikaze_os::link::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD, MESSAGES_IN_FLIGHT};
use oikaze_protocol::rma::{Memory, read_rows};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Message, PostError, Refusal, Rows, Token, Upper};
use std::collections::VecDeque;

/// Bytes of rows to ourselves that are packed at a time.
const PIECE_TO_SELF: usize = 64 << 10;

/// Those that wait.
#[derive(Default)]
pub(super) struct ToSelf {
    /// To be looked at, in their order.
    queue: VecDeque<Message>,
    /// They wait for credit, or behind one that does.
    held: VecDeque<Message>,
    /// Credit taken and not given back.
    charged: u64,
    number: u64,
}

impl ToSelf {
    pub fn is_due(&self) -> bool {
        !self.queue.is_empty()
    }

    /// As of a connection: would [`ToSelf::post`] answer [`PostError::Full`]?
    pub fn is_full(&self) -> bool {
        self.queue.len() + self.held.len() >= MESSAGES_IN_FLIGHT
    }

    pub fn post(&mut self, message: Message) -> Result<(), PostError> {
        if charge_of(&message) > CREDIT {
            return Err(PostError::NoRoom);
        }
        if self.is_full() {
            return Err(PostError::Full);
        }
        self.queue.push_back(message);
        Ok(())
    }

    /// The next that may be delivered.
    fn next(&mut self) -> Option<Message> {
        while let Some(message) = self.queue.pop_front() {
            let passes = message.class == Class::Unordered && !message.credited;
            let charge = charge_of(&message);
            if passes || (self.held.is_empty() && self.charged + charge <= CREDIT) {
                self.charged += charge;
                return Some(message);
            }
            self.held.push_back(message);
        }
        None
    }

    /// The user has read so much.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.give_back(messages.saturating_mul(CREDIT_OVERHEAD).saturating_add(bytes));
        self.look_at_held();
    }

    /// Those that waited may go now, before what came after them.
    fn look_at_held(&mut self) {
        self.held.append(&mut self.queue);
        std::mem::swap(&mut self.held, &mut self.queue);
    }

    fn give_back(&mut self, charge: u64) {
        self.charged = self.charged.saturating_sub(charge);
    }

    pub fn forget(&mut self, forgotten: &impl Fn(Token) -> bool) {
        self.queue.retain(|message| !forgotten(message.token));
        self.held.retain(|message| !forgotten(message.token));
        // There may be credit for what was behind.
        self.look_at_held();
    }
}

fn charge_of(message: &Message) -> u64 {
    if message.credited { message.body.len().saturating_add(CREDIT_OVERHEAD) } else { 0 }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Deliver one message to ourselves, if there is one.
    pub(super) fn deliver_to_self(&mut self) -> bool {
        let Some(message) = self.to_self.next() else { return false };
        let charge = charge_of(&message);
        let number = self.to_self.number;
        self.to_self.number += 1;
        let body = match message.body {
            Body::Inline(bytes) => bytes,
            Body::Segment(segment) => {
                let mut bytes = vec![0; usize::try_from(segment.len).unwrap_or(0)];
                self.memory.wait_for_pages(true);
                let read = self.memory.read(segment.region, segment.offset, &mut bytes);
                self.memory.wait_for_pages(false);
                if !read {
                    self.to_self.give_back(charge);
                    self.unreadable(self.me, message.token, self.why_unreadable(Some(segment.region)));
                    return true;
                }
                bytes
            }
            Body::Rows(rows) => {
                self.rows_to_self(number, &message.head, message.class, message.token, &rows);
                return true;
            }
            body @ (Body::Empty | Body::Short(_)) => body.bytes().to_vec(),
        };
        let Self { me, pages, memory, rma, coherence, bodies, .. } = self;
        let mut upper = Upward { rma, coherence, memory, pages, bodies };
        let outcome = upper.deliver(*me, number, message.class, &message.head, Delivered::Bytes(&body));
        match outcome {
            Ok(()) => self.acknowledged(message.token),
            Err(Refusal::NotPresent) => {
                let me = *me;
                let body = Body::Inline(body);
                let Message { class, urgent, credited, head, token, .. } = message;
                self.returned(me, Message { class, urgent, credited, head, body, token });
            }
            Err(refusal) => {
                // Nobody reads what was refused.
                self.to_self.give_back(charge);
                self.refused(message.token, refusal);
            }
        }
        true
    }

    /// A piece at a time: packed, they may be longer than any memory.
    fn rows_to_self(&mut self, number: u64, head: &[u8], class: Class, token: Token, rows: &Rows) {
        self.memory.wait_for_pages(true);
        let outcome = self.place_rows(number, head, class, rows);
        self.memory.wait_for_pages(false);
        match outcome {
            Ok(true) => self.acknowledged(token),
            Ok(false) => {
                self.rma.withdrawn(self.me, number);
                self.unreadable(self.me, token, self.why_unreadable(Some(rows.region)));
            }
            Err(refusal) => self.refused(token, refusal),
        }
    }

    /// False: the source has gone away.
    fn place_rows(&mut self, number: u64, head: &[u8], class: Class, rows: &Rows) -> Result<bool, Refusal> {
        let Self { me, pages, memory, rma, coherence, bodies, .. } = self;
        let mut upper = Upward { rma, coherence, memory, pages, bodies };
        match upper.admit(*me, number, class, head, rows.len()) {
            Admission::Place => {}
            Admission::Assemble => return Err(Refusal::Malformed),
            Admission::Refuse(refusal) => return Err(refusal),
        }
        let mut piece = vec![0; rows.len().min(PIECE_TO_SELF as u64) as usize];
        for start in (0..rows.len()).step_by(PIECE_TO_SELF) {
            let len = (rows.len() - start).min(piece.len() as u64) as usize;
            let Some(bytes) = piece.get_mut(..len) else { return Ok(false) };
            if !read_rows(rows, start, bytes, upper.memory) {
                return Ok(false);
            }
            upper.place(*me, number, start, bytes);
        }
        upper.deliver(*me, number, class, head, Delivered::Placed(rows.len())).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Node, pair};
    use super::super::{Completion, Failure, Request, Value, tracked};
    use oikaze_os::memory::Region;
    use oikaze_protocol::limits::{CREDIT, MESSAGES_IN_FLIGHT, PAGE, POST_INLINE, PRESENT_PAUSE_MAX, PRESENT_TIME};
    use oikaze_protocol::rma::{Rights, RmaError};
    use oikaze_protocol::wind::{Body, Class, Refusal, Segment};
    use std::sync::Arc;

    const EACH: usize = 1 << 20;

    fn send(node: &Node, class: Class, tag: u64, bytes: usize) -> Arc<Completion> {
        node.ask(Request::Send { to: 0, class, tag, body: Body::Inline(vec![1; bytes]) })
    }

    /// MEM-8.1: a program that sends to itself and does not read does not fill its memory; what it reads makes room.
    #[test]
    fn messages_to_oneself_wait_for_credit() {
        let (mut node, _, now) = pair();
        let classes = [Class::Ordered, Class::Unordered, Class::Sync];
        let sent: Vec<_> = (0..60).map(|tag| send(&node, classes[tag % 3], tag as u64, EACH)).collect();
        node.turn(now);
        let done = || sent.iter().filter(|one| one.is_done()).count();
        let fits = (CREDIT / EACH as u64) as usize - 1;
        assert_eq!(done(), fits, "as many as there is credit for");
        // What takes no credit is not held up.
        let region = Region::zeroed(64).unwrap();
        let there = node.engine.memory().insert(region, Rights::ALL).unwrap();
        let put = node.ask(Request::Put { to: 0, key: there.key, offset: 0, body: Body::copy_of(&[1; 8]), signal: None });
        node.turn(now);
        assert_eq!(put.outcome(), Some(Ok(Value::Done)));
        // One that is cancelled while it waits is not delivered.
        let _ = node.ask(Request::Cancel { completion: Arc::clone(&sent[40]) });
        let mut tags = Vec::new();
        while tags.len() < 59 {
            node.turn(now);
            let arrived = node.engine.take_arrived().expect("what is read makes room");
            tags.push(arrived.tag);
            let _ = node.ask(Request::Consumed { from: 0, messages: 1, bytes: arrived.body.len() as u64 });
            assert!(done() <= tags.len() + fits + 1);
        }
        assert_eq!(tags, (0..60).filter(|tag| *tag != 40).collect::<Vec<_>>());
        assert_eq!(sent[40].outcome(), Some(Err(Failure::Cancelled)));
    }

    /// MEM-8.1: what there is credit for goes when the one before it, for which there was none, is cancelled.
    #[test]
    fn who_is_cancelled_holds_up_nobody() {
        let (mut node, _, now) = pair();
        let read = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
        let (long, short) = (send(&node, Class::Ordered, 1, EACH), send(&node, Class::Ordered, 2, 100));
        node.turn(now);
        assert_eq!([&read, &long, &short].map(|one| one.is_done()), [true, false, false]);
        let _ = node.ask(Request::Cancel { completion: Arc::clone(&long) });
        node.turn(now);
        assert_eq!((long.outcome(), short.outcome()), (Some(Err(Failure::Cancelled)), Some(Ok(Value::Done))));
        let tags: Vec<_> = std::iter::from_fn(|| node.engine.take_arrived()).map(|one| one.tag).collect();
        assert_eq!(tags, [0, 2]);
    }

    /// MEM-1.12: pages of a source that have gone while its message waited for credit are waited for.
    #[test]
    fn a_source_that_has_gone_again_is_waited_for() {
        let (mut node, _, now) = pair();
        let first = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
        let (source, disk) = Region::staged(PAGE).unwrap();
        source.fill(0, PAGE as u64, 7).unwrap();
        let region = node.engine.memory().insert_local(source).unwrap();
        let body = Body::Segment(Segment { region, offset: 0, len: PAGE as u64 });
        let waiting = node.ask(Request::Send { to: 0, class: Class::Ordered, tag: 1, body });
        let behind = send(&node, Class::Ordered, 2, 1);
        node.turn(now);
        assert!(first.is_done() && !waiting.is_done());
        disk.evict(0..1);
        let read = node.engine.take_arrived().unwrap().body.len() as u64;
        let _ = node.ask(Request::Consumed { from: 0, messages: 1, bytes: read });
        node.turn(now);
        assert_eq!((waiting.outcome(), behind.outcome()), (Some(Ok(Value::Done)), Some(Ok(Value::Done))));
        let arrived: Vec<_> = std::iter::from_fn(|| node.engine.take_arrived()).map(|one| (one.tag, one.body.to_vec())).collect();
        assert_eq!(arrived, [(1, vec![7; PAGE]), (2, vec![1])]);
    }

    /// As over the network: WIND-6.4, WIND-6.3.
    #[test]
    fn what_can_never_be_taken_fails_at_once() {
        let (mut node, _, now) = pair();
        let long = send(&node, Class::Ordered, 0, CREDIT as usize);
        node.turn(now);
        assert_eq!(long.outcome(), Some(Err(Failure::Remote(RmaError::Refused(Refusal::NoRoom)))));
        let read = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
        let waiting: Vec<_> = (0..MESSAGES_IN_FLIGHT + 10).map(|_| send(&node, Class::Ordered, 1, 1000)).collect();
        node.turn(now);
        assert!(read.is_done());
        let too_many = |one: &&Arc<Completion>| one.outcome() == Some(Err(Failure::TooMany { peer: 0 }));
        assert_eq!(waiting.iter().filter(too_many).count(), 10);
        assert_eq!(waiting.iter().filter(|one| one.is_done()).count(), 10);
    }

    /// MEM-1.10, MEM-4.6: of a file that was truncated after they were served, too, gets end, each of them.
    #[test]
    fn gets_of_a_file_that_is_truncated_end() {
        for len in [POST_INLINE, 2 * POST_INLINE] {
            let (mut node, _, mut now) = pair();
            let path = std::env::temp_dir().join(format!("oikaze-truncated-{}", std::process::id()));
            let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            file.set_len(PAGE as u64).unwrap();
            let source = Region::of_file(std::os::fd::AsFd::as_fd(&file), 0, PAGE, true).unwrap();
            source.make_present(0, PAGE as u64, Rights::READ).unwrap();
            let there = node.engine.memory().insert(source, Rights::READ).unwrap();
            let region = node.engine.memory().insert_local(Region::zeroed(PAGE).unwrap()).unwrap();
            let into = Segment { region, offset: 0, len };
            let gets: Vec<_> = (0..2000)
                .map(|_| {
                    let (submission, get) = tracked(Request::Get { from: 0, key: there.key, offset: 0, into }, None);
                    node.engine.submit(submission, now);
                    get
                })
                .collect();
            // As many as one turn serves.
            node.engine.turn(now);
            file.set_len(0).unwrap();
            let begun = now;
            while !gets.iter().all(|get| get.is_done()) {
                assert!(now - begun < 2 * PRESENT_TIME, "{len}: they never end");
                node.turn(now);
                now += PRESENT_PAUSE_MAX;
                std::thread::yield_now();
            }
            let lost = Some(Err(Failure::Remote(RmaError::Refused(Refusal::Lost))));
            assert!(gets.iter().any(|get| get.outcome() == lost), "{len}: {:?}", gets[0].outcome());
        }
    }
}
