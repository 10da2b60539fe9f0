//! Reserves memory that is about to be taken, among all processes of this machine.
//!
//! A memory file takes its pages one by one. Two nodes that read the same amount of free memory at
//! the same moment both find room, and the kernel kills one of them. A process that takes memory
//! therefore first reserves it in a ledger that the others read (MEM-24.4).
//!
//! The ledger is a set of record locks (`F_OFD_SETLK`) on `/proc/meminfo`, which every process of a
//! container can open. Each reservation is a shared lock on as many bytes as are reserved. The
//! kernel releases the locks when a process ends, however it ends. Where such locks are not
//! available, the free memory is checked but not reserved.

use super::available::memory_left;
use super::error::MemoryError;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// File that carries the locks: every process of a container finds this one.
const LEDGER: &str = "/proc/meminfo";
/// Time between two checks while others take what they have reserved.
const ROOM_RETRY_TIME: Duration = Duration::from_millis(2);
/// Longest wait for others. They zero their memory meanwhile, at some GB per second.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a process that locks the whole ledger. No process needs it for more than some
/// microseconds.
const LEDGER_TIME: Duration = Duration::from_secs(2);
/// Maximum number of reservations read. No machine starts more nodes at once.
const RESERVATIONS_MAX: usize = 1024;
/// Shift for the memory that the kernel needs in addition: page tables of two mappings take a
/// 256th.
const BESIDE_SHIFT: u32 = 8;
const BESIDE_MIN: usize = 1 << 20;

