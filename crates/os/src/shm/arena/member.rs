//! One node's side of an arena.

use super::words::{CallWay, MEMBERS_MAX, Words, len_of};
use crate::memory::mapping::Mapping;
use crate::memory::{MemoryError, lasting_len, sealed_file};
use crate::shm::control_socket::ControlSocket;
use crate::shm::memory::Memory;
use oikaze_protocol::Rank;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Returns the bytes of an arena: whole pages.
fn bytes_of(members: u32) -> usize {
    len_of((members as usize).min(MEMBERS_MAX)).next_multiple_of(4096)
}

/// Creates the memory of an arena, to be sent to all `members`.
///
/// # Errors
/// [`MemoryError`].
pub fn arena_memory(members: u32) -> Result<OwnedFd, MemoryError> {
    sealed_file("oikaze-arena", bytes_of(members))
}

/// One node's side of an arena. Members are the ranks of a job, from 0 on.
#[derive(Debug)]
pub struct Arena {
    words: Words,
    members: u32,
    /// Control sockets to the other members, by which sleepers are woken.
    lines: BTreeMap<Rank, Arc<ControlSocket>>,
}

impl Arena {
    /// Maps the memory of a job of `members` nodes, of which this one has rank `me`. `lines` are
    /// the control sockets to the others.
    ///
    /// # Errors
    /// The memory is not as [`arena_memory`] makes it; it cannot be mapped; or there are more than
    /// [`MEMBERS_MAX`] members.
    pub fn new(
        memory: &OwnedFd,
        me: Rank,
        members: u32,
        lines: BTreeMap<Rank, Arc<ControlSocket>>,
    ) -> io::Result<Arena> {
        let invalid = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let bytes = bytes_of(members);
        if lasting_len(memory)? != bytes as u64 {
            return Err(invalid("the memory is of another size"));
        }
        if members as usize > MEMBERS_MAX || me >= members {
            return Err(invalid("the job has more nodes than an arena has room for"));
        }
        let mapping = Arc::new(Mapping::of_file(memory.as_fd(), bytes).map_err(io::Error::other)?);
        let words = Words::new(Memory::new(mapping, 0, bytes), me as usize, members as usize);
        Ok(Arena { words, members, lines })
    }

    fn wake(&self, sleepers: u64) {
        if sleepers != 0 {
            self.wake_sleepers(sleepers);
        }
    }

    #[cold]
    fn wake_sleepers(&self, sleepers: u64) {
        for (rank, line) in &self.lines {
            if sleepers >> rank & 1 != 0 {
                line.wake();
            }
        }
    }

    /// Comes to call `number`, and wakes the members that sleep. Calls are numbered from 1. All
    /// members have come to the call before ([`Arena::have_all_come`]). `for_engines` says that
    /// this node has something to tell, so that the call is for the engines.
    #[inline]
    pub fn come(&self, number: u64, for_engines: bool) {
        self.wake(self.words.come(number, for_engines));
    }

    /// Returns the way of call `number`, to which this node has come without anything to tell, as
    /// soon as one short look shows it.
    #[inline]
    #[must_use]
    pub fn poll(&self, number: u64) -> Option<CallWay> {
        self.words.poll(number)
    }

    /// Returns the way of call `number` as [`Arena::poll`] does, from the words of all members.
    #[must_use]
    pub fn way(&self, number: u64) -> Option<CallWay> {
        self.words.way(number)
    }

    /// Returns `true` if all members have come to call `number`.
    #[must_use]
    pub fn have_all_come(&self, number: u64) -> bool {
        (0..self.members).all(|rank| self.has_come(rank, number))
    }

    /// Returns `true` if this member has come to call `number`.
    #[must_use]
    pub fn has_come(&self, rank: Rank, number: u64) -> bool {
        self.words.has_come(rank as usize, number)
    }

    /// Returns the members that have not come to the latest call of any member, and those that
    /// have, in rank order.
    #[must_use]
    pub fn late_and_come(&self) -> (Vec<Rank>, Vec<Rank>) {
        let latest = self.words.latest();
        (0..self.members).partition(|rank| !self.has_come(*rank, latest))
    }

    /// Announces that this node may sleep while it waits for call `number`. Returns `true` if it
    /// must look again instead.
    #[must_use]
    pub fn fall_asleep(&self, number: u64) -> bool {
        self.words.fall_asleep();
        self.way(number).is_some() || self.has_failed()
    }

    /// Notes that this node takes part in no call any more, and wakes the members that sleep.
    pub fn fail(&self) {
        self.wake(self.words.fail());
    }

    /// Returns `true` if another member takes part in no call any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.words.has_failed()
    }
}
