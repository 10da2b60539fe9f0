//! Memory of this node that operations and peers use.

use crate::abi::call::{CallError, CallResult, Raw, arguments, functions};
use crate::abi::objects::{New, Released, find, handled};
use crate::abi::pointers::{Bytes, BytesMut, Input, Optional, Room, Text};
use crate::job::{JoinedJob, Limit, check_joined, oik_job};
use crate::memory::remote::oik_piece;
use oikaze::ffi::{AtomicOp, Change, Width};
use oikaze::memory::arrivals::Arrivals;
use oikaze::memory::{LocalRegion, PageSize, Placed, Region, RegionSlice, Rights};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Rights that a region grants to peers: a sum of `OIK_READ`, `OIK_WRITE`, `OIK_ATOMIC`.
pub type oik_rights = u32;
/// No right at all.
pub const OIK_NONE: oik_rights = 0;
/// Peers may get.
pub const OIK_READ: oik_rights = 1;
/// Peers may put.
pub const OIK_WRITE: oik_rights = 2;
/// Peers may use atomics and signals.
pub const OIK_ATOMIC: oik_rights = 4;

/// Kind of memory.
pub type oik_memory_kind = u32;
/// Zeroed memory of the library, which local peers may map. All of it is reserved at once.
pub const OIK_SHARED: oik_memory_kind = 0;
/// Zeroed memory of this process alone, allocated when it is touched.
pub const OIK_PRIVATE: oik_memory_kind = 1;
/// Memory of the program at `address`.
pub const OIK_PROGRAM: oik_memory_kind = 2;
/// Part of an open file. Its pages need not be in memory.
pub const OIK_FILE: oik_memory_kind = 3;

/// Memory for `oik_region_new`. All fields but `len` may be 0.
#[repr(C)]
pub struct oik_memory {
    /// Kind of the memory: `OIK_SHARED` …
    pub kind: oik_memory_kind,
    /// Length in bytes, at least 1.
    pub len: usize,
    /// Length in bytes up to which shared or private memory may grow; 0 for `len`.
    pub capacity: usize,
    /// Shared or private memory is made of small pages, not of huge ones. Small pages can be moved
    /// one by one.
    pub small_pages: bool,
    /// Memory of the program, or a file, is only read.
    pub read_only: bool,
    /// Start of the program's memory.
    pub address: BytesMut,
    /// Descriptor of the file.
    pub descriptor: i32,
    /// Offset in the file, in whole pages.
    pub offset: u64,
}

/// A region: memory of this node that is registered for operations.
pub struct oik_region;

/// A region that C has the handle of.
pub struct KeptRegion {
    job: Weak<JoinedJob>,
    pub region: LocalRegion,
    /// The end of this object ends the loan of the program's memory.
    is_lent: AtomicBool,
}

handled! { oik_region: KeptRegion, "region"; }

impl KeptRegion {
    /// Returns the region, which peers can still use.
    fn shared(&self) -> CallResult<&LocalRegion> {
        check_joined(&self.job)?;
        Ok(&self.region)
    }

    /// Returns `len` bytes from `at` on.
    pub fn slice(&self, at: usize, len: usize) -> CallResult<RegionSlice> {
        let end = at.checked_add(len);
        let end =
            end.ok_or_else(|| CallError::invalid(format!("{at} + {len} bytes are too many")))?;
        Ok(self.region.slice(at..end)?)
    }

    /// Returns pieces, each with its offset at the peer.
    pub fn pieces(&self, pieces: &[oik_piece]) -> CallResult<Vec<(u64, RegionSlice)>> {
        let slice = |piece: &oik_piece| Ok((piece.offset, self.slice(piece.at, piece.len)?));
        pieces.iter().map(slice).collect()
    }

    /// Returns the queue of puts with notice to the region.
    pub fn arrivals(&self) -> Arrivals {
        self.region.arrivals()
    }
}

/// Region of which a row uses the bytes `[at, len]`.
#[repr(transparent)]
pub struct Slice(*mut oik_region);

arguments! { one:
    <> Slice [2]: RegionSlice = |it, [at, len], _| find(it.0)?.slice(at, len);
}

/// Memory that the program has lent. The end of the value ends the loan.
pub struct Loan(LocalRegion);

impl Loan {
    /// Lends memory of the program for an operation.
    pub fn new(
        job: &JoinedJob,
        address: NonNull<u8>,
        len: usize,
        writable: bool,
    ) -> CallResult<Self> {
        Ok(Self(job.job.register(lent(address, len, writable))?))
    }

