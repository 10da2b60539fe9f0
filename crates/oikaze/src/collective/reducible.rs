//! Numbers that travel with a barrier.

use oikaze_protocol::coherence::Values;
use oikaze_protocol::rma::Number;

/// Number that [`Job::barrier_reduce`](crate::Job::barrier_reduce) combines: `u64`, `i64` or `f64`.
/// The nodes compare which of them they give, so no other number is converted to one of them.
///
/// ```
/// use oikaze::collective::Reducible;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn greatest<T: Reducible>(job: &Job, value: T) -> oikaze::Result<T> {
///     job.barrier_reduce(value, Max)
/// }
/// assert_eq!(greatest(&job, 2.5)?, 2.5);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a barrier combines numbers of 64 bits, and `{Self}` is none",
    label = "give a `u64`, an `i64` or an `f64`",
    note = "convert the number: `u64::from(number)`, `i64::from(number)` or `f64::from(number)`"
)]
pub trait Reducible: Number {
    #[doc(hidden)]
    fn values_of(numbers: &[Self]) -> Values;
    #[doc(hidden)]
    fn numbers_of(values: Values) -> Option<Vec<Self>>;
}

macro_rules! reducible {
    ($($type:ty: $values:ident;)*) => {
        $(
            impl Reducible for $type {
                #[doc(hidden)]
                fn values_of(numbers: &[Self]) -> Values {
                    Values::$values(numbers.to_vec())
                }
                #[doc(hidden)]
                fn numbers_of(values: Values) -> Option<Vec<Self>> {
                    match values {
                        Values::$values(numbers) => Some(numbers),
                        _ => None,
                    }
                }
            }
        )*
    };
}
reducible! {
    u64: U64;
    i64: I64;
    f64: F64;
}
