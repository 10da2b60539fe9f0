//! Table of the kinds of elements. Every other list of kinds is made from it: types of Rust,
//! constants of C (`cargo xtask header` reads this file), types of NumPy, names in errors.

/// Calls the macro `$then` with the rows of all kinds that every language has. What stands behind
/// the macro's name comes before the rows.
///
/// | column | contents |
/// |---|---|
/// | kind | variant of `ElementKind` |
/// | name | name in declarations of arrays and in errors |
/// | type | type of Rust whose values the library moves and combines |
/// | class | `integer`, `float`, `truth` or `complex`: operators that combine it |
/// | element | type of Rust that has the name, if there is one |
/// | faces: NumPy | name in files and in Python, in the byte order of this machine |
/// | faces: atomic | `NumberKind` of one-sided operations, which have 32 and 64 bits |
/// | faces: C | constant, its value, and type |
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_kind {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)*
            /// Unsigned, 8 bits.
            U8: "u8", u8, integer, (u8), { "|u1", (), OIK_U8 = 1, "uint8_t" };
            /// Signed, 8 bits.
            I8: "i8", i8, integer, (i8), { "|i1", (), OIK_I8 = 2, "int8_t" };
            /// Unsigned, 16 bits.
            U16: "u16", u16, integer, (u16), { "<u2", (), OIK_U16 = 3, "uint16_t" };
            /// Signed, 16 bits.
            I16: "i16", i16, integer, (i16), { "<i2", (), OIK_I16 = 4, "int16_t" };
            /// Unsigned, 32 bits.
            U32: "u32", u32, integer, (u32), { "<u4", (U32), OIK_U32 = 5, "uint32_t" };
            /// Signed, 32 bits.
            I32: "i32", i32, integer, (i32), { "<i4", (I32), OIK_I32 = 6, "int32_t" };
            /// Unsigned, 64 bits.
            U64: "u64", u64, integer, (u64), { "<u8", (U64), OIK_U64 = 7, "uint64_t" };
            /// Signed, 64 bits.
            I64: "i64", i64, integer, (i64), { "<i8", (I64), OIK_I64 = 8, "int64_t" };
            /// Floating-point number, IEEE 754 binary32.
            F32: "f32", f32, float, (f32), { "<f4", (F32), OIK_F32 = 9, "float" };
            /// Floating-point number, IEEE 754 binary64.
            F64: "f64", f64, float, (f64), { "<f8", (F64), OIK_F64 = 10, "double" };
            /// Truth value: one byte, 0 or 1.
            Bool: "bool", u8, truth, (bool), { "|b1", (), OIK_BOOL = 11, "bool" };
            /// Complex number: two `f32`, real part first.
            Complex64: "c64", [f32; 2], complex, (), { "<c8", (), OIK_C64 = 12, "float complex" };
            /// Complex number: two `f64`, real part first.
            Complex128: "c128", [f64; 2], complex, (),
                { "<c16", (), OIK_C128 = 13, "double complex" };
        }
    };
}

/// Calls the macro `$then` with the rows of the integers that only Rust has, as `for_each_kind`
/// does: name, type, and the name in NumPy if it has one.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_integer_of_rust {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)*
            "u128", u128, ();
            "i128", i128, ();
            "usize", usize, ("<u8");
            "isize", isize, ("<i8");
        }
    };
}
