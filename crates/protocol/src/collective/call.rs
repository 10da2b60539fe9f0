//! Heads of parcels (spec/collective.md, COLL-1), with the call of their sender.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::rma::messages::kind::MessageKind;
use crate::wind::Head;
use core::fmt;

/// Declares [`CollectiveKind`] from its table.
///
/// | column | contents |
/// |---|---|
/// | kind | variant, and its number on the wire |
/// | name | method of Rust and of Python, and name in errors |
/// | root | `root` if one rank has a part of its own, or `all` |
/// | operator | `combines` or `moves` |
/// | counts | `vector`, or `blocks` if a rank's values are one block for each rank |
macro_rules! collectives {
    ($(
        $(#[$text:meta])*
        $kind:ident = $code:literal: $name:literal, $root:ident, $operator:ident, $counts:ident;
    )*) => {
        crate::wire_enum! {
            /// Kind of a collective.
            pub enum CollectiveKind {
                $($(#[$text])* $kind = $code,)*
            }
        }

        impl CollectiveKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &[CollectiveKind] = &[$(CollectiveKind::$kind),*];

            /// Returns the name of the method that a program calls.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(CollectiveKind::$kind => $name),* }
            }

            /// Returns `true` if one rank has a part of its own.
            #[must_use]
            pub const fn has_root(self) -> bool {
                match self { $(CollectiveKind::$kind => column!($root)),* }
            }

            /// Returns `true` if the values of all ranks are combined by an operator.
            #[must_use]
            pub const fn combines(self) -> bool {
                match self { $(CollectiveKind::$kind => column!($operator)),* }
            }

            /// Returns `true` if the values of a rank are one block for each rank.
            #[must_use]
            pub const fn has_blocks(self) -> bool {
                match self { $(CollectiveKind::$kind => column!($counts)),* }
            }
        }
    };
}

/// Expands to `true` for the first word of a column with two words.
macro_rules! column {
    (root) => {
        true
    };
    (combines) => {
        true
    };
    (blocks) => {
        true
    };
    ($other:ident) => {
        false
    };
}

collectives! {
    /// One rank's vector for all.
    Broadcast = 1: "broadcast", root, moves, vector;
    /// All ranks' blocks for one.
    Gather = 2: "gather", root, moves, vector;
    /// All ranks' blocks for all.
    AllGather = 3: "all_gather", all, moves, vector;
    /// One rank's blocks, one for each.
    Scatter = 4: "scatter", root, moves, blocks;
    /// Combined vectors for one.
    Reduce = 5: "reduce", root, combines, vector;
    /// Combined vectors for all.
    AllReduce = 6: "all_reduce", all, combines, vector;
    /// Combined vectors, a block for each.
    ReduceScatter = 7: "reduce_scatter", all, combines, blocks;
    /// Combined vectors of all lower ranks and this one.
    Scan = 8: "scan", all, combines, vector;
    /// Combined vectors of all lower ranks.
    ExclusiveScan = 9: "exclusive_scan", all, combines, vector;
    /// A block of each rank for each rank.
    AllToAll = 10: "all_to_all", all, moves, blocks;
    /// Agreement on the living ranks. It has no plan.
    Shrink = 11: "shrink", all, moves, vector;
}

impl CollectiveKind {
    /// Returns the kind that a program calls by this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<CollectiveKind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

crate::wire_enum! {
    /// Operator of a reduction, as far as other ranks can compare it.
    pub enum Operator {
        /// The collective combines nothing.
        None = 0,
        /// Sum of the elements.
        Sum = 1,
        /// Product of the elements.
        Product = 2,
        /// Minimum of the elements.
        Min = 3,
        /// Maximum of the elements.
        Max = 4,
        /// Bitwise and of integers.
        And = 5,
        /// Bitwise or of integers.
        Or = 6,
        /// Bitwise exclusive or.
        Xor = 7,
        /// Minimum and its location.
        MinLocation = 8,
        /// Maximum and its location.
        MaxLocation = 9,
        /// Exact sum of floating-point numbers.
        SumExact = 10,
        /// Function of the program that commutes.
        Commuting = 11,
        /// Function of the program whose operands keep the order of ranks.
        Ordered = 12,
    }
}

impl Operator {
    const fn name(self) -> &'static str {
        match self {
            Operator::None => "no operator",
            Operator::Sum => "Sum",
            Operator::Product => "Product",
            Operator::Min => "Min",
            Operator::Max => "Max",
            Operator::And => "And",
            Operator::Or => "Or",
            Operator::Xor => "Xor",
            Operator::MinLocation => "MinLocation",
            Operator::MaxLocation => "MaxLocation",
            Operator::SumExact => "the exact sum",
            Operator::Commuting => "a commuting function",
            Operator::Ordered => "an ordered function",
        }
    }
}

/// Type of elements, as far as other ranks can compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementCode {
    /// Hash of the type's name.
    pub name: u32,
    /// Bytes of one element.
    pub size: u32,
}

