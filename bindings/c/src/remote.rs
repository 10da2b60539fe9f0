//! Memory of peers: put, get, signals, blocks, lists, accumulates, atomics.

use crate::call::{CallError, CallResult, run};
use crate::job::{JoinedJob, limit, oik_job, still_joined};
use crate::kinds::{accumulation_of, oik_kind, oik_operator};
use crate::objects::{HandlePlace, find, handled, keep, take};
use crate::operation::{begin, begin_lent, oik_operation};
use crate::pointers::{Bytes, BytesMut, Pieces, RefusedOut, Text, given, place};
use crate::region::{
    Loan, change_of, give_placed, local, number_of, oik_change, oik_placed, oik_region,
    oik_remote_id, oik_rights, slice_of,
};
use crate::status::oik_status;
use oikaze::completion::Operation;
use oikaze::memory::remote::{COPY_MAX, RemoteId, RemoteRegion};
use oikaze::memory::{Block, RefusedAccess, RegionSlice};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

/// A region of a peer.
pub struct oik_remote;

/// A region of a peer that C has the handle of.
pub struct KeptRemote {
    region: RemoteRegion,
    job: Weak<JoinedJob>,
}

handled! { oik_remote: KeptRemote, "region of a peer"; }

fn keep_remote(
    out: HandlePlace<'_, oik_remote>,
    job: &Arc<JoinedJob>,
    region: RemoteRegion,
) -> CallResult {
    keep(out, KeptRemote { region, job: Arc::downgrade(job) }).map(drop)
}

/// Finds the region that the peer `rank` has published under this name. Waits within the job's time
/// limit until there is one. The region of a local peer is mapped, if it can be. Thread-safe.
///
/// Errors: `OIK_INVALID` if there is no such rank; `OIK_REFUSED` if the peer had not published the
/// name when the limit passed; `OIK_TIMEOUT` if the peer has not answered; `OIK_PEER_LOST`.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_region(
    job: *mut oik_job,
    rank: u32,
    name: Text,
    there: Option<&mut MaybeUninit<*mut oik_remote>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(there, "there")?, find(job)?);
        let region = job.peer(rank)?.region(name.get("name")?)?;
        keep_remote(out, &job, region)
    })
}

/// Finds a region as `oik_remote_region` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_region_for(
    job: *mut oik_job,
    rank: u32,
    name: Text,
    seconds: f64,
    there: Option<&mut MaybeUninit<*mut oik_remote>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(there, "there")?, find(job)?);
        let region = job.peer(rank)?.region_for(name.get("name")?, limit(seconds)?)?;
        keep_remote(out, &job, region)
    })
}

/// Makes a region of a peer from the id that its owner got by `oik_region_id`. Thread-safe.
///
/// Errors: `OIK_INVALID` if the bytes are not an id, or name a rank that the job does not have.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_region_by_id(
    job: *mut oik_job,
    id: Option<&oik_remote_id>,
    there: Option<&mut MaybeUninit<*mut oik_remote>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(there, "there")?, find(job)?);
        let id = RemoteId::from_bytes(&given(id, "id")?.bytes);
        let id = id.ok_or_else(|| CallError::invalid("the id is none; see oik_region_id"))?;
        let region = job.job.remote(id)?.mapped();
        keep_remote(out, &job, region)
    })
}

/// Releases a region of a peer. Operations under way go on. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_release(there: *mut oik_remote) -> oik_status {
    run(|| take(there).map(drop))
}

/// Writes the length in bytes, as it was when the region was looked up. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_len(
    there: *mut oik_remote,
    len: Option<&mut MaybeUninit<u64>>,
) -> oik_status {
    run(|| {
        place(len, "len")?.write(find(there)?.region.len());
        Ok(())
    })
}

/// Writes the rights that the owner granted when the region was looked up. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_rights(
    there: *mut oik_remote,
    rights: Option<&mut MaybeUninit<oik_rights>>,
) -> oik_status {
    run(|| {
        place(rights, "rights")?.write(number_of(find(there)?.region.rights()));
        Ok(())
    })
}

/// Writes the rank of the region's owner. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_rank(
    there: *mut oik_remote,
    rank: Option<&mut MaybeUninit<u32>>,
) -> oik_status {
    run(|| {
        place(rank, "rank")?.write(find(there)?.region.peer().rank());
        Ok(())
    })
}

/// Returns `OIK_OK` if operations reach the region's memory directly, by loads and stores of this
/// process. Otherwise returns `OIK_NOT_READY`, and `oik_error` gives the reason. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_is_mapped(there: *mut oik_remote) -> oik_status {
    run(|| match find(there)?.region.why_not_mapped() {
        Some(why) => Err(CallError::new(oik_status::OIK_NOT_READY, why)),
        None => Ok(()),
    })
}

