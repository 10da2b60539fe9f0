//! Counters that know their names. Code that shows them, or writes them down for other programs,
//! needs no list of its own.

/// Declares a struct of `u64` counters that lists its own names and values.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $visible:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_visible:vis $field:ident: u64,)*
    }) => {
        $(#[$meta])*
        $visible struct $name {
            $($(#[$field_meta])* $field_visible $field: u64,)*
        }

        impl $name {
            /// The counters' names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];
            /// How many counters there are.
            pub const COUNT: usize = Self::NAMES.len();

            /// The counters, in the order of their names.
            #[must_use]
            pub fn values(&self) -> [u64; Self::COUNT] {
                [$(self.$field),*]
            }

            /// From what [`values`](Self::values) gave.
            #[must_use]
            pub fn from_values([$($field),*]: [u64; Self::COUNT]) -> Self {
                Self { $($field),* }
            }

            /// How far each counter has come since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.saturating_sub(earlier.$field)),* }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Example with two counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        struct Two {
            /// First of the counters.
            one: u64,
            other: u64,
        }
    }

    #[test]
    fn names_and_values_stand_in_one_order() {
        let two = Two { one: 1, other: 2 };
        assert_eq!((Two::NAMES, two.values()), (&["one", "other"][..], [1, 2]));
        assert_eq!(Two::from_values(two.values()), two);
        assert_eq!(Two { one: 4, other: 2 }.since(&two), Two { one: 3, other: 0 });
    }
}
