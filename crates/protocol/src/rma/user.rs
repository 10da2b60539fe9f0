//! The head of a user's message, which alone is of one length always: where a few nanoseconds count
//! it is written and read without the rest.

use super::Kind;

/// Its bytes.
pub const USER_HEAD: usize = 9;

/// As [`super::Operation::User`] is encoded.
#[inline]
#[must_use]
pub const fn user_head(tag: u64) -> [u8; USER_HEAD] {
    let [a, b, c, d, e, f, g, h] = tag.to_le_bytes();
    [Kind::User as u8, a, b, c, d, e, f, g, h]
}

/// The tag in it, if it is one.
#[inline]
#[must_use]
pub const fn user_tag(head: [u8; USER_HEAD]) -> Option<u64> {
    let [kind, a, b, c, d, e, f, g, h] = head;
    if kind == Kind::User as u8 { Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])) } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::{user_head, user_tag};

    /// MEM-2.1.
    #[test]
    fn it_is_what_every_other_way_makes_of_it() {
        for tag in [0, 1, 0x0102_0304_0506_0708, u64::MAX] {
            let head = user_head(tag);
            assert_eq!(Operation::User { tag }.encode()[..], head);
            assert_eq!(user_tag(head), Some(tag));
        }
        for kind in (0..=u8::MAX).filter(|kind| *kind != user_head(0)[0]) {
            assert_eq!(user_tag([kind, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        }
    }
}
