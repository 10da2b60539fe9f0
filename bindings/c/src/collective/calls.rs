//! Collectives. Values stand in the program's memory before and after.

use crate::abi::call::{CallError, CallResult, Give, Output, Raw, functions};
use crate::abi::objects::{HandlePlace, New, Released, handled, keep};
use crate::abi::pointers::{Bytes, BytesMut, Destination, Input, Room};
use crate::collective::team::{KeptTeam, UsedTeam, oik_team};
use crate::job::{JoinedJob, oik_job};
use crate::memory::kinds::{
    OIK_F64, OIK_I64, OIK_U64, barrier_operator_of, bytes_of, kind_of, oik_kind, oik_operator,
    operator_of,
};
use crate::operation::{Begun, KeptOperation};
use oikaze::atomic::Combine;
use oikaze::collective::{Pending, Reducible, Team};
use oikaze::completion::{CompletionQueue, Counter};
use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator, UntypedResult};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A collective under way, whose result goes to the program's memory.
pub struct StartedCollective {
    pending: Pending<UntypedResult>,
    into: Mutex<Destination>,
    limit: Duration,
}

impl StartedCollective {
    /// Returns the job's time limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Waits for the result, and copies it. The value of the operation is 0.
    pub fn wait(&self, limit: Duration) -> CallResult<u64> {
        let result = self.pending.wait_for(limit)?;
        let mut into = self.into.lock().unwrap_or_else(PoisonError::into_inner);
        deliver(result, into.get())?;
        Ok(0)
    }

    pub fn report_to(&self, queue: &CompletionQueue, context: u64) -> CallResult {
        Ok(self.pending.report_to(queue, context)?)
    }

    pub fn count_in(&self, counter: &Counter) -> CallResult {
        Ok(self.pending.count_in(counter)?)
    }
}

/// Copies a result to memory that has room for it on the ranks that get one.
fn deliver(result: UntypedResult, into: &mut [u8]) -> CallResult {
    if result.is_empty() { Ok(()) } else { Ok(result.copy_to(into)?) }
}

/// Waits for a collective, or hands C its handle.
impl Give<StartedCollective> for Begun {
    fn give(place: Self::Place<'_>, started: StartedCollective) -> CallResult {
        match place {
            None => {
                let into = started.into.into_inner();
                deliver(started.pending.wait()?, into.unwrap_or_else(PoisonError::into_inner).get())
            }
            Some(out) => keep(out, KeptOperation::Collective(Box::new(started))).map(drop),
        }
    }
}

/// A collective that this rank is about to call. A rank whose arguments make no sense calls it all
/// the same, as a refusal. Otherwise this rank would be one collective behind the others, and would
/// get the result of another call than they do.
struct CollectiveCall {
    team: UsedTeam,
    collective: CollectiveKind,
}

impl CollectiveCall {
    fn of(team: &Arc<KeptTeam>, collective: CollectiveKind) -> CallResult<Self> {
        Ok(Self { team: team.used()?, collective })
    }

    fn team(&self) -> &Team {
        self.team.team()
    }

    /// Returns a checked argument. Refuses the collective on all ranks if the argument makes no
    /// sense.
    fn checked<T>(&self, argument: CallResult<T>) -> CallResult<T> {
        argument.inspect_err(|error| {
            let untyped = Untyped::of(self.team(), ElementKind::U8);
            // This rank returns its own error, and does not wait for the others.
            drop(untyped.refused(self.collective, error.text.to_string()));
        })
    }

    fn elements(self, kind: oik_kind) -> CallResult<Elements> {
        let kind = self.checked(kind_of(kind))?;
        Ok(Elements { call: self, kind })
    }
}

/// Elements of a collective. A mistake in an argument refuses the collective on all ranks.
struct Elements {
    call: CollectiveCall,
    kind: ElementKind,
}

impl Elements {
    fn of(team: &Arc<KeptTeam>, collective: CollectiveKind, kind: oik_kind) -> CallResult<Self> {
        CollectiveCall::of(team, collective)?.elements(kind)
    }

    fn checked<T>(&self, argument: CallResult<T>) -> CallResult<T> {
        self.call.checked(argument)
    }

    fn team(&self) -> &Team {
        self.call.team()
    }