/// Writes `len` bytes at `from`, any memory of the program, to `offset` of a peer's region. The
/// operation is complete when the bytes are in the peer's memory and visible there.
///
/// Up to 4096 bytes are copied before the call returns. More are read where they lie until the
/// operation has ended: they stay unchanged until `oik_wait` has returned. If `operation` is NULL,
/// the call returns when `from` may be used again, and `oik_flush` reports failures. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put(
    there: *mut oik_remote,
    offset: u64,
    from: Bytes,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        if len <= COPY_MAX {
            let put = there.region.put_copy(offset, from.get(len, "from")?)?;
            return begin(operation, put);
        }
        let loan = Loan::new(&*still_joined(&there.job)?, from.address(len, "from")?, len, false)?;
        let put = there.region.put(offset, loan.slice());
        match operation {
            Some(out) => begin_lent(out, put, Some(loan)),
            None => Ok(put.wait()?),
        }
    })
}

/// Writes `len` bytes at `at` of a region of this node to `offset` of a peer's region, without a
/// copy. `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_from(
    there: *mut oik_remote,
    offset: u64,
    from: *mut oik_region,
    at: usize,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(there)?.region.put(offset, slice_of(from, at, len)?)))
}

/// Puts as `oik_put_from` does, and adds `add` to the 64-bit word at `signal_offset` of `signal`
/// once all of the bytes are in place. `signal` is a region of the same peer; it may be `there`.
/// The peer waits for the word by `oik_wait_until`. `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_signal(
    there: *mut oik_remote,
    offset: u64,
    from: *mut oik_region,
    at: usize,
    len: usize,
    signal: *mut oik_remote,
    signal_offset: u64,
    add: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (there, signal) = (find(there)?, signal_of(there, signal)?);
        let signal = signal.region.signal(signal_offset, add);
        begin(operation, there.region.put_signal(offset, slice_of(from, at, len)?, &signal))
    })
}

/// Puts as `oik_put` does. Once all bytes are in place, an entry with this tag appears in the
/// peer's arrival queue (`oik_next_arrival`). The put waits for receive credit while the peer does
/// not take its entries. If `operation` is NULL, the call returns when `from` may be used again.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_notify(
    there: *mut oik_remote,
    offset: u64,
    from: Bytes,
    len: usize,
    tag: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        if len <= COPY_MAX {
            let put = there.region.put_notify_copy(offset, from.get(len, "from")?, tag)?;
            return begin(operation, put);
        }
        let loan = Loan::new(&*still_joined(&there.job)?, from.address(len, "from")?, len, false)?;
        let put = there.region.put_notify(offset, loan.slice(), tag);
        match operation {
            Some(out) => begin_lent(out, put, Some(loan)),
            None => Ok(put.wait()?),
        }
    })
}

/// Puts from a region of this node as `oik_put_from` does, with a notice as `oik_put_notify`.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_notify_from(
    there: *mut oik_remote,
    offset: u64,
    from: *mut oik_region,
    at: usize,
    len: usize,
    tag: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(there)?.region.put_notify(offset, slice_of(from, at, len)?, tag)))
}

/// Returns the region of a signal, which is of the same peer as the bytes.
fn signal_of(there: *mut oik_remote, signal: *mut oik_remote) -> CallResult<Arc<KeptRemote>> {
    let (there, signal) = (find(there)?, find(signal)?);
    let (bytes, word) = (there.region.peer().rank(), signal.region.peer().rank());
    if !Weak::ptr_eq(&there.job, &signal.job) || bytes != word {
        let why = format!("the signal is at node {word}, the bytes at {bytes}; use the same peer");
        return Err(CallError::invalid(why));
    }
    Ok(signal)
}

/// Reads `len` bytes at `offset` of a peer's region into any memory of the program, `into`, which
/// is left alone until `oik_wait` has returned. If `operation` is NULL, the call returns when the
/// bytes are there. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_get(
    there: *mut oik_remote,
    offset: u64,
    mut into: BytesMut,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        if let Some(bytes) = there.region.copy_at_once(offset, len) {
            into.get(len, "into")?.write_copy_of_slice(&bytes);
            return begin(operation, Operation::ended(0));
        }
        if operation.is_none() && len <= COPY_MAX {
            let bytes = there.region.get_copy(offset, len)?;
            into.get(len, "into")?.write_copy_of_slice(&bytes);
            return Ok(());
        }
        let loan = Loan::new(&*still_joined(&there.job)?, into.address(len, "into")?, len, true)?;
        let get = there.region.get(offset, loan.slice());
        match operation {
            Some(out) => begin_lent(out, get, Some(loan)),
            None => Ok(get.wait()?),
        }
    })
}

