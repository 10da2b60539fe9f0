//! Operators of reductions.

pub(crate) use oikaze_protocol::collective::Operator as OperatorCode;

use oikaze_protocol::collective::Order;
use oikaze_protocol::extremes::{maximum, minimum};
use oikaze_protocol::rma::Combine;

/// Element of a collective: any plain type, as [`bytemuck::Pod`] says. The ranks compare its name
/// and size.
///
/// ```
/// use oikaze::collective::operator::Item;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn first_of<T: Item>(job: &Job, value: T) -> oikaze::Result<T> {
///     Ok(job.broadcast(0, &[value])?[0])
/// }
/// assert_eq!(first_of(&job, job.rank())?, 0);
/// # Ok(())
/// # }
/// ```
pub trait Item: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Item for T {}

/// Operator that combines two elements. It must be associative.
///
/// An operator of the program is a function in [`commuting`] or [`ordered`]. It must not use the
/// job, because it runs while the library works for the team.
///
/// ```
/// use oikaze::collective::operator::Operator;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn combine<O: Operator<u32>>(job: &Job, operator: O) -> oikaze::Result<u32> {
///     job.all_reduce(job.rank() + 1, operator)
/// }
/// assert_eq!(combine(&job, Max)?, job.size());
/// # Ok(())
/// # }
/// ```
pub trait Operator<T>: Send + 'static {
    /// Combines two elements, of which the first is of lower ranks.
    fn combine(&self, first: T, second: T) -> T;

    /// Returns `true` if the order of the operands does not matter.
    fn commutes(&self) -> bool {
        true
    }

    /// Returns the number by which the ranks compare their operators.
    #[doc(hidden)]
    fn code(&self) -> OperatorCode {
        if self.commutes() { OperatorCode::Commuting } else { OperatorCode::Ordered }
    }
}

/// Operator over the bytes of elements, which need not be aligned.
pub(super) struct Combiner {
    /// Number by which the ranks compare their operators.
    pub code: OperatorCode,
    /// The order of the operands does not matter.
    pub commutes: bool,
    /// Combines each element of the second range into that of the first.
    pub combine: CombineBytes,
}

/// Loop over the elements of two ranges of bytes. One call combines all of them.
pub(super) type CombineBytes = Box<dyn Fn(&mut [u8], &[u8], Order) + Send>;

impl Combiner {
    pub(super) fn of<T: Item>(operator: impl Operator<T>) -> Combiner {
        let (code, commutes) = (operator.code(), operator.commutes());
        let combine = Box::new(move |here: &mut [u8], new: &[u8], order| match order {
            Order::NewFirst => change_all(here, new, |old, new| operator.combine(new, old)),
            Order::NewLast => change_all(here, new, |old, new| operator.combine(old, new)),
        });
        Combiner { code, commutes, combine }
    }
}

/// Changes each element of `here` by that of `new`.
#[inline]
fn change_all<T: Item>(here: &mut [u8], new: &[u8], change: impl Fn(T, T) -> T) {
    let size = size_of::<T>().max(1);
    for (here, new) in here.chunks_exact_mut(size).zip(new.chunks_exact(size)) {
        let changed = change(bytemuck::pod_read_unaligned(here), bytemuck::pod_read_unaligned(new));
        here.copy_from_slice(bytemuck::bytes_of(&changed));
    }
}

/// Sum of the words of accumulators, which never overflows.
pub(super) struct SumExact;

impl Operator<i64> for SumExact {
    fn combine(&self, first: i64, second: i64) -> i64 {
        first.wrapping_add(second)
    }
    fn code(&self) -> OperatorCode {
        OperatorCode::SumExact
    }
}

/// Function of the program as an operator; see [`commuting`] and [`ordered`].
///
/// ```
/// use oikaze::collective::operator::{Function, commuting};
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let gcd: Function<fn(u64, u64) -> u64> = commuting(|mut a, mut b| {
///     while b > 0 {
///         (a, b) = (b, a % b);
///     }
///     a
/// });
/// assert_eq!(job.all_reduce(12, gcd)?, 12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Function<F> {
    function: F,
    commutes: bool,
}

/// Makes an operator of an associative function whose operands may come in any order.
///
/// ```
/// use oikaze::collective::operator::commuting;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let longest = job.all_reduce(1.5_f64, commuting(f64::hypot))?;
/// assert!(longest >= 1.5);
/// # Ok(())
/// # }
/// ```
pub const fn commuting<F>(function: F) -> Function<F> {
    Function { function, commutes: true }
}

/// Makes an operator of an associative function. Its first operand is always of lower ranks than
/// the second.
///
/// ```
/// use oikaze::collective::operator::ordered;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let last = job.all_reduce(job.rank(), ordered(|_, second| second))?;
/// assert_eq!(last, job.size() - 1);
/// # Ok(())
/// # }
/// ```
pub const fn ordered<F>(function: F) -> Function<F> {
    Function { function, commutes: false }
}

impl<T, F: Fn(T, T) -> T + Send + 'static> Operator<T> for Function<F> {
    fn combine(&self, first: T, second: T) -> T {
        (self.function)(first, second)
    }
    fn commutes(&self) -> bool {
        self.commutes
    }
}

