//! Changes of single words (MEM-5): of 32 or 64 bits, signed or not.

/// Width of a word. The word's offset is a multiple of its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits wide.
    W32,
    /// 64 bits wide.
    W64,
}

impl Width {
    /// Returns the width in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Width::W32 => 4,
            Width::W64 => 8,
        }
    }

    /// Returns the bits of a word of this width.
    #[must_use]
    pub const fn mask(self) -> u64 {
        match self {
            Width::W32 => u32::MAX as u64,
            Width::W64 => u64::MAX,
        }
    }
}

/// Change of a word. Operands are bits, signed ones in two's complement, and the bits above the
/// word's width are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add with wrapping.
    Add(u64),
    /// Store `new` if the word is `expected`.
    CompareSwap {
        /// Value that the word must have.
        expected: u64,
        /// Value that the word gets then.
        new: u64,
    },
    /// Store the value.
    Swap(u64),
    /// Keep the bits that are set in both.
    And(u64),
    /// Set these bits.
    Or(u64),
    /// Flip these bits.
    Xor(u64),
    /// Minimum of both values, unsigned.
    Min(u64),
    /// Maximum of both values, unsigned.
    Max(u64),
    /// Minimum of both values, signed.
    MinSigned(u64),
    /// Maximum of both values, signed.
    MaxSigned(u64),
}

impl Change {
    /// Returns the change with its operands passed through `change`.
    fn map(self, change: impl Fn(u64) -> u64) -> Change {
        match self {
            Change::Add(first) => Change::Add(change(first)),
            Change::CompareSwap { expected, new } => {
                Change::CompareSwap { expected: change(expected), new: change(new) }
            }
            Change::Swap(first) => Change::Swap(change(first)),
            Change::And(first) => Change::And(change(first)),
            Change::Or(first) => Change::Or(change(first)),
            Change::Xor(first) => Change::Xor(change(first)),
            Change::Min(first) => Change::Min(change(first)),
            Change::Max(first) => Change::Max(change(first)),
            Change::MinSigned(first) => Change::MinSigned(change(first)),
            Change::MaxSigned(first) => Change::MaxSigned(change(first)),
        }
    }

    /// Returns its number (MEM-2.1) and operands.
    fn encode(self) -> (u8, u64, u64) {
        match self {
            Change::Add(first) => (1, first, 0),
            Change::CompareSwap { expected, new } => (2, expected, new),
            Change::Swap(first) => (3, first, 0),
            Change::And(first) => (4, first, 0),
            Change::Or(first) => (5, first, 0),
            Change::Xor(first) => (6, first, 0),
            Change::Min(first) => (7, first, 0),
            Change::Max(first) => (8, first, 0),
            Change::MinSigned(first) => (9, first, 0),
            Change::MaxSigned(first) => (10, first, 0),
        }
    }

    fn decode(number: u8, first: u64, second: u64) -> Option<Change> {
        let change = match number {
            1 => Change::Add(first),
            2 => return Some(Change::CompareSwap { expected: first, new: second }),
            3 => Change::Swap(first),
            4 => Change::And(first),
            5 => Change::Or(first),
            6 => Change::Xor(first),
            7 => Change::Min(first),
            8 => Change::Max(first),
            9 => Change::MinSigned(first),
            10 => Change::MaxSigned(first),
            _ => return None,
        };
        (second == 0).then_some(change)
    }
}

/// A read-modify-write of one aligned word. Its result is the value before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicOp {
    width: Width,
    change: Change,
}

/// Bit of an operation's number that marks a word of 32 bits.
const NARROW: u8 = 0x80;

impl AtomicOp {
    /// Creates a change of a word of this width. Bits of operands above the width are dropped.
    #[must_use]
    pub fn new(width: Width, change: Change) -> AtomicOp {
        AtomicOp { width, change: change.map(|operand| operand & width.mask()) }
    }

    /// Creates a wrapping add.
    #[must_use]
    pub fn add<T: Word>(add: T) -> AtomicOp {
        AtomicOp { width: T::WIDTH, change: Change::Add(add.to_bits()) }
    }

