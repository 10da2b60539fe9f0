//! Long work buffers: memory that the engine sends from, and places parcels into, without a copy
//! (COLL-1.5).
//!
//! The memory is the caller's, lent until its call returns, or a region that is used again. A part
//! that is being sent must stay as it is, so each step that writes to it waits for the send.

use super::memory::has_room_for;
use crate::memory::region::{LocalRegion, RegionSlice};
use oikaze_engine::{Completion, Failure, Request, Submission};
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{ParcelHead, RoundNumber};
use oikaze_protocol::rma::Rights;
use oikaze_runtime::node::{Node, ParcelMemory, ParcelPlace, lock};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Minimum length of a long buffer, and of a part that is sent or placed without a copy, in bytes.
pub(in crate::collective) const LONG_MIN: usize = 32 << 10;
/// Maximum number of bytes that a pool keeps.
const POOL_BYTES_MAX: usize = 64 << 20;
/// Bytes that are copied or combined at once, so that they stay in the cache.
const CHUNK: usize = 32 << 10;
/// Bytes that a step copies or combines between two turns of the engine. Parcels are on their way
/// meanwhile, and their senders wait for acknowledgements.
const TURN_BYTES: usize = 128 << 10;

/// Registered memory of long work buffers that no collective of this node uses at present. Fresh
/// memory costs a page fault for each 4096 bytes, which takes longer than a copy of these bytes.
pub(in crate::collective) struct RegionPool {
    node: Arc<Node>,
    idle: Mutex<VecDeque<LocalRegion>>,
}

impl fmt::Debug for RegionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionPool").finish_non_exhaustive()
    }
}

impl RegionPool {
    pub fn new(node: &Arc<Node>) -> Arc<RegionPool> {
        Arc::new(RegionPool { node: Arc::clone(node), idle: Mutex::default() })
    }

    /// Returns the node whose memory it is.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns at least `len` bytes, which are those of an earlier use, or `None` without memory.
    fn take(self: &Arc<Self>, len: usize) -> Option<Arc<PooledRegion>> {
        let fits = |region: &LocalRegion| (len..=len.saturating_mul(2)).contains(&region.len());
        let mut idle = lock(&self.idle);
        let at = idle.iter().rposition(fits);
        let used = at.and_then(|at| idle.remove(at));
        drop(idle);
        let region = match used {
            Some(region) => region,
            None if !has_room_for(len) => return None,
            None => {
                let memory = Region::zeroed(len).ok()?;
                LocalRegion::new(&self.node, memory, Rights::NONE, None, None).ok()?
            }
        };
        Some(Arc::new(PooledRegion { region: Some(region), home: Arc::clone(self) }))
    }

    /// Takes back a region. Frees the oldest ones if there are too many.
    fn give(&self, region: LocalRegion) {
        // In a child of fork, nobody may be left to release the lock (MEM-24.2).
        let Ok(mut idle) = self.idle.try_lock() else { return };
        idle.push_back(region);
        let mut bytes: usize = idle.iter().map(|region| region.len()).sum();
        let mut displaced = Vec::new();
        while bytes > POOL_BYTES_MAX
            && let Some(oldest) = idle.pop_front()
        {
            bytes -= oldest.len();
            displaced.push(oldest);
        }
        drop(idle);
    }
}

/// Region of a pool, which comes back when it is dropped.
struct PooledRegion {
    region: Option<LocalRegion>,
    home: Arc<RegionPool>,
}

impl PooledRegion {
    fn slice(&self, len: usize) -> Option<RegionSlice> {
        self.region.as_ref()?.slice(0..len).ok()
    }
}

impl Drop for PooledRegion {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.home.give(region);
        }
    }
}

/// Copies values of the caller, while parcels are on their way.
pub(in crate::collective) fn copy_meanwhile(node: &Node, from: &[u8], into: &mut [u8]) {
    for (from, into) in from.chunks(TURN_BYTES).zip(into.chunks_mut(TURN_BYTES)) {
        into.copy_from_slice(from);
        node.take_turn();
    }
}

/// Part of a buffer, in one piece of memory.
#[derive(Clone)]
struct Area {
    start: usize,
    memory: RegionSlice,
    keep: Arc<dyn Any + Send + Sync>,
}

