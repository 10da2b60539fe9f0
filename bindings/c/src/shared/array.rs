//! Arrays that all nodes read and write.

use crate::abi::call::{CallError, CallResult, Output, Raw, arguments, copied, functions};
use crate::abi::objects::{HandlePlace, New, Released, handled, keep};
use crate::abi::pointers::{Bytes, BytesMut, Filled, Input, Optional, Room, Text, fill, fill_text};
use crate::job::{JoinedJob, check_joined, oik_job};
use crate::memory::kinds::{bytes_of, combine_of, kind_of, oik_kind, oik_operator};
use crate::message::{class_of, oik_class};
use crate::status::oik_status;
use oikaze::ffi::{ElementType, PlainMemory, UntypedArray, UntypedReadGuard, UntypedWriteGuard};
use oikaze::shared::ElementField;
use oikaze::shared::builder::{Delivery, Distribution, Homes};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

/// Maximum number of axes of an array.
pub const OIK_AXES_MAX: usize = 4;

/// Distribution of an array over the nodes.
pub type oik_distribution = u32;
/// The default: runs of pages in one dimension, otherwise blocks along the outermost axis.
pub const OIK_DEFAULT: oik_distribution = 0;
/// One block of indices along the axis for each node.
pub const OIK_BLOCK: oik_distribution = 1;
/// Blocks of `indices` indices along the axis for each node in turn.
pub const OIK_CYCLIC: oik_distribution = 2;
/// One rank, of `owners`, for each index along the axis.
pub const OIK_EXPLICIT: oik_distribution = 3;
/// One run of pages for each node.
pub const OIK_PAGES: oik_distribution = 4;
/// Runs of `indices` pages for each node in turn.
pub const OIK_CYCLIC_PAGES: oik_distribution = 5;
/// One rank, of `owners`, for each page.
pub const OIK_EXPLICIT_PAGES: oik_distribution = 6;

/// Selects how data of an array that travels between nodes is put into the receiver's memory. The
/// result is the same; only the costs differ.
pub type oik_delivery = u32;
/// The default: the runtime chooses for each transfer.
pub const OIK_DELIVERY_DEFAULT: oik_delivery = 0;
/// Whole ranges travel. Each datagram is copied to its place in the array as it arrives, and the
/// runtime processes no message.
pub const OIK_DIRECT_MAP: oik_delivery = 1;
/// As `OIK_DIRECT_MAP`, and the runtime then processes a message without the data.
pub const OIK_HEADER_THROUGH: oik_delivery = 2;
/// Whole ranges travel in messages. The runtime receives each message and copies its data.
pub const OIK_MESSAGE_THROUGH: oik_delivery = 3;
/// Only the bytes that changed travel (diffs). They are written to the array as they arrive, and
/// the runtime processes no message.
pub const OIK_DIRECT_DIFF_DECODE: oik_delivery = 4;
/// As `OIK_DIRECT_DIFF_DECODE`, and the runtime then processes a message without the data.
pub const OIK_HEADER_THROUGH_DIFF_DECODE: oik_delivery = 5;

/// A field of a struct that is the element of an array.
#[repr(C)]
pub struct oik_field {
    /// Name of the field. It may end in extents, such as "position[3]".
    pub name: Text,
    /// Type of the field, or of its elements.
    pub kind: oik_kind,
}

/// Settings of an array. All fields but `kind` or `element_size` may be 0.
#[repr(C)]
pub struct oik_array_options {
    /// Type of the elements, unless they are structs.
    pub kind: oik_kind,
    /// Size of a struct that is the element, in bytes, without padding.
    pub element_size: usize,
    /// Fields of the struct.
    pub fields: Input<oik_field>,
    /// Number of fields.
    pub field_count: usize,
    /// Distribution: `OIK_DEFAULT` …
    pub distribution: oik_distribution,
    /// Axis along which the array is distributed; 0 is the outermost one.
    pub axis: usize,
    /// Number of consecutive indices (or pages) of one node.
    pub indices: usize,
    /// Ranks of the owners.
    pub owners: Input<u32>,
    /// Number of owners.
    pub owner_count: usize,
    /// Delivery of updates: `OIK_DELIVERY_DEFAULT` …
    pub delivery: oik_delivery,
    /// Class of the messages that bring updates.
    pub update_class: oik_class,
    /// `update_class` is set. Otherwise updates have the class of the default.
    pub has_update_class: bool,
}

