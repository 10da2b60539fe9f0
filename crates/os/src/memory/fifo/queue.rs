//! The queue algorithm: Vyukov's bounded queue of many producers and many consumers, on words that
//! any process may have overwritten.
//!
//! Each slot carries a turn. `turn == position`: free for the producer that claims this position of
//! the tail. `turn == position + 1`: filled, for the consumer that claims this position of the
//! head. The consumer then sets it to `position + slots`: free for the next round. Any other value
//! was written by a process that broke the rules. Both sides report it, touch nothing outside this
//! queue, and return (MEM-13.4).
//!
//! Such a value must not be confused with a turn that is merely old, so positions are released and
//! acquired too. A thread that knows a position sees no turn older than the one that its slot had
//! when claimed one round ago. (Vyukov's own algorithm leaves them relaxed; loom found the
//! difference.)

use super::shape::Shape;
use core::sync::atomic::Ordering;

/// A word of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueWord {
    /// The next position to be filled.
    Tail,
    /// The next position to be emptied.
    Head,
    /// The turn of the slot at this position.
    Turn(u64),
    /// The length of the element at this position.
    Length(u64),
}

/// Memory of a queue, real or modelled by loom. Orders are those of the memory model.
pub(super) trait Cells {
    fn load(&self, cell: QueueWord, order: Ordering) -> u64;
    fn store(&self, cell: QueueWord, value: u64, order: Ordering);
    /// Compares and swaps (acquire and release). On failure, returns the current value, acquired.
    fn claim(&self, cell: QueueWord, old: u64, new: u64) -> Result<(), u64>;
    /// Copies these bytes into the element at this position.
    fn write(&self, position: u64, bytes: &[u8]);
    /// Appends `len` bytes of the element at this position to `into`.
    fn read(&self, position: u64, len: u64, into: &mut Vec<u8>);
}

/// Reason why an element was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPushed {
    /// No slot is free, or other producers took each free one.
    Full,
    /// The queue's words were overwritten.
    Destroyed,
}

/// The queue's words were overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destroyed;

/// Maximum number of attempts. A producer then gives up, and a consumer finds nothing. The limit
/// keeps a process that writes positions all the time from delaying others for long.
const TRIES: usize = 1000;

/// Appends an element of at most the length that the shape permits (MEM-13.2).
pub(super) fn push(queue: &impl Cells, shape: Shape, element: &[u8]) -> Result<(), NotPushed> {
    let mut tail = queue.load(QueueWord::Tail, Ordering::Acquire);
    for _ in 0..TRIES {
        let turn = queue.load(QueueWord::Turn(tail), Ordering::Acquire);
        match turn.wrapping_sub(tail).cast_signed() {
            0 => match queue.claim(QueueWord::Tail, tail, tail.wrapping_add(1)) {
                Ok(()) => {
                    queue.write(tail, element);
                    queue.store(QueueWord::Length(tail), element.len() as u64, Ordering::Relaxed);
                    queue.store(QueueWord::Turn(tail), tail.wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            },
            // The slot's element of one round ago is there, being written, or being read.
            behind @ ..0 => {
                let before = behind.wrapping_add_unsigned(shape.slots());
                return Err(if (0..=1).contains(&before) {
                    NotPushed::Full
                } else {
                    NotPushed::Destroyed
                });
            }
            // Another producer was faster. Then the tail has moved.
            1.. => {
                let now = queue.load(QueueWord::Tail, Ordering::Acquire);
                if now == tail {
                    return Err(NotPushed::Destroyed);
                }
                tail = now;
            }
        }
    }
    Err(NotPushed::Full)
}

/// Returns `true` if there is nothing to pop. Overwritten words count as something, so that [`pop`]
/// reports them.
pub(super) fn is_empty(queue: &impl Cells, shape: Shape) -> bool {
    let mut head = queue.load(QueueWord::Head, Ordering::Acquire);
    for _ in 0..TRIES {
        let turn = queue.load(QueueWord::Turn(head), Ordering::Acquire);
        let behind = turn.wrapping_sub(head.wrapping_add(1)).cast_signed();
        if behind == -1 || (behind < -1 && behind.wrapping_add_unsigned(shape.slots()) == 0) {
            return true;
        }
        let now = queue.load(QueueWord::Head, Ordering::Acquire);
        if now == head {
            return false;
        }
        // Another consumer was faster.
        head = now;
    }
    false
}

/// Removes the oldest element and appends it to `into`. Returns `false` if there is none. (An
/// element that is being pushed counts once its push is complete.)
pub(super) fn pop(queue: &impl Cells, shape: Shape, into: &mut Vec<u8>) -> Result<bool, Destroyed> {
    let mut head = queue.load(QueueWord::Head, Ordering::Acquire);
    for _ in 0..TRIES {
        let filled = head.wrapping_add(1);
        let turn = queue.load(QueueWord::Turn(head), Ordering::Acquire);
        match turn.wrapping_sub(filled).cast_signed() {
            0 => match queue.claim(QueueWord::Head, head, filled) {
                Ok(()) => {
                    let len = queue.load(QueueWord::Length(head), Ordering::Relaxed);
                    let sound = len <= shape.element();
                    if sound {
                        queue.read(head, len, into);
                    }
                    queue.store(
                        QueueWord::Turn(head),
                        head.wrapping_add(shape.slots()),
                        Ordering::Release,
                    );
                    return if sound { Ok(true) } else { Err(Destroyed) };
                }
                Err(now) => head = now,
            },
            // The slot is free, or a slow consumer still reads its element of one round ago.
            -1 => return Ok(false),
            behind @ ..-1 if behind.wrapping_add_unsigned(shape.slots()) == 0 => return Ok(false),
            ..-1 => return Err(Destroyed),
            // Another consumer was faster. Then the head has moved.
            1.. => {
                let now = queue.load(QueueWord::Head, Ordering::Acquire);
                if now == head {
                    return Err(Destroyed);
                }
                head = now;
            }
        }
    }
    Ok(false)
}