impl Area {
    fn pooled(pool: &Arc<RegionPool>, len: usize) -> Option<Area> {
        let region = pool.take(len)?;
        Some(Area { start: 0, memory: region.slice(len)?, keep: region })
    }

    fn range(&self) -> Range<usize> {
        self.start..self.start + self.memory.len()
    }

    /// Returns the memory of a range, if all of it is here.
    fn part(&self, range: &Range<usize>) -> Option<RegionSlice> {
        let here = self.range();
        let is_inside = here.start <= range.start && range.end <= here.end;
        is_inside.then(|| self.memory.part(range.start - here.start..range.end - here.start))
    }

    /// Calls `act` with the place of a parcel that comes to a range, if all of it is here. Memory
    /// that is not lent is not used again before the parcel has come or has been withdrawn.
    fn place(&self, range: &Range<usize>, is_lent: bool, act: impl FnOnce(ParcelPlace, u64)) {
        let Some(part) = self.part(range) else { return };
        part.use_directly(|region, offset, len| {
            let keep = (!is_lent).then(|| Arc::clone(&self.keep));
            act(ParcelPlace { region: region.clone(), offset, keep }, len);
            true
        });
    }
}

/// Bytes of a part that are sent from where they are.
#[derive(Clone)]
pub(in crate::collective) struct LongPart {
    pub memory: RegionSlice,
    /// Keeps the memory until the send has ended.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// A parcel whose bytes are read from a work buffer until it is acknowledged.
pub(in crate::collective) struct PartSend {
    /// Rank of the receiver in the team.
    pub to: Rank,
    pub head: ParcelHead,
    pub completion: Arc<Completion>,
}

/// A send whose bytes must stay as they are.
struct SendUnderWay {
    send: PartSend,
    bytes: Range<usize>,
}

/// Bytes of a long work buffer.
pub(super) struct LongWork {
    areas: Vec<Area>,
    /// The memory is the caller's.
    is_lent: bool,
    pool: Arc<RegionPool>,
    sends: Vec<SendUnderWay>,
    /// Parcels that are awaited. No part is empty. Two parts overlap only if one parcel alone comes
    /// of them (COLL-2.7).
    awaited: Vec<AwaitedPart>,
}

/// Parcel that is awaited in a work buffer.
struct AwaitedPart {
    round: RoundNumber,
    range: Range<usize>,
    memory: Arc<ParcelMemory>,
}

impl LongWork {
    /// Makes a buffer of `len` bytes, or returns `None` without memory for it.
    pub fn new(pool: &Arc<RegionPool>, len: usize) -> Option<LongWork> {
        let areas = vec![Area::pooled(pool, len)?];
        let pool = Arc::clone(pool);
        Some(LongWork { areas, is_lent: false, pool, sends: Vec::new(), awaited: Vec::new() })
    }

    /// Makes a buffer of memory that is lent, each with its place.
    pub fn lent(pool: &Arc<RegionPool>, areas: Vec<(usize, RegionSlice)>) -> LongWork {
        let area = |(start, memory): (usize, RegionSlice)| {
            let keep = memory.clone().keep();
            Area { start, memory, keep }
        };
        let areas = areas.into_iter().map(area).collect();
        let pool = Arc::clone(pool);
        LongWork { areas, is_lent: true, pool, sends: Vec::new(), awaited: Vec::new() }
    }

    /// Calls `act` with each piece of memory of a range, and its place in the range.
    fn each(&self, range: Range<usize>, mut act: impl FnMut(&Region, u64, Range<usize>)) {
        for area in &self.areas {
            let here = area.range();
            let (from, to) = (here.start.max(range.start), here.end.min(range.end));
            if from < to {
                area.memory.use_directly(|region, at, _| {
                    let at = at + (from - here.start) as u64;
                    act(region, at, from - range.start..to - range.start);
                    true
                });
            }
        }
    }