    /// Returns all of the memory.
    pub fn slice(&self) -> RegionSlice {
        self.0.all()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Fails only after the node has left, when nothing uses the memory any more.
        let _ = self.0.deregister();
        self.0.end_loan();
    }
}

fn lent(address: NonNull<u8>, len: usize, writable: bool) -> Region {
    // SAFETY: the header asks the program to leave the memory mapped and to itself until the
    // operation has ended, the region is released, or the node has left. The loan ends then.
    unsafe { Region::lent(address, len, writable) }
}

/// Returns rights by their number in the header.
pub fn rights_of(rights: oik_rights) -> CallResult<Rights> {
    let all = [(OIK_READ, Rights::READ), (OIK_WRITE, Rights::WRITE), (OIK_ATOMIC, Rights::ATOMIC)];
    if rights & !(OIK_READ | OIK_WRITE | OIK_ATOMIC) != 0 {
        let why = format!("rights {rights:#x} are unknown; add OIK_READ, OIK_WRITE, OIK_ATOMIC");
        return Err(CallError::invalid(why));
    }
    let chosen = all.into_iter().filter(|(bit, _)| rights & bit != 0);
    Ok(chosen.fold(Rights::NONE, |sum, (_, right)| sum | right))
}

/// Returns the number of rights in the header.
pub fn number_of(rights: Rights) -> oik_rights {
    let all = [(OIK_READ, Rights::READ), (OIK_WRITE, Rights::WRITE), (OIK_ATOMIC, Rights::ATOMIC)];
    all.into_iter().filter(|(_, right)| rights.contains(*right)).map(|(bit, _)| bit).sum()
}

fn memory_of(memory: &oik_memory) -> CallResult<Region> {
    let &oik_memory { kind, len, capacity, small_pages, read_only, .. } = memory;
    let pages = if small_pages { PageSize::Small } else { PageSize::Huge };
    let grows = capacity > len;
    match kind {
        OIK_SHARED | OIK_PRIVATE if grows && small_pages => {
            Err(CallError::invalid("memory that grows has no small_pages; leave out one of both"))
        }
        OIK_SHARED if grows => Ok(Region::shared_with_capacity(len, capacity)?),
        OIK_SHARED => Ok(Region::shared_of(len, pages)?),
        OIK_PRIVATE if grows => Ok(Region::private_with_capacity(len, capacity)?),
        OIK_PRIVATE => Ok(Region::private_of(len, pages)?),
        OIK_PROGRAM => Ok(lent(memory.address.address(len, "address")?, len, !read_only)),
        OIK_FILE if memory.descriptor < 0 => {
            Err(CallError::invalid("the descriptor is negative; open the file first"))
        }
        OIK_FILE => {
            // SAFETY: the header asks for a descriptor that stays open during the call.
            let file = unsafe { BorrowedFd::borrow_raw(memory.descriptor) };
            Ok(Region::of_file(file, memory.offset, len, !read_only)?)
        }
        _ => Err(CallError::invalid(format!("memory kind {kind} is unknown; use OIK_SHARED …"))),
    }
}

/// Registers memory, under a name if there is one.
fn register(
    job: &Arc<JoinedJob>,
    name: Option<&str>,
    memory: &oik_memory,
    rights: oik_rights,
) -> CallResult<KeptRegion> {
    let rights = rights_of(rights)?;
    let region = memory_of(memory)?;
    let region = match name {
        Some(name) => job.job.publish(name, region, rights)?,
        None => job.job.expose(region, rights)?,
    };
    let (job, is_lent) = (Arc::downgrade(job), AtomicBool::new(memory.kind == OIK_PROGRAM));
    Ok(KeptRegion { job, region, is_lent })
}

fn plain(kind: oik_memory_kind, address: BytesMut, len: usize) -> oik_memory {
    let (small_pages, read_only, descriptor) = (false, false, -1);
    oik_memory { kind, len, capacity: 0, small_pages, read_only, address, descriptor, offset: 0 }
}

