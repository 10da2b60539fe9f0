//! Direct placement of bulk: the kernel's copy is the only one.
//!
//! The sink predicts a run of equal datagrams, as the kernel joins them. Heads and tags are
//! received into the pool, payloads into their places, and everything beyond into the pool again.
//! The whole run is checked before any of it is processed, because a misplaced payload would be
//! overwritten by the one that belongs there. From the first mismatch on, everything is copied out
//! beforehand, and is then handled as if it had been received there.
//!
//! Bench cases: `placed_cpu` beside `placed_copy_cpu` (`bench remote`).

#[cfg(test)]
mod tests;

use super::super::sink::{Predicted, Scattered, Sink};
use super::sockets::socket::Socket;
use crate::net::datagram::Arrival;
use crate::net::statistics::Statistics;
use crate::net::udp::recv::{
    BUFFER_LEN, BufferInfo, Burst, ControlRoom, ReceivePool, buffer_info, call, cut, is_cut_short,
    point_header,
};
use crate::net::udp::sockets::address::SocketName;
use core::mem::MaybeUninit;
use rustix::fd::AsFd;
use std::io;
use std::net::SocketAddr;

/// Maximum number of payloads that one call receives into their places.
const SLOTS: usize = 64;
/// Number of pieces: the head of the first datagram, then for each its payload and the bytes
/// between it and the next.
const PIECES: usize = 1 + 2 * SLOTS;
/// Offset in the pool of the copies of mismatched datagrams.
const COPIES: usize = 4 * BUFFER_LEN;
/// Maximum number of calls without a prediction after consecutive wrong ones.
const PAUSE_CALLS_MAX: u32 = 64;

/// RunLayout of a run of datagrams. In the pool everything but the payloads is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunLayout {
    head: usize,
    payload: usize,
    tag: usize,
    slots: usize,
}

impl RunLayout {
    /// Returns `None` if there is no room for one datagram.
    fn of(predicted: &Predicted) -> Option<RunLayout> {
        let &Predicted { head, payload, tag, ref place } = predicted;
        let slots = place.len().checked_div(payload)?.min(SLOTS);
        let fits = slots > 0 && head > 0 && (head + tag) * SLOTS <= COPIES - BUFFER_LEN;
        fits.then_some(RunLayout { head, payload, tag, slots })
    }

    /// Bytes of a datagram.
    fn stride(self) -> usize {
        self.head + self.payload + self.tag
    }

    /// Offset of a datagram's head in the pool. The offset after the last datagram is where the
    /// rest begins.
    fn head_at(self, index: usize) -> usize {
        index * (self.head + self.tag)
    }

    /// Number of whole datagrams of a buffer that lie in slots.
    fn filled(self, len: usize, size: usize) -> usize {
        if size == self.stride() { self.slots.min(len / size) } else { 0 }
    }
}

/// Outcome of a prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guess {
    /// Nothing was predicted, or nothing came.
    Untried,
    /// Less than half of what came to slots was as predicted, or the datagrams could not be
    /// received there.
    Wrong,
    /// At least half of what came to slots was as predicted; it came from the predicted peer, at
    /// this address.
    Right(SocketAddr),
}

/// Decides whether a prediction is worth trying.
#[derive(Debug, Default)]
pub(crate) struct PredictionBackoff {
    /// Direct placement is switched off.
    off: bool,
    /// Calls left without a prediction.
    pause: u32,
    /// Calls to skip after the next wrong prediction.
    next: u32,
}

impl PredictionBackoff {
    pub(crate) fn new(off: bool) -> PredictionBackoff {
        PredictionBackoff { off, ..PredictionBackoff::default() }
    }

    /// Returns `true` if the next call may predict.
    pub(crate) fn allows(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.pause == 0 && !self.off
    }

    pub(crate) fn learn(&mut self, right: bool) {
        self.next = if right { 0 } else { (2 * self.next).clamp(1, PAUSE_CALLS_MAX) };
        self.pause = if right { 0 } else { self.next + 1 };
    }
}

