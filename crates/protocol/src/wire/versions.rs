//! Versions of the wire format (WIRE-6). Two nodes use the highest version that both speak.

use crate::limits::{WIRE_VERSION, WIRE_VERSION_MIN};
use core::fmt;

/// Versions of the wire format that a node speaks, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// Lowest version that the node speaks.
    pub lowest: u16,
    /// Highest version. A range whose highest version is below its lowest one is empty.
    pub highest: u16,
}

impl Versions {
    /// Versions that this program speaks.
    pub const SPOKEN: Versions = Versions { lowest: WIRE_VERSION_MIN, highest: WIRE_VERSION };

    /// Makes the range that a message tells. `highest` is 0 if the sender speaks one version, or
    /// does not know that there can be more (WIRE-6.3).
    pub(super) const fn told(lowest: u16, highest: u16) -> Versions {
        Versions { lowest, highest: if highest == 0 { lowest } else { highest } }
    }

    /// Returns the highest version that both speak (WIRE-6.4).
    #[must_use]
    pub fn common(self, other: Versions) -> Option<u16> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then_some(highest)
    }

    /// Returns the range as REFUSE tells it: the highest version in bits 16 to 31, or 0 there for
    /// one version.
    pub(crate) fn word(self) -> u64 {
        let highest = if self.highest == self.lowest { 0 } else { self.highest };
        u64::from(self.lowest) | u64::from(highest) << 16
    }

    /// Returns the range that a REFUSE tells.
    pub(crate) fn from_word(word: u64) -> Versions {
        // A peer may say anything. Further bits mean nothing.
        let part = |at: u32| (word >> at & 0xffff) as u16;
        Versions::told(part(0), part(16))
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { lowest, highest } = self;
        if lowest == highest { write!(f, "{lowest}") } else { write!(f, "{lowest} to {highest}") }
    }
}

#[cfg(test)]
mod tests {
    use super::Versions;
    use std::string::ToString;

    const fn range(lowest: u16, highest: u16) -> Versions {
        Versions { lowest, highest }
    }

    /// WIRE-6.4: both ends find the same version, and an empty range has none in common with any.
    #[test]
    fn two_ranges_have_the_highest_common_version() {
        let all = [range(11, 11), range(11, 13), range(12, 12), range(12, 14), range(14, 15)];
        let common = [
            [Some(11), Some(11), None, None, None],
            [Some(11), Some(13), Some(12), Some(13), None],
            [None, Some(12), Some(12), Some(12), None],
            [None, Some(13), Some(12), Some(14), Some(14)],
            [None, None, None, Some(14), Some(15)],
        ];
        for (one, row) in all.iter().zip(common) {
            assert_eq!(all.map(|other| one.common(other)), row, "{one}");
        }
        for other in all {
            assert_eq!(range(14, 11).common(other), None);
            assert_eq!(other.common(range(14, 11)), None);
            assert_eq!(range(u16::MAX, 1).common(other), None);
        }
    }

    /// WIRE-6.3, WIRE-4.9: a node that knows no ranges reads and tells one version.
    #[test]
    fn refusals_tell_ranges_beside_single_versions() {
        assert_eq!(range(11, 11).word(), 11);
        assert_eq!(Versions::from_word(10), range(10, 10));
        for known in [range(11, 11), range(11, 13), range(14, 11), range(u16::MAX, u16::MAX)] {
            assert_eq!(Versions::from_word(known.word()), known);
        }
        assert_eq!(
            [range(11, 11), range(11, 13)].map(|known| known.to_string()),
            ["11", "11 to 13"]
        );
    }
}
