//! Calls of collectives, and the check that all nodes called the same (COH-6.2, COH-6.3).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::failing::doing::Doing;
use crate::coherence::pages::homes::{Homes, Spread};
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::types::{
    CallStep, Declaration, Element, Field, ReduceOp, Reduction, Replacement, Values,
};
use crate::extremes::{maximum, minimum};
use crate::fnv::fnv1a;
use crate::limits::{NAME_MAX, PAGE};
use crate::wind::Refusal;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// Remedy of calls that differ, to follow their cause.
pub const SAME_CALLS: &str =
    "; all nodes make the same calls in the same order, with arguments that fit together";

/// Returns the remedy that follows the reason for which a node refuses a call: none if the reason
/// has a remedy of its own.
#[must_use]
pub fn remedy_of(reason: &str) -> &'static str {
    if reason.contains("; ") || reason.contains(". ") { "" } else { SAME_CALLS }
}

/// Maximum number of values in one reduction.
pub const REDUCE_MAX: usize = 1 << 16;
/// Maximum number of axes of an array.
pub const AXES_MAX: usize = 4;
/// Maximum number of fields of an element that a declaration tells. The number of the element's
/// type stands for the others.
const FIELDS_MAX: usize = 64;
/// Maximum length of the name of a field, or of its type, in bytes.
const FIELD_MAX: usize = 128;
/// Maximum length of a declaration in a message, in bytes: numbers, two texts, and fields.
const DECLARED_MAX: usize = 128 + 2 * (NAME_MAX + 2) + FIELDS_MAX * 2 * (FIELD_MAX + 2);
/// Maximum length of the text that goes with a failure, in bytes.
pub(crate) const TEXT_MAX: usize = 1024;

/// One node's call of a collective.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Call {
    Barrier,
    Reduce(Reduction),
    /// Step of an operation that takes several collectives.
    Step(CallStep),
    Declare(Box<Declared>),
    Leave,
    /// Frees an array, which has a name for the text of errors.
    Free {
        number: ArrayId,
        name: String,
    },
    /// This node cannot take part, for the given reason.
    Unfit(String),
}

/// Declaration in the form that nodes compare. A list of homes is compared by a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Declared {
    number: u32,
    name: String,
    bytes: u64,
    element: Element,
    page: u64,
    homes: HomesDigest,
    shape: Vec<u64>,
    fields: Vec<Field>,
    replaces: Option<Replacement>,
}

/// Homes in the form that nodes compare: their kind, its parameter or the digest of a list, and the
/// number of the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
struct HomesDigest {
    kind: u8,
    value: u64,
    axis: u8,
}

