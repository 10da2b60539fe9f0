//! Table of the operators that combine elements. Every other list of operators is made from it:
//! types of Rust, constants of C (`cargo xtask header` reads this file), names in Python. The
//! numbers that ranks compare are `protocol::collective::Operator`.

/// Calls the macro `$then` with the rows of all operators. What stands behind the macro's name
/// comes before the rows.
///
/// | column | contents |
/// |---|---|
/// | operator | type of Rust, and variant of `UntypedOperator` |
/// | name | name in Python |
/// | elements | `number`, or `pair` of a value and its location |
/// | fused | variant of `Combine`, if one step of a processor or a barrier combines |
/// | C | constant, its value, and documentation |
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_operator {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)*
            /// Sum. Integers wrap.
            Sum: "sum", number, (Sum), { OIK_SUM = 1, "Sum. Integers wrap." };
            /// Product. Integers wrap.
            Product: "product", number, (), { OIK_PRODUCT = 2, "Product. Integers wrap." };
            /// Minimum. A NaN stays a NaN, and −0 is smaller than +0.
            Min: "min", number, (Min),
                { OIK_MIN = 3, "Minimum. A NaN stays a NaN." };
            /// Maximum. A NaN stays a NaN, and +0 is greater than −0.
            Max: "max", number, (Max),
                { OIK_MAX = 4, "Maximum. A NaN stays a NaN." };
            /// Bitwise and of integers.
            And: "and", number, (), { OIK_AND = 5, "Bits that are set in both." };
            /// Bitwise or of integers.
            Or: "or", number, (), { OIK_OR = 6, "Bits that are set in one of both." };
            /// Bitwise exclusive or of integers.
            Xor: "xor", number, (), { OIK_XOR = 7, "Bits that differ." };
            /// Minimum of values with their locations: elements are `[value, location]`. Of equal
            /// values, the lower location counts. A NaN counts before any number.
            MinLocation: "min_location", pair, (),
                { OIK_MIN_LOCATION = 8, "Minimum, with its location. Elements are pairs of a value \
                  and a location of the same kind." };
            /// Maximum of values with their locations: elements are `[value, location]`. Of equal
            /// values, the lower location counts. A NaN counts before any number.
            MaxLocation: "max_location", pair, (),
                { OIK_MAX_LOCATION = 9, "Maximum, with its location. Elements are pairs of a value \
                  and a location of the same kind." };
        }
    };
}

/// Calls the macro `$then` with the operators that combine elements of a class, or with those of
/// pairs of a value and a location. What stands behind the macro's name comes before the operators.
#[doc(hidden)]
#[macro_export]
macro_rules! operators_of {
    (integer, $then:ident $($more:tt)*) => { $then! { $($more)* Sum Product Min Max And Or Xor } };
    (float, $then:ident $($more:tt)*) => { $then! { $($more)* Sum Product Min Max } };
    (complex, $then:ident $($more:tt)*) => { $then! { $($more)* Sum Product } };
    (truth, $then:ident $($more:tt)*) => { $then! { $($more)* And Or Xor } };
    (pair, $then:ident $($more:tt)*) => { $then! { $($more)* MinLocation MaxLocation } };
}
