//! One step: a few MiB, by one way.

use super::mover::Mover;
use super::{Placed, copy};
use core::ptr::NonNull;

/// What is done with two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Both contents are kept.
    Exchange,
    /// One is.
    Transfer,
}

/// What moves the pages of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves<'m> {
    pub mover: &'m Mover,
    /// Both ranges consist of whole huge pages.
    pub huge: bool,
    /// If the destination of a transfer is found full: exchange pages with it; else copy.
    pub take_by_exchange: bool,
}

/// # Safety
/// `len` bytes at both places are mapped, writable, held, and apart, without references to them;
/// with a mover they are whole pages of private regions that it watches.
pub(super) unsafe fn run(
    act: Act,
    moves: Option<Moves<'_>>,
    to: NonNull<u8>,
    from: NonNull<u8>,
    len: usize,
) -> Placed {
    match (act, moves) {
        // SAFETY: the caller vouches.
        (Act::Exchange, Some(moves)) => unsafe { moves.mover.exchange(to, from, len, moves.huge) },
        // SAFETY: the caller vouches.
        (Act::Exchange, None) => unsafe { copy::exchange(to, from, len) },
        // SAFETY: the caller vouches.
        (Act::Transfer, Some(moves)) => unsafe { transfer(moves, to, from, len) },
        // SAFETY: the caller vouches.
        (Act::Transfer, None) => unsafe { copy::copy(to, from, len) },
    }
}

/// Into an empty place pages are moved. A full one is not emptied first: giving its pages back
/// costs more than to move them to where the new ones come from, and those would have to be found
/// again by page faults.
///
/// # Safety
/// As [`run`] with a mover.
unsafe fn transfer(moves: Moves<'_>, to: NonNull<u8>, from: NonNull<u8>, len: usize) -> Placed {
    // SAFETY: the caller vouches.
    let done = unsafe { moves.mover.carry_into_empty(to, from, len) };
    let mut placed = Placed { moved: done as u64, copied: 0 };
    if done < len {
        // SAFETY: the caller vouches for both ranges, inside which this is.
        placed += unsafe {
            let (to, from, rest) = (to.add(done), from.add(done), len - done);
            if moves.take_by_exchange {
                moves.mover.exchange(to, from, rest, moves.huge)
            } else {
                copy::copy(to, from, rest)
            }
        };
    }
    placed
}
