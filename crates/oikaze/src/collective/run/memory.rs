//! One collective through the memory of a machine (COLL-7): the steps of one rank.

use super::exchange::{Exchange, Obstacle};
use crate::collective::operator::{Combiner, Item};
use oikaze_os::memory::has_memory_for;
use oikaze_os::shm::{PIECE_BYTES, SLOT_BYTES};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    CollectiveCall, CollectiveKind, CombineSteps, MemoryFacts, MemoryPlan, Order, PieceRoom,
    ReadOperand,
};
use oikaze_protocol::limits::CREDIT;
use std::ops::Range;

const ROOM: PieceRoom = PieceRoom { short: SLOT_BYTES, long: PIECE_BYTES };

/// Returns the plan for blocks of this many elements, or `None` if they go by parcels.
pub(super) fn plan_of(facts: MemoryFacts, block: usize) -> Option<MemoryPlan> {
    MemoryPlan::new(facts, block, ROOM)
}

/// Values of this rank, and the place of the result.
pub(in crate::collective) trait Buffers {
    /// Returns the values that this rank gives.
    fn given(&self) -> &[u8];

    /// Returns the values that this rank gives, unless the result takes their place, and the place
    /// of a result of this many bytes.
    ///
    /// # Errors
    /// There is no room for the result.
    fn both(&mut self, bytes: usize) -> Result<(Option<&[u8]>, &mut [u8]), NoRoom>;

    /// Returns the place of a result of this many bytes.
    ///
    /// # Errors
    /// There is none.
    fn room(&mut self, bytes: usize) -> Result<&mut [u8], NoRoom> {
        self.both(bytes).map(|(_, room)| room)
    }

    /// Returns `true` if the result takes the place of the values.
    fn is_in_place(&self) -> bool {
        false
    }

    /// Returns `true` if the root of a broadcast gets a copy of its values as the result.
    fn takes_own_values(&self) -> bool {
        false
    }
}

/// Reason for which there is no place for a result.
#[derive(Debug)]
pub(in crate::collective) enum NoRoom {
    /// The caller's memory has this other length. The collective goes on without a result.
    OtherLength(usize),
    /// There is not enough memory for so many bytes.
    NoMemory(usize),
}

/// Resizes a vector of elements to some bytes.
fn resize<T: Item>(vector: &mut Vec<T>, bytes: usize) -> Result<&mut [u8], NoRoom> {
    let len = bytes / size_of::<T>().max(1);
    let more = len.saturating_sub(vector.len());
    if !has_room_for(more.saturating_mul(size_of::<T>())) || vector.try_reserve_exact(more).is_err()
    {
        return Err(NoRoom::NoMemory(bytes));
    }
    vector.resize(len, T::zeroed());
    Ok(bytemuck::cast_slice_mut(vector))
}

/// Returns a slice that is to have this length.
fn place(slice: &mut [u8], bytes: usize) -> Result<&mut [u8], NoRoom> {
    match slice.len() {
        len if len == bytes => Ok(slice),
        len => Err(NoRoom::OtherLength(len)),
    }
}

/// Values and a result in one slice.
pub(in crate::collective) struct InPlace<'a>(pub &'a mut [u8]);

impl Buffers for InPlace<'_> {
    fn given(&self) -> &[u8] {
        self.0
    }

    fn both(&mut self, bytes: usize) -> Result<(Option<&[u8]>, &mut [u8]), NoRoom> {
        Ok((None, place(self.0, bytes)?))
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

/// Values, and a slice for the result.
pub(in crate::collective) struct IntoSlice<'a> {
    pub given: &'a [u8],
    pub result: &'a mut [u8],
}

impl Buffers for IntoSlice<'_> {
    fn given(&self) -> &[u8] {
        self.given
    }

    fn both(&mut self, bytes: usize) -> Result<(Option<&[u8]>, &mut [u8]), NoRoom> {
        Ok((Some(self.given), place(self.result, bytes)?))
    }
}

/// Values, and a vector for the result.
pub(in crate::collective) struct IntoVector<'a, T> {
    pub given: &'a [u8],
    pub result: &'a mut Vec<T>,
}

impl<T: Item> Buffers for IntoVector<'_, T> {
    fn given(&self) -> &[u8] {
        self.given
    }

    fn both(&mut self, bytes: usize) -> Result<(Option<&[u8]>, &mut [u8]), NoRoom> {
        Ok((Some(self.given), resize(self.result, bytes)?))
    }

    fn takes_own_values(&self) -> bool {
        true
    }
}

/// Values and a result that belong to the collective.
#[derive(Default)]
pub(super) struct OwnBuffers {
    given: Vec<u8>,
    result: Vec<u8>,
    is_in_place: bool,
    takes_own_values: bool,
}

impl OwnBuffers {
    pub fn new(given: Vec<u8>) -> OwnBuffers {
        OwnBuffers { given, takes_own_values: true, ..OwnBuffers::default() }
    }

