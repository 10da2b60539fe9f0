//! Memory of the caller of a collective, who waits and takes its steps through the memory of the
//! machine.

use super::exchange::{Exchange, Obstacle};
use super::memory::{Buffers, MemoryEnd, MemoryRun};
use super::stage::{Stage, StageShape};
use crate::collective::operator::Combiner;
use oikaze_protocol::collective::CollectiveCall;
use oikaze_runtime::node::WordPolls;

/// Pieces that a caller gives and reads before it looks for a time limit, an interruption or a
/// loss.
const PIECES_AT_ONCE: usize = 64;

/// Values and operator of the caller of a collective, and the place of the result.
pub(in crate::collective) struct CallerRun<'a> {
    pub buffers: &'a mut dyn Buffers,
    pub combiner: Option<Combiner>,
    /// Bytes of an element.
    pub size: usize,
    pub shape: &'a dyn Fn() -> StageShape,
    /// Length in bytes of the result that has come through memory.
    pub came: Option<usize>,
}

impl CallerRun<'_> {
    pub(super) fn run(
        &mut self,
        memory: &mut MemoryRun,
        exchange: &mut Exchange,
        call: (u64, &mut CollectiveCall),
        polls: WordPolls,
    ) -> Result<MemoryEnd, Obstacle> {
        exchange.limit(polls, PIECES_AT_ONCE);
        let ended = memory.run(exchange, call, self.buffers, self.combiner.as_ref());
        if matches!(ended, Ok(MemoryEnd::Done)) {
            self.came = memory.len_of_come(self.buffers);
        }
        ended
    }

    /// Returns what lets other threads run the collective.
    pub(super) fn stage(&mut self) -> Box<Stage> {
        Stage::new((self.shape)(), self.size, self.combiner.take())
    }
}
