//! Operations on elements at their home (COH-12.1): their codes, and what each does to bytes.

use crate::rma::{Accumulation, Combine, NumberKind, Width};
use crate::wind::Refusal;
use alloc::vec::Vec;

/// Operation on elements at their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum TargetOp {
    /// Reads bytes of the array.
    Read,
    /// Writes bytes of the array.
    Write,
    /// Combines each element with an operand. The result is the elements from before.
    Combine(Accumulation),
    /// As *combine*, without a result.
    Accumulate(Accumulation),
    /// Replaces an element by the second operand if it is equal to the first one. The result is the
    /// element from before.
    CompareExchange(Width),
}

impl TargetOp {
    /// Returns code and type of the elements (COH-9.2).
    pub(crate) fn encode(self) -> (u8, u8) {
        match self {
            TargetOp::Read => (0, 0),
            TargetOp::Combine(how) => (how.combine as u8, how.element as u8),
            TargetOp::Accumulate(how) => (16 + how.combine as u8, how.element as u8),
            TargetOp::Write => (32, 0),
            TargetOp::CompareExchange(width) => (33, width.bytes() as u8),
        }
    }

    pub(crate) fn decode(code: u8, element: u8) -> Result<TargetOp, Refusal> {
        let how = |combine| {
            let element = NumberKind::from_code(element).ok_or(Refusal::Malformed)?;
            let combine = Combine::from_code(combine).ok_or(Refusal::Malformed)?;
            Ok::<_, Refusal>(Accumulation { element, combine })
        };
        Ok(match (code, element) {
            (0, 0) => TargetOp::Read,
            (1..16, _) => TargetOp::Combine(how(code)?),
            (16..32, _) => TargetOp::Accumulate(how(code - 16)?),
            (32, 0) => TargetOp::Write,
            (33, 4) => TargetOp::CompareExchange(Width::W32),
            (33, 8) => TargetOp::CompareExchange(Width::W64),
            _ => return Err(Refusal::Malformed),
        })
    }

    /// Returns the width of an element in bytes.
    pub(crate) fn width(self) -> u64 {
        match self {
            TargetOp::Read | TargetOp::Write => 1,
            TargetOp::Combine(how) | TargetOp::Accumulate(how) => how.width().bytes(),
            TargetOp::CompareExchange(width) => width.bytes(),
        }
    }

    pub(crate) fn is_change(self) -> bool {
        self != TargetOp::Read
    }

    /// Returns `true` if the operation returns what it read, or the elements from before.
    #[must_use]
    pub fn has_result(self) -> bool {
        !matches!(self, TargetOp::Write | TargetOp::Accumulate(_))
    }

    /// Returns the new bytes of elements.
    #[must_use]
    pub fn change(self, old: &[u8], operands: &[u8]) -> Vec<u8> {
        match self {
            TargetOp::Read => old.to_vec(),
            TargetOp::Write => operands.to_vec(),
            TargetOp::CompareExchange(_) => match operands.split_at_checked(old.len()) {
                Some((expected, new)) if expected == old => new.to_vec(),
                _ => old.to_vec(),
            },
            TargetOp::Combine(how) | TargetOp::Accumulate(how) => {
                let width = how.width().bytes() as usize;
                let pairs = old.chunks_exact(width).zip(operands.chunks_exact(width));
                pairs.flat_map(|(here, other)| combined(how, here, other)).collect()
            }
        }
    }
}

/// Combines two little-endian numbers.
fn combined(how: Accumulation, here: &[u8], other: &[u8]) -> impl Iterator<Item = u8> + use<> {
    let bits =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let (a, b) = (bits(here), bits(other));
    fn pick<T: Ord>(how: Combine, a: T, b: T, sum: T) -> T {
        match how {
            Combine::Sum => sum,
            Combine::Min => a.min(b),
            Combine::Max => a.max(b),
        }
    }
    let result = match how.element {
        NumberKind::U32 => {
            let (a, b) = (a as u32, b as u32);
            u64::from(pick(how.combine, a, b, a.wrapping_add(b)))
        }
        NumberKind::I32 => {
            let (a, b) = (a as i32, b as i32);
            pick(how.combine, a, b, a.wrapping_add(b)) as u64
        }
        NumberKind::U64 => pick(how.combine, a, b, a.wrapping_add(b)),
        NumberKind::I64 => {
            let (a, b) = (a as i64, b as i64);
            pick(how.combine, a, b, a.wrapping_add(b)) as u64
        }
        NumberKind::F32 | NumberKind::F64 => how.of_floats(a, b),
    };
    result.to_le_bytes().into_iter().take(how.width().bytes() as usize)
}
