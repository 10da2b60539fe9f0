//! Finds the part of a range that moves as whole huge pages.

use core::ops::Range;

/// Returns the part of two ranges of `len` bytes, at addresses `a` and `b`, in which both have the
/// same whole huge pages of `size` bytes. The part is in bytes from the start, and empty if there
/// are none. Moving the bytes before and after would split huge pages, which costs more than
/// copying.
#[must_use]
pub fn whole(a: usize, b: usize, len: usize, size: usize) -> Range<usize> {
    if !a.abs_diff(b).is_multiple_of(size) {
        return 0..0;
    }
    let first = a.next_multiple_of(size) - a;
    match len.checked_sub(first) {
        Some(rest) if rest >= size => first..first + rest / size * size,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_congruent_pages_are_taken() {
        assert_eq!(whole(0x20_0000, 0x60_0000, 0x40_0000, 0x20_0000), 0..0x40_0000);
        assert_eq!(whole(0x1f_f000, 0x5f_f000, 0x40_0000, 0x20_0000), 0x1000..0x20_1000);
        assert_eq!(whole(0x20_0000, 0x60_1000, 0x40_0000, 0x20_0000), 0..0);
        assert_eq!(whole(0x20_1000, 0x60_1000, 0x20_0000, 0x20_0000), 0..0);
        assert_eq!(whole(0x20_0000, 0x60_0000, 0, 0x20_0000), 0..0);
        assert_eq!(whole(0x20_1000, 0x60_1000, 0x1000, 0x20_0000), 0..0);
    }
}
