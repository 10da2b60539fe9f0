//! Enums whose variants have numbers on the wire.

/// Declares an enum of one byte with `from_code`, which decodes the number of a variant. Encoding
/// is `as u8`.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* $visible:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $code:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $visible enum $name {
            $($(#[$variant_meta])* $variant = $code,)*
        }

        impl $name {
            /// Returns the variant with this number, if there is one.
            #[must_use]
            $visible const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    wire_enum! {
        /// Example with two counters.
        enum Two {
            One = 1,
            Other = 0x80,
        }
    }

    #[test]
    fn every_variant_has_its_number_and_no_other_number_has_a_variant() {
        for code in 0..=u8::MAX {
            let variant = Two::from_code(code);
            assert_eq!(
                variant.map(|variant| variant as u8),
                [1, 0x80].contains(&code).then_some(code)
            );
        }
        assert_eq!(Two::from_code(1), Some(Two::One));
        assert_eq!(Two::from_code(0x80), Some(Two::Other));
    }
}
