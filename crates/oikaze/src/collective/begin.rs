//! Beginning of collectives, over bytes. The typed forms ([`Start`]) and the untyped ones
//! ([`Untyped`](super::untyped::Untyped)) call it.

use super::operator::{Combiner, Item, OperatorCode};
use crate::collective::pending::Pending;
use crate::collective::run::caller::CallerRun;
use crate::collective::run::calling::{CallerBegin, WaitingCaller, waits_as_caller};
use crate::collective::run::core::TeamCore;
use crate::collective::run::long::{LONG_MIN, copy_meanwhile};
use crate::collective::run::memory::{Buffers, MemoryRun, NoRoom};
use crate::collective::run::slot::Slot;
use crate::collective::run::stage::{Stage, StageShape};
use crate::collective::run::work::UntypedResult;
use crate::collective::team::Team;
use crate::error::{Error, Result};
use crate::memory::region::LocalRegion;
use crate::tables::element_kind::ItemType;
use oikaze_os::memory::{Region, scope as lend};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    CollectiveCall, CollectiveKind, ElementCode, MemoryFacts, Part, Plan, PlanStep, hash_of_lengths,
};
use oikaze_protocol::rma::Rights;
use oikaze_runtime::node::{Node, WORLD};
use std::sync::Arc;

/// Starts collectives of a team without waiting for them. Its methods have the names of the
/// blocking ones ([`Collectives`](super::Collectives)), and return [`Pending`] results.
///
/// ```
/// use oikaze::collective::Start;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let start: Start<'_> = job.start();
/// let (sums, ranks) = (start.all_reduce(&[1_u32], Sum), start.all_gather(&[job.rank()]));
/// assert_eq!(sums.wait()?, [ranks.wait()?.len() as u32]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Start<'t> {
    pub(super) team: &'t Team,
    /// Code of what the values are beyond their type (COLL-3.8); 0 for nothing.
    pub(super) meaning: u32,
    /// Call of the program, if this collective carries it (COLL-3.10).
    pub(super) carries: Carries,
}

/// Call of a program that a collective carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carries {
    /// The collective itself.
    Nothing,
    /// Exchange of what the members of a team know (COH-15.1).
    TeamBarrier,
    /// Exchange of colors and keys (COLL-5.1).
    Split,
    /// Values that only a binding understands. With a collective and an operator, each rank
    /// combines them by itself.
    Values(Option<(CollectiveKind, OperatorCode)>),
}

impl Carries {
    /// Returns the call that the ranks compare, from the call that carries it.
    fn call_of(self, call: CollectiveCall) -> CollectiveCall {
        match self {
            Carries::Nothing => call,
            Carries::TeamBarrier => CollectiveCall { element: ElementCode::KNOWLEDGE, ..call },
            Carries::Split => CollectiveCall { element: ElementCode::SPLIT, ..call },
            Carries::Values(combined) => {
                let (kind, operator) = combined.unwrap_or((call.kind, call.operator));
                CollectiveCall { kind, operator, element: call.element.as_values(), ..call }
            }
        }
    }
}

/// Elements over bytes, which need not be aligned.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    bytes: &'a [u8],
    /// Number of elements.
    len: usize,
}

impl<'a> Values<'a> {
    const NONE: Values<'static> = Values { bytes: &[], len: 0 };

    pub fn of<T: Item>(values: &'a [T]) -> Self {
        Values { bytes: bytemuck::cast_slice(values), len: values.len() }
    }

    /// Takes bytes that are a whole number of elements.
    pub fn of_bytes(bytes: &'a [u8], item: ItemType) -> Self {
        Values { bytes, len: bytes.len() / item.size.max(1) }
    }
}

impl<'t> Start<'t> {
    pub(super) fn of(team: &'t Team) -> Self {
        Self { team, meaning: 0, carries: Carries::Nothing }
    }

