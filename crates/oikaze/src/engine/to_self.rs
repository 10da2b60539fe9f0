//! Messages to our own rank: delivered without the network, in order, in the stage that posts replies.

use super::upward::Upward;
use super::{Engine, Failure};
use oikaze_os::link::Link;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::{Memory, read_rows};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Message, Refusal, Rows, Token, Upper};
use std::collections::VecDeque;

/// Bytes of rows to ourselves that are packed at a time.
const PIECE_TO_SELF: usize = 64 << 10;

/// Those that wait.
#[derive(Default)]
pub(super) struct ToSelf {
    pub queue: VecDeque<Message>,
    number: u64,
}

impl ToSelf {
    pub fn is_due(&self) -> bool {
        !self.queue.is_empty()
    }

    pub fn forget(&mut self, forgotten: &impl Fn(Token) -> bool) {
        self.queue.retain(|message| !forgotten(message.token));
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Deliver one message to ourselves, if there is one.
    pub(super) fn deliver_to_self(&mut self) -> bool {
        let Some(message) = self.to_self.queue.pop_front() else { return false };
        let number = self.to_self.number;
        self.to_self.number += 1;
        let body = match message.body {
            Body::Inline(bytes) => bytes,
            Body::Segment(segment) => {
                let mut bytes = vec![0; usize::try_from(segment.len).unwrap_or(0)];
                if !self.memory.read(segment.region, segment.offset, &mut bytes) {
                    let me = self.me;
                    self.fail(me, message.token, Failure::Cancelled);
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
            Err(refusal) => self.refused(message.token, refusal),
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
                self.fail(self.me, token, Failure::Cancelled);
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
