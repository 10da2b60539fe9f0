//! Messages, and FIFOs that peers push into.

use crate::call::{CallError, CallResult, run};
use crate::job::{JoinedJob, check_joined, limit, oik_job};
use crate::objects::{HandlePlace, find, handled, keep, take};
use crate::operation::{begin, begin_receive, finish_receive, oik_operation};
use crate::pointers::{Bytes, BytesMut, MessagesOut, Text, given, place};
use crate::region::{Loan, OIK_ANY, oik_region, oik_remote_id, slice_of};
use crate::status::oik_status;
use oikaze::Job;
use oikaze::memory::remote::RemoteId;
use oikaze::message::{Class, Fifo, Message, Received, RemoteFifo};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Class of a message: order, and the meaning of "done".
pub type oik_class = u32;
/// After all ordered messages before it.
pub const OIK_ORDERED: oik_class = 0;
/// As soon as it arrives.
pub const OIK_UNORDERED: oik_class = 1;
/// Ordered, and done when the peer has accepted it.
pub const OIK_SYNC: oik_class = 2;

/// Returns a class by its number in the header.
pub fn class_of(class: oik_class) -> CallResult<Class> {
    match class {
        OIK_ORDERED => Ok(Class::Ordered),
        OIK_UNORDERED => Ok(Class::Unordered),
        OIK_SYNC => Ok(Class::Sync),
        _ => Err(CallError::invalid(format!("class {class} is unknown; use OIK_ORDERED …"))),
    }
}

fn number_of(class: Class) -> oik_class {
    match class {
        Class::Ordered => OIK_ORDERED,
        Class::Unordered => OIK_UNORDERED,
        Class::Sync => OIK_SYNC,
    }
}

/// Sends a message of `len` bytes (at most 1 GiB) to the peer `rank`. The bytes are copied before
/// the call returns. The operation is done when the peer has the message. `operation` may be NULL.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_send(
    job: *mut oik_job,
    rank: u32,
    class_: oik_class,
    tag: u64,
    bytes: Bytes,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let job = find(job)?;
        let bytes = bytes.get(len, "bytes")?;
        begin(operation, job.peer(rank)?.send(class_of(class_)?, tag, bytes))
    })
}

/// Sends `len` bytes at `at` of a region of this node, without a copy. `operation` may be NULL.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_send_from(
    job: *mut oik_job,
    rank: u32,
    class_: oik_class,
    tag: u64,
    from: *mut oik_region,
    at: usize,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let job = find(job)?;
        let slice = slice_of(from, at, len)?;
        begin(operation, job.peer(rank)?.send_from(class_of(class_)?, tag, slice))
    })
}

/// A message that has arrived.
pub struct oik_message;

/// A message that C has the handle of, until it is forwarded.
pub struct KeptMessage(Mutex<Option<Message>>, Head);

handled! { oik_message: KeptMessage, "message"; }

/// Sender, tag, class and length of a message.
#[derive(Clone, Copy)]
struct Head {
    from: u32,
    class: oik_class,
    tag: u64,
    len: usize,
}

impl Head {
    fn of(message: &Message) -> Self {
        let (class, len) = (number_of(message.class()), message.bytes().len());
        Self { from: message.from(), class, tag: message.tag(), len }
    }
}

/// Facts about a message.
#[repr(C)]
pub struct oik_message_info {
    /// Rank of the sender.
    pub from: u32,
    /// Class of the message.
    pub class_: oik_class,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Length in bytes.
    pub len: usize,
    /// Bytes of the message, valid until it is released; NULL after `oik_receive_into`.
    pub bytes: Bytes,
    /// The message, if it did not fit into the buffer of `oik_receive_into`; otherwise NULL.
    pub message: *mut oik_message,
}

impl Head {
    fn info(self, bytes: Bytes) -> oik_message_info {
        let Self { from, class, tag, len } = self;
        let message = std::ptr::null_mut();
        oik_message_info { from, class_: class, tag, len, bytes, message }
    }
}

fn from_whom(from: u32) -> Option<u32> {
    (from != OIK_ANY).then_some(from)
}

fn keep_message(out: HandlePlace<'_, oik_message>, message: Message) -> CallResult {
    let head = Head::of(&message);
    keep(out, KeptMessage(Mutex::new(Some(message)), head)).map(drop)
}

/// Time that a caller waits for a message, or an entry of a queue.
pub enum Patience {
    JobsLimit,
    Limit(Duration),
    None,
}

