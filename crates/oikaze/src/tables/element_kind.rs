//! Kinds of elements as values, made from their table.

use oikaze_protocol::collective::{CollectiveCall, ElementCode, NamedCall};
use oikaze_protocol::rma::NumberKind;

/// Type of Rust, as the ranks compare it in collectives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemType {
    pub name: &'static str,
    pub size: usize,
}

impl ItemType {
    pub fn of<T>() -> Self {
        Self { name: std::any::type_name::<T>(), size: size_of::<T>() }
    }
}

/// Expands to `Some` of a column that may be empty, or to `None`.
macro_rules! optional {
    (()) => {
        None
    };
    (($value:expr)) => {
        Some($value)
    };
}

/// Class of a kind, which says what operators combine it.
///
/// ```
/// use oikaze::ffi::{ElementKind, KindClass};
/// # fn main() {
/// assert_eq!(ElementKind::F32.class(), KindClass::Float);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindClass {
    /// Integer. All operators combine it.
    Integer,
    /// Floating-point number, without bits.
    Float,
    /// Truth value, whose bits are combined.
    Truth,
    /// Complex number, which has no order.
    Complex,
}

impl KindClass {
    /// Returns `true` if numbers of the class are smaller or greater than others.
    #[must_use]
    pub const fn has_order(self) -> bool {
        matches!(self, KindClass::Integer | KindClass::Float)
    }
}

macro_rules! class {
    (integer) => {
        KindClass::Integer
    };
    (float) => {
        KindClass::Float
    };
    (truth) => {
        KindClass::Truth
    };
    (complex) => {
        KindClass::Complex
    };
}

macro_rules! enumeration {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt,
        { $numpy:literal, ($($atomic:ident)?), $constant:ident = $number:literal, $c:literal };
    )*) => {
        /// Kind of a number, for callers that know it at run time only. C and NumPy have the same
        /// kinds.
        ///
        /// ```
        /// use oikaze::ffi::ElementKind;
        /// # fn main() {
        /// assert_eq!((ElementKind::F32.name(), ElementKind::F32.size()), ("f32", 4));
        /// assert_eq!(ElementKind::from_name("c128"), Some(ElementKind::Complex128));
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum ElementKind {
            $($(#[$text])* $kind,)*
        }

        impl ElementKind {
            /// All kinds of numbers.
            pub const ALL: &[ElementKind] = &[$(ElementKind::$kind),*];

            /// Returns the short name: Rust's, or `c64` and `c128` for complex numbers.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(ElementKind::$kind => $name),* }
            }

            /// Returns the bytes of one number.
            #[must_use]
            pub const fn size(self) -> usize {
                match self { $(ElementKind::$kind => size_of::<$type>()),* }
            }

            /// Returns the type that collectives move and combine, or the type of its pairs.
            pub(crate) fn item(self, pairs: bool) -> ItemType {
                match self {
                    $(ElementKind::$kind if pairs => ItemType::of::<[$type; 2]>(),)*
                    $(ElementKind::$kind => ItemType::of::<$type>(),)*
                }
            }

            /// Returns the name in NumPy, in the byte order of this machine.
            ///
            /// ```
            /// use oikaze::ffi::ElementKind;
            /// # fn main() {
            /// assert_eq!(ElementKind::F32.numpy(), "<f4");
            /// # }
            /// ```
            #[must_use]
            pub const fn numpy(self) -> &'static str {
                match self { $(ElementKind::$kind => $numpy),* }
            }

            /// Returns the class, which says what operators combine the kind.
            #[must_use]
            pub const fn class(self) -> KindClass {
                match self { $(ElementKind::$kind => class!($class)),* }
            }

            /// Returns the kind as one-sided operations know it, which have 32 and 64 bits only.
            #[must_use]
            pub const fn number(self) -> Option<NumberKind> {
                match self { $(ElementKind::$kind => optional!(($(NumberKind::$atomic)?))),* }
            }
        }
    };
}
for_each_kind!(enumeration);

impl ElementKind {
    /// Returns the kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ElementKind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns the names of the kinds that one-sided operations combine.
    pub(crate) fn names_of_numbers() -> String {
        let numbers = Self::ALL.iter().filter(|kind| kind.number().is_some());
        numbers.map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    }
}

/// An integer that only Rust has: name, bytes, and the name in NumPy.
struct IntegerOfRust(&'static str, usize, Option<&'static str>);

macro_rules! integers_of_rust {
    ($($name:literal, $type:ty, $numpy:tt;)*) => {
        const INTEGERS_OF_RUST: &[IntegerOfRust] =
            &[$(IntegerOfRust($name, size_of::<$type>(), optional!($numpy))),*];
    };
}
for_each_integer_of_rust!(integers_of_rust);

/// Returns NumPy's name of the type of this name.
pub fn numpy_of(name: &str) -> Option<&'static str> {
    let kind = ElementKind::from_name(name).map(ElementKind::numpy);
    kind.or_else(|| INTEGERS_OF_RUST.iter().find(|integer| integer.0 == name)?.2)
}

/// Returns what displays a call, with the names of types that are in the tables.
pub fn named(call: &CollectiveCall) -> NamedCall<'_> {
    call.named(name_of)
}

/// Returns the name of the type that elements of a collective have, if it is in the tables.
fn name_of(code: ElementCode) -> Option<&'static str> {
    let kinds = ElementKind::ALL.iter().map(|kind| (kind.name(), kind.size()));
    let integers = INTEGERS_OF_RUST.iter().map(|integer| (integer.0, integer.1));
    kinds
        .chain(integers)
        .find(|(name, size)| ElementCode::new(name, *size) == code)
        .map(|one| one.0)
}