    fn untyped(&self) -> Untyped<'_> {
        Untyped::of(self.team(), self.kind)
    }

    /// Returns the bytes of `count` elements.
    fn len(&self, count: usize) -> CallResult<usize> {
        self.checked(bytes_of(count, self.kind.size()))
    }

    /// Returns an operator, and the bytes of `count` elements of it, which are pairs for some.
    fn operator(
        &self,
        count: usize,
        operator: oik_operator,
    ) -> CallResult<(UntypedOperator, usize)> {
        let (operator, size) = (self.checked(operator_of(operator))?, self.kind.size());
        let size = if operator.takes_pairs() { 2 * size } else { size };
        Ok((operator, self.checked(bytes_of(count, size))?))
    }

    /// Returns the bytes of the elements of all ranks.
    fn len_of_all(&self, len: usize) -> CallResult<usize> {
        self.checked(bytes_of(self.team().size() as usize, len))
    }

    fn values<'v>(&self, values: &'v Bytes, len: usize) -> CallResult<&'v [u8]> {
        self.checked(values.get(len, "values"))
    }

    fn values_mut<'v>(&self, values: &'v mut BytesMut, len: usize) -> CallResult<&'v mut [u8]> {
        self.checked(values.get_set(len, "values"))
    }

    fn room<'v>(&self, result: &'v mut BytesMut, len: usize) -> CallResult<&'v mut [u8]> {
        self.checked(result.get_set(len, "result"))
    }

    fn destination(&self, result: &BytesMut, len: usize) -> CallResult<Destination> {
        self.checked(Destination::new(result, len, "result"))
    }

    /// Returns the memory of values that become the result.
    fn in_place(&self, values: &BytesMut, len: usize) -> CallResult<Destination> {
        self.checked(Destination::new(values, len, "values"))
    }

    /// Returns memory at the root, and none at other ranks.
    fn at_root(&self, root: u32, result: &BytesMut, len: usize) -> CallResult<Destination> {
        if self.team().rank() == root {
            self.destination(result, len)
        } else {
            self.destination(&BytesMut::of(std::ptr::null_mut()), 0)
        }
    }

    /// Begins the collective, whose result goes to the program's memory.
    fn even(
        &self,
        root: u32,
        values: &[u8],
        operator: Option<UntypedOperator>,
        into: Destination,
    ) -> StartedCollective {
        let mut untyped = self.untyped();
        if self.call.collective == CollectiveKind::Broadcast {
            untyped = untyped.room(values.len());
        }
        let pending = untyped.even(self.call.collective, root, values, operator);
        let limit = self.call.team.job().job.time_limit().unwrap_or(Duration::MAX);
        StartedCollective { pending, into: Mutex::new(into), limit }
    }

    /// Calls the collective, and waits. Without `values`, those of this rank are where the result
    /// comes.
    fn even_into(
        &self,
        root: u32,
        values: Option<&[u8]>,
        result: &mut [u8],
        operator: Option<UntypedOperator>,
    ) -> CallResult {
        Ok(self.untyped().even_into(self.call.collective, root, values, result, operator)?)
    }

    /// Calls a collective of vectors of different lengths, and hands C the handle of its result.
    fn uneven(
        &self,
        out: HandlePlace<'_, oik_vectors>,
        root: u32,
        vectors: &[&[u8]],
        operator: Option<UntypedOperator>,
    ) -> CallResult {
        let result = self.untyped().uneven(self.call.collective, root, vectors, operator).wait()?;
        keep(out, KeptVectors { vectors: result.into_vectors(), size: self.kind.size() }).map(drop)
    }
}

