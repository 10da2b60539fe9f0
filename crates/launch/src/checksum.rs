//! Coverage of the checksums of a job's datagrams.

use oikaze_protocol::wire::SealKind;
use std::fmt;
use std::str::FromStr;

/// Coverage of the checksum in each datagram. All nodes of a job use the same coverage (WIRE-5.2,
/// WIRE-5.5).
///
/// In text, as in `OIKAZE_CHECKSUM`: `full` or `header`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Covers everything, from the sender's memory to the receiver's, and so finds changes by a
    /// card, a switch or a bus. The default.
    #[default]
    Full,
    /// Covers header and frames only, so that bulk transfer costs less processor time. Payloads are
    /// left to the network cards, as TCP leaves them to a card that computes its checksum. For
    /// networks that are trusted to that point.
    Header,
}

impl Checksum {
    /// Returns the kind as the wire names it.
    #[must_use]
    pub const fn kind(self) -> SealKind {
        match self {
            Self::Full => SealKind::EndToEnd,
            Self::Header => SealKind::HeaderOnly,
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Header => "header",
        })
    }
}

impl FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => Ok(Self::Full),
            "header" => Ok(Self::Header),
            _ => Err(format!("{text:?} is no kind of checksum: full or header")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Checksum;

    #[test]
    fn what_is_written_is_read() {
        for checksum in [Checksum::Full, Checksum::Header] {
            assert_eq!(checksum.to_string().parse(), Ok(checksum));
        }
        assert!("none".parse::<Checksum>().unwrap_err().contains("full or header"));
    }
}
