//! Bulk out without a copy: the kernel sends the pages in which the payloads lie (`vmsplice`, then `splice` into the socket).
//!
//! `MSG_ZEROCOPY` would tell when those pages are free again, at a price, and copies all the same where the receiver is on this machine. Here
//! nobody is told, and nobody needs to be: a source is in use until its operation has ended, and what comes later is a duplicate, which is
//! dropped whatever it holds by then (WIND-5.5). Heads and tags, which are ours, are copied into pages that are written once.
//!
//! Only whole pages pay: each piece of a page is taken, told of and given back by itself, and a call carries few of them.

#[cfg(test)]
pub(super) mod tests;
mod trial;

use super::super::Outgoing;
use super::receive::last_error;
use super::send::{Pieces, Sent, uninterrupted};
use super::socket::Socket;
use crate::memory::mapping::Mapping;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

/// Pieces that one call hands over (fs/splice.c: `splice_to_socket`), and one buffer of the network takes (`MAX_SKB_FRAGS`, less its first).
const PIECES_MAX: usize = 16;
/// With fewer datagrams in a call, copies are quicker.
const WORTH_IT: usize = 4;
/// Bytes for heads, until their pages are exchanged for new ones.
const HEADS: usize = 1 << 20;

/// What it takes.
#[derive(Debug)]
pub(super) struct Splice {
    /// Reading and writing end; empty between calls.
    pipe: (OwnedFd, OwnedFd),
    heads: Heads,
    /// Something has refused it that nobody could foresee: from then on all is copied.
    refused: bool,
}

impl Splice {
    /// Tried on the loopback interface: kernels before 6.5 copy, if they take it at all.
    pub(super) fn open() -> Option<Splice> {
        let mut splice = Splice::untried().ok()?;
        trial::passes(&mut splice).then_some(splice)
    }

    fn untried() -> Result<Splice, Errno> {
        Ok(Splice { pipe: pipe()?, heads: Heads::new()?, refused: false })
    }

    /// Send the first datagrams of a run: how many, and what became of them. `None`: they are to be copied.
    pub(super) fn send(&mut self, socket: &mut Socket, run: &[Outgoing<'_>]) -> Option<(usize, Sent)> {
        let run = run.get(..fitting(run)).filter(|run| run.len() >= WORTH_IT)?;
        if self.refused || socket.peer.is_none() || socket.segment(run.first()?.len()).is_err() {
            return None;
        }
        let (total, pieces) = (run.iter().map(Outgoing::len).sum(), self.heads.pieces(run)?);
        let sent = match self.take(&pieces) {
            taken if taken == Ok(total) => {
                uninterrupted(|| splice(&self.pipe.0, None, &socket.fd, None, total, SpliceFlags::NONBLOCK))
            }
            _ => Sent::Unfit,
        };
        match sent {
            Sent::Whole => return Some((run.len(), sent)),
            // Whatever is left in the pipe goes with it.
            Sent::NoRoom | Sent::TooBig | Sent::Unreachable => match pipe() {
                Ok(new) => self.pipe = new,
                Err(_) => self.refused = true,
            },
            Sent::Unfit | Sent::Broken(_) => self.refused = true,
        }
        (!self.refused).then_some((run.len(), sent))
    }

    /// Put pieces into the pipe: their bytes.
    fn take(&self, pieces: &Pieces) -> Result<usize, Errno> {
        // SAFETY: the pieces lead to pages of `heads`, written once, and to bytes that the gathers of a run keep in place until they are part of
        // the pipe; from then on the kernel holds their pages, and only reads them.
        let taken = unsafe { libc::vmsplice(self.pipe.1.as_raw_fd(), pieces.as_ptr(), pieces.count(), libc::SPLICE_F_NONBLOCK) };
        usize::try_from(taken).map_err(|_| last_error())
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// How many of the first datagrams fit into one call, and have a page of payload at least.
fn fitting(run: &[Outgoing<'_>]) -> usize {
    let page = rustix::param::page_size();
    let pages = |datagram: &Outgoing<'_>| (datagram.payload.as_ptr().addr() % page + datagram.payload.len()).div_ceil(page);
    // A tag and the head behind it are one.
    let mut pieces = 1;
    let fits = |datagram: &&Outgoing<'_>| {
        pieces += pages(datagram) + 1;
        pieces <= PIECES_MAX && datagram.payload.len() >= page
    };
    run.iter().take_while(fits).count()
}

/// Pages for heads and tags. What was written is never written again, for the network may not have read it yet.
#[derive(Debug)]
struct Heads {
    pages: Mapping,
    used: usize,
}

impl Heads {
    fn new() -> Result<Heads, Errno> {
        let pages = Mapping::anonymous(HEADS).map_err(|_| Errno::NOMEM)?;
        Ok(Heads { pages, used: 0 })
    }

    /// The pieces of a run, heads and tags copied.
    fn pieces(&mut self, run: &[Outgoing<'_>]) -> Option<Pieces> {
        let mut at = self.room(run.iter().map(|datagram| datagram.head.len() + datagram.tag.len()).sum())?;
        let mut pieces = Pieces::new();
        let mut copy = |pieces: &mut Pieces, bytes: &[u8]| {
            let to = self.pages.base().as_ptr().wrapping_add(at);
            // SAFETY: `room` has found so many bytes free in the mapping, which nobody else writes.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            pieces.push(to, bytes.len());
            at += bytes.len();
        };
        for datagram in run {
            copy(&mut pieces, datagram.head);
            pieces.push(datagram.payload.as_ptr(), datagram.payload.len());
            copy(&mut pieces, datagram.tag);
        }
        Some(pieces)
    }

    /// So many bytes in one page that were never used.
    fn room(&mut self, len: usize) -> Option<usize> {
        let page = rustix::param::page_size();
        if len > page {
            return None;
        }
        if self.used % page + len > page {
            self.used = self.used.next_multiple_of(page);
        }
        if self.used + len > self.pages.len() {
            // Whoever holds pages of the old ones keeps them as they are.
            *self = Heads::new().ok()?;
        }
        let at = self.used;
        self.used += len;
        Some(at)
    }
}