    /// Creates a store of `new` that takes place if the word is `expected`.
    #[must_use]
    pub fn compare_swap<T: Word>(expected: T, new: T) -> AtomicOp {
        AtomicOp {
            width: T::WIDTH,
            change: Change::CompareSwap { expected: expected.to_bits(), new: new.to_bits() },
        }
    }

    /// Creates a store.
    #[must_use]
    pub fn swap<T: Word>(new: T) -> AtomicOp {
        AtomicOp { width: T::WIDTH, change: Change::Swap(new.to_bits()) }
    }

    /// Creates a change that keeps the bits that are set in both.
    #[must_use]
    pub fn and<T: Word>(bits: T) -> AtomicOp {
        AtomicOp { width: T::WIDTH, change: Change::And(bits.to_bits()) }
    }

    /// Creates a change that sets these bits.
    #[must_use]
    pub fn or<T: Word>(bits: T) -> AtomicOp {
        AtomicOp { width: T::WIDTH, change: Change::Or(bits.to_bits()) }
    }

    /// Creates a change that flips these bits.
    #[must_use]
    pub fn xor<T: Word>(bits: T) -> AtomicOp {
        AtomicOp { width: T::WIDTH, change: Change::Xor(bits.to_bits()) }
    }

    /// Creates a change to the minimum of both values, compared as this type.
    #[must_use]
    pub fn min<T: Word>(other: T) -> AtomicOp {
        let other = other.to_bits();
        AtomicOp {
            width: T::WIDTH,
            change: if T::SIGNED { Change::MinSigned(other) } else { Change::Min(other) },
        }
    }

    /// Creates a change to the maximum of both values, compared as this type.
    #[must_use]
    pub fn max<T: Word>(other: T) -> AtomicOp {
        let other = other.to_bits();
        AtomicOp {
            width: T::WIDTH,
            change: if T::SIGNED { Change::MaxSigned(other) } else { Change::Max(other) },
        }
    }

    /// Returns the width of the word.
    #[must_use]
    pub const fn width(self) -> Width {
        self.width
    }

    /// Returns the change of the word.
    #[must_use]
    pub const fn change(self) -> Change {
        self.change
    }

    /// Encodes for a head: number, first and second operand (MEM-2.1).
    pub(crate) fn encode(self) -> (u8, u64, u64) {
        let (number, first, second) = self.change.encode();
        (if self.width == Width::W32 { number | NARROW } else { number }, first, second)
    }

    /// Decodes from a head. Returns `None` if the fields have no meaning (MEM-2.2).
    pub(crate) fn decode(number: u8, first: u64, second: u64) -> Option<AtomicOp> {
        let width = if number & NARROW == 0 { Width::W64 } else { Width::W32 };
        let change = Change::decode(number & !NARROW, first, second)?;
        ((first | second) & !width.mask() == 0).then_some(AtomicOp { width, change })
    }
}

/// Type of a word that peers change: `u32`, `i32`, `u64`, `i64`.
pub trait Word: Copy + Send + Sync + 'static + super::sealed::Sealed {
    /// Width of the type.
    #[doc(hidden)]
    const WIDTH: Width;
    /// `true` if the type is signed.
    #[doc(hidden)]
    const SIGNED: bool;
    /// Returns the bits, which are zero above the width.
    fn to_bits(self) -> u64;
    /// Creates the value from bits. Bits above the width are dropped.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! word {
    ($($type:ty: $unsigned:ty, $width:ident, $signed:expr;)*) => {
        $(
            impl Word for $type {
                #[doc(hidden)]
                const WIDTH: Width = Width::$width;
                #[doc(hidden)]
                const SIGNED: bool = $signed;
                fn to_bits(self) -> u64 {
                    u64::from(self as $unsigned)
                }
                fn from_bits(bits: u64) -> Self {
                    bits as $unsigned as $type
                }
            }
        )*
    };
}
word! {
    u32: u32, W32, false;
    i32: u32, W32, true;
    u64: u64, W64, false;
    i64: u64, W64, true;
}