    fn shape(&self, kind: CollectiveKind, root: Rank) -> StageShape {
        let Team { core, pool, machines, several_machines, .. } = self.team;
        StageShape {
            kind,
            rank: core.me(),
            root,
            machines: Arc::clone(machines),
            nodes: Arc::clone(core.ranks()),
            several_machines: *several_machines,
            pool: Arc::clone(pool),
            uneven: None,
            has_memory: core.has_memory(),
        }
    }

    /// Returns the call of a collective without an operator, whose count is not known.
    fn call(&self, kind: CollectiveKind, root: Rank, item: ItemType) -> CollectiveCall {
        let element = ElementCode::new(item.name, item.size).with_meaning(self.meaning);
        let root = if kind.has_root() { root } else { 0 };
        let operator = OperatorCode::None;
        CollectiveCall { kind, uneven: false, element, operator, root, count: None }
    }

    /// Returns why a root is none, if so.
    fn check_root(&self, call: &CollectiveCall) -> std::result::Result<(), String> {
        let (root, size) = (call.root, self.team.size());
        if root < size {
            return Ok(());
        }
        Err(format!(
            "root {root} is not a rank of this team of {size}; ranks are 0 to {}",
            size - 1
        ))
    }

    /// Returns the length of one block of so many elements.
    fn block(&self, len: usize) -> std::result::Result<usize, String> {
        let size = self.team.size() as usize;
        if len.is_multiple_of(size) {
            return Ok(len / size);
        }
        Err(format!(
            "{len} elements cannot be divided among {size} ranks equally: pad them, or use the form with unequal counts"
        ))
    }

    /// Returns the call of a collective of equal parts, in which this rank gives `len` elements.
    fn even_call(
        &self,
        (kind, root): (CollectiveKind, Rank),
        item: ItemType,
        len: usize,
        operator: OperatorCode,
        room: Option<usize>,
    ) -> EvenCall {
        let mut call = self.call(kind, root, item);
        let is_root = self.team.rank() == call.root;
        let of_root = matches!(kind, CollectiveKind::Broadcast | CollectiveKind::Scatter);
        let len = if of_root && !is_root { 0 } else { len };
        // Number of elements of the vector or of one block; `None`: the root knows.
        let count = match kind {
            CollectiveKind::Broadcast if !is_root => Ok(room),
            CollectiveKind::Scatter if !is_root => Ok(None),
            kind if kind.has_blocks() => self.block(len).map(Some),
            _ => Ok(Some(len)),
        };
        let sound = self.check_root(&call).and_then(|()| match &count {
            Ok(_) => self.check_room(kind, len, room),
            Err(why) => Err(why.clone()),
        });
        let count = count.unwrap_or(Some(len));
        let total = if kind == CollectiveKind::Scatter { len } else { count.unwrap_or(0) };
        call.count = count.map(|_| total as u64);
        call.operator = operator;
        EvenCall { call, count, gives: !of_root || is_root, sound }
    }

    /// Begins a collective of equal parts. The root counts if the kind has one. `room` is the
    /// number of elements of the caller's slice for the result, if there is one.
    pub(super) fn begin_even(
        self,
        (kind, root): (CollectiveKind, Rank),
        item: ItemType,
        values: Values<'_>,
        combiner: Option<Combiner>,
        room: Option<usize>,
    ) -> Pending<UntypedResult> {
        let code = code_of(combiner.as_ref());
        let even = self.even_call((kind, root), item, values.len, code, room);
        let values = if even.gives { values } else { Values::NONE };
        let mut stage = Stage::new(self.shape(kind, even.call.root), item.size, combiner);
        let sound = even.sound.and_then(|()| match even.count {
            Some(count) => stage.prepare(count, values.bytes),
            None => Ok(()),
        });
        self.begin_stage(even.call, stage, sound)
    }