fn receive(job: &Job, from: u32, patience: &Patience) -> CallResult<Message> {
    let from = from_whom(from);
    match patience {
        Patience::JobsLimit => Ok(job.receive(from)?),
        Patience::Limit(limit) => Ok(job.receive_for(from, *limit)?),
        Patience::None => job.try_receive(from).ok_or_else(CallError::not_ready),
    }
}

/// Receives a message from the peer `from`, or from `OIK_ANY`. Waits within the job's time limit.
/// `oik_message_info` is read by `oik_message_get`. Thread-safe: each message goes to one caller.
///
/// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the peer will send no more.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive(
    job: *mut oik_job,
    from: u32,
    message: Option<&mut MaybeUninit<*mut oik_message>>,
) -> oik_status {
    run(|| {
        let out = place(message, "message")?;
        keep_message(out, receive(&find(job)?.job, from, &Patience::JobsLimit)?)
    })
}

/// Receives as `oik_receive` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive_for(
    job: *mut oik_job,
    from: u32,
    seconds: f64,
    message: Option<&mut MaybeUninit<*mut oik_message>>,
) -> oik_status {
    run(|| {
        let out = place(message, "message")?;
        let patience = Patience::Limit(limit(seconds)?);
        keep_message(out, receive(&find(job)?.job, from, &patience)?)
    })
}

/// Receives a message that has arrived already. Returns `OIK_NOT_READY` if there is none.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_receive(
    job: *mut oik_job,
    from: u32,
    message: Option<&mut MaybeUninit<*mut oik_message>>,
) -> oik_status {
    run(|| {
        let out = place(message, "message")?;
        keep_message(out, receive(&find(job)?.job, from, &Patience::None)?)
    })
}

fn probe(
    job: *mut oik_job,
    from: u32,
    patience: &Patience,
    next: Option<&mut MaybeUninit<oik_received>>,
) -> CallResult {
    let out = place(next, "next")?;
    let (job, from) = (&find(job)?.job, from_whom(from));
    let Received { from, tag, len } = match patience {
        Patience::JobsLimit => job.probe(from)?,
        Patience::Limit(limit) => job.probe_for(from, *limit)?,
        Patience::None => job.try_probe(from).ok_or_else(CallError::not_ready)?,
    };
    out.write(oik_received { from, tag, len: usize::try_from(len).unwrap_or(usize::MAX) });
    Ok(())
}

/// Waits for the next message from the peer `from`, or from `OIK_ANY`, and describes it in `next`
/// without taking it, as `MPI_Probe` does. Waits within the job's time limit. The next receive with
/// the same `from` gets that message, unless another thread receives it before, or a receive that
/// is posted meanwhile matches it. Thread-safe.
///
/// Errors: those of `oik_receive`.
#[unsafe(no_mangle)]
pub extern "C" fn oik_probe(
    job: *mut oik_job,
    from: u32,
    next: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| probe(job, from, &Patience::JobsLimit, next))
}

/// Describes the next message as `oik_probe` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_probe_for(
    job: *mut oik_job,
    from: u32,
    seconds: f64,
    next: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| probe(job, from, &Patience::Limit(limit(seconds)?), next))
}

/// Describes the next message if one has arrived. Returns `OIK_NOT_READY` if there is none.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_probe(
    job: *mut oik_job,
    from: u32,
    next: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| probe(job, from, &Patience::None, next))
}

/// Receives `count` messages from any peers, as `oik_receive_batch` does.
fn receive_batch(
    job: *mut oik_job,
    (mut messages, count): (MessagesOut, usize),
    received: Option<&mut MaybeUninit<usize>>,
    limit: Option<Duration>,
) -> CallResult {
    let received = place(received, "received")?;
    let received = received.write(0);
    let room = messages.get(count, "messages")?;
    let job = find(job)?;
    let mut batch = match limit {
        None => job.job.receive_batch(count),
        Some(limit) => job.job.receive_batch_for(count, limit),
    };
    let mut missing = Ok(());
    while batch.len() < count && missing.is_ok() {
        // Says why messages are missing, unless one has come meanwhile.
        missing = job.job.receive_for(None, Duration::ZERO).map(|message| batch.push(message));
    }
    for (room, message) in room.iter_mut().zip(batch) {
        keep_message(room, message)?;
        *received += 1;
    }
    Ok(missing?)
}

/// Receives `count` messages from any peers, in the order of their arrival. Waits within the job's
/// time limit until all of them have arrived, and is woken once. `messages` has room for `count`
/// handles. `received` gets the number of messages, also if the call fails: those that have arrived
/// are not lost. Thread-safe: each message goes to one caller.
///
/// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will send no
/// more.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive_batch(
    job: *mut oik_job,
    messages: MessagesOut,
    count: usize,
    received: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| receive_batch(job, (messages, count), received, None))
}

