//! Zero-copy sending of bulk: the kernel sends the pages in which the payloads lie (`vmsplice`,
//! then `splice` into the socket).
//!
//! `MSG_ZEROCOPY` would report when those pages are free again, at a price, and copies all the same
//! where the receiver is on this machine. Here nothing is reported, and nothing needs to be. A
//! source is in use until its operation has ended. A datagram that arrives later is a duplicate,
//! which an honest receiver drops whatever it holds by then (WIND-5.5). Heads and tags belong to
//! the link and are copied into pages that are written once.
//!
//! Splicing pays only for whole pages. Each piece of a page is taken, described and given back by
//! itself, and a call carries few of them.

#[cfg(test)]
pub(crate) mod tests;

use super::super::{Offload, Outgoing};
use crate::memory::mapping::Mapping;
use crate::net::udp::recv::last_error;
use crate::net::udp::send::{self, Pieces, Sent, uninterrupted};
use crate::net::udp::socket::Socket;
use crate::probe::kernel_version;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

/// Maximum number of pieces in one call (fs/splice.c: `splice_to_socket`), and in one buffer of the
/// network (`MAX_SKB_FRAGS`, less its first).
const PIECES_MAX: usize = 16;
/// Minimum number of datagrams in a call. With fewer, copies are faster.
const WORTH_IT: usize = 4;
/// Bytes for heads, until their pages are replaced by new ones.
const HEADS: usize = 1 << 20;

/// Refusals in a row after which splicing is given up.
const FAILURES_MAX: u32 = 8;
/// Oldest Linux version that is used. Before it, the network takes pieces one by one, each a
/// datagram where the family is IPv6, and reports less than it has sent (`sendpage`).
const OLDEST: (u32, u32) = (6, 5);

/// State of zero-copy sending.
#[derive(Debug)]
pub(crate) struct Splice {
    /// Reading and writing end of the pipe; the pipe is empty between calls.
    pipe: (OwnedFd, OwnedFd),
    heads: Heads,
    failures: u32,
    sent: u64,
}

/// Sends the beginning of a run without a copy if it is suitable, and otherwise copies the whole
/// run. Returns what was tried, its outcome, and whether it was spliced.
pub(crate) fn send_or_copy<'r, 'a>(
    mut splice: Option<&mut Splice>,
    socket: &mut Socket,
    run: &'r [Outgoing<'a>],
) -> (&'r [Outgoing<'a>], Sent, bool) {
    let spliced = splice.as_mut().and_then(|splice| splice.send(socket, run));
    let (run, refused) = match spliced {
        None => (run, false),
        Some(Spliced::Done(run, sent)) => return (run, sent, true),
        Some(Spliced::Refused(run)) => (run, true),
    };
    let sent = send::send(socket, run);
    if let (true, Sent::Whole, Some(splice)) = (refused, &sent, splice) {
        splice.failed();
    }
    (run, sent, false)
}

/// First datagrams of a run that were tried without a copy.
enum Spliced<'r, 'a> {
    /// They were tried, with this outcome.
    Done(&'r [Outgoing<'a>], Sent),
    /// They have to be copied. The copy tells whether the datagrams or splicing caused the refusal.
    Refused(&'r [Outgoing<'a>]),
}

impl Splice {
    pub(crate) fn open() -> Result<Splice, Errno> {
        if kernel_version().is_none_or(|version| version < OLDEST) {
            return Err(Errno::NOSYS);
        }
        Ok(Splice {
            pipe: pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
            heads: Heads::new()?,
            failures: 0,
            sent: 0,
        })
    }

    /// Reports whether splicing is still used.
    pub(crate) fn state(&self) -> Offload {
        if self.failures < FAILURES_MAX { Offload::On } else { Offload::Refused }
    }

    /// Returns the number of spliced datagrams, and whether splicing is still used.
    pub(crate) fn statistics(&self) -> (u64, Offload) {
        (self.sent, self.state())
    }