functions! {
    /// Sends `count` values of the root to all ranks. All ranks give the same root, kind and count.
    /// If `operation` is NULL, the call waits within the job's time limit; otherwise it returns at
    /// once, and `values` is left alone until `oik_wait` has returned. Thread-safe, but all ranks
    /// of a team call its collectives in the same order. After an error, memory for a result may
    /// have been written in part.
    ///
    /// Errors, of all collectives: `OIK_MISMATCH` if the ranks do not call the same; `OIK_INVALID`
    /// if an argument makes no sense (NULL, an unknown constant), and then the collective fails on
    /// the other ranks, too; `OIK_PEER_LOST`; `OIK_TIMEOUT`. A rank that passes another handle than
    /// that of a team takes no part, and the others wait for it.
    oik_broadcast(team: *mut oik_team, root: u32, kind: oik_kind, values: BytesMut, count: usize)
        -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::Broadcast, kind)?;
        let len = call.len(count)?;
        let (into, values) = (call.in_place(values, len)?, call.values_mut(values, len)?);
        if operation.is_none() {
            return call.even_into(root, None, values, None);
        }
        call.even(root, values, None, into)
    };
    /// Collects `count` values of each rank at the root, in the order of ranks. `result` has room
    /// for those of all ranks; at other ranks it may be NULL. `operation` is as for
    /// `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
    oik_gather(team: *mut oik_team, root: u32, kind: oik_kind, values: Bytes, count: usize,
        result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::Gather, kind)?;
        let len = call.len(count)?;
        let into = call.at_root(root, result, call.len_of_all(len)?)?;
        call.even(root, call.values(values, len)?, None, into)
    };
    /// Collects `count` values of each rank at all ranks, in the order of ranks. `result` has room
    /// for those of all ranks. `operation` is as for `oik_broadcast`. Thread-safe, as
    /// `oik_broadcast` is.
    oik_all_gather(team: *mut oik_team, kind: oik_kind, values: Bytes, count: usize,
        result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::AllGather, kind)?;
        let len = call.len(count)?;
        let all = call.len_of_all(len)?;
        let (values, into) = (call.values(values, len)?, call.destination(result, all)?);
        // Otherwise the values are copied before they are overwritten.
        if operation.is_none() && !into.overlaps(values) {
            return call.even_into(0, Some(values), call.room(result, all)?, None);
        }
        call.even(0, values, None, into)
    };
    /// Sends block `r` of the root's values, of `count` values, to rank `r`. At other ranks
    /// `values` may be NULL. `result` has room for `count` values. `operation` is as for
    /// `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
    oik_scatter(team: *mut oik_team, root: u32, kind: oik_kind, values: Bytes, count: usize,
        result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::Scatter, kind)?;
        let len = call.len(count)?;
        let is_root = call.team().rank() == root;
        let values = call.values(values, if is_root { call.len_of_all(len)? } else { 0 })?;
        let into = call.destination(result, len)?;
        call.even(root, values, None, into)
    };
    /// Sends block `r` of the values, of `count` values, to rank `r`, and gets one block of each
    /// rank. `operation` is as for `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
    oik_all_to_all(team: *mut oik_team, kind: oik_kind, values: Bytes, count: usize,
        result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::AllToAll, kind)?;
        let all = call.len_of_all(call.len(count)?)?;
        let (values, into) = (call.values(values, all)?, call.destination(result, all)?);
        // Otherwise the values are copied before they are overwritten.
        if operation.is_none() && !into.overlaps(values) {
            return call.even_into(0, Some(values), call.room(result, all)?, None);
        }
        call.even(0, values, None, into)
    };
    /// Combines `count` values of all ranks, element by element, at the root. At other ranks
    /// `result` may be NULL. For `OIK_MIN_LOCATION` and `OIK_MAX_LOCATION`, elements are pairs.
    /// `operation` is as for `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
    oik_reduce(team: *mut oik_team, root: u32, kind: oik_kind, operator_: oik_operator,
        values: Bytes, count: usize, result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::Reduce, kind)?;
        let (operator, len) = call.operator(count, operator_)?;
        let into = call.at_root(root, result, len)?;
        call.even(root, call.values(values, len)?, Some(operator), into)
    };
    /// Combines `count` values of all ranks, element by element, in place: all ranks get the
    /// result. Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
    oik_all_reduce(team: *mut oik_team, kind: oik_kind, operator_: oik_operator, values: BytesMut,
        count: usize) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::AllReduce, kind)?;
        let (operator, len) = call.operator(count, operator_)?;
        let (into, values) = (call.in_place(values, len)?, call.values_mut(values, len)?);
        if operation.is_none() {
            return call.even_into(0, None, values, Some(operator));
        }
        call.even(0, values, Some(operator), into)
    };
    /// Combines the values of all ranks, element by element. Rank `r` gets block `r` of the result,
    /// of `count` values. Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
    oik_reduce_scatter(team: *mut oik_team, kind: oik_kind, operator_: oik_operator, values: Bytes,
        count: usize, result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::ReduceScatter, kind)?;
        let (operator, len) = call.operator(count, operator_)?;
        let values = call.values(values, call.len_of_all(len)?)?;
        let into = call.destination(result, len)?;
        call.even(0, values, Some(operator), into)
    };
    /// Combines `count` values of the ranks up to this one, element by element. Otherwise as
    /// `oik_reduce`. Thread-safe, as `oik_broadcast` is.
    oik_scan(team: *mut oik_team, kind: oik_kind, operator_: oik_operator, values: Bytes,
        count: usize, result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::Scan, kind)?;
        let (operator, len) = call.operator(count, operator_)?;
        let (values, into) = (call.values(values, len)?, call.destination(result, len)?);
        call.even(0, values, Some(operator), into)
    };
    /// Combines `count` values of the ranks before this one. At rank 0, `result` stays as it is.
    /// Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
    oik_exclusive_scan(team: *mut oik_team, kind: oik_kind, operator_: oik_operator, values: Bytes,
        count: usize, result: BytesMut) -> operation: Begun = {
        let call = Elements::of(&team, CollectiveKind::ExclusiveScan, kind)?;
        let (operator, len) = call.operator(count, operator_)?;
        let (values, into) = (call.values(values, len)?, call.destination(result, len)?);
        call.even(0, values, Some(operator), into)
    };
    /// Adds up `count` values of each rank, `OIK_F32` or `OIK_F64`, exactly, and rounds once: the
    /// sum has the same bits in any order and on any number of ranks. Thread-safe, as
    /// `oik_broadcast` is.
    oik_sum_exact(team: *mut oik_team, kind: oik_kind, values: Bytes, count: usize,
        sum: Raw<Room<f64>>) = {
        let call = Elements::of(&team, CollectiveKind::AllReduce, kind)?;
        let sum = call.checked(sum.place("sum"))?;
        let values = call.values(values, call.len(count)?)?;
        sum.write(call.untyped().sum_exact(values)?)
    };
    /// Waits for all nodes as `oik_barrier` does, and combines `count` values (at most 65,536) in
    /// place, element by element. `kind` is `OIK_F64`, `OIK_I64` or `OIK_U64`; `operator_` is
    /// `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. Thread-safe, but one barrier at a time.
    oik_barrier_reduce(job: *mut oik_job, kind: oik_kind, operator_: oik_operator, values: BytesMut,
        count: usize) = {
        let len = bytes_of(count, size_of::<u64>());
        let arguments = barrier_operator_of(operator_)
            .and_then(|op| Ok((op, values.get_set(len?, "values")?)))
            .and_then(|arguments| match kind {
                OIK_F64 | OIK_I64 | OIK_U64 => Ok(arguments),
                _ => Err(CallError::invalid(format!(
                    "kind {kind} does not travel with a barrier; use OIK_F64, OIK_I64 or OIK_U64"
                ))),
            });
        let (op, values) = arguments.inspect_err(|error| job.refuse_reduce(error))?;
        match kind {
            OIK_F64 => reduce(&job, values, op, f64::from_ne_bytes, f64::to_ne_bytes)?,
            OIK_I64 => reduce(&job, values, op, i64::from_ne_bytes, i64::to_ne_bytes)?,
            _ => reduce(&job, values, op, u64::from_ne_bytes, u64::to_ne_bytes)?,
        }
    };
}