/// Receives messages as `oik_receive_batch` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive_batch_for(
    job: *mut oik_job,
    messages: MessagesOut,
    count: usize,
    seconds: f64,
    received: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| receive_batch(job, (messages, count), received, Some(limit(seconds)?)))
}

/// Receives a message into a buffer. If the buffer is too small, keeps the message instead.
fn receive_into(
    job: *mut oik_job,
    from: u32,
    (mut buffer, capacity): (BytesMut, usize),
    info: Option<&mut MaybeUninit<oik_message_info>>,
    patience: &Patience,
) -> CallResult {
    let info = place(info, "info")?;
    let job = find(job)?;
    // Checked before a message is taken.
    let room = buffer.get(capacity, "buffer")?;
    let message = receive(&job.job, from, patience)?;
    let head = Head::of(&message);
    let info = info.write(head.info(Bytes::of(None)));
    if let Some(room) = room.get_mut(..head.len) {
        room.write_copy_of_slice(message.bytes());
        return Ok(());
    }
    let mut kept = MaybeUninit::new(std::ptr::null_mut());
    keep_message(&mut kept, message)?;
    // SAFETY: it was set above, and perhaps again by `keep_message`.
    info.message = unsafe { kept.assume_init() };
    let why = format!(
        "a message of {} bytes does not fit into a buffer of {capacity}; info has it",
        head.len
    );
    Err(CallError::new(oik_status::OIK_TOO_SMALL, why))
}

/// Receives a message as `oik_receive` does, into a buffer, without making an object. `info` gets
/// its sender, tag, class and length. If it is longer than `capacity`, the call returns
/// `OIK_TOO_SMALL`, and `info` has the message. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive_into(
    job: *mut oik_job,
    from: u32,
    buffer: BytesMut,
    capacity: usize,
    info: Option<&mut MaybeUninit<oik_message_info>>,
) -> oik_status {
    run(|| receive_into(job, from, (buffer, capacity), info, &Patience::JobsLimit))
}

/// Receives as `oik_receive_into` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_receive_into_for(
    job: *mut oik_job,
    from: u32,
    buffer: BytesMut,
    capacity: usize,
    seconds: f64,
    info: Option<&mut MaybeUninit<oik_message_info>>,
) -> oik_status {
    run(|| {
        let patience = Patience::Limit(limit(seconds)?);
        receive_into(job, from, (buffer, capacity), info, &patience)
    })
}

/// Receives as `oik_receive_into` does, a message that has arrived already. Returns `OIK_NOT_READY`
/// if there is none. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_receive_into(
    job: *mut oik_job,
    from: u32,
    buffer: BytesMut,
    capacity: usize,
    info: Option<&mut MaybeUninit<oik_message_info>>,
) -> oik_status {
    run(|| receive_into(job, from, (buffer, capacity), info, &Patience::None))
}

/// Description of the message that a posted receive has got.
#[repr(C)]
pub struct oik_received {
    /// Rank of the sender.
    pub from: u32,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Offers `len` bytes of any memory for one message: of the peer `from`, or of any for `OIK_ANY`,
/// whose tag equals `tag` in the bits of `mask`. The memory is left alone until `oik_wait_received`
/// has returned. A mask of `UINT64_MAX` wants exactly the tag, and 0 wants any.
///
/// Receives match in the order in which they were posted. The oldest unread message that matches
/// fills a receive at once. `oik_receive` gets the messages that no posted receive matches. If the
/// message is longer than the memory, the receive fails with `OIK_TOO_SMALL`, and the message waits
/// to be received. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_post_receive(
    job: *mut oik_job,
    from: u32,
    tag: u64,
    mask: u64,
    into: BytesMut,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(operation, "operation")?, find(job)?);
        let loan = Loan::new(&job, into.address(len, "into")?, len, true)?;
        let receive = job.job.post_receive(from_whom(from), tag, mask, loan.slice());
        begin_receive(out, receive, Some(loan))
    })
}

/// Offers `len` bytes at `at` of a region of this node for a message, as `oik_post_receive` does.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_post_receive_into(
    job: *mut oik_job,
    from: u32,
    tag: u64,
    mask: u64,
    into: *mut oik_region,
    at: usize,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(operation, "operation")?, find(job)?);
        let slice = slice_of(into, at, len)?;
        begin_receive(out, job.job.post_receive(from_whom(from), tag, mask, slice), None)
    })
}

