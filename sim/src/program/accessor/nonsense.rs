//! Requests that every node must refuse without doing them.

use super::Accessor;
use crate::oracle::SUMS_LEN;
use crate::program::doing::Doing;
use crate::program::layout::WORDS_LEN;
use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Accumulation, AtomicOp, Combine, NumberKind};
use oikaze_protocol::wind::{Body, Refusal};

impl Accessor {
    pub(super) fn nonsense(&mut self, target: Rank) -> (Doing, Request) {
        let body = || Body::Inline(vec![7; 40]);
        let (fixed, arena, words) =
            (self.key(target, "fixed"), self.key(target, "arena"), self.key(target, "words"));
        let closed = self.key(target, "closed");
        let end = self.target(target).found.get("arena").map_or(0, |published| published.len);
        let put =
            |key, offset| Request::Put { to: target, key, offset, body: body(), signal: None };
        let sums = self.key(target, "sums");
        // 40 bytes travel whole, and 400 bytes in fragments where datagrams are short.
        let bytes = if self.random.chance(0.5) { 40 } else { 400 };
        let accumulate = |key, offset, len: usize| {
            let how = Accumulation { element: NumberKind::U64, combine: Combine::Max };
            Request::Accumulate {
                to: target,
                key,
                offset,
                how,
                body: Body::Inline(vec![0xFF; len * bytes / 40]),
            }
        };
        let push = |key, len| Request::Push {
            to: target,
            key,
            body: Body::Inline(vec![7; len]),
            urgent: false,
        };
        let add = |key, offset| Request::Atomic {
            at: target,
            key,
            offset,
            op: AtomicOp::add(1u64),
            fetch: true,
        };
        let (refusal, request) = match self.random.below(14) {
            0 => (Refusal::UnknownKey, put(1, 0)),
            1 => (Refusal::NotPermitted, put(fixed, 0)),
            2 => (Refusal::NotPermitted, put(closed, 0)),
            3 => (Refusal::OutOfBounds, put(arena, end - 39)),
            4 => (Refusal::OutOfBounds, put(arena, u64::MAX - 10)),
            5 => (Refusal::Misaligned, add(words, 4)),
            6 => (Refusal::Misaligned, accumulate(sums, 12, 40)),
            7 => (Refusal::Malformed, accumulate(sums, 8, 41)),
            8 => (Refusal::OutOfBounds, accumulate(sums, SUMS_LEN as u64 - 32, 40)),
            9 => (Refusal::NotPermitted, accumulate(arena, 0, 40)),
            10 => (Refusal::NotPermitted, push(sums, 40)),
            11 => (Refusal::TooLong, push(self.key(target, "fifo"), 3001)),
            12 => (Refusal::NotPermitted, put(self.key(target, "fifo"), 0)),
            _ => (Refusal::OutOfBounds, add(words, WORDS_LEN as u64)),
        };
        (Doing::Nonsense(refusal), request)
    }
}