impl HomesDigest {
    fn new(homes: &Homes) -> HomesDigest {
        let digest = |ranks: &[Rank]| fnv1a(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
        let (kind, value, axis) = match homes {
            Homes::Block => (0, 0, 0),
            Homes::Cyclic { pages } => (1, *pages, 0),
            Homes::Explicit(ranks) => (2, digest(ranks), 0),
            Homes::Axis(homes) => match &homes.spread {
                Spread::Block => (3, 0, homes.axis),
                Spread::Cyclic { indices } => (4, *indices, homes.axis),
                Spread::Explicit(ranks) => (5, digest(ranks), homes.axis),
            },
        };
        HomesDigest { kind, value, axis }
    }

    fn text(self) -> String {
        let HomesDigest { kind, value, axis } = self;
        match kind {
            0 => String::from("homes in blocks"),
            1 => format!("cyclic homes of {value} pages"),
            2 => format!("a list of homes with digest {value:016x}"),
            3 => format!("blocks along axis {axis}"),
            4 => format!("a cyclic distribution of {value} indices along axis {axis}"),
            _ => format!("a list of owners along axis {axis} with digest {value:016x}"),
        }
    }
}

/// Returns fields that go with a declaration: as many of the first ones as the limits allow.
fn shared_fields(fields: &[Field]) -> Vec<Field> {
    let fits = |field: &&Field| field.name.len() <= FIELD_MAX && field.kind.len() <= FIELD_MAX;
    fields.iter().take(FIELDS_MAX).take_while(fits).cloned().collect()
}

impl Declared {
    pub fn new(number: u32, declaration: &Declaration) -> Declared {
        let homes = HomesDigest::new(&declaration.homes);
        let fields = shared_fields(&declaration.fields);
        let Declaration { name, bytes, element, shape, replaces, .. } = declaration.clone();
        Declared { number, name, bytes, element, page: PAGE as u64, homes, shape, fields, replaces }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the name of the call, if it replaces an array.
    fn call(&self) -> Option<&str> {
        self.replaces.as_ref().map(|replaces| &*replaces.call)
    }

    fn shape_text(&self) -> String {
        let extents: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        format!("the shape [{}]", extents.join(", "))
    }

    /// Returns the fields at `number` in words.
    fn field_text(&self, number: usize) -> String {
        match self.fields.get(number) {
            None => format!("no field {number} in its elements"),
            Some(Field { name, kind }) if name.is_empty() => format!("elements of type {kind}"),
            Some(Field { name, kind }) => {
                format!("elements of type struct, whose field {number} is {name}: {kind}")
            }
        }
    }

    /// Returns the first difference between two declarations, in the words of each.
    fn difference(&self, other: &Declared) -> Option<(String, String)> {
        let pair = |say: &dyn Fn(&Declared) -> String| Some((say(self), say(other)));
        if self.name != other.name {
            return pair(&|d| format!("the name \"{}\"", d.name));
        }
        let fields = self.fields.len().max(other.fields.len());
        let differs = |number: &usize| self.fields.get(*number) != other.fields.get(*number);
        if let Some(number) = (0..fields).find(differs) {
            return pair(&|d| d.field_text(number));
        }
        if self.shape != other.shape {
            return pair(&Declared::shape_text);
        }
        if self.bytes != other.bytes && self.element == other.element {
            return pair(&|d| format!("{} bytes", d.bytes));
        }
        if self.element != other.element {
            return pair(&|d| {
                format!("elements of type {} with {} bytes each", d.element.kind, d.element.size)
            });
        }
        if self.page != other.page {
            return pair(&|d| format!("pages of {} bytes", d.page));
        }
        if self.homes != other.homes {
            return pair(&|d| d.homes.text());
        }
        if self.replaces != other.replaces {
            return pair(&|d| match &d.replaces {
                Some(Replacement { array, call }) => {
                    format!("by {call} that it replaces array number {array}")
                }
                None => String::from("a new array"),
            });
        }
        if self.number != other.number {
            return pair(&|d| {
                format!("the number {} (some nodes have declared an array more)", d.number)
            });
        }
        None
    }
}

impl Declared {
    fn write<'a>(&self, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        let Declared { number, name, bytes, element, page, homes, shape, fields, replaces } = self;
        out.put_prefixed(name.as_bytes()).put_leb128(u64::from(*number)).put_leb128(*bytes);
        out.put_leb128(u64::from(element.kind)).put_leb128(u64::from(element.size));
        out.put_leb128(*page).put_u8(homes.kind).put_leb128(homes.value).put_u8(homes.axis);
        match replaces {
            Some(Replacement { array, call }) => {
                out.put_leb128(u64::from(*array) + 1).put_prefixed(call.as_bytes())
            }
            None => out.put_leb128(0),
        };
        out.put_leb128(shape.len() as u64);
        shape.iter().for_each(|extent| {
            out.put_leb128(*extent);
        });
        out.put_leb128(fields.len() as u64);
        fields.iter().fold(out, |out, field| {
            out.put_prefixed(field.name.as_bytes()).put_prefixed(field.kind.as_bytes())
        })
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Declared, Refusal> {
        let name = read_text(reader, NAME_MAX)?;
        let (number, bytes) = (reader.leb128_u32()?, reader.leb128()?);
        let element = Element { kind: reader.leb128_u32()?, size: reader.leb128_u32()? };
        let page = reader.leb128()?;
        let homes = HomesDigest { kind: reader.u8()?, value: reader.leb128()?, axis: reader.u8()? };
        let replaces = match reader.leb128()? {
            0 => None,
            next => Some(Replacement {
                array: ArrayId::try_from(next - 1).map_err(|_| Refusal::Malformed)?,
                call: read_text(reader, NAME_MAX)?,
            }),
        };
        let axes = reader.count(1)?;
        if axes > AXES_MAX {
            return Err(Refusal::Malformed);
        }
        let shape = (0..axes).map(|_| reader.leb128()).collect::<Result<Vec<_>, _>>()?;
        let count = reader.count(2)?;
        if count > FIELDS_MAX {
            return Err(Refusal::Malformed);
        }
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, kind) = (read_text(reader, FIELD_MAX)?, read_text(reader, FIELD_MAX)?);
            fields.push(Field { name, kind });
        }
        Ok(Declared { number, name, bytes, element, page, homes, shape, fields, replaces })
    }
}