    /// Calls a collective of equal parts as [`Start::begin_even`] does, with `len` elements that
    /// `buffers` has, and waits for the result, which goes where `buffers` says.
    ///
    /// # Errors
    /// As of the collective; or there is no room for the result.
    #[track_caller]
    pub(super) fn run_even(
        self,
        (kind, root): (CollectiveKind, Rank),
        item: ItemType,
        (buffers, len): (&mut dyn Buffers, usize),
        combiner: Option<Combiner>,
        room: Option<usize>,
    ) -> Result<()> {
        let shape = || self.shape(kind, if kind.has_root() { root } else { 0 });
        let mut caller =
            CallerRun { buffers, combiner, size: item.size, shape: &shape, came: None };
        let code = code_of(caller.combiner.as_ref());
        let even = self.even_call((kind, root), item, len, code, room);
        let ended = match self.team.core.has_memory() {
            true => self.run_in_memory(even, &mut caller),
            false => self.run_in_lent_memory(&even, &mut caller),
        };
        if let Some(ended) = ended {
            return ended;
        }
        let CallerRun { buffers, combiner, .. } = caller;
        let values = Values { bytes: buffers.given(), len };
        let result = self.begin_even((kind, root), item, values, combiner, room).wait()?;
        let is_source = kind == CollectiveKind::Broadcast && self.team.rank() == root;
        if is_source && !buffers.takes_own_values() { Ok(()) } else { put(result, buffers) }
    }

    /// Calls a collective through memory, and waits for the result. Returns `None` if nothing was
    /// called, because the collective does not go there.
    #[track_caller]
    fn run_in_memory(&self, even: EvenCall, caller: &mut CallerRun<'_>) -> Option<Result<()>> {
        let Team { core, node, limit, .. } = self.team;
        let EvenCall { call, sound, .. } = even;
        let ranks = self.team.ranks().len();
        let facts = MemoryFacts {
            kind: call.kind,
            me: core.me(),
            root: call.root,
            ranks,
            size: caller.size,
        };
        let memory = MemoryRun::new(facts, &call);
        let goes_there = sound.is_ok() && !memory.is_by_parcels() && !waits_as_caller();
        if !goes_there || node.enter().is_none() {
            return None;
        }
        node.coherence.forget_interrupted();
        let call = self.carries.call_of(call);
        let (number, slot) = match core.begin_as_caller(node, call, memory, caller)? {
            CallerBegin::Ended => return Some(outcome(caller)),
            CallerBegin::Waits { number, slot } => (number, slot),
        };
        let number_in_team = Some((number + 1, core.id() == WORLD));
        let pending = Pending::new(Arc::clone(&slot), node, call, number_in_team, *limit);
        let mut waiting = WaitingCaller::new((core, node), (number, slot), caller);
        let waited = pending.wait_with(&mut || waiting.step());
        drop(waiting);
        Some(match waited {
            Ok(_) if caller.came.is_some() => outcome(caller),
            Ok(result) => put(result, caller.buffers),
            Err(error) => Err(error),
        })
    }

