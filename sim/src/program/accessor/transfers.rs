//! Puts and gets of every shape: with signals, with messages behind them, and behind fences.

use super::shape::{Shape, pack, pieces_of, unpack};
use super::{Accessor, Ask, Asked, IDLE};
use crate::oracle::{Claim, Watch};
use crate::program::Context;
use crate::program::doing::{Doing, UnderWay};
use crate::program::layout::{FIXED_LEN, Layout, SIGNALS};
use crate::random::bytes_of;
use oikaze_engine::{Completion, Request};
use oikaze_protocol::Rank;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{Destination, Signal};
use oikaze_protocol::wind::{Body, Class, Rows, Segment};
use std::ops::Range;
use std::sync::Arc;

impl Accessor {
    /// Draws a range of this thread's stripe at the target that no operation in flight uses.
    fn range(&mut self, target: Rank) -> Option<Range<u64>> {
        let Layout { stripe, .. } = self.work.layout;
        let len = self.random.spread(0, (self.work.longest as u64).min(stripe));
        let start = self.work.layout.stripe_at() + self.random.below(stripe - len + 1);
        let range = start..start + len;
        let mut used = self
            .under_way
            .iter()
            .filter(|one| one.target == target)
            .filter_map(|one| one.doing.range());
        (!used.any(|used| used.start < range.end && range.start < used.end)).then_some(range)
    }

    /// Returns the expected content of this range of the thread's stripe.
    fn model(&mut self, target: Rank, range: &Range<u64>) -> &mut [u8] {
        let stripe = self.work.layout.stripe_at();
        &mut self.target(target).model
            [(range.start - stripe) as usize..(range.end - stripe) as usize]
    }

    /// Draws any shape, if the content of its gaps is known.
    fn shape(&mut self, target: Rank, range: &Range<u64>) -> Shape {
        if self.target(target).unknown {
            Shape::Whole(range.clone())
        } else {
            Shape::any(&mut self.random, range)
        }
    }

    /// Sometimes writes other bytes to the same range first, with a fence between the two writes
    /// (MEM-15.1).
    fn write_before(
        &mut self,
        context: &mut Context<'_>,
        target: Rank,
        range: &Range<u64>,
    ) -> Option<Arc<Completion>> {
        if self.target(target).unknown || !self.random.chance(0.15) {
            return None;
        }
        let bytes = bytes_of(self.random.word(), (range.end - range.start) as usize);
        self.model(target, range).copy_from_slice(&bytes);
        let (key, offset) = (self.key(target, "arena"), range.start);
        let put =
            Request::Put { to: target, key, offset, body: Body::copy_of(&bytes), signal: None };
        let earlier = context.submit(put, None);
        context.tell(Request::Fence { peer: self.random.chance(0.7).then_some(target) });
        Some(earlier)
    }

    pub(super) fn put(
        &mut self,
        context: &mut Context<'_>,
        target: Rank,
        slot: usize,
    ) -> Option<Asked> {
        let range = self.range(target)?;
        let earlier = self.write_before(context, target, &range);
        let shape = self.shape(target, &range);
        let pieces = shape.pieces();
        let packed = bytes_of(
            self.random.word(),
            pieces.iter().map(|piece| (piece.end - piece.start) as usize).sum(),
        );
        // Expected content afterwards: the written bytes, and the old bytes in the gaps.
        let mut bytes = self.model(target, &range).to_vec();
        unpack(&packed, &mut bytes, range.start, &pieces);
        let is_list = matches!(shape, Shape::Pieces(_));
        let signal = (!is_list && self.random.chance(0.3))
            .then(|| self.signal(context, target, &range, &bytes))
            .flatten();
        // A put that is retransmitted because pages were absent may arrive after a message that was
        // sent behind it (MEM-1.11).
        let in_order = signal.is_none() && !context.oracle.memory.may_be_absent(target);
        let tell = (in_order && self.random.chance(0.3)).then(|| {
            let claim = Claim { offset: range.start, bytes: bytes.clone() };
            context
                .oracle
                .messages
                .post((context.me, context.life), target, Class::Ordered, 9, Some(claim))
                .0
        });
        let (key, words) = (self.key(target, "arena"), self.key(target, "words"));
        let asked = signal.map(|(word, add)| Signal { key: words, offset: word, add });
        let kind = match (&earlier, signal) {
            (Some(_), _) => "put behind a fence",
            (None, Some(_)) => "put with signal",
            (None, None) => shape.kinds().0,
        };
        let ask = match shape {
            Shape::Whole(_) => {
                let body = self.body(slot, 0, &packed);
                Ask::One(Request::Put { to: target, key, offset: range.start, body, signal: asked })
            }
            Shape::Rows(block) => {
                let body = if self.random.chance(0.4) {
                    self.rows(slot, &block, &packed)
                } else {
                    self.body(slot, 0, &packed)
                };
                Ask::One(Request::PutBlock {
                    to: target,
                    key,
                    block: Box::new(block),
                    body,
                    signal: asked,
                })
            }
            Shape::Pieces(pieces) => {
                let mut at = 0;
                let part = |piece: Range<u64>| {
                    let end = at + (piece.end - piece.start) as usize;
                    let body = self.body(slot, at, &packed[at..end]);
                    at = end;
                    Request::Put { to: target, key, offset: piece.start, body, signal: None }
                };
                Ask::List(pieces.into_iter().map(part).collect())
            }
        };
        Some(Asked {
            kind,
            doing: Doing::Put { range, bytes, signal: signal.map(|(word, _)| word), tell },
            ask,
            earlier,
        })
    }

