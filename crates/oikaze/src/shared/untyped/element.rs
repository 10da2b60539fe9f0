//! Element types that are known at run time only.

use crate::error::{Error, Result};
use crate::shared::element::{ElementField, ElementType, segments};
use crate::tables::element_kind::ElementKind;

impl From<ElementKind> for ElementType {
    fn from(kind: ElementKind) -> Self {
        let field = ElementField { name: String::new(), kind: kind.name().to_owned() };
        Self::new(vec![field], kind.size())
    }
}

impl ElementType {
    /// Returns the type of a struct of `size` bytes with these fields. A field's name may end in
    /// extents, such as `position[3]`. Its kind is a name of an [`ElementKind`]. A dot stands
    /// before the name of a field within a field, and a backslash before a sign that is part of a
    /// name.
    ///
    /// # Errors
    /// The size is 0, or is not what the fields have together: a struct with padding shows bytes
    /// of no meaning to other nodes.
    pub fn structure(size: usize, fields: Vec<ElementField>) -> Result<Self> {
        let what = || format!("an element type of {size} bytes");
        let mut sum = 0_usize;
        for field in &fields {
            let bytes = bytes_of(field).ok_or_else(|| {
                let names: Vec<&str> = ElementKind::ALL.iter().map(|kind| kind.name()).collect();
                let why = format!(
                    "field \"{}\" of type \"{}\" is none: fields are name or name[COUNT], of type {}",
                    field.name,
                    field.kind,
                    names.join(", ")
                );
                Error::invalid(what(), why)
            })?;
            sum = sum.saturating_add(bytes);
        }
        if size == 0 || sum != size || u32::try_from(size).is_err() {
            let why =
                format!("its fields have {sum} bytes together: leave no padding between them");
            return Err(Error::invalid(what(), why));
        }
        Ok(Self::new(fields, size))
    }

    /// Returns the kind, if an element is one number.
    #[must_use]
    pub fn kind(&self) -> Option<ElementKind> {
        match self.fields.as_slice() {
            [number] if number.name.is_empty() => ElementKind::from_name(&number.kind),
            _ => None,
        }
    }
}

/// Returns the bytes of a field such as `position[3]`.
fn bytes_of(field: &ElementField) -> Option<usize> {
    let kind = ElementKind::from_name(&field.kind)?;
    let path = segments(&field.name)?;
    let (_, named) = path.split_first()?;
    if named.is_empty() || named.iter().any(|(name, _)| name.is_empty()) {
        return None;
    }
    let mut extents = path.iter().flat_map(|(_, extents)| extents);
    extents.try_fold(kind.size(), |bytes, extent| bytes.checked_mul(*extent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Element;

    /// The nodes compare the layouts of Rust's types and of types that are known at run time.
    fn same<T: Element>(element: ElementType) {
        let own = ElementType::of::<T>();
        assert_eq!((own.code, own.fields), (element.code, element.fields));
    }

    macro_rules! same_kinds {
        ($(
            $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, ($($element:ty)?), $faces:tt;
        )*) => {
            $($(same::<$element>(ElementKind::$kind.into());)?)*
        };
    }

    #[test]
    fn kinds_are_the_types_of_rust() {
        for_each_kind!(same_kinds);
    }

    #[test]
    fn structs_have_no_padding_and_known_fields() {
        let field = |name: &str, kind: &str| ElementField { name: name.into(), kind: kind.into() };
        let of = |size, fields: &[ElementField]| ElementType::structure(size, fields.to_vec());
        let pair = of(20, &[field("x", "f64"), field("v[3]", "f32")]).unwrap();
        assert_eq!((pair.size(), pair.kind()), (20, None));
        for (size, fields) in [
            (24, vec![field("x", "f64"), field("v[3]", "f32")]),
            (0, vec![]),
            (8, vec![field("", "f64")]),
            (8, vec![field("x", "f65")]),
            (8, vec![field("x[2", "f32")]),
            (8, vec![field("x[99999999999999999999]", "f32")]),
        ] {
            assert!(of(size, &fields).is_err(), "{fields:?}");
        }
    }
}