/// Waits for a posted receive within the job's time limit, and releases it. Writes sender, tag and
/// length of the message, also if it was too long for the memory (`OIK_TOO_SMALL`). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_wait_received(
    operation: *mut oik_operation,
    message: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| finish_receive(operation, message, |receive| Some(receive.wait())))
}

/// Waits as `oik_wait_received` does, with this time limit in seconds. After `OIK_TIMEOUT` the
/// receive goes on. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_wait_received_for(
    operation: *mut oik_operation,
    seconds: f64,
    message: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| {
        let limit = limit(seconds)?;
        finish_receive(operation, message, |receive| Some(receive.wait_for(limit)))
    })
}

/// Returns `OIK_NOT_READY` if the posted receive has not ended. Otherwise does as
/// `oik_wait_received`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_test_received(
    operation: *mut oik_operation,
    message: Option<&mut MaybeUninit<oik_received>>,
) -> oik_status {
    run(|| finish_receive(operation, message, |receive| receive.try_take()))
}

/// Writes the facts about a message, its bytes included. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_message_get(
    message: *mut oik_message,
    info: Option<&mut MaybeUninit<oik_message_info>>,
) -> oik_status {
    run(|| {
        let kept = find(message)?;
        let held = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = Bytes::of(held.as_ref().map(Message::bytes));
        place(info, "info")?.write(kept.1.info(bytes));
        Ok(())
    })
}

/// Forwards a message to the peer `rank`, without a copy, and releases it. `operation` may be NULL.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_forward(
    job: *mut oik_job,
    rank: u32,
    class_: oik_class,
    tag: u64,
    message: *mut oik_message,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| {
        let (job, class) = (find(job)?, class_of(class_)?);
        let peer = job.peer(rank)?;
        let kept = take(message)?;
        let message = kept.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gone = || CallError::new(oik_status::OIK_HANDLE, "another thread has forwarded it");
        begin(operation, peer.forward(class, tag, message.ok_or_else(gone)?))
    })
}

/// Releases a message and its bytes. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_message_release(message: *mut oik_message) -> oik_status {
    run(|| take(message).map(drop))
}

/// A FIFO of this node, which peers push elements into.
pub struct oik_fifo;

/// A FIFO that C has the handle of.
pub struct KeptFifo(Fifo, Weak<JoinedJob>);

handled! { oik_fifo: KeptFifo, "FIFO"; }

/// A FIFO of a peer.
pub struct oik_remote_fifo;

/// A FIFO of a peer that C has the handle of.
pub struct KeptRemoteFifo(RemoteFifo);

handled! { oik_remote_fifo: KeptRemoteFifo, "FIFO of a peer"; }

/// Makes a FIFO of `slots` elements of up to `longest` bytes, and publishes it under this name.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_fifo_new(
    job: *mut oik_job,
    name: Text,
    slots: u64,
    longest: u64,
    fifo: Option<&mut MaybeUninit<*mut oik_fifo>>,
) -> oik_status {
    run(|| {
        let out = place(fifo, "fifo")?;
        let job = find(job)?;
        let fifo = job.job.fifo(name.get("name")?, slots, longest)?;
        keep(out, KeptFifo(fifo, Arc::downgrade(&job))).map(drop)
    })
}

/// Writes the FIFO's id, by which any node of the job can push into it (`oik_remote_fifo_by_id`).
/// The id may be sent in a message. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_fifo_id(
    fifo: *mut oik_fifo,
    id: Option<&mut MaybeUninit<oik_remote_id>>,
) -> oik_status {
    run(|| {
        let bytes = find(fifo)?.0.remote_id().to_bytes();
        place(id, "id")?.write(oik_remote_id { bytes });
        Ok(())
    })
}

/// Takes an element out. The buffer has room for the longest element, so that none is lost.
fn pop(
    fifo: *mut oik_fifo,
    (mut buffer, capacity): (BytesMut, usize),
    len: Option<&mut MaybeUninit<usize>>,
    patience: &Patience,
) -> CallResult {
    let (fifo, len) = (find(fifo)?, place(len, "len")?);
    let longest = fifo.0.longest();
    if (capacity as u64) < longest {
        let why = format!("elements of up to {longest} bytes do not fit into room for {capacity}");
        return Err(CallError::new(oik_status::OIK_TOO_SMALL, why));
    }
    buffer.get(capacity, "buffer")?;
    let mut element = Vec::new();
    match patience {
        Patience::JobsLimit => fifo.0.pop(&mut element)?,
        Patience::Limit(limit) => fifo.0.pop_for(&mut element, *limit)?,
        Patience::None if fifo.0.try_pop(&mut element)? => {}
        Patience::None => return check_joined(&fifo.1).and(Err(CallError::not_ready())),
    }
    buffer.fill(capacity, &element, Some(len))
}