/// Combines numbers of 8 bytes with a barrier, in place.
fn reduce<T: Reducible>(
    job: &JoinedJob,
    values: &mut [u8],
    op: Combine,
    from: impl Fn([u8; 8]) -> T,
    to: impl Fn(T) -> [u8; 8],
) -> CallResult {
    let chunks = values.as_chunks_mut().0;
    let numbers: Vec<T> = chunks.iter().map(|bytes| from(*bytes)).collect();
    let sums = job.job.barrier_reduce_all(&numbers, op)?;
    chunks.iter_mut().zip(sums).for_each(|(bytes, sum)| *bytes = to(sum));
    Ok(())
}

/// Combines two vectors of `count` elements of the program's own type: `into[i]` becomes `into[i]`
/// combined with `next[i]`, which comes from a greater rank. Oikaze calls it on the thread of
/// `oik_all_reduce_by` or its relatives. It returns normally: neither longjmp nor an exception of
/// C++ leaves it.
pub type oik_combine =
    Option<extern "C" fn(into: BytesMut, next: Bytes, count: usize, context: BytesMut)>;

/// Vectors of all ranks, combined by the program in the order of ranks.
struct ByProgram<'a> {
    call: CollectiveCall,
    count: usize,
    /// Length of a vector in bytes.
    len: usize,
    combine: oik_combine,
    context: &'a BytesMut,
}