/// Indices of one axis: from `first` to before `end`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oik_range {
    /// First index of the range.
    pub first: usize,
    /// Index behind the last one.
    pub end: usize,
}

/// Part of an array: one range for each axis, or NULL for all of the array.
#[repr(transparent)]
pub struct Part(Input<oik_range>);

arguments! { one:
    <> Part [1]: Option<&'v [oik_range]> = |it, [axes], what| {
        if it.0.is_null() { Ok(None) } else { it.0.slice(axes, what).map(Some) }
    };
}

/// An array that all nodes of a job share.
pub struct oik_array;

/// An array that C has the handle of, and the memory whose address C has.
pub struct KeptArray {
    job: Weak<JoinedJob>,
    array: RwLock<UntypedArray>,
    plain: Mutex<Vec<PlainMemory>>,
}

handled! { oik_array: KeptArray, "array"; }

impl KeptArray {
    fn get(&self) -> RwLockReadGuard<'_, UntypedArray> {
        self.array.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn plain_options(kind: oik_kind) -> oik_array_options {
    oik_array_options {
        kind,
        element_size: 0,
        fields: Input::NULL,
        field_count: 0,
        distribution: OIK_DEFAULT,
        axis: 0,
        indices: 0,
        owners: Input::NULL,
        owner_count: 0,
        delivery: OIK_DELIVERY_DEFAULT,
        update_class: 0,
        has_update_class: false,
    }
}

fn element_of(options: &oik_array_options) -> CallResult<ElementType> {
    if options.field_count == 0 && options.element_size == 0 {
        return Ok(kind_of(options.kind)?.into());
    }
    let fields = options.fields.slice(options.field_count, "fields")?.iter();
    let field = |field: &oik_field| {
        let name = field.name.get("name of a field")?.to_owned();
        Ok(ElementField { name, kind: kind_of(field.kind)?.name().to_owned() })
    };
    let fields: CallResult<Vec<_>> = fields.map(field).collect();
    Ok(ElementType::structure(options.element_size, fields?)?)
}

fn distribution_of(options: &oik_array_options) -> CallResult<Option<Distribution>> {
    let &oik_array_options { axis, indices, distribution, .. } = options;
    let owners = || -> CallResult<Vec<u32>> {
        Ok(options.owners.slice(options.owner_count, "owners")?.to_vec())
    };
    Ok(Some(match distribution {
        OIK_DEFAULT => return Ok(None),
        OIK_BLOCK => Distribution::Block { axis },
        OIK_CYCLIC => Distribution::Cyclic { axis, indices },
        OIK_EXPLICIT => Distribution::Explicit { axis, owners: owners()? },
        OIK_PAGES => Distribution::Pages(Homes::Block),
        OIK_CYCLIC_PAGES => Distribution::Pages(Homes::Cyclic { pages: indices as u64 }),
        OIK_EXPLICIT_PAGES => Distribution::Pages(Homes::Explicit(owners()?)),
        _ => {
            let why = format!("distribution {distribution} is unknown; use OIK_BLOCK …");
            return Err(CallError::invalid(why));
        }
    }))
}

fn delivery_of(delivery: oik_delivery) -> CallResult<Option<Delivery>> {
    Ok(Some(match delivery {
        OIK_DELIVERY_DEFAULT => return Ok(None),
        OIK_DIRECT_MAP => Delivery::DirectMap,
        OIK_HEADER_THROUGH => Delivery::HeaderThrough,
        OIK_MESSAGE_THROUGH => Delivery::MessageThrough,
        OIK_DIRECT_DIFF_DECODE => Delivery::DirectDiffDecode,
        OIK_HEADER_THROUGH_DIFF_DECODE => Delivery::HeaderThroughDiffDecode,
        _ => {
            let why = format!("delivery {delivery} is unknown; use OIK_DIRECT_MAP …");
            return Err(CallError::invalid(why));
        }
    }))
}

/// Makes an array. A node whose arguments make no sense comes to the collective all the same, which
/// then fails on all nodes.
fn declare(
    job: &Arc<JoinedJob>,
    name: &Text,
    shape: CallResult<&[usize]>,
    options: CallResult<&oik_array_options>,
    out: CallResult<HandlePlace<'_, oik_array>>,
) -> CallResult {
    let builder = || -> CallResult<_> {
        let (out, options) = (out?, options?);
        let mut builder = job.job.untyped_array(name.get("name")?, shape?, element_of(options)?);
        if let Some(distribution) = distribution_of(options)? {
            builder = builder.distribution(distribution);
        }
        if let Some(delivery) = delivery_of(options.delivery)? {
            builder = builder.delivery(delivery);
        }
        if options.has_update_class {
            builder = builder.update_class(class_of(options.update_class)?);
        }
        Ok((builder, out))
    };
    let (builder, out) = builder().inspect_err(|error| job.refuse_array(error))?;
    let array = RwLock::new(builder.build_untyped()?);
    let (job, plain) = (Arc::downgrade(job), Mutex::default());
    keep(out, KeptArray { job, array, plain }).map(drop)
}

functions! {
    /// Makes an array of this name, with `axes` axes (1 to 4) of the extents `shape`, and elements
    /// of one kind. All nodes make the same arrays in the same order, in C or in another language.
    /// Elements are 0 at first. Rows are contiguous: the last axis is the innermost one.
    /// Thread-safe, but one collective at a time.
    oik_array_new(job: *mut oik_job, name: Raw<Text>, shape: Raw<Input<usize>>, axes: usize,
        kind: oik_kind, array: Raw<New<oik_array>>) = {
        let shape = shape.slice(axes, "shape");
        declare(&job, name, shape, Ok(&plain_options(kind)), array.place("array"))?
    };
    /// Makes an array as `oik_array_new` does, with these settings. Thread-safe, but one collective
    /// at a time.
    oik_array_new_with(job: *mut oik_job, name: Raw<Text>, shape: Raw<Input<usize>>, axes: usize,
        options: Raw<Input<oik_array_options>>, array: Raw<New<oik_array>>) = {
        let (shape, options) = (shape.slice(axes, "shape"), options.get("options"));
        declare(&job, name, shape, options, array.place("array"))?
    };
    /// Releases this node's handle of an array. Its memory stays for the other nodes; addresses of
    /// `oik_array_plain` are invalid from then on. Guards stay valid. Thread-safe.
    oik_array_release(array: Released<oik_array>) = drop(array);
    /// Frees the array on all nodes. All nodes call it. The handle is still to be released.
    /// Thread-safe, but one collective at a time.
    oik_array_free(array: *mut oik_array) = array.get().free()?;
    /// Writes the number of elements. Thread-safe.
    oik_array_len(array: *mut oik_array) -> len: Room<usize> = array.get().len();
    /// Writes the extents of the axes to `shape`, which has room for `capacity`, and their number
    /// to `axes`. Thread-safe.
    oik_array_shape(array: *mut oik_array, shape[capacity]: Room<usize>)
        -> axes: Filled<usize> = {
        let extents = array.get().shape();
        axes.write(extents.len());
        fill(shape, &extents, "values")?
    };
}

functions! {
    /// Writes the size of an element in bytes. Thread-safe.
    oik_array_element_size(array: *mut oik_array) -> size: Room<usize> =
        array.get().element().size();
}

/// Returns the part of an array that C gives as one range for each axis, or else all of it.
fn part_of(array: &UntypedArray, part: Option<&[oik_range]>) -> Vec<Range<usize>> {
    match part {
        Some(ranges) => ranges.iter().map(|range| range.first..range.end).collect(),
        None => array.shape().into_iter().map(|extent| 0..extent).collect(),
    }
}

impl From<Range<usize>> for oik_range {
    fn from(Range { start: first, end }: Range<usize>) -> Self {
        Self { first, end }
    }
}

/// Writes ranges for C.
fn fill_ranges(room: &mut [MaybeUninit<oik_range>], ranges: &[Range<usize>]) -> CallResult {
    let ranges: Vec<oik_range> = ranges.iter().cloned().map(Into::into).collect();
    fill(room, &ranges, "values")
}

functions! {
    /// Writes the block of elements whose home is the node `rank`, one range for each of the `axes`
    /// axes. If the node is home to several blocks, writes the first. A node that is home to none
    /// has an empty block. Thread-safe.
    oik_array_home_block(array: *mut oik_array, rank: u32, part[axes]: Room<oik_range>) =
        fill_ranges(part, &array.get().home_block(rank))?;
    /// Writes all blocks of elements whose home is the node `rank`, each as one range for each
    /// axis. `parts` has room for `capacity` ranges. `count` gets the number of blocks.
    /// Thread-safe.
    oik_array_home_blocks(array: *mut oik_array, rank: u32, parts[capacity]: Room<oik_range>)
        -> count: Filled<usize> = {
        let blocks = array.get().home_blocks(rank);
        count.write(blocks.len());
        fill_ranges(parts, &blocks.concat())?
    };
    /// Writes the elements, in row-major order, from the first to the last one whose declared home
    /// is the node `rank`. It never changes. Thread-safe.
    oik_array_home_range(array: *mut oik_array, rank: u32) -> range: Room<oik_range> =
        array.get().home_range(rank).into();
    /// Writes the rank of the node that was declared as the home of the element of this index,
    /// which has one number for each axis. It never changes, also if homes move. Thread-safe.
    oik_array_home_of(array: *mut oik_array, index[axes]: Input<usize>) -> rank: Room<u32> = {
        let home = array.get().home_of(index);
        let outside = || CallError::invalid(format!("no element has the index {index:?}"));
        home.ok_or_else(outside)?
    };
    /// Writes the address of the array's elements, for plain loads and stores without a guard, and
    /// their length in bytes (which may be NULL). Pages come when they are touched, and writes
    /// become visible at the next barrier. From this call on, the array is tracked by pages. Two
    /// nodes do not write the same element between two barriers. The address is valid until the
    /// array is released. Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if all nodes map the same memory, and a guard of a node in Rust is
    /// alive; `OIK_PEER_LOST`.
    oik_array_plain(array: *mut oik_array, address: Room<BytesMut>) -> len: Optional<usize> = {
        check_joined(&array.job)?;
        let plain = array.get().plain()?;
        address.write(BytesMut::of(plain.address()));
        let len = plain.len();
        let mut all = array.plain.lock().unwrap_or_else(PoisonError::into_inner);
        // A second call returns the same memory, unless the array was resized.
        if all.last().is_none_or(|last| last.address() != plain.address()) {
            all.push(plain);
        }
        len
    };
}

/// A part of an array that this node reads or writes.
pub struct oik_guard;

enum Guard {
    Read(UntypedReadGuard),
    Write(UntypedWriteGuard),
}

/// A guard that C has the handle of, until it is released.
pub struct KeptGuard(Mutex<Option<Guard>>);

handled! { oik_guard: KeptGuard, "guard"; }

/// Memory of a guard's part.
#[repr(C)]
pub struct oik_view {
    /// Address of the first element.
    pub address: BytesMut,
    /// Number of axes.
    pub axes: usize,
    /// Number of indices of the part along each axis.
    pub shape: [usize; OIK_AXES_MAX],
    /// Bytes from one index of each axis to the next one.
    pub strides: [usize; OIK_AXES_MAX],
}

fn view_of(address: *mut u8, shape: &[usize], strides: &[usize]) -> oik_view {
    let mut view = oik_view {
        address: BytesMut::of(address),
        axes: shape.len(),
        shape: [0; OIK_AXES_MAX],
        strides: [0; OIK_AXES_MAX],
    };
    view.shape.iter_mut().zip(shape).for_each(|(to, from)| *to = *from);
    view.strides.iter_mut().zip(strides).for_each(|(to, from)| *to = *from);
    view
}

impl Guard {
    fn view(&self) -> oik_view {
        match self {
            Guard::Read(guard) => view_of(guard.address(), &guard.shape(), &guard.strides()),
            Guard::Write(guard) => view_of(guard.address(), &guard.shape(), &guard.strides()),
        }
    }
}

/// Takes a guard, and tells C its memory.
fn take_guard(
    array: &KeptArray,
    part: Option<&[oik_range]>,
    view: &mut MaybeUninit<oik_view>,
    begin: impl FnOnce(&UntypedArray, &[Range<usize>]) -> oikaze::Result<Guard>,
) -> CallResult<KeptGuard> {
    let guard = with_part(array, part, begin)?;
    view.write(guard.view());
    Ok(KeptGuard(Mutex::new(Some(guard))))
}

functions! {
    /// Lets this node read a part of the array: one range for each of `axes` axes, or all of it if
    /// `part` is NULL. Waits until all of it is here. `view` gets its memory, which the program
    /// reads until it releases the guard. No guard is alive at a barrier. Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if the part is out of bounds or another guard writes it;
    /// `OIK_PEER_LOST`.
    oik_read(array: *mut oik_array, part[axes]: Part, view: Room<oik_view>)
        -> guard: New<oik_guard> =
        take_guard(&array, part, view, |array, part| Ok(Guard::Read(array.read(part)?)))?;
    /// Lets this node write a part of the array, as `oik_read` lets it read. No other node writes
    /// the part before the next barrier, or without the same lock. Thread-safe.
    ///
    /// Errors: as `oik_read`; `OIK_INVALID` if another guard is alive there.
    oik_write(array: *mut oik_array, part[axes]: Part, view: Room<oik_view>)
        -> guard: New<oik_guard> =
        take_guard(&array, part, view, |array, part| Ok(Guard::Write(array.write(part)?)))?;
    /// Lets this node write a part as `oik_write` does, of which only elements that change count as
    /// written. Other nodes may write the other elements. Thread-safe.
    oik_write_merged(array: *mut oik_array, part[axes]: Part, view: Room<oik_view>)
        -> guard: New<oik_guard> =
        take_guard(&array, part, view, |array, part| Ok(Guard::Write(array.write_merged(part)?)))?;
    /// Lets this node read a part as `oik_read` does, without waiting for it: pages come when a
    /// load touches them. A load cannot fail. If the home of a page is lost, it gives the last
    /// bytes that were here, and `oik_guard_release` reports that. Thread-safe.
    oik_read_lazily(array: *mut oik_array, part[axes]: Part, view: Room<oik_view>)
        -> guard: New<oik_guard> =
        take_guard(&array, part, view, |array, part| Ok(Guard::Read(array.read_lazily(part)?)))?;
    /// Lets this node write a part as `oik_write_merged` does, without waiting for it: pages come
    /// when they are touched. From this call on, the array is tracked by pages, and the first store
    /// to each page between two barriers traps. Thread-safe.
    oik_write_lazily(array: *mut oik_array, part[axes]: Part, view: Room<oik_view>)
        -> guard: New<oik_guard> =
        take_guard(&array, part, view, |array, part| Ok(Guard::Write(array.write_lazily(part)?)))?;
    /// Sends what the guard writes to these nodes at its end, although they have not read the part
    /// before. Thread-safe.
    oik_guard_push_to(guard: *mut oik_guard, ranks[count]: Input<u32>) = {
        match guard.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(Guard::Write(guard)) => guard.push_to(ranks)?,
            Some(Guard::Read(_)) => {
                return Err(CallError::invalid("a guard that reads pushes nothing; use oik_write"));
            }
            None => return Err(CallError::new(oik_status::OIK_HANDLE, "the guard was released")),
        }
    };
    /// Ends a guard. What it wrote begins to travel to the nodes that read it. Its memory is not
    /// touched any more. Thread-safe.
    oik_guard_release(guard: Released<oik_guard>) = {
        match guard.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Guard::Read(guard)) => guard.release()?,
            Some(Guard::Write(guard)) => guard.release()?,
            None => {}
        }
    };
}