    /// Copies the bytes from `at` on.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.each(at..at + into.len(), |region, at, part| {
            if let Some(into) = into.get_mut(part) {
                // Only memory whose loan is over cannot be read, and nobody gets a result of it.
                let _ = region.read(at, into);
            }
        });
    }

    /// Writes bytes at `at`.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.each(at..at + bytes.len(), |region, at, part| {
            if let Some(bytes) = bytes.get(part) {
                let _ = region.write(at, bytes);
            }
        });
    }

    /// Changes a range of bytes, chunk by chunk of whole elements of `size` bytes. `change` gets
    /// the bytes of a chunk and their place in the range.
    pub fn change(
        &self,
        range: Range<usize>,
        size: usize,
        mut change: impl FnMut(&mut [u8], usize),
    ) {
        self.fill(range.clone(), size, |here, at| {
            self.read(range.start + at, here);
            change(here, at);
        });
    }

    /// Replaces a range of bytes as [`LongWork::change`] changes it. The bytes that `fill` gets
    /// have no meaning.
    fn fill(&self, range: Range<usize>, size: usize, mut fill: impl FnMut(&mut [u8], usize)) {
        let step = (CHUNK / size.max(1)).max(1) * size.max(1);
        let mut chunk = vec![0; step.min(range.len())];
        let mut turned = range.start;
        for at in range.clone().step_by(step) {
            let Some(here) = chunk.get_mut(..step.min(range.end - at)) else { continue };
            fill(here, at - range.start);
            self.write(at, here);
            if at + step >= turned + TURN_BYTES {
                self.pool.node.take_turn();
                turned = at + step;
            }
        }
    }

    /// Copies a range elsewhere.
    pub fn copy(&self, range: Range<usize>, into: usize) {
        for at in range.clone().step_by(TURN_BYTES) {
            let to = into + (at - range.start);
            self.each(at..range.end.min(at + TURN_BYTES), |from, from_at, part| {
                self.each(to + part.start..to + part.end, |region, region_at, piece| {
                    let from_at = from_at + piece.start as u64;
                    let _ = from.copy_to(from_at, region, region_at, piece.len() as u64);
                });
            });
            if range.end - at >= TURN_BYTES {
                self.pool.node.take_turn();
            }
        }
    }

    /// Returns the memory of a range, to be sent.
    pub fn part(&self, range: &Range<usize>) -> Option<LongPart> {
        let found = |area: &Area| Some((area.part(range)?, Arc::clone(&area.keep)));
        self.areas.iter().find_map(found).map(|(memory, keep)| LongPart { memory, keep })
    }

    /// Notes that a range is being sent.
    pub fn sending(&mut self, bytes: Range<usize>, send: PartSend) {
        self.sends.push(SendUnderWay { send, bytes });
    }

    /// Forgets the sends that have ended. Returns receiver, length in bytes and failure of each
    /// that has failed.
    pub fn end_sends(&mut self) -> Vec<(Rank, u64, Failure)> {
        let is_over = |one: &mut SendUnderWay| one.send.completion.is_done();
        let over = self.sends.extract_if(.., is_over);
        let failed = |SendUnderWay { send, bytes }: SendUnderWay| {
            Some((send.to, bytes.len() as u64, send.completion.outcome()?.err()?))
        };
        over.filter_map(failed).collect()
    }

    /// Returns `true` if no send needs the bytes of a range any more. A parcel that a rank sends in
    /// a later round than it has received the range shows that it has the range.
    pub fn is_free(&self, range: &Range<usize>, by: Option<(Rank, RoundNumber)>) -> bool {
        self.sends.iter().all(|SendUnderWay { send, bytes }| {
            let is_over = send.completion.is_done()
                || by.is_some_and(|(from, round)| from == send.to && send.head.round < round);
            bytes.end <= range.start || range.end <= bytes.start || is_over
        })
    }

    /// Returns `true` if the memory can go back to the caller.
    pub fn may_end(&self) -> bool {
        !self.is_lent || self.is_free(&(0..usize::MAX), None)
    }

    /// Makes a parcel arrive in a range.
    pub fn expect(&mut self, node: &Node, from: Rank, head: ParcelHead, range: &Range<usize>) {
        for area in &self.areas {
            area.place(range, self.is_lent, |place, len| {
                let memory = ParcelMemory::new(place);
                node.mail.parcels.add(from, head, len, Arc::clone(&memory));
                let range = range.clone();
                self.awaited.push(AwaitedPart { round: head.round, range, memory });
            });
        }
    }

    /// Called when the parcel of a round for a range has come, in place or otherwise.
    pub fn came(&mut self, range: &Range<usize>, round: RoundNumber, in_place: bool) {
        let is_it = |part: &AwaitedPart| part.round == round && part.range == *range;
        let Some(at) = self.awaited.iter().position(is_it) else { return };
        let came = self.awaited.swap_remove(at);
        self.withdraw(&came, in_place);
    }

    /// Awaits no parcels any more but those of the rounds that `is_left` selects.
    pub fn await_only(&mut self, is_left: impl Fn(RoundNumber) -> bool) {
        let others: Vec<AwaitedPart> =
            self.awaited.extract_if(.., |part| !is_left(part.round)).collect();
        others.iter().for_each(|part| self.withdraw(part, false));
    }

    /// Takes the memory of a parcel back, unless all of the parcel has come there.
    fn withdraw(&self, part: &AwaitedPart, has_come: bool) {
        let node = &self.pool.node;
        // The parcel may have been sent anew while it arrived in place.
        if !node.mail.parcels.remove(&part.memory) && !has_come {
            node.with_engine(|_| part.memory.close());
        }
    }

    /// Returns `true` if sends need the caller's memory.
    pub fn sends_lent(&self) -> bool {
        self.is_lent && !self.is_free(&(0..usize::MAX), None)
    }

    /// Returns lent memory to the caller: goes on with one copy of it. Withdraws the parcels that
    /// are sent from there. `again` makes the submission of each with the bytes of the copy, and
    /// gets none without memory for it. All go together, so that alike ones go by multicast again.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn take_over(
        &mut self,
        mut again: impl FnMut(&PartSend, usize, Option<LongPart>) -> Option<(PartSend, Submission)>,
    ) -> Result<(), String> {
        if !self.is_lent {
            return Ok(());
        }
        let node = Arc::clone(&self.pool.node);
        let withdrawn: Vec<_> =
            self.sends.extract_if(.., |one| !one.send.completion.is_done()).collect();
        for SendUnderWay { send, .. } in &withdrawn {
            node.tell(Request::Cancel { completion: Arc::clone(&send.completion) });
        }
        let len = self.areas.iter().map(|area| area.range().end).max().unwrap_or(0);
        let copy = LongWork::new(&self.pool, len);
        if let Some(copy) = &copy {
            for at in (0..len).step_by(CHUNK) {
                node.with_engine(|_| self.move_to(copy, at..len.min(at + CHUNK)));
                if (at + CHUNK).is_multiple_of(TURN_BYTES) {
                    node.take_turn();
                }
            }
            self.areas.clone_from(&copy.areas);
            self.is_lent = false;
        }
        let mut submissions = Vec::new();
        for SendUnderWay { send, bytes } in withdrawn {
            let part = copy.as_ref().and_then(|copy| copy.part(&bytes));
            if let Some((send, submission)) = again(&send, bytes.len(), part) {
                submissions.push(submission);
                self.sending(bytes, send);
            }
        }
        node.push_together(submissions);
        copy.map(drop).ok_or_else(|| format!("there is not enough memory for {len} bytes"))
    }

    /// Copies a range, before which all is copied. What is placed later before its end goes to the
    /// copy. Only this takes place in the engine, so that it stops other threads for one range.
    fn move_to(&self, copy: &LongWork, range: Range<usize>) {
        let mut chunk = vec![0; range.len()];
        self.read(range.start, &mut chunk);
        copy.write(range.start, &chunk);
        for part in self.awaited.iter().filter(|part| part.range.start < range.end) {
            let moved = (range.end.min(part.range.end) - part.range.start) as u64;
            for area in &copy.areas {
                area.place(&part.range, false, |place, _| part.memory.exchange(moved, place));
            }
        }
    }
}

