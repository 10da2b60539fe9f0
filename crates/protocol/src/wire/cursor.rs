//! Little-endian reading that cannot run past the end, and writing into a vector.

use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// Bytes that are left to read. Every method returns `None` when the bytes do not suffice. Fields
/// that always come together are best read from the [`array`](Self::array) that holds them, so that
/// its length is checked once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    /// Reads reserved bytes, which must be there and must be zero.
    pub fn zeros<const N: usize>(&mut self) -> Option<()> {
        (self.array::<N>()? == [0; N]).then_some(())
    }
}

/// Appends little-endian numbers.
pub(super) trait Write {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

impl Write for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes a part of fixed length, which is then appended to the buffer at once.
impl<const N: usize> Write for ArrayVec<u8, N> {
    fn put(&mut self, bytes: &[u8]) {
        let fits = self.try_extend_from_slice(bytes);
        debug_assert!(fits.is_ok(), "the room is that of the fixed part");
    }
}
