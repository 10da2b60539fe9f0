//! Memory of peers: put, get, signals, blocks, lists, accumulates, atomics.

use crate::abi::call::{Argument, CallError, CallResult, Check, functions};
use crate::abi::objects::{New, Released, find, handled};
use crate::abi::pointers::{Bytes, BytesMut, Input, Optional, Room, Text};
use crate::job::{JoinedJob, Limit, oik_job, still_joined};
use crate::memory::kinds::{accumulation_of, oik_kind, oik_operator};
use crate::memory::region::{
    Loan, Slice, change_of, number_of, oik_change, oik_placed, oik_region, oik_remote_id,
    oik_rights, placed_of,
};
use crate::operation::Begun;
use crate::status::oik_status;
use oikaze::completion::{Operation, Outcome};
use oikaze::ffi::Accumulation;
use oikaze::memory::remote::{COPY_MAX, RemoteId, RemoteRegion, RemoteSignal};
use oikaze::memory::{Block, RefusedAccess, RegionSlice};
use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// A region of a peer.
pub struct oik_remote;

/// Object behind an `oik_remote` handle.
pub struct KeptRemote {
    region: RemoteRegion,
    job: Weak<JoinedJob>,
}

handled! { oik_remote: KeptRemote, "region of a peer"; }

impl KeptRemote {
    fn of(job: &Arc<JoinedJob>, region: RemoteRegion) -> Self {
        Self { region, job: Arc::downgrade(job) }
    }

    /// Lends memory of the program for an operation.
    fn lend(&self, address: NonNull<u8>, len: usize, writable: bool) -> CallResult<Loan> {
        Loan::new(&*still_joined(&self.job)?, address, len, writable)
    }

    /// Puts bytes by `copy` if they are few, and by `lent` otherwise.
    #[inline]
    fn put<O: Outcome>(
        &self,
        from: &[u8],
        copy: impl FnOnce(&RemoteRegion) -> oikaze::Result<Operation<O>>,
        lent: impl FnOnce(&RemoteRegion, RegionSlice) -> Operation<O>,
    ) -> CallResult<(Operation<O>, Option<Loan>)> {
        if from.len() <= COPY_MAX {
            return Ok((copy(&self.region)?, None));
        }
        let loan = self.lend(NonNull::from(from).cast(), from.len(), false)?;
        Ok((lent(&self.region, loan.slice()), Some(loan)))
    }
}

/// Region of a peer with the word at `[offset]`, to which a signal adds `[add]`.
#[repr(transparent)]
pub struct Word(*mut oik_remote);

/// A checked signal.
pub struct SignalWord(Arc<KeptRemote>, [u64; 2]);

impl Argument for Word {
    type Extra = u64;
}

impl Check<2> for Word {
    type Value<'v> = SignalWord;

    #[inline]
    fn check(&mut self, at: [u64; 2], _: &str) -> CallResult<SignalWord> {
        Ok(SignalWord(find(self.0)?, at))
    }
}

impl SignalWord {
    /// Returns the signal. Fails unless it is at the peer that holds the bytes.
    fn of(&self, bytes: &KeptRemote) -> CallResult<RemoteSignal> {
        let Self(signal, [offset, add]) = self;
        let (node, word) = (bytes.region.peer().rank(), signal.region.peer().rank());
        if !Weak::ptr_eq(&bytes.job, &signal.job) || node != word {
            let why =
                format!("the signal is at node {word}, the bytes at {node}; use the same peer");
            return Err(CallError::invalid(why));
        }
        Ok(signal.region.signal(*offset, *add))
    }
}