impl ElementCode {
    /// Code of what the ranks know at a barrier of a team. No type of a program has it.
    pub const KNOWLEDGE: ElementCode = ElementCode { name: 1, size: 0 };
    /// Code of the colors and keys of a split. No type of a program has it.
    pub const SPLIT: ElementCode = ElementCode { name: 2, size: 0 };

    /// Returns the code of a type with this name and size.
    #[must_use]
    pub fn new(name: &str, size: usize) -> ElementCode {
        let hash = crate::fnv::fnv1a(name.bytes());
        ElementCode {
            name: (hash ^ hash >> 32) as u32,
            size: u32::try_from(size).unwrap_or(u32::MAX - 1),
        }
    }

    /// Returns the code of what values of this type are to their callers beyond the type, such as a
    /// shape (COLL-3.8). No meaning is 0.
    #[must_use]
    pub const fn with_meaning(self, meaning: u32) -> ElementCode {
        ElementCode { name: self.name ^ meaning, ..self }
    }

    /// Returns the code of values that only a binding understands, in place of their bytes. No type
    /// of a program has it.
    #[must_use]
    pub const fn as_values(self) -> ElementCode {
        ElementCode { size: u32::MAX, ..self }
    }

    /// Returns `true` if only a binding understands the values ([`ElementCode::as_values`]).
    const fn are_values(self) -> bool {
        self.size == u32::MAX
    }

    /// Returns the code of a meaning, by a text that describes it.
    #[must_use]
    pub fn meaning(text: &str) -> u32 {
        ElementCode::new(text, 0).name
    }
}

/// Returns a number by which ranks compare the lengths of all blocks.
#[must_use]
pub fn hash_of_lengths(lens: &[usize]) -> u32 {
    let hash = crate::fnv::fnv1a(lens.iter().flat_map(|len| (*len as u64).to_le_bytes()));
    (hash ^ hash >> 32) as u32
}

/// Call of a rank. All ranks of a team must call the same (COLL-3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCall {
    /// Kind of the collective.
    pub kind: CollectiveKind,
    /// Blocks may differ in length.
    pub uneven: bool,
    /// Type of the elements.
    pub element: ElementCode,
    /// Operator of the reduction.
    pub operator: Operator,
    /// Root, for kinds that have one; the hash of the lengths, for reduce_scatter with unequal
    /// blocks ([`hash_of_lengths`]); and otherwise 0.
    pub root: Rank,
    /// Number of elements, or `None` if this rank does not know it.
    pub count: Option<u64>,
}

impl CollectiveCall {
    /// Call of an agreement on the living ranks.
    pub const SHRINK: CollectiveCall = CollectiveCall {
        kind: CollectiveKind::Shrink,
        uneven: false,
        element: ElementCode { name: 0, size: 0 },
        operator: Operator::None,
        root: 0,
        count: None,
    };

    /// Returns `true` if two ranks cannot mean the same collective.
    #[must_use]
    pub fn contradicts(&self, other: &CollectiveCall) -> bool {
        let counts = matches!((self.count, other.count), (Some(one), Some(two)) if one != two);
        counts
            || CollectiveCall { count: None, ..*self } != CollectiveCall { count: None, ..*other }
    }
}

impl CollectiveCall {
    /// Encodes the call in words, of which the highest bit of the first is free (COLL-7.1).
    #[must_use]
    pub fn to_words(&self) -> [u64; 3] {
        let CollectiveCall { kind, uneven, element, operator, root, count } = *self;
        [
            u64::from(kind as u8)
                | u64::from(operator as u8) << 8
                | u64::from(uneven) << 16
                | u64::from(root) << 24,
            u64::from(element.name) | u64::from(element.size) << 32,
            count.unwrap_or(UNKNOWN),
        ]
    }

    /// Decodes what [`CollectiveCall::to_words`] encodes. Returns `None` for other words.
    #[must_use]
    pub fn from_words([first, element, count]: [u64; 3]) -> Option<CollectiveCall> {
        let [kind, operator, uneven, root @ .., free] = first.to_le_bytes();
        if uneven > 1 || free != 0 {
            return None;
        }
        Some(CollectiveCall {
            kind: CollectiveKind::from_code(kind)?,
            uneven: uneven == 1,
            element: ElementCode { name: element as u32, size: (element >> 32) as u32 },
            operator: Operator::from_code(operator)?,
            root: Rank::from_le_bytes(root),
            count: (count != UNKNOWN).then_some(count),
        })
    }
}

/// Names of types, for texts about calls. The protocol knows codes only.
pub type ElementNames = fn(ElementCode) -> Option<&'static str>;

