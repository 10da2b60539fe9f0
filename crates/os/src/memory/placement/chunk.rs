//! One step of an exchange or transfer: a few MiB, moved or copied.

use super::copy;
use super::mover::Mover;
use super::mover::Placed;
use core::ptr::NonNull;

/// Kind of operation on two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Both contents are kept.
    Exchange,
    /// Only the source's content is kept.
    Transfer,
}

/// Parameters of a step that moves pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves<'m> {
    pub mover: &'m Mover,
    /// Both ranges consist of whole huge pages.
    pub huge: bool,
    /// Exchange pages with a destination that is found full; otherwise copy.
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

/// Moves pages into an empty destination. A full destination is not emptied first: freeing its
/// pages costs more than moving them to the source, where later touches would have to fault new
/// pages in.
///
/// # Safety
/// As [`run`] with a mover.
unsafe fn transfer(moves: Moves<'_>, to: NonNull<u8>, from: NonNull<u8>, len: usize) -> Placed {
    // SAFETY: the caller vouches.
    let done = unsafe { moves.mover.carry_into_empty(to, from, len) };
    let mut placed = Placed { moved: done as u64, copied: 0 };
    if done < len {
        // SAFETY: the caller vouches for both ranges, which contain these parts.
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