impl<'a> ByProgram<'a> {
    fn of(
        team: &Arc<KeptTeam>,
        collective: CollectiveKind,
        (combine, context): (oik_combine, &'a BytesMut),
        (size, count): (usize, usize),
    ) -> CallResult<Self> {
        let call = CollectiveCall::of(team, collective)?;
        let len = call.checked(bytes_of(count, size))?;
        Ok(Self { call, count, len, combine, context })
    }

    fn untyped(&self) -> Untyped<'_> {
        let combined = Some((self.call.collective, None));
        Untyped::of(self.call.team(), ElementKind::U8).values(combined)
    }

    /// Combines the vectors that stand one behind the other in `all`.
    fn fold(&self, all: &[u8]) -> CallResult<Vec<u8>> {
        let none = || CallError::invalid("combine is NULL; pass a function");
        let combine = self.combine.ok_or_else(none)?;
        let mut vectors = all.chunks_exact(self.len.max(1));
        let mut sum = vectors.next().map(<[u8]>::to_vec).unwrap_or_default();
        for next in vectors {
            let into = BytesMut::of(sum.as_mut_ptr());
            combine(into, Bytes::of(Some(next)), self.count, self.context.copy());
        }
        Ok(sum)
    }
}

functions! {
    /// Combines `count` elements of `size` bytes of all ranks by a function of the program, in the
    /// order of ranks, in place: all ranks get the result. Every rank combines, and calls
    /// `combine(into, next, count, context)`. Thread-safe, as `oik_broadcast` is.
    oik_all_reduce_by(team: *mut oik_team, size: usize, combine: Raw<oik_combine>,
        context: BytesMut, values: BytesMut, count: usize) = {
        let by = (*combine, &*context);
        let by = ByProgram::of(&team, CollectiveKind::AllReduce, by, (size, count))?;
        let values = by.call.checked(values.get_set(by.len, "values"))?;
        values.copy_from_slice(&by.fold(&by.untyped().even(CollectiveKind::AllGather, 0, values, None).wait()?.into_vec())?);
    };
    /// Combines elements as `oik_all_reduce_by` does. Only the root combines, and gets the result;
    /// at other ranks `result` may be NULL. Thread-safe, as `oik_broadcast` is.
    oik_reduce_by(team: *mut oik_team, root: u32, size: usize, combine: Raw<oik_combine>,
        context: BytesMut, values: Bytes, count: usize, result: BytesMut) = {
        let by = ByProgram::of(&team, CollectiveKind::Reduce, (*combine, context), (size, count))?;
        let is_root = by.call.team().rank() == root;
        let room = by.call.checked(result.get(if is_root { by.len } else { 0 }, "result"))?;
        let values = by.call.checked(values.get(by.len, "values"))?;
        let all = by.untyped().even(CollectiveKind::Gather, root, values, None).wait()?;
        if is_root {
            room.write_copy_of_slice(&by.fold(&all.into_vec())?);
        }
    };
    /// Combines elements of the ranks up to this one as `oik_all_reduce_by` does. Thread-safe, as
    /// `oik_broadcast` is.
    oik_scan_by(team: *mut oik_team, size: usize, combine: Raw<oik_combine>, context: BytesMut,
        values: BytesMut, count: usize) = {
        let by = (*combine, &*context);
        let by = ByProgram::of(&team, CollectiveKind::Scan, by, (size, count))?;
        let values = by.call.checked(values.get_set(by.len, "values"))?;
        let all = by.untyped().even(CollectiveKind::AllGather, 0, values, None).wait()?.into_vec();
        let mine = (by.call.team().rank() as usize + 1).saturating_mul(by.len);
        values.copy_from_slice(&by.fold(all.get(..mine).unwrap_or(&all))?);
    };
}

/// A vector of the program.
#[repr(C)]
pub struct oik_vector {
    /// Elements of the vector.
    pub values: Bytes,
    /// Number of elements.
    pub count: usize,
}

/// Vectors of different lengths that a collective has brought, one for each rank.
pub struct oik_vectors;

/// Vectors that C has the handle of.
pub struct KeptVectors {
    vectors: Vec<Vec<u8>>,
    size: usize,
}

handled! { oik_vectors: KeptVectors, "vectors"; }