functions! {
    /// Finds the region that the peer `rank` has published under this name. Waits within the job's
    /// time limit until there is one. The region of a local peer is mapped, if it can be.
    /// Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if there is no such rank; `OIK_REFUSED` if the peer had not published
    /// the name when the limit passed; `OIK_TIMEOUT` if the peer has not answered; `OIK_PEER_LOST`.
    oik_remote_region(job: *mut oik_job, rank: u32, name: Text) -> there: New<oik_remote> =
        KeptRemote::of(&job, job.peer(rank)?.region(name)?);
    /// Finds a region as `oik_remote_region` does, with this time limit in seconds. Thread-safe.
    oik_remote_region_for(job: *mut oik_job, rank: u32, name: Text, seconds: Limit)
        -> there: New<oik_remote> =
        KeptRemote::of(&job, job.peer(rank)?.region_for(name, seconds)?);
    /// Makes a region of a peer from the id that its owner got by `oik_region_id`. Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if the bytes are not an id, or name a rank that the job does not have.
    oik_remote_region_by_id(job: *mut oik_job, id: Input<oik_remote_id>)
        -> there: New<oik_remote> = {
        let id = RemoteId::from_bytes(&id.bytes);
        let id = id.ok_or_else(|| CallError::invalid("these bytes are not an id; pass what oik_region_id wrote"))?;
        KeptRemote::of(&job, job.job.remote(id)?.mapped())
    };
    /// Releases a region of a peer. Operations under way go on. Thread-safe.
    oik_remote_release(there: Released<oik_remote>) = drop(there);
    /// Writes the length in bytes, as it was when the region was looked up. Thread-safe.
    oik_remote_len(there: *mut oik_remote) -> len: Room<u64> = there.region.len();
    /// Writes the rights that the owner granted when the region was looked up. Thread-safe.
    oik_remote_rights(there: *mut oik_remote) -> rights: Room<oik_rights> =
        number_of(there.region.rights());
    /// Writes the rank of the region's owner. Thread-safe.
    oik_remote_rank(there: *mut oik_remote) -> rank: Room<u32> = there.region.peer().rank();
    /// Returns `OIK_OK` if operations reach the region's memory directly, by loads and stores of
    /// this process. Otherwise returns `OIK_NOT_READY`, and `oik_error` gives the reason.
    /// Thread-safe.
    oik_remote_is_mapped(there: *mut oik_remote) = {
        if let Some(why) = there.region.why_not_mapped() {
            return Err(CallError::new(oik_status::OIK_NOT_READY, why));
        }
    };
    /// Writes `len` bytes at `from`, any memory of the program, to `offset` of a peer's region. The
    /// operation is complete when the bytes are in the peer's memory and visible there.
    ///
    /// Up to 4096 bytes are copied before the call returns. Longer memory is read in place until
    /// the operation has ended: it stays unchanged until `oik_wait` has returned. If `operation` is
    /// NULL, the call returns when `from` may be used again, and `oik_flush` reports failures.
    /// Thread-safe.
    oik_put(there: *mut oik_remote, offset: u64, from[len]: Bytes) -> operation: Begun =
        there.put(from, |to| to.put_copy(offset, from), |to, lent| to.put(offset, lent))?;
    /// Writes `len` bytes at `at` of a region of this node to `offset` of a peer's region, without
    /// a copy. `operation` may be NULL. Thread-safe.
    oik_put_from(there: *mut oik_remote, offset: u64, from[at, len]: Slice) -> operation: Begun =
        there.region.put(offset, from);
    /// Puts as `oik_put_from` does, and adds `add` to the 64-bit word at `signal_offset` of
    /// `signal` once all of the bytes are in place. `signal` is a region of the same peer; it may
    /// be `there`. The peer waits for the word by `oik_wait_until`. `operation` may be NULL.
    /// Thread-safe.
    oik_put_signal(there: *mut oik_remote, offset: u64, from[at, len]: Slice,
        signal[signal_offset, add]: Word) -> operation: Begun =
        there.region.put_signal(offset, from, &signal.of(&there)?);
    /// Puts as `oik_put` does. Once all bytes are in place, an entry with this tag appears in the
    /// peer's arrival queue (`oik_next_arrival`). The put waits for receive credit while the peer
    /// does not take its entries. If `operation` is NULL, the call returns when `from` may be used
    /// again. Thread-safe.
    oik_put_notify(there: *mut oik_remote, offset: u64, from[len]: Bytes, tag: u64)
        -> operation: Begun = {
        let lent = |to: &RemoteRegion, lent| to.put_notify(offset, lent, tag);
        there.put(from, |to| to.put_notify_copy(offset, from, tag), lent)?
    };
    /// Puts from a region of this node as `oik_put_from` does, with a notice as `oik_put_notify`.
    /// `operation` may be NULL. Thread-safe.
    oik_put_notify_from(there: *mut oik_remote, offset: u64, from[at, len]: Slice, tag: u64)
        -> operation: Begun =
        there.region.put_notify(offset, from, tag);
}

functions! {
    /// Reads `len` bytes at `offset` of a peer's region into any memory of the program, `into`,
    /// which is left alone until `oik_wait` has returned. If `operation` is NULL, the call returns
    /// when the bytes are there. Thread-safe.
    oik_get(there: *mut oik_remote, offset: u64, into[len]: BytesMut) -> operation: Begun = {
        let is_short = operation.is_none() && len <= COPY_MAX;
        if let Some(bytes) = there.region.copy_at_once(offset, len) {
            into.write_copy_of_slice(&bytes);
            (Operation::ended(0), None)
        } else if is_short {
            into.write_copy_of_slice(&there.region.get_copy(offset, len)?);
            return Ok(());
        } else {
            let loan = there.lend(NonNull::from(into).cast(), len, true)?;
            (there.region.get(offset, loan.slice()).into_bits(), Some(loan))
        }
    };
    /// Reads `len` bytes at `offset` of a peer's region into a region of this node, at `at`.
    /// `operation` may be NULL. Thread-safe.
    oik_get_into(there: *mut oik_remote, offset: u64, into[at, len]: Slice) -> operation: Begun =
        there.region.get(offset, into);
}