    /// Copies what a caller has, which waits no more. `len` is the length of its result.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn copy_of(buffers: &mut dyn Buffers, len: usize) -> Result<OwnBuffers, String> {
        let is_in_place = buffers.is_in_place();
        let takes_own_values = buffers.takes_own_values();
        let given = try_copy_of(buffers.given())?;
        let result = match buffers.room(len) {
            Ok(result) if !is_in_place => try_copy_of(result)?,
            _ => Vec::new(),
        };
        Ok(OwnBuffers { given, result, is_in_place, takes_own_values })
    }

    /// Returns the result.
    pub fn into_result(self) -> Vec<u8> {
        if self.is_in_place { self.given } else { self.result }
    }
}

impl Buffers for OwnBuffers {
    fn given(&self) -> &[u8] {
        &self.given
    }

    fn both(&mut self, bytes: usize) -> Result<(Option<&[u8]>, &mut [u8]), NoRoom> {
        match self.is_in_place {
            true => Ok((None, place(&mut self.given, bytes)?)),
            false => Ok((Some(&self.given), resize(&mut self.result, bytes)?)),
        }
    }

    fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    fn takes_own_values(&self) -> bool {
        self.takes_own_values
    }
}

/// Copies bytes.
///
/// # Errors
/// There is not enough memory.
pub(super) fn try_copy_of(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut copy = try_room(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Returns an empty vector with room for `len` bytes.
///
/// # Errors
/// There is not enough memory.
pub(super) fn try_room(len: usize) -> Result<Vec<u8>, String> {
    let mut room = Vec::new();
    match has_room_for(len) && room.try_reserve_exact(len).is_ok() {
        true => Ok(room),
        false => Err(format!("there is not enough memory for {len} bytes")),
    }
}

/// Returns `true` if there may be memory for `len` bytes. The system gives memory that it does not
/// have, and ends the process later, so a long buffer asks first how much is left.
pub(super) fn has_room_for(len: usize) -> bool {
    len as u64 <= CREDIT || has_memory_for(len)
}

/// How a collective through memory goes on.
#[derive(Debug)]
pub(super) enum MemoryEnd {
    /// The result is there.
    Done,
    /// The values go by parcels.
    Parcels,
}

/// One rank's part in a collective through memory.
pub(in crate::collective) struct MemoryRun {
    facts: MemoryFacts,
    /// `None`: the count is not known, or the values go by parcels.
    plan: Option<MemoryPlan>,
    /// The count is known, or does not matter.
    is_known: bool,
    /// This rank has come to the collective.
    has_come: bool,
    /// The calls of all ranks whose values this rank reads were compared.
    has_compared: bool,
    /// Numbers of pieces that this rank has given, and has read.
    given: u64,
    read: u64,
}

impl MemoryRun {
    pub fn new(facts: MemoryFacts, call: &CollectiveCall) -> MemoryRun {
        let count = call.count.filter(|_| !call.uneven);
        MemoryRun {
            facts,
            plan: count.and_then(|count| MemoryPlan::of_count(facts, count, ROOM)),
            is_known: call.uneven || call.count.is_some(),
            has_come: false,
            has_compared: false,
            given: 0,
            read: 0,
        }
    }

    /// Returns `true` if the values go by parcels, as far as this rank knows.
    pub fn is_by_parcels(&self) -> bool {
        self.is_known && self.plan.is_none()
    }

    /// Returns the length of the result in bytes, if it is known.
    pub fn result_len(&self) -> Option<usize> {
        self.plan.as_ref().map(MemoryPlan::result_len)
    }

    /// Returns `true` if this rank has the result already: it is the root of a broadcast.
    fn has_result(&self, buffers: &dyn Buffers) -> bool {
        let is_source =
            self.facts.kind == CollectiveKind::Broadcast && self.facts.me == self.facts.root;
        is_source && !buffers.takes_own_values()
    }

    /// Returns the bytes that have come for this rank, if it is known how many.
    pub fn len_of_come(&self, buffers: &dyn Buffers) -> Option<usize> {
        if self.has_result(buffers) { Some(0) } else { self.result_len() }
    }

    /// Returns a number that changes with each step.
    pub fn step(&self) -> usize {
        (self.given + self.read) as usize + usize::from(self.has_come)
    }

    /// Takes steps until this rank has to wait.
    ///
    /// # Errors
    /// This rank waits; or the collective fails.
    pub(super) fn run(
        &mut self,
        exchange: &mut Exchange,
        (number, call): (u64, &mut CollectiveCall),
        buffers: &mut dyn Buffers,
        combiner: Option<&Combiner>,
    ) -> Result<MemoryEnd, Obstacle> {
        if !self.has_come {
            let short = self.plan.filter(|plan| plan.is_short() && plan.gives());
            let values = short.map(|plan| buffers.given().get(..plan.given_len()));
            exchange.give(number, *call, values.flatten().unwrap_or_default())?;
            self.has_come = true;
        }
        if !self.is_known {
            let theirs = exchange.call_of(self.facts.root, number)?;
            let count = theirs.count.ok_or(Obstacle::Broken(self.facts.root))?;
            call.count = Some(count);
            self.plan = MemoryPlan::of_count(self.facts, count, ROOM);
            self.is_known = true;
        }
        let Some(plan) = self.plan else { return Ok(MemoryEnd::Parcels) };
        let has_result = self.has_result(buffers);
        // Values of this rank's own stay with it, unless the result takes their place.
        let is_apart = !buffers.is_in_place();
        let gives = plan.gives() && !plan.is_short() && !(is_apart && plan.is_own_reader());
        let to_give = if gives { plan.pieces() } else { 0 };
        let kept = is_apart.then_some(self.facts.me as usize);
        let to_read = if self.facts.reads() && !has_result { plan.pieces() } else { 0 };
        if to_read == 0 && !plan.is_short() {
            exchange.note_all_read(number);
        }
        loop {
            if self.given < to_give {
                let piece = (number, self.given);
                if exchange.is_piece_free(piece) {
                    exchange.count_piece(number)?;
                    let ranges = plan.given(self.given);
                    exchange.give_piece(piece, buffers.given(), ranges, kept);
                    self.given += 1;
                } else if self.read == to_read || self.given == self.read {
                    // The result may take the place of values that this rank has not given.
                    exchange.wait_for_buffer(piece)?;
                    continue;
                }
            }
            if self.read < to_read {
                self.compare(exchange, number)?;
                exchange.count_piece(number)?;
                self.read_piece(exchange, &plan, number, (buffers, combiner))?;
            } else if self.given == to_give {
                return Ok(MemoryEnd::Done);
            }
        }
    }

    fn compare(&mut self, exchange: &mut Exchange, number: u64) -> Result<(), Obstacle> {
        if !self.has_compared {
            for rank in self.facts.compared().filter(|rank| *rank != self.facts.me) {
                exchange.call_of(rank, number)?;
            }
            self.has_compared = true;
        }
        Ok(())
    }

    /// Reads the next piece of all ranks that give one.
    fn read_piece(
        &mut self,
        exchange: &mut Exchange,
        plan: &MemoryPlan,
        number: u64,
        (buffers, combiner): (&mut dyn Buffers, Option<&Combiner>),
    ) -> Result<(), Obstacle> {
        let piece = self.read;
        let givers = || {
            self.facts
                .givers()
                .filter_map(|from| plan.reads_at(piece, from).map(|(range, at)| (from, range, at)))
        };
        if !plan.is_short() {
            let is_in_place = buffers.is_in_place();
            for (from, ..) in givers().filter(|one| is_in_place || one.0 != self.facts.me) {
                exchange.wait_for_piece(from, (number, piece))?;
            }
        }
        let mut scratch = std::mem::take(&mut exchange.scratch);
        scratch.resize(scratch.len().max(plan.scratch_len()), 0);
        let from_exchange = &*exchange;
        let read = |from: Rank, range: Range<usize>, into: &mut [u8]| {
            if plan.is_short() {
                from_exchange.read(from, number, range.start, into);
            } else {
                from_exchange.read_piece(from, (number, piece), range.start, into);
            }
        };
        match buffers.both(plan.result_len()) {
            Ok((given, result)) => {
                let own = own_values(given, plan, piece);
                let read = |from: Rank, range: Range<usize>, into: &mut [u8]| match &own {
                    Some((own, at)) if from == self.facts.me => {
                        let start = range.start.saturating_sub(*at);
                        if let Some(part) = own.get(start..start.saturating_add(into.len())) {
                            into.copy_from_slice(part);
                        }
                    }
                    _ => read(from, range, into),
                };
                let combiner = combiner.filter(|_| self.facts.kind.combines());
                read_into(result, (plan, piece), combiner, &mut scratch, &read);
            }
            Err(NoRoom::OtherLength(_)) => {}
            Err(NoRoom::NoMemory(bytes)) => return Err(Obstacle::NoMemory(bytes)),
        }
        exchange.scratch = scratch;
        self.read += 1;
        if !plan.is_short() {
            exchange.note_piece_read((number, self.read));
        }
        Ok(())
    }
}

/// Returns the values of this rank's own that it reads in a piece, and their offset in the piece.
fn own_values<'a>(
    given: Option<&'a [u8]>,
    plan: &MemoryPlan,
    piece: u64,
) -> Option<(&'a [u8], usize)> {
    let (range, _) = plan.reads_at(piece, plan.facts().me)?;
    Some((given?.get(plan.own(piece)?)?, range.start))
}

/// Reads a piece of all ranks into the result.
fn read_into(
    result: &mut [u8],
    (plan, piece): (&MemoryPlan, u64),
    combiner: Option<&Combiner>,
    scratch: &mut [u8],
    read: ReadOperand<'_>,
) {
    let Some(combiner) = combiner else {
        for from in plan.facts().givers() {
            if let Some((range, at)) = plan.reads_at(piece, from)
                && let Some(into) = result.get_mut(at..at.saturating_add(range.len()))
            {
                read(from, range, into);
            }
        }
        return;
    };
    let combine = |here: &mut [u8], new: &[u8]| (combiner.combine)(here, new, Order::NewLast);
    let steps = CombineSteps { read, combine: &combine };
    if let Some((range, at)) = plan.reads_at(piece, 0)
        && let Some(into) = result.get_mut(at..at.saturating_add(range.len()))
    {
        plan.combine(range, into, scratch, &steps);
    }
}
