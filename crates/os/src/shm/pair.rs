//! One side of the memory that two local peers share.

use super::memory::Memory;
use crate::memory::mapping::Mapping;
use crate::memory::{MemoryError, lasting_len, sealed_file};
use crate::shm::control_socket::{ControlSocket, line_pair};
use crate::shm::lease::{Bell, Grants, Mapped, RegionGrant};
use crate::shm::lease_marks::Marks;
use crate::shm::ring::{CHANNEL, Reader, RingView, Writer};
use crate::sync::makes_fences;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;

/// Bytes of the memory: two directions.
const BYTES: usize = 2 * CHANNEL;

/// Role of a process in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairRole {
    /// The process that connected, and made the memory.
    Caller,
    /// The process that accepted, and received the memory.
    Called,
}

/// Creates memory for two local peers, to be sent to the one that accepts.
///
/// # Errors
/// [`MemoryError`].
pub fn shared_memory() -> Result<OwnedFd, MemoryError> {
    sealed_file("oikaze-shm", BYTES)
}

/// Rings to and from a local peer, and the line to it.
#[derive(Debug)]
pub struct Pair {
    /// Ring to the local peer.
    pub outward: Writer,
    /// Ring from the local peer.
    pub inward: Reader,
    /// Carries descriptors and wakeups, and ends with the local peer's process.
    pub line: Arc<ControlSocket>,
    /// Regions of this node that the local peer has mapped.
    pub grants: Grants,
    ours: Memory,
    theirs: Memory,
}

impl Pair {
    /// Maps the memory.
    ///
    /// # Errors
    /// It is not as [`shared_memory`] makes it, so that an access could fail; or it cannot be
    /// mapped.
    pub fn new(memory: &OwnedFd, side: PairRole, line: ControlSocket) -> io::Result<Pair> {
        if lasting_len(memory)? != BYTES as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the memory is of another size",
            ));
        }
        let mapping = Arc::new(Mapping::of_file(memory.as_fd(), BYTES).map_err(io::Error::other)?);
        let half = |at: usize| Memory::new(Arc::clone(&mapping), at * CHANNEL, CHANNEL);
        let (out, inward) = match side {
            PairRole::Caller => (0, 1),
            PairRole::Called => (1, 0),
        };
        let (ours, theirs) = (half(out), half(inward));
        let inward = Reader::new(theirs.clone());
        if makes_fences() {
            inward.make_fences();
        }
        Ok(Pair {
            outward: Writer::new(ours.clone()),
            inward,
            line: Arc::new(line),
            grants: Grants::new(ours.clone()),
            ours,
            theirs,
        })
    }

    /// Maps a region that the local peer has granted.
    ///
    /// # Errors
    /// The memory of the grant cannot be mapped. Then its line is free again.
    pub fn map(&self, grant: &RegionGrant) -> io::Result<Mapped> {
        let bell = Bell { memory: self.ours.clone(), line: Arc::clone(&self.line) };
        Mapped::new(grant, self.theirs.clone(), bell).inspect_err(|_| self.forgo(grant.index))
    }

    /// Gives up the grant in this line, so that the local peer may grant another region there.
    pub fn forgo(&self, index: usize) {
        Marks::new(self.theirs.clone()).drop_line(index);
    }

    /// Returns `true` if the local peer may still access a region, although all were taken back,
    /// with fences made. It was given up in the middle of an access, for example because it was
    /// stopped, and its process still lives (MEM-18.6).
    pub fn is_wedged(&mut self) -> bool {
        self.grants.keep_used() && !self.line.process_has_ended()
    }

    /// Returns a view of the rings for any thread.
    #[must_use]
    pub fn view(&self) -> RingView {
        RingView::new(&self.ours, &self.inward)
    }

    /// Creates both sides, for two engines of one process (tests, examples).
    ///
    /// # Errors
    /// No memory or descriptor for them.
    pub fn both() -> io::Result<(Pair, Pair)> {
        let memory = shared_memory().map_err(io::Error::other)?;
        let (one, other) = line_pair()?;
        Ok((
            Pair::new(&memory, PairRole::Caller, one)?,
            Pair::new(&memory, PairRole::Called, other)?,
        ))
    }

    /// Wakes the local peer if it sleeps. Call this after something was put in or settled.
    pub fn wake(&self) {
        if self.outward.must_wake() {
            self.line.wake();
        }
    }
}

impl AsFd for Pair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}
