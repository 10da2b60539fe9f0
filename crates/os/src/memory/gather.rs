//! Bytes of a region on their way into an iovec.

use super::region::Hold;
use core::ptr::NonNull;

/// Checked bytes of a region that stay in place for as long as this lives: what a link gathers a
/// datagram's payload from.
///
/// Short-lived: a scope that lent the memory waits for it.
#[derive(Debug)]
pub struct Gather {
    at: NonNull<u8>,
    len: usize,
    hold: Option<Hold>,
}

// SAFETY: the bytes stay valid while `hold` lives, on whatever thread; they are only read.
unsafe impl Send for Gather {}
// SAFETY: as above.
unsafe impl Sync for Gather {}

impl Gather {
    /// Nothing.
    pub const EMPTY: Gather = Gather { at: NonNull::dangling(), len: 0, hold: None };

    /// `len` bytes at `at`, valid while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Gather {
        Gather { at, len, hold: Some(hold) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// May the network read the bytes after this is gone, whatever they are by then (WIND-5.5)? Not
    /// what is lent, whose scope's end is to be the end of that, nor pages of a shared array, which
    /// its home writes at any time.
    #[must_use]
    pub fn may_be_read_late(&self) -> bool {
        self.hold.as_ref().is_some_and(Hold::may_be_read_late)
    }

    /// Address for an iovec. Not to be used after this value is gone.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        debug_assert!(self.hold.is_some() || self.len == 0);
        self.at.as_ptr()
    }

    /// Look at the bytes, for a checksum or a simulated wire. Should somebody change them
    /// meanwhile, the checksum is of some mixture, the datagram is dropped by its receiver, and the
    /// source is read again, into a copy that nobody changes (WIND-5.5).
    pub fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: valid for `len` bytes while `self` lives (an empty one dangles but is aligned);
        // bytes have no invalid values. A writer races with `look`, as it would with the kernel's
        // copy.
        look(unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) })
    }

    /// Append the bytes to `into`.
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
