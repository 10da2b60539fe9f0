//! The common order of collectives of data and collectives of coherence (COLL-3.9).
//!
//! Both kinds count their calls, so two counts say where a rank is in the sequence of calls of the
//! job. A rank that waits tells the count of the other kind in a notice, which costs nothing while
//! no rank waits for long.

use crate::bytes::{ByteReader, ByteWriter, Invalid};
use alloc::string::String;
use alloc::vec::Vec;

/// Number of calls of each kind that a rank has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Collectives of data in the team of all nodes.
    pub data: u64,
    /// Collectives of coherence (COH-6.1).
    pub coherence: u64,
}

/// Place of a collective of data among the calls of its rank, as a notice tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCallPosition {
    /// Number of the collective in its team.
    pub number: u64,
    /// Number of collectives of coherence that its rank had called before.
    pub after: u64,
}

impl DataCallPosition {
    /// Returns `true` if a rank with these counts calls in another order: it has called the
    /// collective of coherence number `after`, and not yet this collective of data. The caller of
    /// the data collective had called it before that collective of coherence.
    #[must_use]
    pub const fn contradicts(self, counts: CallCounts) -> bool {
        counts.data <= self.number && counts.coherence > self.after
    }
}

/// Part of a rank in a mistake of the order. The mistake uses up one call of each kind, so that the
/// ranks agree on what is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderPart {
    /// The rank has called only the collective of data. The collective fails, and the rank takes
    /// part in the one of coherence only to make it fail.
    JoinCoherence,
    /// The collective of coherence has failed on the rank, which leaves out the one of data.
    SkipData,
    /// The collective of data fails.
    FailData,
}

/// Mistake in the order of calls, as ranks tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderMistake {
    /// Number of collectives of coherence that were called before the collective of data.
    pub after: u64,
    /// Two ranks, and what each calls.
    pub text: String,
}

impl OrderMistake {
    /// Returns what a rank does about the mistake when it calls its next collective of data, or
    /// when the one of data fails that it has called. `counts.data` includes that call.
    /// `failed_coherence` is the count at which its latest collective of coherence failed by
    /// calls that differ, or 0.
    #[must_use]
    pub const fn part(&self, counts: CallCounts, failed_coherence: u64) -> OrderPart {
        if failed_coherence > self.after {
            OrderPart::SkipData
        } else if counts.coherence == self.after {
            OrderPart::JoinCoherence
        } else {
            OrderPart::FailData
        }
    }

    /// Encodes the body of a parcel *disorder* (COLL-1.2).
    #[must_use]
    pub fn encode(&self, text_max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let end = self.text.floor_char_boundary(text_max);
        out.put_u64(self.after).put(self.text.get(..end).unwrap_or_default().as_bytes());
        out
    }

    /// Decodes the body of a parcel *disorder*.
    ///
    /// # Errors
    /// The bytes are no such body.
    pub fn read(bytes: &[u8], text_max: usize) -> Result<OrderMistake, Invalid> {
        let mut reader = ByteReader(bytes);
        let after = reader.u64()?;
        let text = reader.0.get(..text_max).unwrap_or(reader.0);
        Ok(OrderMistake { after, text: String::from_utf8_lossy(text).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A call of a program: `true` is one of data.
    type Program = Vec<bool>;

    fn counts_after(calls: &[bool]) -> CallCounts {
        let data = calls.iter().filter(|is_data| **is_data).count() as u64;
        CallCounts { data, coherence: calls.len() as u64 - data }
    }

    fn programs(len: u32) -> impl Iterator<Item = Program> {
        (0..1_u32 << len).map(move |bits| (0..len).map(|bit| bits >> bit & 1 == 1).collect())
    }

    /// COLL-3.9: two ranks whose calls have one order accuse each other at no point, and two whose
    /// orders differ do so at the first call that differs, whichever has called the one of data.
    #[test]
    fn position_contradicts_exactly_the_calls_of_another_order() {
        for (one, two) in programs(5).flat_map(|one| programs(5).map(move |two| (one.clone(), two)))
        {
            let differs = one.iter().zip(&two).position(|(one, two)| one != two);
            for (at, _) in one.iter().enumerate().filter(|(_, is_data)| **is_data) {
                let before = counts_after(&one[..at]);
                let position = DataCallPosition { number: before.data, after: before.coherence };
                let accused =
                    (0..=two.len()).any(|made| position.contradicts(counts_after(&two[..made])));
                assert!(
                    !accused || differs.is_some_and(|differs| differs <= at),
                    "{one:?} {two:?}"
                );
                if differs == Some(at) {
                    let waits_there = counts_after(&two[..=at]);
                    assert!(position.contradicts(waits_there), "{one:?} {two:?}");
                }
            }
        }
    }

    /// COLL-3.9: after a mistake, all ranks have used up one call of each kind.
    #[test]
    fn mistake_uses_up_one_call_of_each_kind() {
        let mistake = OrderMistake { after: 3, text: String::new() };
        let called = |data, coherence| CallCounts { data, coherence };
        assert_eq!(mistake.part(called(8, 3), 0), OrderPart::JoinCoherence);
        assert_eq!(mistake.part(called(8, 3), 2), OrderPart::JoinCoherence);
        assert_eq!(mistake.part(called(8, 4), 4), OrderPart::SkipData);
        // A rank whose collective of coherence ended well, or took too long, learns of it here.
        assert_eq!(mistake.part(called(8, 4), 0), OrderPart::FailData);
    }

    /// COLL-1.2.
    #[test]
    fn mistake_is_read_as_written() {
        let mistake = OrderMistake { after: 7, text: String::from("rank 0 calls\u{fe}") };
        assert_eq!(OrderMistake::read(&mistake.encode(100), 100), Ok(mistake.clone()));
        let cut = OrderMistake::read(&mistake.encode(13), 100).unwrap();
        assert_eq!(cut.text, "rank 0 calls");
        assert_eq!(OrderMistake::read(&[0; 7], 100), Err(Invalid));
    }
}