impl Call {
    pub fn doing(&self) -> Doing {
        match self {
            Call::Barrier | Call::Unfit(_) => Doing::Barrier,
            Call::Reduce(_) => Doing::Reduce,
            Call::Step(step) => Doing::Step(step.call.clone()),
            Call::Declare(declared) => match &declared.replaces {
                Some(Replacement { call, .. }) => {
                    Doing::Step(format!("{call} array \"{}\"", declared.name))
                }
                None => Doing::Declare(declared.name.clone()),
            },
            Call::Leave => Doing::Leave,
            Call::Free { name, .. } => Doing::Free(name.clone()),
        }
    }

    fn text(&self) -> String {
        match self {
            Call::Reduce(reduction) => {
                let (op, values) = (reduction.op, &reduction.values);
                let kind =
                    ["f64", "i64", "u64"].get(kind_of(values) as usize).copied().unwrap_or("");
                format!("{} ({op:?} of {} {kind})", self.doing(), values.len())
            }
            Call::Unfit(_) => String::from("something it cannot do"),
            other => other.doing().to_string(),
        }
    }

    /// Returns `true` if the two calls are the same to the bit, so that one can stand for both. As
    /// numbers, 0 and −0 are equal, but they are different operands.
    pub fn is_identical(&self, other: &Call) -> bool {
        match (self, other) {
            (Call::Reduce(a), Call::Reduce(b)) if a.op == b.op => match (&a.values, &b.values) {
                (Values::F64(a), Values::F64(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
                }
                (a, b) => a == b,
            },
            (a, b) => a == b,
        }
    }

    #[inline]
    pub fn is_leave(&self) -> bool {
        matches!(self, Call::Leave)
    }

    /// Returns a length in bytes that what [`Self::write`] writes does not exceed.
    pub fn len_max(&self) -> usize {
        match self {
            Call::Barrier | Call::Leave => 1,
            Call::Reduce(reduction) => 8 + 8 * reduction.values.len(),
            Call::Step(_) | Call::Unfit(_) => TEXT_MAX + 32,
            Call::Free { .. } => NAME_MAX + 16,
            Call::Declare(_) => DECLARED_MAX,
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Call::Barrier => out.put_u8(0),
            Call::Reduce(Reduction { op, values }) => {
                out.put_u8(1).put_u8(*op as u8);
                write_values(values, out)
            }
            Call::Step(CallStep { call, step, arguments, number }) => {
                write_text(call, out.put_u8(6))
                    .put_u8(*step)
                    .put_u64(*arguments)
                    .put_leb128(*number)
            }
            Call::Declare(declared) => declared.write(out.put_u8(2)),
            Call::Leave => out.put_u8(3),
            Call::Unfit(reason) => write_text(reason, out.put_u8(4)),
            Call::Free { number, name } => {
                out.put_u8(5).put_leb128(u64::from(*number)).put_prefixed(name.as_bytes())
            }
        };
    }

    pub fn read(reader: &mut ByteReader<'_>) -> Result<Call, Refusal> {
        Ok(match reader.u8()? {
            0 => Call::Barrier,
            1 => {
                let op = reader.code(ReduceOp::from_code)?;
                Call::Reduce(Reduction { op, values: read_values(reader)? })
            }
            2 => Call::Declare(Box::new(Declared::read(reader)?)),
            3 => Call::Leave,
            4 => Call::Unfit(read_text(reader, TEXT_MAX)?),
            5 => Call::Free { number: reader.leb128_u32()?, name: read_text(reader, NAME_MAX)? },
            6 => Call::Step(CallStep {
                call: read_text(reader, TEXT_MAX)?,
                step: reader.u8()?,
                arguments: reader.u64()?,
                number: reader.leb128()?,
            }),
            _ => return Err(Refusal::Malformed),
        })
    }
}

fn kind_of(values: &Values) -> u8 {
    match values {
        Values::F64(_) => 0,
        Values::I64(_) => 1,
        Values::U64(_) => 2,
    }
}

pub(crate) fn write_values<'a>(values: &Values, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
    out.put_u8(kind_of(values)).put_leb128(values.len() as u64);
    match values {
        Values::F64(v) => v.iter().fold(out, |out, value| out.put_u64(value.to_bits())),
        Values::I64(v) => v.iter().fold(out, |out, value| out.put_u64(*value as u64)),
        Values::U64(v) => v.iter().fold(out, |out, value| out.put_u64(*value)),
    }
}

