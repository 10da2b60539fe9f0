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

use crate::kernel_version::kernel_version;
use crate::memory::mapping::Mapping;
use crate::net::datagram::Outgoing;
use crate::net::statistics::Offload;
use crate::net::udp::recv::last_error;
use crate::net::udp::send::{Pieces, Sent, uninterrupted};
use crate::net::udp::sockets::socket::Socket;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

/// Maximum number of pieces in one call (fs/splice.c: `splice_to_socket`), and in one buffer of the
/// network (`MAX_SKB_FRAGS`, less its first).
const PIECES_MAX: usize = 16;
/// Minimum number of datagrams in a call. With fewer, copies are faster.
const SPLICED_DATAGRAMS_MIN: usize = 4;
/// Bytes for heads, until their pages are replaced by new ones.
pub(super) const HEADS_BYTES: usize = 1 << 20;

/// Refusals in a row after which splicing is given up.
const FAILURES_MAX: u32 = 8;
/// Oldest Linux version that is used. Before it, the network takes pieces one by one, each a
/// datagram where the family is IPv6, and reports less than it has sent (`sendpage`).
const LINUX_VERSION_MIN: (u32, u32) = (6, 5);

/// Pipe through which payloads go to sockets.
#[derive(Debug)]
pub(super) struct SplicePipe {
    /// Reading and writing end; the pipe is empty between calls.
    pub(super) ends: (OwnedFd, OwnedFd),
    pub(super) heads: HeadPages,
    failures: u32,
    sent: u64,
}

/// Outcome for datagrams that are suitable by their form.
pub(super) enum Spliced {
    /// They were tried, with this outcome: whole, no room, or too big.
    Sent(Sent),
    /// They cannot be spliced now.
    Unfit,
    /// They have to be copied. The copy tells whether the datagrams or splicing caused the refusal.
    Refused,
}

impl SplicePipe {
    pub(super) fn open() -> Result<SplicePipe, Errno> {
        if kernel_version().is_none_or(|version| version < LINUX_VERSION_MIN) {
            return Err(Errno::NOSYS);
        }
        Ok(SplicePipe {
            ends: pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
            heads: HeadPages::new()?,
            failures: 0,
            sent: 0,
        })
    }

    /// Reports whether splicing is still used.
    pub(super) fn state(&self) -> Offload {
        if self.failures < FAILURES_MAX { Offload::On } else { Offload::Refused }
    }

    /// Returns the number of spliced datagrams.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends datagrams, all of which are [`spliceable`], to the peer of a connected socket.
    pub(super) fn send(&mut self, socket: &mut Socket, run: &[Outgoing<'_>]) -> Spliced {
        let Some(first) = run.first() else { return Spliced::Unfit };
        if self.state() != Offload::On || !socket.gso || socket.segment(first.len()).is_err() {
            return Spliced::Unfit;
        }
        let total = run.iter().map(Outgoing::len).sum();
        let Some(pieces) = self.heads.pieces(run) else { return Spliced::Unfit };
        if self.fill(&pieces) != Ok(total) {
            // The pipe has less than the usual room, or the memory is gone.
            self.empty();
            return Spliced::Refused;
        }
        let sent = uninterrupted(|| {
            match splice(&self.ends.0, None, &socket.fd, None, total, SpliceFlags::NONBLOCK) {
                Ok(less) if less != total => Err(Errno::IO),
                done => done,
            }
        });
        if matches!(sent, Sent::Whole) {
            self.sent += run.len() as u64;
            self.failures = 0;
            return Spliced::Sent(sent);
        }
        self.empty();
        match sent {
            Sent::Unfit | Sent::Broken(_) => Spliced::Refused,
            // The error is most likely about an earlier datagram, and says nothing against
            // splicing.
            Sent::Unreachable => Spliced::Unfit,
            sent => Spliced::Sent(sent),
        }
    }

    /// Counts a splice that was refused although a copy was not.
    pub(super) fn refused(&mut self) {
        self.failures += 1;
    }

    /// Empties the pipe, so that unsent bytes do not precede what is sent next.
    fn empty(&self) {
        let mut bytes = [0; 1 << 12];
        while let Ok(1..) = rustix::io::read(&self.ends.0, &mut bytes) {}
    }

    /// Puts pieces into the pipe, and returns their bytes.
    pub(super) fn fill(&self, pieces: &Pieces) -> Result<usize, Errno> {
        // SAFETY: the pieces lead to pages of `heads`, written once, and to bytes that the gathers
        // of a run keep in place until they are part of the pipe; from then on the kernel holds
        // their pages, and only reads them.
        let taken = unsafe {
            libc::vmsplice(
                self.ends.1.as_raw_fd(),
                pieces.as_ptr(),
                pieces.count(),
                libc::SPLICE_F_NONBLOCK,
            )
        };
        usize::try_from(taken).map_err(|_| last_error())
    }
}

/// Returns `true` if the payload of a datagram is whole pages that may be read late.
pub(super) fn is_whole_pages(datagram: &Outgoing<'_>) -> bool {
    let (payload, page) = (datagram.payload, rustix::param::page_size());
    // A page is a power of two bytes long.
    !payload.is_empty()
        && (payload.len() | payload.as_ptr().addr()) & (page - 1) == 0
        && payload.may_be_read_late()
}

/// Returns the first datagrams of a run that can be spliced with one call, if there are enough.
pub(super) fn spliceable<'r, 'a>(run: &'r [Outgoing<'a>]) -> Option<&'r [Outgoing<'a>]> {
    let page = rustix::param::page_size();
    // A tag and the next head form one piece.
    let mut pieces = 1;
    let fits = |datagram: &&Outgoing<'_>| {
        pieces += datagram.payload.len() / page + 1;
        is_whole_pages(datagram) && pieces <= PIECES_MAX
    };
    run.get(..run.iter().take_while(fits).count()).filter(|run| run.len() >= SPLICED_DATAGRAMS_MIN)
}

/// Pages for heads and tags. Written bytes are never written again, because the network may not
/// have read them yet.
#[derive(Debug)]
pub(super) struct HeadPages {
    pages: Mapping,
    pub(super) used: usize,
}

impl HeadPages {
    fn new() -> Result<HeadPages, Errno> {
        let pages = Mapping::anonymous(HEADS_BYTES).map_err(|_| Errno::NOMEM)?;
        Ok(HeadPages { pages, used: 0 })
    }

    /// Returns the pieces of a run, with heads and tags copied.
    pub(super) fn pieces(&mut self, run: &[Outgoing<'_>]) -> Option<Pieces> {
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
            *self = HeadPages::new().ok()?;
        }
        let at = self.used;
        self.used += len;
        Some(at)
    }
}