functions! {
    /// Makes `len` bytes of zeroed memory, and publishes it under this name: peers find it by
    /// `oik_remote_region`, and may do what `rights` grant. Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if the name is taken, empty or too long; `OIK_MEMORY`.
    oik_publish(job: *mut oik_job, name: Text, len: usize, rights: oik_rights)
        -> region: New<oik_region> = {
        let memory = plain(OIK_SHARED, BytesMut::of(std::ptr::null_mut()), len);
        register(&job, Some(name), &memory, rights)?
    };
    /// Publishes memory of the program under this name, as `oik_publish` does. The memory stays
    /// mapped and is not freed until the region is released or the node has left. Thread-safe.
    oik_publish_memory(job: *mut oik_job, name: Text, address: Raw<BytesMut>, len: usize,
        rights: oik_rights) -> region: New<oik_region> =
        register(&job, Some(name), &plain(OIK_PROGRAM, address.copy(), len), rights)?;
    /// Registers memory of the program for operations of this node, which read and write it where
    /// it lies. The memory stays mapped and is not freed until the region is released or the node
    /// has left. Thread-safe.
    oik_register(job: *mut oik_job, address: Raw<BytesMut>, len: usize) -> region: New<oik_region> =
        register(&job, None, &plain(OIK_PROGRAM, address.copy(), len), OIK_NONE)?;
    /// Registers memory of any kind. Peers find the region by its name, or, if `name` is NULL, by
    /// its id (`oik_region_id`). With `OIK_NONE` as rights, it is for operations of this node
    /// alone. Thread-safe.
    oik_region_new(job: *mut oik_job, name: Raw<Text>, memory: Input<oik_memory>,
        rights: oik_rights) -> region: New<oik_region> =
        register(&job, name.get_optional("name")?, memory, rights)?;
    /// Releases a region. Memory of the program is the program's again when the call returns:
    /// operations that use it have ended or are cancelled. Memory of the library lives until the
    /// last operation with it has ended. Thread-safe.
    oik_region_release(region: Released<oik_region>) = {
        if region.is_lent.load(Ordering::Relaxed) {
            // Ended by `oik_region_deregister` before, perhaps.
            drop(Loan(region.region.clone()));
        }
    };
    /// Ends the registration: peers are shut out at once, and no operation uses the memory any more
    /// when the call returns. The memory, and its address, stay until the region is released.
    /// Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if the region is not registered any more; `OIK_PEER_LOST` if a peer
    /// that was given up may still be in the middle of an access.
    oik_region_deregister(region: *mut oik_region) = region.region.deregister().map(drop)?;
    /// Ends the registration as `oik_region_deregister` does, and registers the same memory in its
    /// place, with these rights and a new id. The old id is useless to peers that know it. A name
    /// stays. Both regions are to be released. Thread-safe.
    ///
    /// Errors: as `oik_region_deregister`; `OIK_INVALID` if the memory cannot grant these rights.
    oik_region_reregister(region: *mut oik_region, rights: oik_rights)
        -> renewed: New<oik_region> = {
        let renewed = region.shared()?.reregister(rights_of(rights)?)?;
        // The loan passes to the new region.
        let is_lent = AtomicBool::new(region.is_lent.swap(false, Ordering::Relaxed));
        KeptRegion { job: Weak::clone(&region.job), region: renewed, is_lent }
    };
}

functions! {
    /// Writes the key of the region, by which an `oik_arrival` names it. Thread-safe.
    oik_region_key(region: *mut oik_region) -> key: Room<u64> = region.region.key();
    /// Writes the address of the region's memory, for plain loads and stores, which is valid until
    /// the region is released. Thread-safe.
    oik_region_address(region: *mut oik_region) -> address: Room<BytesMut> = {
        let start = region.region.addresses().map_or(0, |addresses| addresses.start);
        let view = region.region.view_ptr();
        // Memory of the program has no view of its own: it is where the program has it.
        let outside = view.is_null();
        BytesMut::of(if outside { std::ptr::with_exposed_provenance_mut(start) } else { view })
    };
    /// Writes the region's length in bytes. Thread-safe.
    oik_region_len(region: *mut oik_region) -> len: Room<usize> = region.region.len();
    /// Writes the rights of peers. Thread-safe.
    oik_region_rights(region: *mut oik_region) -> rights: Room<oik_rights> =
        number_of(region.region.rights());
    /// Grants these rights to peers from now on. When the call returns, no forbidden access happens
    /// any more. Thread-safe.
    oik_region_set_rights(region: *mut oik_region, rights: oik_rights) =
        region.shared()?.set_rights(rights_of(rights)?)?;
    /// Grants rights as `oik_region_set_rights` does, on `len` bytes from `offset`. Both are
    /// multiples of 4096 bytes, or the range ends with the region. Thread-safe.
    oik_region_protect(region: *mut oik_region, offset: u64, len: u64, rights: oik_rights) =
        region.shared()?.protect(offset..offset.saturating_add(len), rights_of(rights)?)?;
    /// Makes the region longer, up to its capacity, where it is. A peer that looks it up again gets
    /// the new length. Thread-safe.
    oik_region_grow(region: *mut oik_region, len: usize) = region.shared()?.grow(len)?;
}