/// Rows of equal length at equal distances, and planes of such rows. All lengths are in bytes. A
/// block without a row, or with rows of 0 bytes, moves nothing.
#[repr(C)]
pub struct oik_block {
    /// Offset of the first byte of the first row.
    pub offset: u64,
    /// Length of a row.
    pub row: u32,
    /// Number of rows in a plane.
    pub rows: u32,
    /// Number of planes.
    pub planes: u32,
    /// Distance from the beginning of a row to that of the next.
    pub row_stride: u64,
    /// Distance from the beginning of a plane to that of the next.
    pub plane_stride: u64,
}

impl oik_block {
    fn get(&self) -> Block {
        let &Self { offset, row, rows, planes, row_stride, plane_stride } = self;
        Block { offset, row, rows, planes, row_stride, plane_stride }
    }
}

functions! {
    /// Writes the rows `here` of a region of this node to the rows `block` of a peer's region.
    /// `operation` may be NULL. Thread-safe.
    oik_put_block(there: *mut oik_remote, block: Input<oik_block>, from: *mut oik_region,
        here: Input<oik_block>) -> operation: Begun =
        there.region.put_block(block.get(), from.region.all(), here.get())?;
    /// Puts as `oik_put_block` does, and then changes a word as `oik_put_signal` does. `operation`
    /// may be NULL. Thread-safe.
    oik_put_block_signal(there: *mut oik_remote, block: Input<oik_block>, from: *mut oik_region,
        here: Input<oik_block>, signal[signal_offset, add]: Word) -> operation: Begun = {
        let (from, signal) = (from.region.all(), signal.of(&there)?);
        there.region.put_block_signal(block.get(), from, here.get(), &signal)?
    };
    /// Reads the rows `block` of a peer's region into the rows `here` of a region of this node.
    /// `operation` may be NULL. Thread-safe.
    oik_get_block(there: *mut oik_remote, block: Input<oik_block>, into: *mut oik_region,
        here: Input<oik_block>) -> operation: Begun =
        there.region.get_block(block.get(), into.region.all(), here.get())?;
}