pub(crate) fn read_values(reader: &mut ByteReader<'_>) -> Result<Values, Refusal> {
    let kind = reader.u8()?;
    let count = reader.count(8)?;
    if count > REDUCE_MAX {
        return Err(Refusal::NoRoom);
    }
    let words = (0..count).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
    Ok(match kind {
        0 => Values::F64(words.into_iter().map(f64::from_bits).collect()),
        1 => Values::I64(words.into_iter().map(|word| word as i64).collect()),
        2 => Values::U64(words),
        _ => return Err(Refusal::Malformed),
    })
}

/// Returns the beginning of a text that may be too long for a message.
pub(crate) fn cut(text: &str) -> &str {
    let end =
        (0..=text.len().min(TEXT_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

pub(crate) fn write_text<'a>(text: &str, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
    out.put_prefixed(cut(text).as_bytes())
}

pub(crate) fn read_text(reader: &mut ByteReader<'_>, max: usize) -> Result<String, Refusal> {
    let bytes = reader.prefixed()?;
    match core::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= max => Ok(String::from(text)),
        _ => Err(Refusal::Malformed),
    }
}

/// Checks that all nodes called the same collective. Returns the result of the reduction, if it is
/// one. The error is a text for every node.
pub(crate) fn agree<'a>(
    calls: impl Iterator<Item = (Rank, &'a Call)> + Clone,
) -> Result<Option<Values>, String> {
    for (rank, call) in calls.clone() {
        if let Call::Unfit(reason) = call {
            return Err(format!("node {rank} cannot go on: {reason}{}", remedy_of(reason)));
        }
    }
    let mut rest = calls;
    let Some((first_rank, first)) = rest.next() else { return Ok(None) };
    let mut sum = match first {
        Call::Reduce(reduction) => Some(reduction.values.clone()),
        Call::Step(step) => Some(Values::U64(vec![step.number])),
        _ => None,
    };
    for (rank, call) in rest {
        match (first, call) {
            (Call::Barrier, Call::Barrier) | (Call::Leave, Call::Leave) => {}
            (Call::Free { number: a, .. }, Call::Free { number: b, .. }) if a == b => {}
            (Call::Declare(a), Call::Declare(b)) if a.call() == b.call() => {
                if let Some((ours, theirs)) = a.difference(b) {
                    return Err(format!(
                        "{}: node {first_rank} declared {ours}, node {rank} declared {theirs}; all nodes must declare the same \
                         arrays in the same order",
                        first.doing()
                    ));
                }
            }
            (Call::Reduce(a), Call::Reduce(b))
                if a.op == b.op && combine(a.op, sum.as_mut(), &b.values) => {}
            (Call::Step(a), Call::Step(b)) if a.call == b.call || prepare(a, b) => {
                let difference = if a.step != b.step {
                    format!(
                        "is in step {} of {}, node {first_rank} in step {}",
                        b.step, b.call, a.step
                    )
                } else if a.arguments != b.arguments {
                    format!("called {} with other arguments than node {first_rank}", b.call)
                } else {
                    combine(ReduceOp::Max, sum.as_mut(), &Values::U64(vec![b.number]));
                    continue;
                };
                return Err(format!("node {rank} {difference}{SAME_CALLS}"));
            }
            _ => {
                let (ours, theirs) = (first.text(), call.text());
                return Err(format!(
                    "node {rank} called {theirs} while node {first_rank} called {ours}{SAME_CALLS}"
                ));
            }
        }
    }
    Ok(sum)
}

/// Returns `true` if both nodes prepare a declaration. The declarations are compared later, and
/// tell more of a difference than the calls.
fn prepare(a: &CallStep, b: &CallStep) -> bool {
    a.step == 0 && b.step == 0
}

/// Combines `with` into `sum`. Returns `false` if the two differ in type or length.
fn combine(op: ReduceOp, sum: Option<&mut Values>, with: &Values) -> bool {
    fn each<T: Copy>(sum: &mut [T], with: &[T], combine: impl Fn(T, T) -> T) -> bool {
        sum.iter_mut().zip(with).for_each(|(sum, with)| *sum = combine(*sum, *with));
        sum.len() == with.len()
    }
    match (sum, with) {
        (Some(Values::F64(sum)), Values::F64(with)) => each(sum, with, |a, b| match op {
            ReduceOp::Sum => a + b,
            ReduceOp::Min => minimum(a, b),
            ReduceOp::Max => maximum(a, b),
        }),
        (Some(Values::I64(sum)), Values::I64(with)) => each(sum, with, |a, b| match op {
            ReduceOp::Sum => a.wrapping_add(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
        }),
        (Some(Values::U64(sum)), Values::U64(with)) => each(sum, with, |a, b| match op {
            ReduceOp::Sum => a.wrapping_add(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
        }),
        _ => false,
    }
}