/// Calls a method of the array with a part of it.
fn with_part<R>(
    array: &KeptArray,
    part: Option<&[oik_range]>,
    call: impl FnOnce(&UntypedArray, &[Range<usize>]) -> oikaze::Result<R>,
) -> CallResult<R> {
    check_joined(&array.job)?;
    let array = array.get();
    Ok(call(&array, &part_of(&array, part))?)
}

functions! {
    /// Begins to fetch a part, which this node will read. Returns at once. Thread-safe.
    oik_array_prefetch(array: *mut oik_array, part[axes]: Part) =
        with_part(&array, part, UntypedArray::prefetch)?;
    /// Asks the writers of a part to send what they write to this node, from the next barrier on.
    /// Thread-safe.
    oik_array_subscribe(array: *mut oik_array, part[axes]: Part) =
        with_part(&array, part, UntypedArray::subscribe)?;
    /// Ends what `oik_array_subscribe` began. Thread-safe.
    oik_array_unsubscribe(array: *mut oik_array, part[axes]: Part) =
        with_part(&array, part, UntypedArray::unsubscribe)?;
    /// Subscribes to the `n` indices around a part, along each axis. Thread-safe.
    oik_array_halo(array: *mut oik_array, part[axes]: Part, n: usize) =
        with_part(&array, part, |array, part| array.halo(part, n))?;
    /// Gives all elements the value at `value`. All nodes call it with the same value. Thread-safe,
    /// but one collective at a time.
    oik_array_fill(array: *mut oik_array, value: Bytes) = {
        let array = array.get();
        array.fill(value.get(array.element().size(), "value")?)?
    };
    /// Gives the array another shape, of as many axes. All nodes call it. Elements keep their
    /// indices, and new ones are 0. Addresses of `oik_array_plain` are those of the old array.
    /// Thread-safe, but one collective at a time.
    oik_array_resize(array: *mut oik_array, shape[axes]: Input<usize>) = {
        let mut array = array.array.write().unwrap_or_else(PoisonError::into_inner);
        array.resize(shape)?
    };
    /// Distributes the array anew, as `options` say, of which only the distribution counts. All
    /// nodes call it. Thread-safe, but one collective at a time.
    oik_array_redistribute(array: *mut oik_array, options: Input<oik_array_options>) = {
        let distribution = distribution_of(options)?;
        let none = || CallError::invalid("the distribution is OIK_DEFAULT; choose one");
        let mut array = array.array.write().unwrap_or_else(PoisonError::into_inner);
        array.redistribute(distribution.ok_or_else(none)?)?
    };
}