/// A piece of a list: a range of a peer's region, and one of a region of this node.
#[repr(C)]
pub struct oik_piece {
    /// Offset in the peer's region.
    pub offset: u64,
    /// Offset in the region of this node.
    pub at: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Returns the bytes of `count` numbers.
fn numbers_len(count: usize, how: Accumulation) -> CallResult<usize> {
    let len = count.checked_mul(how.width().bytes() as usize);
    len.ok_or_else(|| CallError::invalid(format!("{count} numbers are too many")))
}

functions! {
    /// Writes `count` pieces of a region of this node to a peer's region, as one operation. If
    /// there are more than `OIK_LIST_MAX`, or one of them is not inside its region, none is
    /// written. `operation` may be NULL. Thread-safe.
    oik_put_list(there: *mut oik_remote, from: *mut oik_region, pieces[count]: Input<oik_piece>)
        -> operation: Begun =
        there.region.put_list(&from.pieces(pieces)?);
    /// Writes pieces as `oik_put_list` does, and then adds `add` to the 64-bit word at
    /// `signal_offset` of `signal` as `oik_put_signal` does, once all pieces are in place.
    /// `operation` may be NULL. Thread-safe.
    oik_put_list_signal(there: *mut oik_remote, from: *mut oik_region,
        pieces[count]: Input<oik_piece>, signal[signal_offset, add]: Word) -> operation: Begun =
        there.region.put_list_signal(&from.pieces(pieces)?, &signal.of(&there)?);
    /// Writes pieces as `oik_put_list` does. Once all of them are in place, an entry with this tag
    /// appears in the peer's arrival queue (`oik_next_arrival`), with offset and length of the last
    /// piece. `operation` may be NULL. Thread-safe.
    oik_put_list_notify(there: *mut oik_remote, from: *mut oik_region,
        pieces[count]: Input<oik_piece>, tag: u64) -> operation: Begun =
        there.region.put_list_notify(&from.pieces(pieces)?, tag);
    /// Reads `count` pieces of a peer's region into a region of this node, as one operation.
    /// `operation` may be NULL. Thread-safe.
    oik_get_list(there: *mut oik_remote, into: *mut oik_region, pieces[count]: Input<oik_piece>)
        -> operation: Begun =
        there.region.get_list(&into.pieces(pieces)?);
    /// Combines `count` numbers, any memory of the program, with those at `offset` of a peer's
    /// region, each in one step. `kind` is `OIK_U32`, `OIK_I32`, `OIK_U64`, `OIK_I64`, `OIK_F32` or
    /// `OIK_F64`; `operator_` is `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. The numbers stay unchanged
    /// until the operation has ended. If `operation` is NULL, the call returns when it has.
    /// Thread-safe.
    oik_accumulate(there: *mut oik_remote, offset: u64, kind: oik_kind, operator_: oik_operator,
        numbers: Bytes, count: usize) -> operation: Begun = {
        let how = accumulation_of(kind, operator_)?;
        let len = numbers_len(count, how)?;
        let loan = there.lend(numbers.address(len, "numbers")?, len, false)?;
        (there.region.accumulate_as(offset, how, loan.slice())?, Some(loan))
    };
    /// Accumulates as `oik_accumulate` does, from `count` numbers at `at` of a region of this node.
    /// `operation` may be NULL. Thread-safe.
    oik_accumulate_from(there: *mut oik_remote, offset: u64, kind: oik_kind,
        operator_: oik_operator, from: *mut oik_region, at: usize, count: usize)
        -> operation: Begun = {
        let how = accumulation_of(kind, operator_)?;
        there.region.accumulate_as(offset, how, from.slice(at, numbers_len(count, how)?)?)?
    };
    /// Changes an aligned word of a peer's region in one step. `bits` is 32 or 64. `expected`
    /// counts for `OIK_COMPARE_EXCHANGE` alone. `oik_wait_value` gives the word before. `operation`
    /// may be NULL, and then the word before is not fetched. Thread-safe.
    oik_atomic(there: *mut oik_remote, offset: u64, change: oik_change, bits: u32, operand: u64,
        expected: u64) -> operation: Begun = {
        let fetch = operation.is_some();
        there.region.change(offset, change_of(change, bits, operand, expected)?, fetch)
    };
    /// Adds to the 64-bit word at `offset` of a peer's region, waits within the job's time limit,
    /// and writes the word before. Thread-safe.
    oik_fetch_add(there: *mut oik_remote, offset: u64, add: u64) -> previous: Room<u64> =
        there.region.fetch_add(offset, add).wait()?;
    /// Stores `desired` in the 64-bit word at `offset` of a peer's region if that word is
    /// `expected`. Waits within the job's time limit, and writes the word before. Thread-safe.
    oik_compare_exchange(there: *mut oik_remote, offset: u64, expected: u64, desired: u64)
        -> previous: Room<u64> =
        there.region.compare_exchange(offset, expected, desired).wait()?;
    /// Exchanges `pages` pages of a peer's region with pages of a region of this node. Offsets are
    /// in bytes, in whole pages. `placed` may be NULL. Thread-safe.
    oik_exchange_with(there: *mut oik_remote, offset: u64, here: *mut oik_region, here_offset: u64,
        pages: u64) -> placed: Optional<oik_placed> =
        placed_of(there.region.exchange(offset, &here.region, here_offset, pages)?);
}

/// An access of a peer to this node's memory that this node refused. It had no effect.
#[repr(C)]
pub struct oik_refused_access {
    /// Serial number among all refused accesses, from 1 on. A gap shows how many lie between.
    pub serial: u64,
    /// Rank of the peer.
    pub from: u32,
    /// Right that the access needs.
    pub right: oik_rights,
    /// Offset from the region's start, in bytes.
    pub offset: u64,
    /// Length of the access in bytes.
    pub len: u64,
    /// Operation, region and reason, as a text that ends with a zero byte. A longer text is cut.
    pub text: [c_char; 256],
}

fn refused_of(access: &RefusedAccess) -> oik_refused_access {
    let mut text: [c_char; 256] = [0; 256];
    let words = access.to_string();
    // The last byte stays 0.
    text.iter_mut().take(255).zip(words.bytes()).for_each(|(to, from)| *to = from.cast_signed());
    let right = number_of(access.right);
    let &RefusedAccess { serial, from, offset, len, .. } = access;
    oik_refused_access { serial, from, right, offset, len, text }
}

functions! {
    /// Writes the latest accesses of peers that this node has refused, at most `capacity` of them,
    /// the oldest first. `count` gets their number. Thread-safe.
    oik_refused_accesses(job: *mut oik_job, accesses[capacity]: Room<oik_refused_access>)
        -> count: Room<usize> = {
        let refused = job.job.refused_accesses();
        let latest = refused.get(refused.len().saturating_sub(capacity)..).unwrap_or_default();
        for (room, access) in accesses.iter_mut().zip(latest) {
            room.write(refused_of(access));
        }
        latest.len()
    };
}
