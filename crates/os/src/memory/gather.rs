//! Bytes of a region to be sent by an iovec.

use super::region::access::Hold;
use core::ptr::NonNull;

/// Checked bytes of a region, which stay in place for as long as the `Gather` lives. A link gathers
/// a datagram's payload from these bytes.
///
/// Keep a `Gather` only briefly. A scope that lent the memory waits until the `Gather` is dropped.
#[derive(Debug)]
pub struct Gather {
    at: NonNull<u8>,
    len: usize,
    hold: Option<Hold>,
}

// SAFETY: the bytes stay valid while `hold` lives, on any thread; they are only read.
unsafe impl Send for Gather {}
// SAFETY: as above.
unsafe impl Sync for Gather {}

impl Gather {
    /// A gather of no bytes.
    pub const EMPTY: Gather = Gather { at: NonNull::dangling(), len: 0, hold: None };

    /// Wraps `len` bytes at `at`, valid while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Gather {
        Gather { at, len, hold: Some(hold) }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if the network may still read the bytes after the `Gather` is dropped,
    /// whatever the bytes contain by then (WIND-5.5). That excludes lent memory, which must not be
    /// read after its scope. It also excludes pages of a shared array, which its home writes at any
    /// time.
    #[must_use]
    pub fn may_be_read_late(&self) -> bool {
        self.hold.as_ref().is_some_and(Hold::may_be_read_late)
    }

    /// Returns the address for an iovec. The address must not be used after the `Gather` is
    /// dropped.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        debug_assert!(self.hold.is_some() || self.len == 0);
        self.at.as_ptr()
    }

    /// Calls `look` with the bytes, for a checksum or a simulated wire. If the bytes change
    /// meanwhile, checksum and payload may not match, and the receiver drops the datagram. The
    /// retransmission is made from a copy that nobody changes (WIND-5.5).
    pub fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: valid for `len` bytes while `self` lives (an empty one dangles but is aligned);
        // bytes have no invalid values. A writer races with `look`, as it would with the kernel's
        // copy.
        look(unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) })
    }

    /// Appends the bytes to `into`.
    pub fn append_to(&self, into: &mut Vec<u8>) {
        into.reserve(self.len);
        // SAFETY: room for `len` bytes was just made; the source is valid while `self` lives, and a
        // vector overlaps no region. Afterwards the first `len` bytes behind the old length are
        // initialized.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.at.as_ptr(),
                into.as_mut_ptr().add(into.len()),
                self.len,
            );
            into.set_len(into.len() + self.len);
        }
    }
}

impl Default for Gather {
    fn default() -> Gather {
        Gather::EMPTY
    }
}
