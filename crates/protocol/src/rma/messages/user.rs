//! Head of a user's message, the only head of constant length. Fast paths read and write it without
//! the rest, where a few nanoseconds count.

use crate::rma::messages::kind::MessageKind;

/// Length of the head in bytes.
pub const USER_HEAD: usize = 9;

/// Encodes the head as [`crate::rma::Operation::User`] does.
#[inline]
#[must_use]
pub const fn user_head(tag: u64) -> [u8; USER_HEAD] {
    let [a, b, c, d, e, f, g, h] = tag.to_le_bytes();
    [MessageKind::User as u8, a, b, c, d, e, f, g, h]
}

/// Returns the tag of a user's head, or `None` if it is another head.
#[inline]
#[must_use]
pub const fn user_tag(head: [u8; USER_HEAD]) -> Option<u64> {
    let [kind, a, b, c, d, e, f, g, h] = head;
    if kind == MessageKind::User as u8 {
        Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{user_head, user_tag};
    use crate::rma::Operation;

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