    /// Sends the first datagrams of a run. Returns `None` if they are not suitable.
    fn send<'r, 'a>(
        &mut self,
        socket: &mut Socket,
        run: &'r [Outgoing<'a>],
    ) -> Option<Spliced<'r, 'a>> {
        let run = run.get(..fitting(run)).filter(|run| run.len() >= WORTH_IT)?;
        if self.state() != Offload::On
            || socket.peer.is_none()
            || socket.segment(run.first()?.len()).is_err()
        {
            return None;
        }
        let (total, pieces) = (run.iter().map(Outgoing::len).sum(), self.heads.pieces(run)?);
        if self.take(&pieces) != Ok(total) {
            // The pipe has less than the usual room, or the memory is gone.
            self.empty();
            return Some(Spliced::Refused(run));
        }
        let sent = uninterrupted(|| {
            match splice(&self.pipe.0, None, &socket.fd, None, total, SpliceFlags::NONBLOCK) {
                Ok(less) if less != total => Err(Errno::IO),
                told => told,
            }
        });
        match sent {
            Sent::Whole => {
                self.sent += run.len() as u64;
                self.failures = 0;
            }
            Sent::NoRoom | Sent::TooBig => self.empty(),
            Sent::Unfit | Sent::Broken(_) => {
                self.empty();
                return Some(Spliced::Refused(run));
            }
            // The error is most likely about an earlier datagram, and says nothing against
            // splicing.
            Sent::Unreachable => {
                self.empty();
                return None;
            }
        }
        Some(Spliced::Done(run, sent))
    }

    /// Counts a splice that was refused although a copy was not.
    pub(crate) fn failed(&mut self) {
        self.failures += 1;
    }

    /// Empties the pipe, so that unsent bytes do not precede what is sent next.
    fn empty(&self) {
        let mut bytes = [0; 1 << 12];
        while let Ok(1..) = rustix::io::read(&self.pipe.0, &mut bytes) {}
    }

    /// Puts pieces into the pipe, and returns their bytes.
    fn take(&self, pieces: &Pieces) -> Result<usize, Errno> {
        // SAFETY: the pieces lead to pages of `heads`, written once, and to bytes that the gathers
        // of a run keep in place until they are part of the pipe; from then on the kernel holds
        // their pages, and only reads them.
        let taken = unsafe {
            libc::vmsplice(
                self.pipe.1.as_raw_fd(),
                pieces.as_ptr(),
                pieces.count(),
                libc::SPLICE_F_NONBLOCK,
            )
        };
        usize::try_from(taken).map_err(|_| last_error())
    }
}

/// Number of first datagrams that fit into one call, and have whole pages of payload that may be
/// read late.
fn fitting(run: &[Outgoing<'_>]) -> usize {
    let page = rustix::param::page_size();
    // A tag and the next head form one piece.
    let mut pieces = 1;
    let fits = |Outgoing { payload, .. }: &&Outgoing<'_>| {
        pieces += payload.len() / page + 1;
        let whole =
            !payload.is_empty() && payload.len() % page == 0 && payload.as_ptr().addr() % page == 0;
        whole && payload.may_be_read_late() && pieces <= PIECES_MAX
    };
    run.iter().take_while(fits).count()
}

/// Pages for heads and tags. Written bytes are never written again, because the network may not
/// have read them yet.
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

    /// Returns the pieces of a run, with heads and tags copied.
    fn pieces(&mut self, run: &[Outgoing<'_>]) -> Option<Pieces> {
        let mut at =
            self.room(run.iter().map(|datagram| datagram.head.len() + datagram.tag.len()).sum())?;
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

    /// Reserves `len` bytes in one page that were never used.
    fn room(&mut self, len: usize) -> Option<usize> {
        let page = rustix::param::page_size();
        if len > page {
            return None;
        }
        if self.used % page + len > page {
            self.used = self.used.next_multiple_of(page);
        }
        if self.used + len > self.pages.len() {
            // The kernel keeps the old pages unchanged while it holds them.
            *self = Heads::new().ok()?;
        }
        let at = self.used;
        self.used += len;
        Some(at)
    }
}
