//! Types of the elements of shared arrays.

use bytemuck::{CheckedBitPattern, NoUninit};
use oikaze_protocol::coherence::{self, Field};
use oikaze_protocol::fnv::fnv1a;

/// Element type of a shared array: a number, a `bool`, a fixed array of elements, or a struct with
/// `#[derive(Element)]`. The nodes compare the types when they make the array.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::Element;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn sum<T: Element + Into<f64>>(array: &SharedArray<T>) -> oikaze::Result<f64> {
///     Ok(array.read(0..array.len())?.iter().map(|&element| element.into()).sum())
/// }
/// let ones = job.array::<f32>("ones", 100)?;
/// if job.rank() == 0 {
///     ones.write(0..100)?.fill(1.0);
/// }
/// job.barrier()?;
/// assert_eq!(sum(&ones)?, 100.0);
/// # Ok(())
/// # }
/// ```
///
/// A struct has `#[repr(C)]`, no padding, and fields of element types other than `bool`. If nodes
/// differ in a field, the error names the field, both nodes, and what each of them has.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::Element;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f64,
/// }
///
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let particles = job.array::<Particle>("particles", 1000)?;
/// let mut guard = particles.write(particles.home_range(job.rank()))?;
/// guard.fill(Particle { position: [0.5; 3], mass: 1.0 });
/// drop(guard);
/// job.barrier()?;
/// assert_eq!(particles.read(0..1)?[0].position[2], 0.5);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a shared array",
    note = "elements are numbers, `bool`, fixed arrays of numbers, and structs with `#[derive(Element)]`"
)]
pub trait Element: CheckedBitPattern + NoUninit + Send + Sync + 'static {
    /// Adds the numbers that an element consists of to `fields`. `path` leads to the element.
    fn describe(path: &str, fields: &mut Vec<ElementField>);
}

/// A number in an element: its path, such as `position[3]`, and its type. It is empty for an
/// element that is one number.
///
/// ```
/// use oikaze::Element;
/// # fn main() {
/// let mut fields = Vec::new();
/// <[f32; 3]>::describe("position", &mut fields);
/// assert_eq!((fields[0].name.as_str(), fields[0].kind.as_str()), ("position[3]", "f32"));
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::Field as ElementField;

macro_rules! element {
    ($type:ty, $name:literal) => {
        impl Element for $type {
            fn describe(path: &str, fields: &mut Vec<ElementField>) {
                fields.push(ElementField { name: path.to_owned(), kind: $name.to_owned() });
            }
        }
    };
}

macro_rules! kinds {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, ($($element:ty)?), $faces:tt;
    )*) => {
        $($(element!($element, $name);)?)*
    };
}
for_each_kind!(kinds);

macro_rules! integers_of_rust {
    ($($name:literal, $type:ty, $numpy:tt;)*) => {
        $(element!($type, $name);)*
    };
}
for_each_integer_of_rust!(integers_of_rust);

impl<T: Element + bytemuck::Pod, const N: usize> Element for [T; N] {
    fn describe(path: &str, fields: &mut Vec<ElementField>) {
        T::describe(&format!("{path}[{N}]"), fields);
    }
}

/// Part of a path: a name and the extents of the array that it names.
pub(super) type Segment = (String, Vec<usize>);

/// Splits a path such as `position[2][3].x` into its segments. A backslash stands before a
/// character of a name that would end the name. The first segment is the element itself, which has
/// no name.
pub(super) fn segments(path: &str) -> Option<Vec<Segment>> {
    let mut segments: Vec<Segment> = vec![Segment::default()];
    if !path.is_empty() && !path.starts_with('[') {
        segments.push(Segment::default());
    }
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        let (name, extents) = segments.last_mut()?;
        match c {
            '.' => segments.push(Segment::default()),
            '[' => {
                let (extent, _) = chars.as_str().split_once(']')?;
                chars.by_ref().nth(extent.chars().count());
                extents.push(extent.parse().ok()?);
            }
            // Nothing but extents follows an extent.
            _ if !extents.is_empty() => return None,
            '\\' => name.push(chars.next()?),
            c => name.push(c),
        }
    }
    Some(segments)
}

/// Element type of an array, for callers that know it at run time only: a number, or a struct of
/// named fields. The nodes compare it as they compare a Rust type
/// ([`Element`](trait@crate::shared::Element)). So an array of `f64` is the same one in C, Python
/// and Rust.
///
/// ```
/// use oikaze::ffi::{ElementKind, ElementType};
/// use oikaze::shared::ElementField;
/// # fn main() -> oikaze::Result<()> {
/// let field = |name: &str, kind: &str| ElementField { name: name.into(), kind: kind.into() };
/// let fields = vec![field("position[3]", "f64"), field("mass", "f64")];
/// let particle = ElementType::structure(32, fields)?;
/// assert_eq!((particle.size(), particle.kind()), (32, None));
/// assert_eq!(ElementType::from(ElementKind::F32).size(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ElementType {
    /// Size, and a digest that also covers fields that are too many or too long to be sent.
    pub(super) code: coherence::Element,
    pub(super) fields: Vec<Field>,
}

impl ElementType {
    /// Returns the layout of a type.
    pub(super) fn of<T: Element>() -> Self {
        let mut fields = Vec::new();
        T::describe("", &mut fields);
        Self::new(fields, size_of::<T>())
    }

    /// Returns the layout of an element of these fields, of `size` bytes.
    pub(super) fn new(fields: Vec<Field>, size: usize) -> Self {
        let words = fields.iter().flat_map(|field| [field.name.as_bytes(), field.kind.as_bytes()]);
        let digest = fnv1a(words.flat_map(|word| word.iter().copied().chain([0])));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let code = coherence::Element { kind: (digest ^ (digest >> 32)) as u32, size };
        Self { code, fields }
    }

    /// Returns the bytes of one element.
    #[must_use]
    pub fn size(&self) -> usize {
        self.code.size as usize
    }
}

/// Items that the code of `#[derive(Element)]` names.
#[doc(hidden)]
pub mod derive {
    pub use super::{Element, ElementField};
    pub use bytemuck::{Pod, Zeroable};

    /// Checks at compile time that a field can be part of an element.
    pub const fn is_field<T: Element + Pod>() {}

    /// Returns the path of a field.
    #[must_use]
    pub fn path(outer: &str, field: &str) -> String {
        if outer.is_empty() { field.to_owned() } else { format!("{outer}.{field}") }
    }
}