impl Elements {
    /// Returns one vector for each rank.
    fn vectors<'v>(
        &self,
        vectors: &'v Input<oik_vector>,
        ranks: usize,
    ) -> CallResult<Vec<&'v [u8]>> {
        let bytes = |vector: &'v oik_vector| {
            let len = bytes_of(vector.count, self.kind.size())?;
            vector.values.get(len, "values of a vector")
        };
        let vectors = vectors.slice(ranks, "vectors");
        self.checked(vectors.and_then(|vectors| vectors.iter().map(bytes).collect()))
    }

    fn ranks(&self) -> usize {
        self.team().size() as usize
    }
}

functions! {
    /// Collects vectors of different lengths at the root. `result` gets one vector for each rank
    /// there, and none at other ranks. Thread-safe, as `oik_broadcast` is.
    oik_gather_uneven(team: *mut oik_team, root: u32, kind: oik_kind, values: Bytes, count: usize,
        result: Raw<New<oik_vectors>>) = {
        let call = Elements::of(&team, CollectiveKind::Gather, kind)?;
        let out = call.checked(result.place("result"))?;
        call.uneven(out, root, &[call.values(values, call.len(count)?)?], None)?
    };
    /// Collects vectors of different lengths at all ranks. Thread-safe, as `oik_broadcast` is.
    oik_all_gather_uneven(team: *mut oik_team, kind: oik_kind, values: Bytes, count: usize,
        result: Raw<New<oik_vectors>>) = {
        let call = Elements::of(&team, CollectiveKind::AllGather, kind)?;
        let out = call.checked(result.place("result"))?;
        call.uneven(out, 0, &[call.values(values, call.len(count)?)?], None)?
    };
    /// Sends vector `r` of the root to rank `r`. At the root `vectors` has one for each rank; at
    /// other ranks it may be NULL. `result` gets one vector. Thread-safe, as `oik_broadcast` is.
    oik_scatter_uneven(team: *mut oik_team, root: u32, kind: oik_kind,
        vectors: Raw<Input<oik_vector>>, result: Raw<New<oik_vectors>>) = {
        let call = Elements::of(&team, CollectiveKind::Scatter, kind)?;
        let out = call.checked(result.place("result"))?;
        let given = if call.team().rank() == root { call.ranks() } else { 0 };
        call.uneven(out, root, &call.vectors(vectors, given)?, None)?
    };
    /// Sends vector `r` to rank `r`, and gets one of each rank. Thread-safe, as `oik_broadcast` is.
    oik_all_to_all_uneven(team: *mut oik_team, kind: oik_kind, vectors: Raw<Input<oik_vector>>,
        result: Raw<New<oik_vectors>>) = {
        let call = Elements::of(&team, CollectiveKind::AllToAll, kind)?;
        let out = call.checked(result.place("result"))?;
        call.uneven(out, 0, &call.vectors(vectors, call.ranks())?, None)?
    };
    /// Combines the vectors of all ranks, element by element. Rank `r` gets the combined vectors
    /// `r`. All ranks give vectors of the same lengths. `result` gets one vector. Thread-safe, as
    /// `oik_broadcast` is.
    oik_reduce_scatter_uneven(team: *mut oik_team, kind: oik_kind, operator_: oik_operator,
        vectors: Raw<Input<oik_vector>>, result: Raw<New<oik_vectors>>) = {
        let call = Elements::of(&team, CollectiveKind::ReduceScatter, kind)?;
        let out = call.checked(result.place("result"))?;
        let vectors = call.vectors(vectors, call.ranks())?;
        let operator = call.checked(operator_of(operator_))?;
        call.uneven(out, 0, &vectors, Some(operator))?
    };
    /// Writes the number of vectors. Thread-safe.
    oik_vectors_count(vectors: *mut oik_vectors) -> count: Room<usize> = vectors.vectors.len();
    /// Writes the vector of this index, which is valid until the vectors are released. Thread-safe.
    oik_vectors_get(vectors: *mut oik_vectors, index: usize) -> vector: Room<oik_vector> = {
        let found = vectors.vectors.get(index);
        let none = || format!("vector {index}, but there are {}", vectors.vectors.len());
        let found = found.ok_or_else(|| CallError::invalid(none()))?;
        oik_vector { values: Bytes::of(Some(found)), count: found.len() / vectors.size }
    };
    /// Releases vectors. Thread-safe.
    oik_vectors_release(vectors: Released<oik_vectors>) = drop(vectors);
}