/// Ends the wait for parcels.
impl Drop for LongWork {
    fn drop(&mut self) {
        let node = &self.pool.node;
        if node.enter().is_none() {
            return;
        }
        for part in &self.awaited {
            node.mail.parcels.remove(&part.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::operator::Sum;
    use crate::collective::{Collectives, Team};
    use crate::tests::node::{node_and_local_peer, put_message};
    use oikaze_engine::{Value, tracked_by};
    use oikaze_protocol::collective::{CollectiveCall, ParcelPurpose, WHOLE};
    use oikaze_protocol::rma::RmaError;
    use oikaze_protocol::wind::Refusal;

    fn send(to: Rank, round: RoundNumber) -> (PartSend, Arc<Completion>) {
        let purpose = ParcelPurpose::Data;
        let head = ParcelHead { purpose, team: 0, number: 0, round, call: CollectiveCall::SHRINK };
        let completion = Completion::new();
        (PartSend { to, head, completion: Arc::clone(&completion) }, completion)
    }

    /// COLL-1.5: a part that is being sent stays as it is.
    #[test]
    fn part_is_free_when_its_sends_are_acknowledged_or_surpassed() {
        let (node, _local_peer) = node_and_local_peer();
        let mut work = LongWork::new(&RegionPool::new(&node), LONG_MIN).unwrap();
        let (sent, completion) = send(2, 5);
        work.sending(100..200, sent);
        assert!(work.is_free(&(0..100), None) && work.is_free(&(200..300), None));
        assert!(!work.is_free(&(150..160), None), "the receiver may not have it");
        assert!(!work.is_free(&(199..300), Some((1, 9))), "another rank sends");
        assert!(!work.is_free(&(0..101), Some((2, 5))), "the rank may not have taken it");
        assert!(work.is_free(&(0..101), Some((2, 6))));
        completion.settle(Ok(Value::Done));
        assert!(work.is_free(&(150..160), None));
    }

    /// COLL-3.4: a collective does not wait for a part that does not come.
    #[test]
    fn send_that_fails_alone_fails_the_collective() {
        let (node, _local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1], None);
        let sum = team.start().all_reduce(&[1_u64; LONG_MIN / 4], Sum);
        let fail_send = |failure: Failure| {
            let mut state = lock(&team.core.state);
            let long = state.task(0).unwrap().long().unwrap();
            let (sent, completion) = send(1, 0);
            long.sending(0..LONG_MIN, sent);
            completion.settle(Err(failure));
            drop(state);
            team.core.run_all(&node, None);
        };
        fail_send(Failure::Left);
        assert!(!sum.is_done(), "who has left is known otherwise");
        fail_send(Failure::Remote(RmaError::Refused(Refusal::NoMemory)));
        assert!(!sum.is_done(), "the receiver tells whether it lacks the part");
        fail_send(Failure::Cancelled);
        assert!(sum.is_done());
        assert!(sum.wait().unwrap_err().to_string().contains("cancelled"));
    }

    /// COLL-1.5: a part may be empty, and begin where another one begins.
    #[test]
    fn parcel_of_an_empty_part_does_not_end_the_wait_for_another_one() {
        let (node, _local_peer) = node_and_local_peer();
        let mut work = LongWork::new(&RegionPool::new(&node), LONG_MIN).unwrap();
        let (PartSend { head, .. }, _) = send(1, 0);
        let (part, len) = (0..LONG_MIN, LONG_MIN as u64);
        work.expect(&node, 1, head, &part);
        work.came(&(0..0), 0, false);
        let mut placement = node.mail.parcels.begin(1, &head, len).expect("it is awaited");
        work.came(&(0..0), 0, false);
        placement.write(0, &[7; 3]);
        assert!(placement.finish(), "the memory is its own");
        work.came(&part, 0, true);
        let mut bytes = [0; 4];
        work.read(0, &mut bytes);
        assert_eq!((bytes, work.awaited.len()), ([7, 7, 7, 0], 0));
    }

    /// COLL-2.7: all values may come at once, or the part of the plan, which has the same place.
    #[test]
    fn memory_takes_one_of_two_parcels_and_is_closed_to_the_other() {
        let (node, _local_peer) = node_and_local_peer();
        let part = 0..LONG_MIN;
        for whole_comes in [true, false] {
            let mut work = LongWork::new(&RegionPool::new(&node), LONG_MIN).unwrap();
            work.write(0, &[1; 8]);
            let heads = [7, WHOLE].map(|round| send(1, round).0.head);
            for head in heads {
                work.expect(&node, 1, head, &part);
            }
            let [plans, whole] = heads;
            let (comes, other) = if whole_comes { (whole, plans) } else { (plans, whole) };
            let begin = |head| node.mail.parcels.begin(1, &head, LONG_MIN as u64);
            let mut late = begin(other).expect("it is awaited");
            let mut placement = begin(comes).expect("it is awaited");
            placement.write(0, &[7; 4]);
            assert!(placement.finish());
            work.came(&part, comes.round, true);
            work.await_only(|_| false);
            late.write(0, &[9; 8]);
            let mut bytes = [0; 8];
            work.read(0, &mut bytes);
            assert_eq!((bytes, work.awaited.len()), ([7, 7, 7, 7, 1, 1, 1, 1], 0));
        }
    }

    fn region(node: &Arc<Node>, len: usize) -> RegionSlice {
        let memory = Region::zeroed(len).unwrap();
        LocalRegion::new(node, memory, Rights::NONE, None, None).unwrap().all()
    }

    /// COLL-1.5: the caller's memory is free, however many ranks have a part yet to come.
    #[test]
    fn withdrawn_parcels_are_sent_again_from_one_copy() {
        let (node, _local_peer) = node_and_local_peer();
        let mut work =
            LongWork::lent(&RegionPool::new(&node), vec![(0, region(&node, 2 * LONG_MIN))]);
        work.write(LONG_MIN, &[7; LONG_MIN]);
        let part = LONG_MIN..2 * LONG_MIN;
        for to in 1..=3 {
            work.sending(part.clone(), send(to, 0).0);
        }
        let (acknowledged, completion) = send(4, 0);
        work.sending(part.clone(), acknowledged);
        completion.settle(Ok(Value::Done));
        let lent = work.part(&part).unwrap().memory.segment(Rights::NONE).region;
        let (mut sent, mut again) = (Vec::new(), Vec::new());
        let taken_over = work.take_over(|one, len, copy| {
            let memory = copy.unwrap().memory;
            let mut bytes = vec![0; len];
            assert!(memory.use_directly(|region, at, _| region.read(at, &mut bytes).is_ok()));
            assert_eq!(bytes, [7; LONG_MIN]);
            sent.push((one.to, memory.segment(Rights::NONE).region));
            let (send, completion) = send(one.to, 0);
            again.push(Arc::clone(&completion));
            let request = Request::Withdraw { name: String::new() };
            Some((send, tracked_by(completion, request, None)))
        });
        taken_over.unwrap();
        let copy = work.part(&part).unwrap().memory.segment(Rights::NONE).region;
        assert_ne!(copy, lent);
        assert_eq!(sent, [1, 2, 3].map(|to| (to, copy)));
        assert!(work.may_end() && again.iter().all(|one| one.is_done()), "all were submitted");
    }

    #[test]
    fn parcels_are_withdrawn_without_memory_for_a_copy() {
        let (node, _local_peer) = node_and_local_peer();
        let end = 1 << 47;
        let lent = vec![(end, region(&node, LONG_MIN))];
        let mut work = LongWork::lent(&RegionPool::new(&node), lent);
        work.sending(end..end + LONG_MIN, send(1, 0).0);
        let mut withdrawn = Vec::new();
        let taken_over = work.take_over(|one, len, copy| {
            withdrawn.push((one.to, len, copy.is_some()));
            None
        });
        assert!(taken_over.unwrap_err().contains("not enough memory"));
        assert_eq!(withdrawn, [(1, LONG_MIN, false)]);
        assert!(work.is_free(&(0..usize::MAX), None));
    }

    /// COLL-1.5: other threads run turns while lent memory is copied, and a parcel goes on.
    #[test]
    fn parcel_arrives_while_its_memory_is_copied_chunk_by_chunk() {
        let (node, _local_peer) = node_and_local_peer();
        let pool = RegionPool::new(&node);
        let mut work = LongWork::lent(&pool, vec![(0, region(&node, 3 * CHUNK))]);
        let (PartSend { head, .. }, _) = send(1, 0);
        let part = CHUNK / 2..3 * CHUNK;
        work.expect(&node, 1, head, &part);
        let mut placement = node.mail.parcels.begin(1, &head, part.len() as u64).unwrap();
        let copy = LongWork::new(&pool, 3 * CHUNK).unwrap();
        let mut place = |at: usize, value: u8| {
            placement.write((at - part.start) as u64, &[value; 8]);
        };
        place(CHUNK, 1);
        work.move_to(&copy, 0..CHUNK);
        // Where it is copied, where it is not, and both.
        place(CHUNK - 20, 2);
        place(2 * CHUNK, 3);
        place(CHUNK - 4, 4);
        work.move_to(&copy, CHUNK..2 * CHUNK);
        work.move_to(&copy, 2 * CHUNK..3 * CHUNK);
        place(3 * CHUNK - 8, 5);
        assert!(placement.finish());
        let mut bytes = vec![0; 3 * CHUNK];
        copy.read(0, &mut bytes);
        assert_eq!(bytes[CHUNK - 20..CHUNK - 12], [2; 8]);
        assert_eq!(bytes[CHUNK - 4..CHUNK + 8], [4, 4, 4, 4, 4, 4, 4, 4, 1, 1, 1, 1]);
        assert_eq!(bytes[2 * CHUNK..2 * CHUNK + 8], [3; 8]);
        assert_eq!(bytes[3 * CHUNK - 8..], [5; 8]);
    }

    #[test]
    fn bytes_are_read_and_changed_across_pieces_of_memory() {
        let (node, _local_peer) = node_and_local_peer();
        let pool = RegionPool::new(&node);
        let region = |len| region(&node, len);
        let len = 3 * CHUNK;
        let work = LongWork::lent(&pool, vec![(CHUNK + 7, region(len)), (0, region(CHUNK + 7))]);
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        work.write(5, &bytes);
        let mut chunks = 0;
        work.change(5..5 + len, 3, |chunk, at| {
            assert_eq!((at % 3, chunk.len() % 3), (0, 0));
            assert_eq!(chunk[..], bytes[at..at + chunk.len()]);
            chunk.iter_mut().for_each(|byte| *byte ^= 1);
            chunks += 1;
        });
        let mut changed = vec![0; len + 5];
        work.read(0, &mut changed);
        assert_eq!((chunks, &changed[..5]), (4, &[0; 5][..]));
        assert!(changed[5..].iter().zip(&bytes).all(|(one, other)| *one == other ^ 1));
        assert!(work.part(&(0..CHUNK)).is_some() && work.part(&(0..len)).is_none());
    }

    /// COLL-1.5: the ranks whose parcels are on their way wait for acknowledgements.
    #[test]
    fn engine_takes_turns_while_values_are_copied_or_combined() {
        let (node, mut local_peer) = node_and_local_peer();
        let work = LongWork::new(&RegionPool::new(&node), 2 * TURN_BYTES).unwrap();
        let steps: [&dyn Fn(); 3] = [
            &|| work.copy(0..TURN_BYTES, TURN_BYTES),
            &|| work.change(0..TURN_BYTES, 1, |_, _| {}),
            &|| copy_meanwhile(&node, &[1; LONG_MIN], &mut [0; LONG_MIN]),
        ];
        for (step, at) in steps.iter().zip(1..) {
            put_message(&mut local_peer, at);
            step();
            assert_eq!(node.mail.mailbox.len() as u64, at, "no other thread took it");
        }
    }

    #[test]
    fn bytes_are_copied_across_pieces_of_memory() {
        let (node, _local_peer) = node_and_local_peer();
        let middle = TURN_BYTES + 7;
        let areas = vec![(0, region(&node, middle)), (middle, region(&node, 3 * TURN_BYTES))];
        let work = LongWork::lent(&RegionPool::new(&node), areas);
        let bytes: Vec<u8> = (0..TURN_BYTES + 20).map(|n| n as u8).collect();
        work.write(5, &bytes);
        work.copy(5..bytes.len() + 5, 2 * TURN_BYTES);
        let mut copied = vec![0; bytes.len()];
        work.read(2 * TURN_BYTES, &mut copied);
        assert!(copied == bytes);
    }

    #[test]
    fn region_that_nothing_uses_any_more_is_used_again() {
        let (node, _local_peer) = node_and_local_peer();
        let pool = RegionPool::new(&node);
        let key = |area: &Area| area.memory.segment(Rights::NONE).region;
        let first = Area::pooled(&pool, LONG_MIN).unwrap();
        let second = Area::pooled(&pool, LONG_MIN).unwrap();
        let slot = key(&first);
        assert_ne!(slot, key(&second));
        let keep = Arc::clone(&first.keep);
        drop(first);
        assert_ne!(key(&Area::pooled(&pool, LONG_MIN).unwrap()), slot, "it is being sent");
        drop(second);
        drop(keep);
        assert_eq!(key(&Area::pooled(&pool, LONG_MIN).unwrap()), slot);
        drop(Area::pooled(&pool, 2 * POOL_BYTES_MAX));
        assert!(lock(&pool.idle).is_empty());
    }
}