    /// Calls a collective by parcels that works in the caller's memory, and waits for the result.
    /// Returns `None` if nothing was called, because the values are short, or the steps need other
    /// memory.
    #[track_caller]
    fn run_in_lent_memory(
        &self,
        even: &EvenCall,
        caller: &mut CallerRun<'_>,
    ) -> Option<Result<()>> {
        let Team { core, node, limit, .. } = self.team;
        let (size, count) = (caller.size, even.count.filter(|_| even.sound.is_ok())?);
        let is_source = even.call.kind == CollectiveKind::Broadcast && even.gives;
        let buffers = &mut *caller.buffers;
        if is_source && !buffers.is_in_place() && !buffers.takes_own_values() {
            return None;
        }
        // Short values cost no second plan.
        let bytes_max = count.saturating_mul(size).saturating_mul(2 * self.team.ranks().len());
        if bytes_max < LONG_MIN || waits_as_caller() {
            return None;
        }
        let commutes = caller.combiner.as_ref().is_none_or(|combiner| combiner.commutes);
        let plan = (caller.shape)().plan(count, size, commutes).ok()?;
        if plan.len.saturating_mul(size) < LONG_MIN {
            return None;
        }
        let use_of = MemoryUse::of(&plan, buffers.is_in_place())?;
        node.enter()?;
        let at = |part: Part| part.start * size..(part.start + part.len) * size;
        let (input, output) = (at(plan.input), at(plan.output));
        let (given, result) = buffers.both(output.len()).ok()?;
        let given = given.filter(|_| even.gives).unwrap_or_default();
        if !given.is_empty() && given.len() != input.len() {
            return None;
        }
        if use_of == MemoryUse::Result && !given.is_empty() {
            result.get_mut(input.clone())?.copy_from_slice(given);
        }
        lend(|lender| {
            let (mut areas, mut own) = (Vec::new(), None);
            let mut lend = |at: usize, memory: Region| {
                if memory.is_empty() {
                    return Some(());
                }
                let registered = LocalRegion::new(node, memory, Rights::NONE, None, *limit);
                // Memory of shared arrays is not lent.
                registered.map(|region| areas.push((at, region.all()))).ok()
            };
            if use_of != MemoryUse::Result {
                lend(input.start, lender.borrow(given))?;
            }
            if use_of == MemoryUse::AroundInput {
                let (before, rest) = result.split_at_mut_checked(input.start)?;
                let (same, after) = rest.split_at_mut_checked(input.len())?;
                own = Some(same);
                lend(0, lender.borrow_mut(before))?;
                lend(input.end, lender.borrow_mut(after))?;
            } else {
                lend(output.start, lender.borrow_mut(result))?;
            }
            let mut stage = Stage::new((caller.shape)(), size, caller.combiner.take());
            stage.prepare_in(plan, areas);
            let pending = self.begin_stage(even.call, stage, Ok(()));
            let number = pending.number();
            let _loan = number.map(|number| Loan { core, node, number });
            // The first parcels are on their way meanwhile.
            if let Some(own) = own {
                copy_meanwhile(node, given, own);
            }
            Some(pending.wait().map(drop))
        })
    }

    /// Checks that the caller's slice has room for what comes from `len` elements of this rank.
    fn check_room(
        &self,
        kind: CollectiveKind,
        len: usize,
        room: Option<usize>,
    ) -> std::result::Result<(), String> {
        let size = self.team.size();
        let result = match kind {
            CollectiveKind::AllToAll => Some(len),
            CollectiveKind::AllGather => len.checked_mul(size as usize),
            _ => room,
        };
        match room {
            Some(room) if result != Some(room) => Err(format!(
                "{room} elements are given for the result of {len} elements of this rank among {size} ranks",
            )),
            _ => Ok(()),
        }
    }

    fn begin_stage(
        self,
        call: CollectiveCall,
        stage: Box<Stage>,
        sound: std::result::Result<(), String>,
    ) -> Pending<UntypedResult> {
        let Team { core, node, limit, .. } = self.team;
        let call = self.carries.call_of(call);
        node.coherence.forget_interrupted();
        let slot = Arc::new(Slot::default());
        let stage = (stage, Arc::clone(&slot));
        let number = node.enter().map(|_| core.begin(node, call, stage, sound));
        let number = number.map(|number| (number + 1, core.id() == WORLD));
        Pending::new(slot, node, call, number, *limit)
    }

    /// Begins a collective whose arguments are none, for this reason. It fails on all ranks.
    pub(super) fn refused(
        self,
        kind: CollectiveKind,
        item: ItemType,
        why: String,
    ) -> Pending<UntypedResult> {
        let stage = Stage::new(self.shape(kind, 0), item.size, None);
        self.begin_stage(self.call(kind, 0, item), stage, Err(why))
    }