/// Counters of one array on this node.
#[repr(C)]
pub struct oik_array_statistics {
    /// Fetch requests sent.
    pub fetches: u64,
    /// Pages fetched to this node.
    pub fetched_pages: u64,
    /// Pages sent to other nodes that asked for them.
    pub served_pages: u64,
    /// Diff messages sent, each with changes of one or more pages.
    pub diffs_sent: u64,
    /// Bytes of the bodies of diff messages.
    pub diff_bytes: u64,
    /// Updates sent to readers.
    pub updates_sent: u64,
    /// Bytes of the bodies of updates sent.
    pub update_bytes: u64,
    /// Updates that arrived.
    pub updates_received: u64,
    /// Updates of pages that no guard had touched since the update before.
    pub updates_wasted: u64,
    /// Pages whose homes have moved to this node.
    pub homes_moved: u64,
}

functions! {
    /// Writes the counters of the array on this node. Thread-safe.
    oik_array_get_statistics(array: *mut oik_array) -> statistics: Room<oik_array_statistics> = {
        let now = array.get().statistics();
        copied!(oik_array_statistics of now: fetches, fetched_pages, served_pages, diffs_sent,
            diff_bytes, updates_sent, update_bytes, updates_received, updates_wasted, homes_moved)
    };
    /// Writes why each node keeps pages of its own of the array to `buffer`: `len` bytes without a
    /// zero byte. There are none if all nodes map the same memory, because the job is on one
    /// machine. Returns `OIK_TOO_SMALL` if `capacity` is less. Thread-safe.
    oik_array_why_not_shared(array: *mut oik_array, buffer[capacity]: BytesMut)
        -> len: Filled<usize> =
        fill_text(buffer, array.get().why_not_shared().unwrap_or_default(), len)?;
    /// Writes `count` elements to their homes, from the element `first` in row-major order on. They
    /// are visible there when the call returns, and here after the next barrier. Thread-safe.
    oik_array_put(array: *mut oik_array, first: usize, elements: Bytes, count: usize) = {
        let array = array.get();
        let len = bytes_of(count, array.element().size())?;
        array.put(first, elements.get(len, "elements")?)?
    };
    /// Reads `count` elements from their homes, as they are there now. Thread-safe.
    oik_array_get(array: *mut oik_array, first: usize, into: BytesMut, count: usize) = {
        let array = array.get();
        let into = into.get(bytes_of(count, array.element().size())?, "into")?;
        let end = first.checked_add(count);
        let end = end.ok_or_else(|| CallError::invalid(format!("{first} + {count} is too much")))?;
        into.write_copy_of_slice(&array.get(first..end)?);
    };
    /// Combines an element with the number at `number` at its home, in one step. `operator_` is
    /// `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. `previous` gets the element before; it may be NULL.
    /// Thread-safe.
    oik_array_fetch_combine(array: *mut oik_array, index[axes]: Input<usize>,
        operator_: oik_operator, number: Bytes, previous: BytesMut) = {
        let array = array.get();
        let number = number.get(array.element().size(), "number")?;
        give_element(previous, &array.fetch_combine(index, combine_of(operator_)?, number)?)?
    };
}