impl ReceivePool {
    /// Makes one call for bulk, directly into the places that the sink predicts if that is likely
    /// to be right. Hands each datagram on.
    pub(crate) fn receive_bulk(
        &mut self,
        socket: &Socket,
        statistics: &mut Statistics,
        sink: &mut dyn Sink,
    ) -> io::Result<(Burst, Guess)> {
        let may_predict = !socket.busy && !socket.hears_group && self.prediction.allows();
        let Some(predicted) = may_predict.then(|| sink.predict()).flatten() else {
            let mut take = |arrival: Arrival<'_>| sink.take(arrival);
            let burst = self.receive(socket, socket.busy, statistics, &mut take)?;
            return Ok((burst, Guess::Untried));
        };
        let (burst, guess) = self.receive_predicted(socket, predicted, statistics, sink)?;
        match guess {
            Guess::Untried => {}
            Guess::Wrong => self.prediction.learn(false),
            Guess::Right(_) => self.prediction.learn(true),
        }
        Ok((burst, guess))
    }

    /// Makes one call for one buffer, hands each datagram on, and returns whether the prediction
    /// was right.
    pub(crate) fn receive_predicted(
        &mut self,
        socket: &Socket,
        mut predicted: Predicted,
        statistics: &mut Statistics,
        sink: &mut dyn Sink,
    ) -> io::Result<(Burst, Guess)> {
        // A prediction that cannot be laid out counts as wrong.
        let wrong = Ok((Burst::NONE, Guess::Wrong));
        let Some(layout) = RunLayout::of(&predicted) else { return wrong };
        let (pool, copies) = self.bytes.split_at_mut(COPIES);
        let Some((mut vectors, count)) = vectors(layout, pool, &mut predicted) else {
            return wrong;
        };
        let pieces = vectors.get_mut(..count).unwrap_or_default();
        let Filled { len, from, info } = match receive(socket, pieces, statistics)? {
            Ok(filled) => filled,
            Err(guess) => return Ok((Burst::NONE, guess)),
        };
        let (size, congested) = (info.size.unwrap_or(len).min(len), info.congested);
        let run = PredictedRun { layout, pool, predicted: &predicted, from, congested };
        let filled = layout.filled(len, size);
        let placed =
            run.datagrams(filled).take_while(|(index, one)| sink.confirm(*index, one)).count();
        let rest = run.copy_out(placed, len, copies);
        run.datagrams(placed).for_each(|(_, one)| sink.take_scattered(one));
        statistics.in_place += placed as u64;
        let mut take = |bytes: &[u8]| sink.take(Arrival { congested, ..Arrival::new(from, bytes) });
        // A buffer of no bytes is a datagram, too.
        let beside =
            if rest.is_empty() && placed > 0 { 0 } else { cut(rest, Some(size), &mut take) };
        let datagrams = placed + beside;
        statistics.bytes_in += len as u64;
        statistics.datagrams_in += datagrams as u64;
        let guess =
            if placed > 0 && 2 * placed >= filled { Guess::Right(from) } else { Guess::Wrong };
        Ok((Burst { datagrams, bytes: len, buffers: 1, full: true }, guess))
    }
}

/// Result of a call that received something.
struct Filled {
    len: usize,
    from: SocketAddr,
    info: BufferInfo,
}

/// Returns the pieces to be filled, in order, and their number.
fn vectors(
    layout: RunLayout,
    pool: &mut [u8],
    predicted: &mut Predicted,
) -> Option<([libc::iovec; PIECES], usize)> {
    // SAFETY: plain data for which zeros are valid.
    let mut vectors: [libc::iovec; PIECES] = unsafe { core::mem::zeroed() };
    let (head, mut rest) = pool.split_at_mut_checked(layout.head)?;
    let mut to = vectors.iter_mut();
    let mut push = |base: *mut u8, len: usize| {
        to.next().map(|vector| *vector = libc::iovec { iov_base: base.cast(), iov_len: len })
    };
    push(head.as_mut_ptr(), head.len())?;
    for index in 0..layout.slots {
        push(predicted.place.place(index * layout.payload, layout.payload)?, layout.payload)?;
        let between = if index + 1 < layout.slots {
            layout.tag + layout.head
        } else {
            layout.tag + BUFFER_LEN
        };
        let (here, later) = rest.split_at_mut_checked(between)?;
        push(here.as_mut_ptr(), here.len())?;
        rest = later;
    }
    Some((vectors, 1 + 2 * layout.slots))
}