    /// Returns a body of these bytes, gathered from their place in the slot or from the message's
    /// own bytes.
    fn body(&mut self, slot: usize, at: usize, bytes: &[u8]) -> Body {
        if bytes.is_empty() || self.random.chance(0.4) {
            return Body::copy_of(bytes);
        }
        let place = self.segment(slot, at + bytes.len());
        let segment =
            Segment { offset: place.offset + at as u64, len: bytes.len() as u64, ..place };
        if let Some(own) = &self.own {
            let _ = own.memory.write(segment.offset, bytes);
        }
        Body::Segment(segment)
    }

    /// Returns a body of these bytes of a block, gathered from rows of the slot.
    fn rows(&mut self, slot: usize, block: &Block, bytes: &[u8]) -> Body {
        let Segment { region, offset, .. } = self.segment(slot, 0);
        let block = Shape::rows_of(&mut self.random, block, offset, self.work.longest as u64);
        if let Some(own) = &self.own {
            let mut rest = bytes;
            for piece in pieces_of(&block) {
                let (row, after) = rest.split_at((piece.end - piece.start) as usize);
                let _ = own.memory.write(piece.start, row);
                rest = after;
            }
        }
        match block.as_range() {
            Some(len) => Body::Segment(Segment { region, offset, len }),
            None => Body::Rows(Arc::new(Rows { region, block })),
        }
    }

    /// Draws a signal that no put in flight uses. Returns its word and the value that the put adds
    /// to it.
    fn signal(
        &mut self,
        context: &mut Context<'_>,
        target: Rank,
        range: &Range<u64>,
        bytes: &[u8],
    ) -> Option<(u64, u64)> {
        let number = self.random.below(SIGNALS);
        let word = self.work.layout.signal_at(number);
        let in_use = |one: &UnderWay| {
            one.target == target
                && matches!(one.doing, Doing::Put { signal: Some(used), .. } if used == word)
        };
        if self.under_way.iter().any(in_use) {
            return None;
        }
        let add = self.random.spread(1, 1 << 40);
        let last = &mut self.target(target).signals[number as usize];
        *last = last.wrapping_add(add);
        let raised = *last;
        let watch = Watch { word, raised, offset: range.start, bytes: bytes.to_vec() };
        context.oracle.memory.watch(target, watch);
        Some((word, add))
    }

    pub(super) fn get(
        &mut self,
        context: &mut Context<'_>,
        target: Rank,
        slot: usize,
    ) -> Option<Asked> {
        let (name, from, there, range, earlier) =
            if self.random.chance(0.5) && !self.target(target).unknown {
                let range = self.range(target)?;
                let earlier = self.write_before(context, target, &range);
                ("arena", range.clone(), self.model(target, &range).to_vec(), Some(range), earlier)
            } else {
                let len = self.random.spread(0, self.work.longest.min(FIXED_LEN) as u64) as usize;
                let at = self.random.index(FIXED_LEN - len + 1);
                let there = context.oracle.memory.fixed(target, FIXED_LEN)[at..at + len].to_vec();
                ("fixed", at as u64..(at + len) as u64, there, None, None)
            };
        let key = self.key(target, name);
        let shape = Shape::any(&mut self.random, &from);
        let mut expected = pack(&there, from.start, &shape.pieces());
        let kind = if earlier.is_some() { "get behind a fence" } else { shape.kinds().1 };
        let ask = match shape {
            Shape::Whole(_) => {
                let into = self.segment(slot, expected.len());
                Ask::One(Request::Get { from: target, key, offset: from.start, into })
            }
            Shape::Rows(block) => {
                let into = if self.random.chance(0.4) {
                    let (rows, bytes) = self.landing(slot, &block, &expected);
                    expected = bytes;
                    rows
                } else {
                    Destination::Range(self.segment(slot, expected.len()))
                };
                Ask::One(Request::GetBlock { from: target, key, block: Box::new(block), into })
            }
            Shape::Pieces(pieces) => {
                let place = self.segment(slot, 0);
                let mut offset = place.offset;
                let part = |piece: Range<u64>| {
                    let into = Segment { offset, len: piece.end - piece.start, ..place };
                    offset += into.len;
                    Request::Get { from: target, key, offset: piece.start, into }
                };
                Ask::List(pieces.into_iter().map(part).collect())
            }
        };
        Some(Asked { kind, doing: Doing::Get { expected, range }, ask, earlier })
    }

    /// Returns rows of the slot as the destination of these bytes, and the slot's content
    /// afterwards. No operation may write to the gaps.
    fn landing(&mut self, slot: usize, block: &Block, packed: &[u8]) -> (Destination, Vec<u8>) {
        let Segment { region, offset, .. } = self.segment(slot, 0);
        let rows = Shape::rows_of(&mut self.random, block, offset, self.work.longest as u64);
        let mut bytes = vec![IDLE; rows.hull().unwrap_or(0) as usize];
        unpack(packed, &mut bytes, offset, &pieces_of(&rows));
        let into = match rows.as_range() {
            Some(len) => Destination::Range(Segment { region, offset, len }),
            None => Destination::Rows(Arc::new(Rows { region, block: rows })),
        };
        (into, bytes)
    }
}