macro_rules! operators {
    ($(
        $(#[$text:meta])*
        $operator:ident: $name:literal, $elements:ident, ($($fused:ident)?), $c:tt;
    )*) => {
        $($(#[$text])*
        ///
        /// ```
        /// use oikaze::prelude::*;
        /// # fn main() -> oikaze::Result<()> {
        /// let job = oikaze::join()?;
        /// let (sum, product) = (job.all_reduce(1, Sum)?, job.all_reduce(1, Product)?);
        /// let (least, most) = (job.all_reduce(5, Min)?, job.all_reduce(5, Max)?);
        /// let bits = [job.all_reduce(6, And)?, job.all_reduce(6, Or)?, job.all_reduce(0, Xor)?];
        /// assert_eq!((sum, product, least, most, bits), (job.size(), 1, 5, 5, [6, 6, 0]));
        /// let mine = [7.5, f64::from(job.rank())];
        /// assert_eq!(job.all_reduce(mine, MinLocation)?, [7.5, 0.0]);
        /// let rank = i64::from(job.rank());
        /// let last = i64::from(job.size()) - 1;
        /// assert_eq!(job.all_reduce([rank, rank], MaxLocation)?, [last, last]);
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug)]
        pub struct $operator;

        $(
            impl From<$operator> for Combine {
                fn from(_: $operator) -> Combine {
                    Combine::$fused
                }
            }
        )?)*
    };
}
for_each_operator!(operators);

macro_rules! implement {
    ($operator:ident for $type:ty: |$first:ident, $second:ident| $value:expr) => {
        impl Operator<$type> for $operator {
            #[inline]
            fn combine(&self, $first: $type, $second: $type) -> $type {
                $value
            }
            fn code(&self) -> OperatorCode {
                OperatorCode::$operator
            }
        }
    };
}

macro_rules! combined {
    (integer $type:ty) => {
        implement!(Sum for $type: |first, second| first.wrapping_add(second));
        implement!(Product for $type: |first, second| first.wrapping_mul(second));
        implement!(Min for $type: |first, second| first.min(second));
        implement!(Max for $type: |first, second| first.max(second));
        implement!(And for $type: |first, second| first & second);
        implement!(Or for $type: |first, second| first | second);
        implement!(Xor for $type: |first, second| first ^ second);
        combined!(location $type);
    };
    (float $type:ty) => {
        implement!(Sum for $type: |first, second| first + second);
        implement!(Product for $type: |first, second| first * second);
        implement!(Min for $type: |first, second| minimum(first, second));
        implement!(Max for $type: |first, second| maximum(first, second));
        combined!(location $type);
    };
    (location $type:ty) => {
        implement!(MinLocation for [$type; 2]: |first, second| {
            let [(one, at), (other, there)] = [(first[0], first[1]), (second[0], second[1])];
            if is_before(one < other, (one, at), (other, there)) { first } else { second }
        });
        implement!(MaxLocation for [$type; 2]: |first, second| {
            let [(one, at), (other, there)] = [(first[0], first[1]), (second[0], second[1])];
            if is_before(one > other, (one, at), (other, there)) { first } else { second }
        });
    };
    // Truth values are bytes in collectives, and complex numbers are not typed.
    (truth $type:ty) => {};
    (complex $type:ty) => {};
}

macro_rules! kinds {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt, $faces:tt;
    )*) => {
        $(combined!($class $type);)*
    };
}
for_each_kind!(kinds);

macro_rules! integers_of_rust {
    ($($name:literal, $type:ty, $numpy:tt;)*) => {
        $(combined!(integer $type);)*
    };
}
for_each_integer_of_rust!(integers_of_rust);

/// Returns `true` if the first value and location count, `is_beyond` or not. A NaN counts before
/// any number, and the lower location of equal values, or of NaNs, counts.
#[expect(clippy::eq_op, reason = "only a NaN differs from itself, and integers have none")]
fn is_before<T: PartialOrd>(is_beyond: bool, first: (T, T), second: (T, T)) -> bool {
    let is_nan = [first.0 != first.0, second.0 != second.0];
    match is_nan {
        [true, false] => true,
        [false, true] => false,
        [true, true] => first.1 <= second.1,
        [false, false] => is_beyond || first.0 == second.0 && first.1 <= second.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_of_floats_keep_nans_and_know_signed_zeros() {
        let nan = f64::NAN;
        let extremes = [
            Min.combine(nan, 1.0),
            Min.combine(1.0, nan),
            Max.combine(nan, 1.0),
            Max.combine(1.0, nan),
        ];
        assert!(extremes.into_iter().all(f64::is_nan));
        let signs = |zeros: [f64; 2]| zeros.map(f64::is_sign_negative);
        assert_eq!(signs([Min.combine(0.0, -0.0), Min.combine(-0.0, 0.0)]), [true, true]);
        assert_eq!(signs([Max.combine(0.0, -0.0), Max.combine(-0.0, 0.0)]), [false, false]);
    }

    #[test]
    fn locations_of_equal_values_are_the_lowest() {
        assert_eq!(MinLocation.combine([1, 5], [1, 3]), [1, 3]);
        assert_eq!(MaxLocation.combine([1, 2], [1, 3]), [1, 2]);
        assert_eq!(MaxLocation.combine([1, 2], [4, 3]), [4, 3]);
        let of_nan = |location| [f64::NAN, location];
        let location = |[value, location]: [f64; 2]| (value.is_nan(), location);
        assert_eq!(location(MinLocation.combine(of_nan(5.0), [4.0, 3.0])), (true, 5.0));
        assert_eq!(location(MaxLocation.combine([4.0, 3.0], of_nan(5.0))), (true, 5.0));
        assert_eq!(location(MaxLocation.combine(of_nan(7.0), of_nan(5.0))), (true, 5.0));
    }

    #[test]
    fn integers_wrap() {
        assert_eq!((Sum.combine(250_u8, 10), Product.combine(i8::MAX, 2)), (4, -2));
        assert_eq!((And.combine(6, 3), Or.combine(6, 3), Xor.combine(6, 3)), (2, 7, 5));
    }
}