/// Receives into the pieces. If nothing useful came, returns what that says about the prediction.
fn receive(
    socket: &Socket,
    pieces: &mut [libc::iovec],
    statistics: &mut Statistics,
) -> io::Result<Result<Filled, Guess>> {
    let (mut name, mut control) = (SocketName::empty(), MaybeUninit::<ControlRoom>::uninit());
    // SAFETY: plain data for which zeros are valid.
    let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
    point_header(&mut message.msg_hdr, pieces, &mut control, Some(&mut name));
    match call(socket.fd.as_fd(), core::slice::from_mut(&mut message)) {
        Ok(0) => return Ok(Err(Guess::Untried)),
        Ok(_) => {}
        // A place that cannot be written to (for example in a truncated file) costs the datagrams,
        // not the socket. The retransmission is received into the pool.
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
            statistics.truncated += 1;
            return Ok(Err(Guess::Wrong));
        }
        Err(error) => return Err(error),
    }
    statistics.calls_in += 1;
    // SAFETY: the kernel has filled this message, so it has written `msg_namelen` bytes of the
    // name.
    let from = unsafe { name.read(message.msg_hdr.msg_namelen) };
    let (Some(from), false) = (from, is_cut_short(&message.msg_hdr)) else {
        statistics.truncated += 1;
        return Ok(Err(Guess::Wrong));
    };
    Ok(Ok(Filled { len: message.msg_len as usize, from, info: buffer_info(&message.msg_hdr) }))
}

/// A received run, piece by piece.
#[derive(Clone, Copy)]
struct PredictedRun<'a> {
    layout: RunLayout,
    pool: &'a [u8],
    predicted: &'a Predicted,
    from: SocketAddr,
    congested: bool,
}

impl<'a> PredictedRun<'a> {
    /// Returns a datagram that lies as predicted.
    fn datagram(self, index: usize) -> Option<Scattered<'a>> {
        let RunLayout { head, payload, tag, .. } = self.layout;
        let at = self.layout.head_at(index);
        Some(Scattered {
            from: self.from,
            head: self.pool.get(at..at + head)?,
            payload: self.predicted.place.part(index * payload, payload)?,
            tag: self.pool.get(at + head..at + head + tag)?,
            congested: self.congested,
        })
    }

    /// Returns the first `count` datagrams with their indices.
    fn datagrams(self, count: usize) -> impl Iterator<Item = (usize, Scattered<'a>)> {
        (0..count).filter_map(move |index| Some((index, self.datagram(index)?)))
    }

    /// Copies out the bytes after the first `count` datagrams, of `len` bytes in all, in the order
    /// in which the kernel filled the pieces.
    fn copy_out(self, count: usize, len: usize, out: &mut [u8]) -> &[u8] {
        let RunLayout { head, payload, slots, .. } = self.layout;
        let wanted = (len - count * self.layout.stride()).min(out.len());
        let mut at = 0;
        let mut put = |from: Option<&[u8]>| {
            let from = from.unwrap_or_default();
            let len = from.len().min(wanted - at);
            let (Some(to), Some(from)) = (out.get_mut(at..at + len), from.get(..len)) else {
                return;
            };
            to.copy_from_slice(from);
            at += len;
        };
        for index in count..slots {
            let (at, next) = (self.layout.head_at(index), self.layout.head_at(index + 1));
            // The tag of the previous datagram ends where this head begins.
            put(self.pool.get(at..at + head));
            put(self.predicted.place.part(index * payload, payload));
            put(self.pool.get(at + head..next));
        }
        put(self.pool.get(self.layout.head_at(slots)..));
        out.get(..at).unwrap_or_default()
    }
}