/// A reservation of free memory among processes. Drop it after the bytes have been taken.
#[derive(Debug)]
#[must_use = "the bytes must be taken before this is dropped"]
pub(super) struct Reservation(#[expect(dead_code, reason = "its locks end with it")] Option<File>);

/// Reserves `len` bytes, unless that is clearly more than is available.
pub(super) fn reserve(len: usize) -> Result<Reservation, MemoryError> {
    reserve_of(len, memory_left)
}

fn reserve_of(
    len: usize,
    left: impl Fn() -> Vec<(usize, &'static str)>,
) -> Result<Reservation, MemoryError> {
    let needed = len.saturating_add((len >> BESIDE_SHIFT).max(BESIDE_MIN).min(len));
    let begun = Instant::now();
    let ledger = File::open(LEDGER).ok();
    loop {
        let alone = ledger.as_ref().is_some_and(enter);
        // Any conflicting lock found here is another process's reservation.
        let reserved = ledger.as_ref().map(reserved_by_others).unwrap_or_default();
        let short = left()
            .into_iter()
            .find(|(available, _)| available.saturating_sub(reserved.sum) < needed);
        let (refused, for_good) = match short {
            None => {
                let kept = ledger.filter(|ledger| lock(ledger, reserved.end, len));
                if let Some(ledger) = kept.as_ref().filter(|_| alone) {
                    leave(ledger);
                }
                return Ok(Reservation(kept));
            }
            Some((available, limit)) => {
                let for_good = available < needed;
                let available = available.saturating_sub(reserved.sum).saturating_sub(needed - len);
                (MemoryError::NotAvailable { bytes: len, available, limit }, for_good)
            }
        };
        if let Some(ledger) = ledger.as_ref().filter(|_| alone) {
            leave(ledger);
        }
        // Bytes that others are taking count twice, as reserved and as used. Decide when they have
        // finished.
        if for_good || reserved.sum == 0 || begun.elapsed() > WAIT_MAX {
            return Err(refused);
        }
        std::thread::sleep(ROOM_RETRY_TIME);
    }
}

/// Keeps other processes from reserving. Returns `false` if another process holds the ledger for
/// too long; the caller then proceeds without it.
fn enter(ledger: &File) -> bool {
    let begun = Instant::now();
    while flock(ledger, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begun.elapsed() > LEDGER_TIME {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

fn leave(ledger: &File) {
    // Releasing one's own lock cannot fail.
    let _ = flock(ledger, FlockOperation::Unlock);
}

/// Bytes that others have reserved.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reserved {
    /// Total number of bytes.
    sum: usize,
    /// Offset at which the last of their locks ends.
    end: usize,
}

fn reserved_by_others(ledger: &File) -> Reserved {
    let mut found = Reserved::default();
    // Ranges still to be queried: the kernel reports any one lock in a range, not the first.
    let mut ranges = vec![(0, i64::MAX as usize)];
    for _ in 0..RESERVATIONS_MAX {
        let Some((start, end)) = ranges.pop() else { break };
        let Some((at, until)) = lock_of_another(ledger, start, end) else { continue };
        // Adjacent locks may be reported as one, and overlapping ones not at all. Locks do not
        // overlap here (`reserve_of`).
        found.sum = found.sum.saturating_add(until.min(end) - at.max(start));
        found.end = found.end.max(until);
        ranges.extend([(start, at), (until, end)].into_iter().filter(|(start, end)| start < end));
    }
    found
}

/// Returns the start and end of a lock within this range that another open file holds.
fn lock_of_another(ledger: &File, start: usize, end: usize) -> Option<(usize, usize)> {
    let mut lock = record(libc::F_WRLCK, start, end - start);
    // SAFETY: the kernel reads and writes the record, which lives for the call.
    let asked = unsafe { libc::fcntl(ledger.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    if asked != 0 || i32::from(lock.l_type) == libc::F_UNLCK {
        return None;
    }
    let at = usize::try_from(lock.l_start).ok()?;
    // Length 0 means to the end of all files.
    let len =
        usize::try_from(lock.l_len).ok().filter(|len| *len > 0).unwrap_or(i64::MAX as usize - at);
    Some((at, at.saturating_add(len)))
}

/// Adds a reservation of `len` bytes at `at` to the ledger.
fn lock(ledger: &File, at: usize, len: usize) -> bool {
    let lock = record(libc::F_RDLCK, at, len);
    // SAFETY: the kernel reads the record, which lives for the call.
    len > 0 && unsafe { libc::fcntl(ledger.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0
}

fn record(kind: libc::c_int, at: usize, len: usize) -> libc::flock {
    // SAFETY: plain data. Zeros are a record from the start of the file, and the process number
    // that OFD locks want.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = at as libc::off_t;
    record.l_len = len as libc::off_t;
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: &str = "a limit of the test";
    const MANY: usize = 1 << 40;

    /// MEM-24.4: of several processes that reserve at the same moment, only as many succeed as
    /// there is room for. A check without reservation finds room for all.
    #[test]
    fn room_reserved_at_one_moment_is_given_once() {
        // Large enough that reservations of other tests do not matter.
        let (taken, together, given) = (AtomicUsize::new(0), Barrier::new(4), AtomicUsize::new(0));
        let left = || vec![(5 * MANY / 2 - taken.load(Ordering::SeqCst), LIMIT)];
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    together.wait();
                    if let Ok(reservation) = reserve_of(MANY, left) {
                        given.fetch_add(1, Ordering::SeqCst);
                        // Taken before the reservation ends, as with a memory file.
                        taken.fetch_add(MANY, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        assert_eq!(given.into_inner(), 2);
    }

    /// MEM-24.4: a request above the limit fails at once, with the numbers.
    #[test]
    fn room_beyond_the_limit_is_refused() {
        let refused = reserve_of(2 * MANY, || vec![(MANY, LIMIT)]).unwrap_err();
        let MemoryError::NotAvailable { bytes, available, limit } = refused else {
            panic!("{refused}")
        };
        assert!((bytes, limit) == (2 * MANY, LIMIT) && available <= MANY, "{available}");
        assert!(available > MANY / 2, "{available}");
    }

    #[test]
    fn reservations_are_seen_by_others_and_end_with_their_file() {
        let (mine, theirs) = (File::open(LEDGER).unwrap(), File::open(LEDGER).unwrap());
        let base = 1 << 50;
        assert!(lock(&theirs, base, 1000) && lock(&theirs, base + 5000, 24));
        let seen = reserved_by_others(&mine);
        assert!(seen.sum >= 1024 && seen.end >= base + 5024, "{seen:?}");
        drop(theirs);
        assert!(lock_of_another(&mine, base, base + 10_000).is_none());
    }
}