/// Reads `len` bytes at `offset` of a peer's region into a region of this node, at `at`.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_get_into(
    there: *mut oik_remote,
    offset: u64,
    into: *mut oik_region,
    at: usize,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(there)?.region.get(offset, slice_of(into, at, len)?)))
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

fn block_of(block: Option<&oik_block>, what: &str) -> CallResult<Block> {
    let &oik_block { offset, row, rows, planes, row_stride, plane_stride } = given(block, what)?;
    Ok(Block { offset, row, rows, planes, row_stride, plane_stride })
}

fn all_of(region: *mut oik_region) -> CallResult<RegionSlice> {
    Ok(local(region)?.all())
}

/// Writes the rows `here` of a region of this node to the rows `block` of a peer's region.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_block(
    there: *mut oik_remote,
    block: Option<&oik_block>,
    from: *mut oik_region,
    here: Option<&oik_block>,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (block, here) = (block_of(block, "block")?, block_of(here, "here")?);
        begin(operation, find(there)?.region.put_block(block, all_of(from)?, here)?)
    })
}

/// Puts as `oik_put_block` does, and then changes a word as `oik_put_signal` does. `operation` may
/// be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_block_signal(
    there: *mut oik_remote,
    block: Option<&oik_block>,
    from: *mut oik_region,
    here: Option<&oik_block>,
    signal: *mut oik_remote,
    signal_offset: u64,
    add: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (block, here) = (block_of(block, "block")?, block_of(here, "here")?);
        let signal = signal_of(there, signal)?.region.signal(signal_offset, add);
        let there = find(there)?;
        begin(operation, there.region.put_block_signal(block, all_of(from)?, here, &signal)?)
    })
}

/// Reads the rows `block` of a peer's region into the rows `here` of a region of this node.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_get_block(
    there: *mut oik_remote,
    block: Option<&oik_block>,
    into: *mut oik_region,
    here: Option<&oik_block>,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (block, here) = (block_of(block, "block")?, block_of(here, "here")?);
        begin(operation, find(there)?.region.get_block(block, all_of(into)?, here)?)
    })
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

fn list_of(
    region: *mut oik_region,
    pieces: &Pieces,
    count: usize,
) -> CallResult<Vec<(u64, RegionSlice)>> {
    let pieces = pieces.get(count, "pieces")?.iter();
    pieces.map(|piece| Ok((piece.offset, slice_of(region, piece.at, piece.len)?))).collect()
}

/// Writes `count` pieces of a region of this node to a peer's region, as one operation. If there
/// are more than `OIK_LIST_MAX`, or one of them is not inside its region, none is written.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_list(
    there: *mut oik_remote,
    from: *mut oik_region,
    pieces: Pieces,
    count: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(there)?.region.put_list(&list_of(from, &pieces, count)?)))
}

/// Writes pieces as `oik_put_list` does, and then adds `add` to the 64-bit word at `signal_offset`
/// of `signal` as `oik_put_signal` does, once all pieces are in place. `operation` may be NULL.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_list_signal(
    there: *mut oik_remote,
    from: *mut oik_region,
    pieces: Pieces,
    count: usize,
    signal: *mut oik_remote,
    signal_offset: u64,
    add: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let signal = signal_of(there, signal)?.region.signal(signal_offset, add);
        let list = list_of(from, &pieces, count)?;
        begin(operation, find(there)?.region.put_list_signal(&list, &signal))
    })
}

/// Writes pieces as `oik_put_list` does. Once all of them are in place, an entry with this tag
/// appears in the peer's arrival queue (`oik_next_arrival`), with offset and length of the last
/// piece. `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_put_list_notify(
    there: *mut oik_remote,
    from: *mut oik_region,
    pieces: Pieces,
    count: usize,
    tag: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let list = list_of(from, &pieces, count)?;
        begin(operation, find(there)?.region.put_list_notify(&list, tag))
    })
}

/// Reads `count` pieces of a peer's region into a region of this node, as one operation.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_get_list(
    there: *mut oik_remote,
    into: *mut oik_region,
    pieces: Pieces,
    count: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(there)?.region.get_list(&list_of(into, &pieces, count)?)))
}