/// Takes an element out of a FIFO of this node. Waits within the job's time limit. `capacity` is at
/// least the FIFO's longest element. `len` gets the length. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_pop(
    fifo: *mut oik_fifo,
    buffer: BytesMut,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| pop(fifo, (buffer, capacity), len, &Patience::JobsLimit))
}

/// Takes an element out as `oik_pop` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_pop_for(
    fifo: *mut oik_fifo,
    buffer: BytesMut,
    capacity: usize,
    seconds: f64,
    len: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| pop(fifo, (buffer, capacity), len, &Patience::Limit(limit(seconds)?)))
}

/// Takes an element out as `oik_pop` does. Returns `OIK_NOT_READY` if there is none. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_pop(
    fifo: *mut oik_fifo,
    buffer: BytesMut,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| pop(fifo, (buffer, capacity), len, &Patience::None))
}

/// Releases a FIFO. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_fifo_release(fifo: *mut oik_fifo) -> oik_status {
    run(|| take(fifo).map(drop))
}

/// Finds the FIFO that the peer `rank` has made under this name. Waits within the job's time limit
/// until there is one. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_fifo_find(
    job: *mut oik_job,
    rank: u32,
    name: Text,
    fifo: Option<&mut MaybeUninit<*mut oik_remote_fifo>>,
) -> oik_status {
    run(|| {
        let out = place(fifo, "fifo")?;
        let found = find(job)?.peer(rank)?.fifo(name.get("name")?)?;
        keep(out, KeptRemoteFifo(found)).map(drop)
    })
}

/// Finds a FIFO as `oik_remote_fifo_find` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_fifo_find_for(
    job: *mut oik_job,
    rank: u32,
    name: Text,
    seconds: f64,
    fifo: Option<&mut MaybeUninit<*mut oik_remote_fifo>>,
) -> oik_status {
    run(|| {
        let out = place(fifo, "fifo")?;
        let job = find(job)?;
        let found = job.peer(rank)?.fifo_for(name.get("name")?, limit(seconds)?)?;
        keep(out, KeptRemoteFifo(found)).map(drop)
    })
}

/// Makes a FIFO of a peer from the id that its owner got by `oik_fifo_id`. Thread-safe.
///
/// Errors: `OIK_INVALID` if the bytes are not an id, or that of something else, or name a rank that
/// the job does not have.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_fifo_by_id(
    job: *mut oik_job,
    id: Option<&oik_remote_id>,
    fifo: Option<&mut MaybeUninit<*mut oik_remote_fifo>>,
) -> oik_status {
    run(|| {
        let (out, job) = (place(fifo, "fifo")?, find(job)?);
        let id = RemoteId::from_bytes(&given(id, "id")?.bytes);
        let id = id.ok_or_else(|| CallError::invalid("the id is none; see oik_fifo_id"))?;
        keep(out, KeptRemoteFifo(job.job.remote_fifo(id)?)).map(drop)
    })
}

/// Pushes an element into a FIFO of a peer. Waits within the job's time limit for room.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_push(fifo: *mut oik_remote_fifo, element: Bytes, len: usize) -> oik_status {
    run(|| Ok(find(fifo)?.0.push(element.get(len, "element")?)?))
}

/// Pushes as `oik_push` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_push_for(
    fifo: *mut oik_remote_fifo,
    element: Bytes,
    len: usize,
    seconds: f64,
) -> oik_status {
    run(|| Ok(find(fifo)?.0.push_for(element.get(len, "element")?, limit(seconds)?)?))
}

/// Pushes an element. Returns `OIK_FULL` if there is no room for it. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_push(
    fifo: *mut oik_remote_fifo,
    element: Bytes,
    len: usize,
) -> oik_status {
    run(|| Ok(find(fifo)?.0.try_push(element.get(len, "element")?)?))
}

/// Begins a push. The operation fails with `OIK_FULL` if there is no room. `operation` may be NULL.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_post(
    fifo: *mut oik_remote_fifo,
    element: Bytes,
    len: usize,
    operation: Option<&mut MaybeUninit<*mut oik_operation>>,
) -> oik_status {
    run(|| begin(operation, find(fifo)?.0.post(element.get(len, "element")?)))
}

/// Releases a FIFO of a peer. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_remote_fifo_release(fifo: *mut oik_remote_fifo) -> oik_status {
    run(|| take(fifo).map(drop))
}
