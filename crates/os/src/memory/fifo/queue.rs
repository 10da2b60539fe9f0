//! The hand-over: Vyukov's bounded queue of many producers and many consumers, over words that
//! anybody may have written.
//!
//! Each slot carries a turn. `turn == position`: free for the producer that claims this position of
//! the tail. `turn == position + 1`: filled, for the consumer that claims this position of the
//! head, which sets it to `position + slots`: free for the next round. Whatever stands there
//! instead was written by somebody who should not have: both sides say so, touch nothing but this
//! queue, and end (MEM-13.4).
//!
//! To tell that from a turn that is merely old, positions are released and acquired, too: who knows
//! one sees no turn from before the one that its slot had when it was claimed one round ago.
//! (Vyukov's own leaves them relaxed; loom found the difference.)

use super::shape::Shape;
use core::sync::atomic::Ordering;

/// A word of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// The next position to be filled.
    Tail,
    /// The next position to be emptied.
    Head,
    /// The turn of the slot of this position.
    Turn(u64),
    /// The length of the element there.
    Length(u64),
}

/// Where a queue lies: memory, or loom's model of it. Orders are those of the memory model.
pub(super) trait Cells {
    fn load(&self, cell: Cell, order: Ordering) -> u64;
    fn store(&self, cell: Cell, value: u64, order: Ordering);
    /// Compare and swap, releasing and acquiring; fails with what is there, acquired.
    fn claim(&self, cell: Cell, old: u64, new: u64) -> Result<(), u64>;
    /// The element at this position becomes these bytes.
    fn write(&self, position: u64, bytes: &[u8]);
    /// Appends so many bytes of the element at this position.
    fn read(&self, position: u64, len: u64, into: &mut Vec<u8>);
}

/// Nothing was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPushed {
    /// No slot is free, or others took each that was.
    Full,
    /// This is no queue any more.
    Destroyed,
}

/// This is no queue any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destroyed;

/// Others may be faster so often before a producer gives up, and a consumer finds nothing: nobody
/// is held up for long by who writes positions all the time.
const TRIES: usize = 1000;

/// Put an element in (of at most the length that the shape permits), behind all that were put in
/// before (MEM-13.2).
pub(super) fn push(queue: &impl Cells, shape: Shape, element: &[u8]) -> Result<(), NotPushed> {
    let mut tail = queue.load(Cell::Tail, Ordering::Acquire);
    for _ in 0..TRIES {
        let turn = queue.load(Cell::Turn(tail), Ordering::Acquire);
        match turn.wrapping_sub(tail).cast_signed() {
            0 => match queue.claim(Cell::Tail, tail, tail.wrapping_add(1)) {
                Ok(()) => {
                    queue.write(tail, element);
                    queue.store(Cell::Length(tail), element.len() as u64, Ordering::Relaxed);
                    queue.store(Cell::Turn(tail), tail.wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            },
            // The element of one round ago is there, or on its way in, or on its way out.
            behind @ ..0 => {
                let before = behind.wrapping_add_unsigned(shape.slots());
                return Err(if (0..=1).contains(&before) {
                    NotPushed::Full
                } else {
                    NotPushed::Destroyed
                });
            }
            // Another producer was faster: then the tail has moved.
            1.. => {
                let now = queue.load(Cell::Tail, Ordering::Acquire);
                if now == tail {
                    return Err(NotPushed::Destroyed);
                }
                tail = now;
            }
        }
    }
    Err(NotPushed::Full)
}

/// Take the oldest element out, appending it; `false`: there is none. (One that is being put in at
/// this moment is there when it is in.)
pub(super) fn pop(queue: &impl Cells, shape: Shape, into: &mut Vec<u8>) -> Result<bool, Destroyed> {
    let mut head = queue.load(Cell::Head, Ordering::Acquire);
    for _ in 0..TRIES {
        let filled = head.wrapping_add(1);
        let turn = queue.load(Cell::Turn(head), Ordering::Acquire);
        match turn.wrapping_sub(filled).cast_signed() {
            0 => match queue.claim(Cell::Head, head, filled) {
                Ok(()) => {
                    let len = queue.load(Cell::Length(head), Ordering::Relaxed);
                    let sound = len <= shape.element();
                    if sound {
                        queue.read(head, len, into);
                    }
                    queue.store(
                        Cell::Turn(head),
                        head.wrapping_add(shape.slots()),
                        Ordering::Release,
                    );
                    return if sound { Ok(true) } else { Err(Destroyed) };
                }
                Err(now) => head = now,
            },
            // Free; or the element of one round ago is still on its way out, to a consumer that
            // takes its time.
            -1 => return Ok(false),
            behind @ ..-1 if behind.wrapping_add_unsigned(shape.slots()) == 0 => return Ok(false),
            ..-1 => return Err(Destroyed),
            // Another consumer was faster: then the head has moved.
            1.. => {
                let now = queue.load(Cell::Head, Ordering::Acquire);
                if now == head {
                    return Err(Destroyed);
                }
                head = now;
            }
        }
    }
    Ok(false)
}
