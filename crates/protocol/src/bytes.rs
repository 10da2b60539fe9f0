//! The one reader and writer of every wire format: little-endian numbers, LEB128 numbers, and
//! numbers of enums.

use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// Error for bytes that end too early or have no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes end too early or have no meaning")]
pub struct Invalid;

/// Bytes that are left to read. Every method fails when the bytes do not suffice. Fields that
/// always come together are best read from the [`array`](Self::array) that holds them, so that its
/// length is checked once.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(pub &'a [u8]);

#[allow(clippy::missing_errors_doc, reason = "stated once, for the whole type")]
impl<'a> ByteReader<'a> {
    /// Reads `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Invalid)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Invalid> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads 2 bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Invalid> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Invalid> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads 8 bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Invalid> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads one byte that stands for a variant.
    #[inline]
    pub fn code<T>(&mut self, from_code: impl Fn(u8) -> Option<T>) -> Result<T, Invalid> {
        from_code(self.u8()?).ok_or(Invalid)
    }

    /// Reads `len` bytes without copying them.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Invalid> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(Invalid)?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads reserved bytes, which must be there and must be zero.
    #[inline]
    pub fn zeros<const N: usize>(&mut self) -> Result<(), Invalid> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(Invalid) }
    }

    /// Reads an unsigned LEB128 number. Numbers beyond 64 bits are invalid.
    #[inline]
    pub fn leb128(&mut self) -> Result<u64, Invalid> {
        match self.0 {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_leb128(),
        }
    }

    fn long_leb128(&mut self) -> Result<u64, Invalid> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Invalid);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Invalid)
    }

    /// Reads an unsigned LEB128 number of at most 32 bits.
    #[inline]
    pub fn leb128_u32(&mut self) -> Result<u32, Invalid> {
        u32::try_from(self.leb128()?).map_err(|_| Invalid)
    }

    /// Reads a count, in LEB128, of items of at least `each` bytes that must still be there. So a
    /// false count allocates nothing.
    #[inline]
    pub fn count(&mut self, each: usize) -> Result<usize, Invalid> {
        let count = usize::try_from(self.leb128()?).map_err(|_| Invalid)?;
        let bytes = count.checked_mul(each).ok_or(Invalid)?;
        if bytes <= self.0.len() { Ok(count) } else { Err(Invalid) }
    }

    /// Reads bytes behind their length in LEB128.
    pub fn prefixed(&mut self) -> Result<&'a [u8], Invalid> {
        let len = self.count(1)?;
        self.take(len)
    }

    /// Checks that no bytes are left over.
    #[inline]
    pub fn end(&self) -> Result<(), Invalid> {
        if self.0.is_empty() { Ok(()) } else { Err(Invalid) }
    }
}

/// Appends what [`ByteReader`] reads.
pub trait ByteWriter {
    /// Appends bytes without their length.
    fn put(&mut self, bytes: &[u8]) -> &mut Self;

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    /// Appends 2 bytes.
    fn put_u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// Appends 4 bytes.
    fn put_u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// Appends 8 bytes.
    fn put_u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// Appends an unsigned LEB128 number: seven bits a byte, lowest first.
    fn put_leb128(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8)
    }

    /// Appends bytes behind their length in LEB128.
    fn put_prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.put_leb128(bytes.len() as u64).put(bytes)
    }
}

impl ByteWriter for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }

    #[inline]
    fn put_u8(&mut self, value: u8) -> &mut Self {
        self.push(value);
        self
    }
}

/// Writes a part of limited length. The caller's limit proves that nothing is cut off.
impl<const N: usize> ByteWriter for ArrayVec<u8, N> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let fits = self.try_extend_from_slice(bytes);
        debug_assert!(fits.is_ok(), "the buffer is shorter than what it must hold");
        self
    }
}