/// Id by which any node of the job can use a region (`oik_remote_region_by_id`). It may be sent in
/// a message.
#[repr(C)]
pub struct oik_remote_id {
    /// The id, the same on every machine.
    pub bytes: [u8; 24],
}

functions! {
    /// Writes the region's id. Thread-safe.
    oik_region_id(region: *mut oik_region) -> id: Room<oik_remote_id> =
        oik_remote_id { bytes: region.region.remote_id().to_bytes() };
}

/// Comparison of a word with a value, both unsigned.
pub type oik_comparison = u32;
/// The word is the value.
pub const OIK_EQUAL: oik_comparison = 0;
/// The word is not the value.
pub const OIK_NOT_EQUAL: oik_comparison = 1;
/// The word is greater than the value.
pub const OIK_GREATER: oik_comparison = 2;
/// The word is greater than the value, or is the value.
pub const OIK_GREATER_EQUAL: oik_comparison = 3;
/// The word is less than the value.
pub const OIK_LESS: oik_comparison = 4;
/// The word is less than the value, or is the value.
pub const OIK_LESS_EQUAL: oik_comparison = 5;

/// Stands for any node, where a rank is asked for.
pub const OIK_ANY: u32 = u32::MAX;

/// Rank of a peer, or `OIK_ANY`.
#[repr(transparent)]
pub struct RankOrAny(u32);

arguments! { one:
    <> RankOrAny: Option<u32> = |it, _, _| Ok((it.0 != OIK_ANY).then_some(it.0));
}

/// Waits until a word of a region satisfies a comparison. Returns the word.
fn wait_until(
    region: &LocalRegion,
    (peer, offset): (Option<u32>, u64),
    (comparison, value): (oik_comparison, u64),
    limit: Option<Duration>,
) -> CallResult<u64> {
    let holds: fn(u64, u64) -> bool = match comparison {
        OIK_EQUAL => |word, value| word == value,
        OIK_NOT_EQUAL => |word, value| word != value,
        OIK_GREATER => |word, value| word > value,
        OIK_GREATER_EQUAL => |word, value| word >= value,
        OIK_LESS => |word, value| word < value,
        OIK_LESS_EQUAL => |word, value| word <= value,
        _ => {
            let why = format!("comparison {comparison} is unknown; use OIK_EQUAL …");
            return Err(CallError::invalid(why));
        }
    };
    let until = |word| holds(word, value);
    Ok(match (peer, limit) {
        (None, None) => region.wait_until(offset, until)?,
        (None, Some(limit)) => region.wait_until_for(offset, limit, until)?,
        (Some(peer), None) => region.wait_until_by(peer, offset, until)?,
        (Some(peer), Some(limit)) => region.wait_until_by_for(peer, offset, limit, until)?,
    })
}

functions! {
    /// Waits within the job's time limit until the 64-bit word at `offset` satisfies the comparison
    /// with `value`. Bytes that a peer put before it changed the word are visible then. The word is
    /// changed by `peer`, whose loss ends the wait, or by `OIK_ANY`. `seen` gets the word; it may
    /// be NULL. Thread-safe.
    oik_wait_until(region: *mut oik_region, peer: RankOrAny, offset: u64,
        comparison: oik_comparison, value: u64) -> seen: Optional<u64> =
        wait_until(&region.region, (peer, offset), (comparison, value), None)?;
    /// Waits as `oik_wait_until` does, with this time limit in seconds. Thread-safe.
    oik_wait_until_for(region: *mut oik_region, peer: RankOrAny, offset: u64,
        comparison: oik_comparison, value: u64, seconds: Limit) -> seen: Optional<u64> =
        wait_until(&region.region, (peer, offset), (comparison, value), Some(seconds))?;
}

/// Change of a word by an atomic operation.
pub type oik_change = u32;
/// Adds the operand, wrapping. With 0 as operand, the word is only read.
pub const OIK_ADD: oik_change = 1;
/// Stores the operand if the word is `expected`.
pub const OIK_COMPARE_EXCHANGE: oik_change = 2;
/// Stores the operand.
pub const OIK_SWAP: oik_change = 3;
/// Keeps the bits that are set in both.
pub const OIK_BIT_AND: oik_change = 4;
/// Sets the bits of the operand.
pub const OIK_BIT_OR: oik_change = 5;
/// Flips the bits of the operand.
pub const OIK_BIT_XOR: oik_change = 6;
/// Stores the minimum of both, unsigned.
pub const OIK_UNSIGNED_MIN: oik_change = 7;
/// Stores the maximum of both, unsigned.
pub const OIK_UNSIGNED_MAX: oik_change = 8;
/// Stores the minimum of both, signed.
pub const OIK_SIGNED_MIN: oik_change = 9;
/// Stores the maximum of both, signed.
pub const OIK_SIGNED_MAX: oik_change = 10;

