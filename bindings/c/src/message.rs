//! Messages, and FIFOs that peers push into.

use crate::abi::call::{CallError, CallResult, Raw, functions};
use crate::abi::objects::{New, Released, handled, keep, take};
use crate::abi::pointers::{Bytes, BytesMut, Filled, Input, Room, Text, fill};
use crate::job::{JoinedJob, Limit, check_joined, oik_job};
use crate::memory::region::{Loan, RankOrAny, Slice, oik_remote_id};
use crate::operation::{Begun, KeptOperation, Waited, finish_receive, oik_operation};
use crate::status::oik_status;
use oikaze::Job;
use oikaze::memory::remote::RemoteId;
use oikaze::message::{Class, Fifo, Message, Received, RemoteFifo};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
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

functions! {
    /// Sends a message of `len` bytes (at most 1 GiB) to the peer `rank`. The bytes are copied
    /// before the call returns. The operation is done when the peer has the message. `operation`
    /// may be NULL. Thread-safe.
    oik_send(job: *mut oik_job, rank: u32, class_: oik_class, tag: u64, bytes[len]: Bytes)
        -> operation: Begun =
        job.peer(rank)?.send(class_of(class_)?, tag, bytes);
    /// Sends `len` bytes at `at` of a region of this node, without a copy. `operation` may be NULL.
    /// Thread-safe.
    oik_send_from(job: *mut oik_job, rank: u32, class_: oik_class, tag: u64, from[at, len]: Slice)
        -> operation: Begun =
        job.peer(rank)?.send_from(class_of(class_)?, tag, from);
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

impl KeptMessage {
    fn of(message: Message) -> Self {
        let head = Head::of(&message);
        Self(Mutex::new(Some(message)), head)
    }
}

/// Time that a caller waits for a message, or an entry of a queue.
pub enum Patience {
    JobsLimit,
    Limit(Duration),
    None,
}

fn receive(job: &Job, from: Option<u32>, patience: &Patience) -> CallResult<Message> {
    match patience {
        Patience::JobsLimit => Ok(job.receive(from)?),
        Patience::Limit(limit) => Ok(job.receive_for(from, *limit)?),
        Patience::None => job.try_receive(from).ok_or_else(CallError::not_ready),
    }
}

functions! {
    /// Receives a message from the peer `from`, or from `OIK_ANY`. Waits within the job's time
    /// limit. `oik_message_info` is read by `oik_message_get`. Thread-safe: each message goes to
    /// one caller.
    ///
    /// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the peer will send no more.
    oik_receive(job: *mut oik_job, from: RankOrAny) -> message: New<oik_message> =
        KeptMessage::of(receive(&job.job, from, &Patience::JobsLimit)?);
    /// Receives as `oik_receive` does, with this time limit in seconds. Thread-safe.
    oik_receive_for(job: *mut oik_job, from: RankOrAny, seconds: Limit)
        -> message: New<oik_message> =
        KeptMessage::of(receive(&job.job, from, &Patience::Limit(seconds))?);
    /// Receives a message that has arrived already. Returns `OIK_NOT_READY` if there is none.
    /// Thread-safe.
    oik_try_receive(job: *mut oik_job, from: RankOrAny) -> message: New<oik_message> =
        KeptMessage::of(receive(&job.job, from, &Patience::None)?);
}

fn probe(job: &Job, from: Option<u32>, patience: &Patience) -> CallResult<oik_received> {
    Ok(received_of(match patience {
        Patience::JobsLimit => job.probe(from)?,
        Patience::Limit(limit) => job.probe_for(from, *limit)?,
        Patience::None => job.try_probe(from).ok_or_else(CallError::not_ready)?,
    }))
}

functions! {
    /// Waits for the next message from the peer `from`, or from `OIK_ANY`, and describes it in
    /// `next` without taking it, as `MPI_Probe` does. Waits within the job's time limit. The next
    /// receive with the same `from` gets that message, unless another thread receives it before, or
    /// a receive that is posted meanwhile matches it. Thread-safe.
    ///
    /// Errors: those of `oik_receive`.
    oik_probe(job: *mut oik_job, from: RankOrAny) -> next: Room<oik_received> =
        probe(&job.job, from, &Patience::JobsLimit)?;
    /// Describes the next message as `oik_probe` does, with this time limit in seconds.
    /// Thread-safe.
    oik_probe_for(job: *mut oik_job, from: RankOrAny, seconds: Limit) -> next: Room<oik_received> =
        probe(&job.job, from, &Patience::Limit(seconds))?;
    /// Describes the next message if one has arrived. Returns `OIK_NOT_READY` if there is none.
    /// Thread-safe.
    oik_try_probe(job: *mut oik_job, from: RankOrAny) -> next: Room<oik_received> =
        probe(&job.job, from, &Patience::None)?;
}

/// Receives as many messages from any peers as there is room for.
fn receive_batch(
    job: &Job,
    messages: &mut [MaybeUninit<*mut oik_message>],
    received: &mut MaybeUninit<usize>,
    limit: Option<Duration>,
) -> CallResult {
    let (received, count) = (received.write(0), messages.len());
    let mut batch = match limit {
        None => job.receive_batch(count),
        Some(limit) => job.receive_batch_for(count, limit),
    };
    let mut missing = Ok(());
    while batch.len() < count && missing.is_ok() {
        // Says why messages are missing, unless one has come meanwhile.
        missing = job.receive_for(None, Duration::ZERO).map(|message| batch.push(message));
    }
    for (room, message) in messages.iter_mut().zip(batch) {
        keep(room, KeptMessage::of(message))?;
        *received += 1;
    }
    Ok(missing?)
}

functions! {
    /// Receives `count` messages from any peers, in the order of their arrival. Waits within the
    /// job's time limit until all of them have arrived, and is woken once. `messages` has room for
    /// `count` handles. `received` gets the number of messages, also if the call fails: those that
    /// have arrived are not lost. Thread-safe: each message goes to one caller.
    ///
    /// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will send no
    /// more.
    oik_receive_batch(job: *mut oik_job, messages[count]: Room<*mut oik_message>)
        -> received: Filled<usize> =
        receive_batch(&job.job, messages, received, None)?;
    /// Receives messages as `oik_receive_batch` does, with this time limit in seconds. Thread-safe.
    oik_receive_batch_for(job: *mut oik_job, messages[count]: Room<*mut oik_message>,
        seconds: Limit)
        -> received: Filled<usize> =
        receive_batch(&job.job, messages, received, Some(seconds))?;
}

/// Receives a message into a buffer. If the buffer is too small, keeps the message instead.
fn receive_into(
    job: &Job,
    from: Option<u32>,
    buffer: &mut [MaybeUninit<u8>],
    info: &mut MaybeUninit<oik_message_info>,
    patience: &Patience,
) -> CallResult {
    let (message, capacity) = (receive(job, from, patience)?, buffer.len());
    let head = Head::of(&message);
    let info = info.write(head.info(Bytes::of(None)));
    if let Some(room) = buffer.get_mut(..head.len) {
        room.write_copy_of_slice(message.bytes());
        return Ok(());
    }
    let mut kept = MaybeUninit::new(std::ptr::null_mut());
    keep(&mut kept, KeptMessage::of(message))?;
    // SAFETY: it was set above, and perhaps again by `keep`.
    info.message = unsafe { kept.assume_init() };
    let why = format!(
        "a message of {} bytes does not fit into a buffer of {capacity}; info has it",
        head.len
    );
    Err(CallError::new(oik_status::OIK_TOO_SMALL, why))
}

functions! {
    /// Receives a message as `oik_receive` does, into a buffer, without making an object. `info`
    /// gets its sender, tag, class and length. If it is longer than `capacity`, the call returns
    /// `OIK_TOO_SMALL`, and `info` has the message. Thread-safe.
    oik_receive_into(job: *mut oik_job, from: RankOrAny, buffer[capacity]: BytesMut)
        -> info: Filled<oik_message_info> =
        receive_into(&job.job, from, buffer, info, &Patience::JobsLimit)?;
    /// Receives as `oik_receive_into` does, with this time limit in seconds. Thread-safe.
    oik_receive_into_for(job: *mut oik_job, from: RankOrAny, buffer[capacity]: BytesMut,
        seconds: Limit)
        -> info: Filled<oik_message_info> =
        receive_into(&job.job, from, buffer, info, &Patience::Limit(seconds))?;
    /// Receives as `oik_receive_into` does, a message that has arrived already. Returns
    /// `OIK_NOT_READY` if there is none. Thread-safe.
    oik_try_receive_into(job: *mut oik_job, from: RankOrAny, buffer[capacity]: BytesMut)
        -> info: Filled<oik_message_info> =
        receive_into(&job.job, from, buffer, info, &Patience::None)?;
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

/// Describes a message for C.
pub fn received_of(Received { from, tag, len }: Received) -> oik_received {
    oik_received { from, tag, len: usize::try_from(len).unwrap_or(usize::MAX) }
}

functions! {
    /// Offers `len` bytes of any memory for one message: of the peer `from`, or of any for
    /// `OIK_ANY`, whose tag equals `tag` in the bits of `mask`. The memory is left alone until
    /// `oik_wait_received` has returned. A mask of `UINT64_MAX` wants exactly the tag, and 0 wants
    /// any.
    ///
    /// Receives match in the order in which they were posted. The oldest unread message that
    /// matches fills a receive at once. `oik_receive` gets the messages that no posted receive
    /// matches. If the message is longer than the memory, the receive fails with `OIK_TOO_SMALL`,
    /// and the message waits to be received. Thread-safe.
    oik_post_receive(job: *mut oik_job, from: RankOrAny, tag: u64, mask: u64, into[len]: BytesMut)
        -> operation: New<oik_operation> = {
        let loan = Loan::new(&job, NonNull::from(into).cast(), len, true)?;
        let receive = job.job.post_receive(from, tag, mask, loan.slice());
        KeptOperation::Receive(receive.into_bits(), Some(loan))
    };
    /// Offers `len` bytes at `at` of a region of this node for a message, as `oik_post_receive`
    /// does. Thread-safe.
    oik_post_receive_into(job: *mut oik_job, from: RankOrAny, tag: u64, mask: u64,
        into[at, len]: Slice) -> operation: New<oik_operation> =
        KeptOperation::Receive(job.job.post_receive(from, tag, mask, into).into_bits(), None);
    /// Waits for a posted receive within the job's time limit, and releases it. Writes sender, tag
    /// and length of the message, also if it was too long for the memory (`OIK_TOO_SMALL`).
    /// Thread-safe.
    oik_wait_received(operation: Waited)
        -> message: Filled<oik_received> =
        finish_receive(operation, message, |receive| Some(receive.wait()))?;
    /// Waits as `oik_wait_received` does, with this time limit in seconds. After `OIK_TIMEOUT` the
    /// receive goes on. Thread-safe.
    oik_wait_received_for(operation: Waited, seconds: Limit)
        -> message: Filled<oik_received> =
        finish_receive(operation, message, |receive| Some(receive.wait_for(seconds)))?;
    /// Returns `OIK_NOT_READY` if the posted receive has not ended. Otherwise does as
    /// `oik_wait_received`. Thread-safe.
    oik_test_received(operation: Waited)
        -> message: Filled<oik_received> =
        finish_receive(operation, message, |receive| receive.try_take())?;
    /// Writes the facts about a message, its bytes included. Thread-safe.
    oik_message_get(message: *mut oik_message) -> info: Room<oik_message_info> = {
        let held = message.0.lock().unwrap_or_else(PoisonError::into_inner);
        message.1.info(Bytes::of(held.as_ref().map(Message::bytes)))
    };
    /// Forwards a message to the peer `rank`, without a copy, and releases it. `operation` may be
    /// NULL. Thread-safe.
    oik_forward(job: *mut oik_job, rank: u32, class_: oik_class, tag: u64,
        message: Raw<*mut oik_message>) -> operation: Begun = {
        let (peer, class) = (job.peer(rank)?, class_of(class_)?);
        let message = take(*message)?.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gone = || CallError::new(oik_status::OIK_HANDLE, "another thread has forwarded it");
        peer.forward(class, tag, message.ok_or_else(gone)?)
    };
    /// Releases a message and its bytes. Thread-safe.
    oik_message_release(message: Released<oik_message>) = drop(message);
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

functions! {
    /// Makes a FIFO of `slots` elements of up to `longest` bytes, and publishes it under this name.
    /// Thread-safe.
    oik_fifo_new(job: *mut oik_job, name: Text, slots: u64, longest: u64) -> fifo: New<oik_fifo> =
        KeptFifo(job.job.fifo(name, slots, longest)?, Arc::downgrade(&job));
    /// Writes the FIFO's id, by which any node of the job can push into it
    /// (`oik_remote_fifo_by_id`). The id may be sent in a message. Thread-safe.
    oik_fifo_id(fifo: *mut oik_fifo) -> id: Room<oik_remote_id> =
        oik_remote_id { bytes: fifo.0.remote_id().to_bytes() };
}

/// Takes an element out. The buffer has room for the longest element, so that none is lost.
fn pop(
    fifo: &KeptFifo,
    buffer: &mut [MaybeUninit<u8>],
    len: &mut MaybeUninit<usize>,
    patience: &Patience,
) -> CallResult {
    let (longest, capacity) = (fifo.0.longest(), buffer.len());
    if (capacity as u64) < longest {
        let why = format!("elements of up to {longest} bytes do not fit into room for {capacity}");
        return Err(CallError::new(oik_status::OIK_TOO_SMALL, why));
    }
    let mut element = Vec::new();
    match patience {
        Patience::JobsLimit => fifo.0.pop(&mut element)?,
        Patience::Limit(limit) => fifo.0.pop_for(&mut element, *limit)?,
        Patience::None if fifo.0.try_pop(&mut element)? => {}
        Patience::None => return check_joined(&fifo.1).and(Err(CallError::not_ready())),
    }
    len.write(element.len());
    fill(buffer, &element, "bytes")
}

functions! {
    /// Takes an element out of a FIFO of this node. Waits within the job's time limit. `capacity`
    /// is at least the FIFO's longest element. `len` gets the length. Thread-safe.
    oik_pop(fifo: *mut oik_fifo, buffer[capacity]: BytesMut)
        -> len: Filled<usize> =
        pop(&fifo, buffer, len, &Patience::JobsLimit)?;
    /// Takes an element out as `oik_pop` does, with this time limit in seconds. Thread-safe.
    oik_pop_for(fifo: *mut oik_fifo, buffer[capacity]: BytesMut, seconds: Limit)
        -> len: Filled<usize> =
        pop(&fifo, buffer, len, &Patience::Limit(seconds))?;
    /// Takes an element out as `oik_pop` does. Returns `OIK_NOT_READY` if there is none.
    /// Thread-safe.
    oik_try_pop(fifo: *mut oik_fifo, buffer[capacity]: BytesMut)
        -> len: Filled<usize> =
        pop(&fifo, buffer, len, &Patience::None)?;
    /// Releases a FIFO. Thread-safe.
    oik_fifo_release(fifo: Released<oik_fifo>) = drop(fifo);
    /// Finds the FIFO that the peer `rank` has made under this name. Waits within the job's time
    /// limit until there is one. Thread-safe.
    oik_remote_fifo_find(job: *mut oik_job, rank: u32, name: Text) -> fifo: New<oik_remote_fifo> =
        KeptRemoteFifo(job.peer(rank)?.fifo(name)?);
    /// Finds a FIFO as `oik_remote_fifo_find` does, with this time limit in seconds. Thread-safe.
    oik_remote_fifo_find_for(job: *mut oik_job, rank: u32, name: Text, seconds: Limit)
        -> fifo: New<oik_remote_fifo> =
        KeptRemoteFifo(job.peer(rank)?.fifo_for(name, seconds)?);
    /// Makes a FIFO of a peer from the id that its owner got by `oik_fifo_id`. Thread-safe.
    ///
    /// Errors: `OIK_INVALID` if the bytes are not an id, or that of something else, or name a rank
    /// that the job does not have.
    oik_remote_fifo_by_id(job: *mut oik_job, id: Input<oik_remote_id>)
        -> fifo: New<oik_remote_fifo> = {
        let id = RemoteId::from_bytes(&id.bytes);
        let id = id.ok_or_else(|| CallError::invalid("these bytes are not an id; pass what oik_fifo_id wrote"))?;
        KeptRemoteFifo(job.job.remote_fifo(id)?)
    };
    /// Pushes an element into a FIFO of a peer. Waits within the job's time limit for room.
    /// Thread-safe.
    oik_push(fifo: *mut oik_remote_fifo, element[len]: Bytes) = fifo.0.push(element)?;
    /// Pushes as `oik_push` does, with this time limit in seconds. Thread-safe.
    oik_push_for(fifo: *mut oik_remote_fifo, element[len]: Bytes, seconds: Limit) =
        fifo.0.push_for(element, seconds)?;
    /// Pushes an element. Returns `OIK_FULL` if there is no room for it. Thread-safe.
    oik_try_push(fifo: *mut oik_remote_fifo, element[len]: Bytes) = fifo.0.try_push(element)?;
    /// Begins a push. The operation fails with `OIK_FULL` if there is no room. `operation` may be
    /// NULL. Thread-safe.
    oik_post(fifo: *mut oik_remote_fifo, element[len]: Bytes) -> operation: Begun =
        fifo.0.post(element);
    /// Releases a FIFO of a peer. Thread-safe.
    oik_remote_fifo_release(fifo: Released<oik_remote_fifo>) = drop(fifo);
}