/// Combines `count` numbers, any memory of the program, with those at `offset` of a peer's region,
/// each in one step. `kind` is `OIK_U32`, `OIK_I32`, `OIK_U64`, `OIK_I64`, `OIK_F32` or `OIK_F64`;
/// `operator_` is `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. The numbers stay unchanged until the operation
/// has ended. If `operation` is NULL, the call returns when it has. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_accumulate(
    there: *mut oik_remote,
    offset: u64,
    kind: oik_kind,
    operator_: oik_operator,
    numbers: Bytes,
    count: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        let how = accumulation_of(kind, operator_)?;
        let len = count.checked_mul(how.width().bytes() as usize);
        let len = len.ok_or_else(|| CallError::invalid(format!("{count} numbers are too many")))?;
        let address = numbers.address(len, "numbers")?;
        let loan = Loan::new(&*still_joined(&there.job)?, address, len, false)?;
        let accumulate = there.region.accumulate_as(offset, how, loan.slice())?;
        match operation {
            Some(out) => begin_lent(out, accumulate, Some(loan)),
            None => Ok(accumulate.wait()?),
        }
    })
}

/// Accumulates as `oik_accumulate` does, from `count` numbers at `at` of a region of this node.
/// `operation` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_accumulate_from(
    there: *mut oik_remote,
    offset: u64,
    kind: oik_kind,
    operator_: oik_operator,
    from: *mut oik_region,
    at: usize,
    count: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        let how = accumulation_of(kind, operator_)?;
        let len = count.checked_mul(how.width().bytes() as usize);
        let len = len.ok_or_else(|| CallError::invalid(format!("{count} numbers are too many")))?;
        begin(operation, there.region.accumulate_as(offset, how, slice_of(from, at, len)?)?)
    })
}

/// Changes an aligned word of a peer's region in one step. `bits` is 32 or 64. `expected` counts
/// for `OIK_COMPARE_EXCHANGE` alone. `oik_wait_value` gives the word before. `operation` may be
/// NULL, and then the word before is not fetched. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_atomic(
    there: *mut oik_remote,
    offset: u64,
    change: oik_change,
    bits: u32,
    operand: u64,
    expected: u64,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let op = change_of(change, bits, operand, expected)?;
        let fetch = operation.is_some();
        begin(operation, find(there)?.region.change(offset, op, fetch))
    })
}

/// Adds to the 64-bit word at `offset` of a peer's region, waits within the job's time limit, and
/// writes the word before. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_fetch_add(
    there: *mut oik_remote,
    offset: u64,
    add: u64,
    previous: Option<&mut MaybeUninit<u64>>,
) -> oik_status {
    run(|| {
        let previous = place(previous, "previous")?;
        previous.write(find(there)?.region.fetch_add(offset, add).wait()?);
        Ok(())
    })
}

/// Stores `desired` in the 64-bit word at `offset` of a peer's region if that word is `expected`.
/// Waits within the job's time limit, and writes the word before. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_compare_exchange(
    there: *mut oik_remote,
    offset: u64,
    expected: u64,
    desired: u64,
    previous: Option<&mut MaybeUninit<u64>>,
) -> oik_status {
    run(|| {
        let previous = place(previous, "previous")?;
        let there = find(there)?;
        previous.write(there.region.compare_exchange(offset, expected, desired).wait()?);
        Ok(())
    })
}

/// Exchanges `pages` pages of a peer's region with pages of a region of this node. Offsets are in
/// bytes, in whole pages. `placed` may be NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_exchange_with(
    there: *mut oik_remote,
    offset: u64,
    here: *mut oik_region,
    here_offset: u64,
    pages: u64,
    placed: Option<&mut MaybeUninit<oik_placed>>,
) -> oik_status {
    run(|| {
        let there = find(there)?;
        give_placed(placed, there.region.exchange(offset, &local(here)?, here_offset, pages)?);
        Ok(())
    })
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

/// Writes the latest accesses of peers that this node has refused, at most `capacity` of them, the
/// oldest first. `count` gets their number. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_refused_accesses(
    job: *mut oik_job,
    mut accesses: RefusedOut,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| {
        let refused = find(job)?.job.refused_accesses();
        let latest = refused.len().saturating_sub(capacity);
        let latest = refused.get(latest..).unwrap_or_default();
        let room = accesses.get(capacity, "accesses")?;
        for (room, access) in room.iter_mut().zip(latest) {
            let mut text: [c_char; 256] = [0; 256];
            let words = access.to_string();
            // The last byte stays 0.
            text.iter_mut().take(255).zip(words.bytes()).for_each(|(to, from)| {
                *to = from.cast_signed();
            });
            let right = number_of(access.right);
            let &RefusedAccess { serial, from, offset, len, .. } = access;
            room.write(oik_refused_access { serial, from, right, offset, len, text });
        }
        place(count, "count")?.write(latest.len());
        Ok(())
    })
}