    /// Begins a collective of vectors whose lengths may differ: of one for each rank, or of one
    /// where each rank gives one. It has two plans (COLL-2.5). The first exchanges lengths, the
    /// second moves the data.
    pub(super) fn begin_uneven(
        self,
        (kind, root): (CollectiveKind, Rank),
        item: ItemType,
        vectors: &[Values<'_>],
    ) -> Pending<UntypedResult> {
        let call = CollectiveCall { uneven: true, ..self.call(kind, root, item) };
        let is_root = self.team.rank() == call.root;
        let size = self.team.size() as usize;
        // Collective of the lengths, their number in a block, and the number that this rank gives.
        let (exchange, count, given) = match kind {
            CollectiveKind::Scatter => {
                (CollectiveKind::Broadcast, size, if is_root { size } else { 0 })
            }
            CollectiveKind::AllToAll => (kind, 1, size),
            _ => (CollectiveKind::AllGather, 1, 1),
        };
        let vectors = if given == 0 { &[] } else { vectors };
        let lens: Vec<usize> = vectors.iter().map(|vector| vector.len).collect();
        let input: Vec<u64> = lens.iter().map(|len| *len as u64).collect();
        let values = joined(vectors);
        let shape = self.shape(kind, call.root);
        let next = move |counts: UntypedResult| {
            let counts = counts.into_elements::<u64>();
            let counts: std::result::Result<Vec<usize>, _> =
                counts.into_iter().map(usize::try_from).collect();
            let counts = counts.map_err(|_| "a length is too large".to_owned())?;
            let zeros = vec![0; counts.len()];
            // Lengths of the block to each rank, of that of each rank, and of the results.
            let (sent, received, results) = match kind {
                CollectiveKind::Scatter => (counts, zeros, None),
                CollectiveKind::AllToAll => (lens, counts.clone(), Some(counts)),
                CollectiveKind::Gather if !is_root => (zeros, counts, Some(Vec::new())),
                _ => (zeros, counts.clone(), Some(counts)),
            };
            let shape = StageShape { uneven: Some((sent, received)), ..shape };
            let mut stage = Stage::new(shape, item.size, None).cut(results);
            stage.prepare(0, &values).map(|()| stage)
        };
        let sound = self.check_root(&call).and_then(|()| check_vectors(vectors.len(), given));
        let shape = self.shape(exchange, call.root);
        let mut stage = Stage::new(shape, size_of::<u64>(), None).then(Box::new(next));
        let sound = sound.and_then(|()| stage.prepare(count, bytemuck::cast_slice(&input)));
        self.begin_stage(call, stage, sound)
    }

    /// Begins to combine the vectors of all ranks element by element. Rank `r` gets the combined
    /// vectors `r`. All ranks know the lengths, so there is one plan.
    pub(super) fn begin_reduce_scatter_uneven(
        self,
        item: ItemType,
        vectors: &[Values<'_>],
        combiner: Combiner,
    ) -> Pending<UntypedResult> {
        let kind = CollectiveKind::ReduceScatter;
        let lens: Vec<usize> = vectors.iter().map(|vector| vector.len).collect();
        let sum = lens.iter().try_fold(0_usize, |sum, len| sum.checked_add(*len));
        let call = CollectiveCall {
            uneven: true,
            operator: combiner.code,
            root: hash_of_lengths(&lens),
            count: sum.map(|sum| sum as u64),
            ..self.call(kind, 0, item)
        };
        let sound = check_vectors(vectors.len(), self.team.size() as usize);
        let fits = sum.map(drop).ok_or_else(|| "the lengths are too large".to_owned());
        let shape = StageShape { uneven: Some((Vec::new(), lens)), ..self.shape(kind, 0) };
        let mut stage = Stage::new(shape, item.size, Some(combiner));
        let sound = sound.and(fits).and_then(|()| stage.prepare(0, &joined(vectors)));
        self.begin_stage(call, stage, sound)
    }
}

/// Use of the caller's memory by a plan that needs no other memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryUse {
    /// The plan works in the memory of the result, which has the values first.
    Result,
    /// The plan reads the values where they are, and works in the memory of the result.
    Both,
    /// The plan reads the values where they are, and works in the rest of the memory of the result.
    AroundInput,
}

impl MemoryUse {
    fn of(plan: &Plan, is_in_place: bool) -> Option<MemoryUse> {
        let Plan { input, output, len, .. } = *plan;
        let after = input.start + input.len;
        let around = [Part::new(0, input.start), Part::new(after, len - after)];
        let is_all = output == Part::new(0, len);
        if is_in_place {
            // A rank that only receives gives no values.
            let fits = input == output || input.len == 0;
            (is_all && fits).then_some(MemoryUse::Result)
        } else if is_all && is_within(plan, &around) {
            Some(MemoryUse::AroundInput)
        } else if is_all {
            Some(MemoryUse::Result)
        } else {
            let is_apart = after <= output.start || output.start + output.len <= input.start;
            (is_apart && is_within(plan, &[output])).then_some(MemoryUse::Both)
        }
    }
}

/// Returns `true` if each step of a plan writes within one of these parts, and reads there or
/// within the input.
fn is_within(plan: &Plan, parts: &[Part]) -> bool {
    let is_in = |part: Part, of: &Part| {
        part.len == 0 || of.start <= part.start && part.start + part.len <= of.start + of.len
    };
    let is_written = |part: Part| parts.iter().any(|of| is_in(part, of));
    plan.steps.iter().all(|(_, step)| {
        let [read, written] = step.parts();
        let sends = matches!(step, PlanStep::Send { .. });
        (is_in(read, &plan.input) || is_written(read)) && (sends || is_written(written))
    })
}

/// Memory of a caller, in which a collective works while the caller waits.
struct Loan<'l> {
    core: &'l Arc<TeamCore>,
    node: &'l Node,
    number: u64,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.core.return_memory(self.node, self.number);
    }
}

