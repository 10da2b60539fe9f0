//! Protection of a job's datagrams on their way.

use oikaze_protocol::wire::SealKind;
use std::fmt;
use std::str::FromStr;

/// Protection of datagrams between machines (SEAL-1, WIRE-5.5). All nodes of a job use the same.
/// Local peers share memory, in which nothing is sealed.
///
/// In text, as in `OIKAZE_SEAL`: `full`, `integrity`, `crc` or `header`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Seal {
    /// Encrypted and authenticated: nobody on the way reads or changes anything. The default.
    #[default]
    Full,
    /// Authenticated: nobody on the way changes anything, but everybody there can read.
    Integrity,
    /// A checksum over everything, from the sender's memory to the receiver's, which finds changes
    /// by a card, a switch or a bus. For networks on which nobody is hostile.
    Crc,
    /// A checksum over headers only, so that bulk transfer costs less processor time. Payloads are
    /// left to the network cards, as TCP leaves them to a card that computes its checksum. For
    /// networks on which nobody is hostile, and which are trusted to that point.
    Header,
}

impl Seal {
    /// All of them, the strongest first.
    pub const ALL: [Seal; 4] = [Seal::Full, Seal::Integrity, Seal::Crc, Seal::Header];

    /// Returns the kind as the wire names it.
    #[must_use]
    pub const fn kind(self) -> SealKind {
        match self {
            Self::Full => SealKind::Encrypted,
            Self::Integrity => SealKind::Authenticated,
            Self::Crc => SealKind::EndToEnd,
            Self::Header => SealKind::HeaderOnly,
        }
    }

    /// Returns the word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Integrity => "integrity",
            Self::Crc => "crc",
            Self::Header => "header",
        }
    }

    /// Returns what others on the network can do, or `None` if they can do nothing.
    #[must_use]
    pub const fn weakness(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::Integrity => Some("whoever sees its traffic can read it"),
            Self::Crc | Self::Header => Some("whoever sees its traffic can read and change it"),
        }
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Seal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Seal::ALL
            .into_iter()
            .find(|seal| seal.name() == text)
            .ok_or_else(|| format!("{text:?} is not a seal: use full, integrity, crc or header"))
    }
}

#[cfg(test)]
mod tests {
    use super::Seal;

    #[test]
    fn what_is_written_is_read() {
        for seal in Seal::ALL {
            assert_eq!(seal.to_string().parse(), Ok(seal));
        }
        assert!("none".parse::<Seal>().unwrap_err().contains("full, integrity, crc or header"));
    }
}