/// Makes a change of a word by its number in the header.
pub fn change_of(
    change: oik_change,
    bits: u32,
    operand: u64,
    expected: u64,
) -> CallResult<AtomicOp> {
    let width = match bits {
        32 => Width::W32,
        64 => Width::W64,
        _ => return Err(CallError::invalid(format!("words of {bits} bits; use 32 or 64"))),
    };
    let change = match change {
        OIK_ADD => Change::Add(operand),
        OIK_COMPARE_EXCHANGE => Change::CompareSwap { expected, new: operand },
        OIK_SWAP => Change::Swap(operand),
        OIK_BIT_AND => Change::And(operand),
        OIK_BIT_OR => Change::Or(operand),
        OIK_BIT_XOR => Change::Xor(operand),
        OIK_UNSIGNED_MIN => Change::Min(operand),
        OIK_UNSIGNED_MAX => Change::Max(operand),
        OIK_SIGNED_MIN => Change::MinSigned(operand),
        OIK_SIGNED_MAX => Change::MaxSigned(operand),
        _ => return Err(CallError::invalid(format!("change {change} is unknown; use OIK_ADD …"))),
    };
    Ok(AtomicOp::new(width, change))
}

functions! {
    /// Changes an aligned word of this node's region in one step, also with respect to atomics of
    /// peers. `bits` is 32 or 64. `expected` counts for `OIK_COMPARE_EXCHANGE` alone. `previous`
    /// gets the word before; it may be NULL. Thread-safe.
    oik_region_atomic(region: *mut oik_region, offset: u64, change: oik_change, bits: u32,
        operand: u64, expected: u64) -> previous: Optional<u64> =
        region.region.atomic(offset, change_of(change, bits, operand, expected)?)?;
    /// Loads the aligned 64-bit word at `offset` (acquire). Thread-safe.
    oik_region_load(region: *mut oik_region, offset: u64) -> word: Room<u64> =
        region.region.load_u64(offset)?;
    /// Stores the aligned 64-bit word at `offset` (release). Thread-safe.
    oik_region_store(region: *mut oik_region, offset: u64, word: u64) =
        region.region.store_u64(offset, word)?;
    /// Copies `len` bytes of the region at `offset` to `into`, while peers may write. Thread-safe.
    oik_region_read(region: *mut oik_region, offset: u64, into: BytesMut, len: usize) =
        region.region.read(offset, into.get_set(len, "into")?)?;
    /// Copies `len` bytes at `from` to the region at `offset`, while peers may read. Thread-safe.
    oik_region_write(region: *mut oik_region, offset: u64, from[len]: Bytes) =
        region.region.write(offset, from)?;
}

/// Bytes whose pages have changed place, and bytes that were copied.
#[repr(C)]
pub struct oik_placed {
    /// Bytes whose pages were moved.
    pub moved: u64,
    /// Bytes that were copied.
    pub copied: u64,
}

/// Returns how pages have changed place.
pub fn placed_of(Placed { moved, copied }: Placed) -> oik_placed {
    oik_placed { moved, copied }
}

functions! {
    /// Exchanges `pages` pages of two regions of this node, without copying where the kernel can
    /// move pages. Offsets are in bytes, in whole pages. `placed` may be NULL. Thread-safe.
    oik_exchange_pages(job: *mut oik_job, one: *mut oik_region, offset: u64, other: *mut oik_region,
        other_offset: u64, pages: u64) -> placed: Optional<oik_placed> =
        placed_of(job.job.exchange(&one.region, offset, &other.region, other_offset, pages)?);
    /// Moves `pages` pages of one region of this node to another, as `oik_exchange_pages` exchanges
    /// them. What remains at `from` is undefined. Thread-safe.
    oik_move_pages(job: *mut oik_job, from: *mut oik_region, offset: u64, to: *mut oik_region,
        to_offset: u64, pages: u64) -> placed: Optional<oik_placed> =
        placed_of(job.job.move_pages(&from.region, offset, &to.region, to_offset, pages)?);
}