/// Call of a collective of equal parts.
struct EvenCall {
    call: CollectiveCall,
    /// Number of elements of the vector or of one block, if this rank knows it.
    count: Option<usize>,
    /// The values of this rank count.
    gives: bool,
    /// Error: the arguments of this rank do not fit.
    sound: std::result::Result<(), String>,
}

fn code_of(combiner: Option<&Combiner>) -> OperatorCode {
    combiner.map_or(OperatorCode::None, |combiner| combiner.code)
}

/// Copies a result. A rank that gets none leaves its memory as it is.
fn put(result: UntypedResult, buffers: &mut dyn Buffers) -> Result<()> {
    let len = result.len();
    match buffers.room(len) {
        _ if result.is_empty() => Ok(()),
        Ok(room) => result.copy_to(room),
        Err(why) => Err(no_room(len, &why)),
    }
}

/// Returns whether there was room for the result that has come through memory.
fn outcome(caller: &mut CallerRun<'_>) -> Result<()> {
    match caller.came {
        None | Some(0) => Ok(()),
        Some(len) => caller.buffers.room(len).map(drop).map_err(|why| no_room(len, &why)),
    }
}

fn no_room(len: usize, why: &NoRoom) -> Error {
    let why = match why {
        NoRoom::OtherLength(room) => {
            format!("{len} bytes have come, and there is room for {room}")
        }
        NoRoom::NoMemory(bytes) => format!("there is not enough memory for {bytes} bytes"),
    };
    Error::invalid("take the result of a collective", why)
}

fn joined(vectors: &[Values<'_>]) -> Vec<u8> {
    vectors.iter().map(|vector| vector.bytes).collect::<Vec<_>>().concat()
}

fn check_vectors(given: usize, size: usize) -> std::result::Result<(), String> {
    if given == size {
        return Ok(());
    }
    Err(format!("{given} vectors are given for {size} ranks: give one for each rank"))
}