impl CollectiveCall {
    /// Returns what displays the call as "broadcast of 5 u64 with root 0".
    #[must_use]
    pub const fn named(&self, names: ElementNames) -> NamedCall<'_> {
        NamedCall { call: self, names }
    }
}

/// Text of a call, from [`CollectiveCall::named`].
#[derive(Clone, Copy, Debug)]
pub struct NamedCall<'a> {
    call: &'a CollectiveCall,
    names: ElementNames,
}

impl fmt::Display for NamedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, names } = self;
        if call.kind == CollectiveKind::Shrink {
            return f.write_str("shrink of a team");
        }
        let element = call.element;
        if element == ElementCode::KNOWLEDGE {
            return f.write_str("barrier of a team");
        }
        if element == ElementCode::SPLIT {
            return f.write_str("split of a team");
        }
        if call.operator == Operator::SumExact {
            return f.write_str("sum_exact");
        }
        if element.are_values() {
            write!(f, "{} of values", call.kind)?;
        } else {
            write!(f, "{}{} of ", call.kind, if call.uneven { "_uneven" } else { "" })?;
            if let Some(count) = call.count {
                write!(f, "{count} ")?;
            }
            match names(element) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "× {} bytes (type {:08x})", element.size, element.name)?,
            }
        }
        if call.kind.has_root() {
            write!(f, " with root {}", call.root)?;
        }
        if call.kind == CollectiveKind::ReduceScatter && call.uneven && !element.are_values() {
            write!(f, " in blocks number {:08x}", call.root)?;
        }
        if call.operator != Operator::None {
            write!(f, " with {}", call.operator.name())?;
        }
        Ok(())
    }
}

crate::wire_enum! {
    /// Purpose of a parcel.
    pub enum ParcelPurpose {
        /// Data of a round. The body is the part.
        Data = 0,
        /// Call of the sender, without data. The sender waits for the receiver. The body is a u64:
        /// [`DataCallPosition::after`](super::DataCallPosition::after).
        Notice = 1,
        /// The collective has failed. The body says why.
        Failed = 2,
        /// Bytes that the sender of this parcel has read, of all that it got from the receiver in
        /// this team. The body is a u64.
        Credit = 3,
        /// View of the sender in an agreement on the living ranks. The number is that of the
        /// agreement. The body is a [`GoneView`](super::GoneView).
        View = 4,
        /// Ranks call collectives of data and of coherence in different orders. The body is an
        /// [`OrderMistake`](super::OrderMistake).
        Disorder = 5,
        /// The sender is the root of a broadcast, and has not sent all values at once (COLL-2.7).
        /// There is no body.
        NotWhole = 6,
    }
}

/// Length of an encoded head in bytes.
pub const PARCEL_HEAD: usize = 45;

/// Head of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParcelHead {
    /// Purpose of the parcel.
    pub purpose: ParcelPurpose,
    /// Number of the team.
    pub team: u64,
    /// Number of the collective in its team.
    pub number: u64,
    /// Number of the round.
    pub round: u32,
    /// Call of the sender.
    pub call: CollectiveCall,
}

/// Count in a head that stands for an unknown count.
const UNKNOWN: u64 = u64::MAX;

impl ParcelHead {
    /// Encodes the head (COLL-1.2).
    #[must_use]
    pub fn encode(&self) -> Head {
        let CollectiveCall { kind, uneven, element, operator, root, count } = self.call;
        let mut out = Head::new();
        out.put_u8(MessageKind::Parcel as u8).put_u8(self.purpose as u8);
        out.put_u64(self.team).put_u64(self.number).put_u32(self.round);
        out.put_u8(kind as u8).put_u8(u8::from(uneven)).put_u8(operator as u8);
        out.put_u32(element.name).put_u32(element.size);
        out.put_u32(root).put_u64(count.unwrap_or(UNKNOWN));
        out
    }

    /// Decodes what follows the kind of the message.
    ///
    /// # Errors
    /// The bytes are not a head of a parcel.
    pub fn read(bytes: &mut ByteReader<'_>) -> Result<ParcelHead, Invalid> {
        let purpose = bytes.code(ParcelPurpose::from_code)?;
        let (team, number, round) = (bytes.u64()?, bytes.u64()?, bytes.u32()?);
        let kind = bytes.code(CollectiveKind::from_code)?;
        let uneven = match bytes.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Invalid),
        };
        let operator = bytes.code(Operator::from_code)?;
        let element = ElementCode { name: bytes.u32()?, size: bytes.u32()? };
        let (root, count) = (bytes.u32()?, bytes.u64()?);
        let count = (count != UNKNOWN).then_some(count);
        let call = CollectiveCall { kind, uneven, element, operator, root, count };
        Ok(ParcelHead { purpose, team, number, round, call })
    }
}