fn give_element(out: &mut BytesMut, element: &[u8]) -> CallResult {
    if !out.is_null() {
        out.get(element.len(), "previous")?.write_copy_of_slice(element);
    }
    Ok(())
}

functions! {
    /// Replaces an element by the one at `desired` at its home if it has the bits at `expected`, in
    /// one step. `previous` gets the element before; it may be NULL. Thread-safe.
    oik_array_compare_exchange(array: *mut oik_array, index[axes]: Input<usize>, expected: Bytes,
        desired: Bytes, previous: BytesMut) = {
        let array = array.get();
        let size = array.element().size();
        let (expected, desired) = (expected.get(size, "expected")?, desired.get(size, "desired")?);
        give_element(previous, &array.compare_exchange(index, expected, desired)?)?
    };
    /// Combines `count` numbers with the elements from `first` on, at their homes, each in one
    /// step. `operator_` is `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. Thread-safe.
    oik_array_accumulate(array: *mut oik_array, first: usize, operator_: oik_operator,
        numbers: Bytes, count: usize) = {
        let combine = combine_of(operator_)?;
        let array = array.get();
        let len = bytes_of(count, array.element().size())?;
        array.accumulate(first, combine, numbers.get(len, "numbers")?)?
    };
    /// Writes the array to a file in NumPy's format (.npy), each node its own part. All nodes call
    /// it. The file replaces an older one when it is whole. Its mode and symbolic links stay.
    /// Devices and pipes are refused. Thread-safe, but one collective at a time.
    oik_array_save(array: *mut oik_array, path: Text) = array.get().save(path)?;
    /// Reads the array from a file of `oik_array_save` or NumPy. All nodes call it. Thread-safe,
    /// but one collective at a time.
    oik_array_load(array: *mut oik_array, path: Text) = array.get().load(path)?;
}
