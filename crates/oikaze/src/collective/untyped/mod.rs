//! Collectives of elements whose type is known at run time only, for bindings of other languages.
//! They are the collectives of [`Collectives`]: ranks in different languages call one together.

mod operator;

pub use operator::UntypedOperator;

use super::operator::{Item, NoOperator, OperatorCode};
use crate::collective::calls::Collectives;
use crate::collective::pending::Pending;
use crate::collective::run::work::Output;
use crate::collective::start::{Carries, Start};
use crate::error::{Error, Result};
use crate::tables::element_kind::ElementKind;
use bytemuck::cast_slice;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveKind, ElementCode};
use operator::Applied;
use std::borrow::Cow;
use std::fmt;

/// Collectives of elements of one kind, over bytes. [`Untyped::of`] makes one. Methods have the
/// names that they have in [`Start`]; those whose name ends in `_into` wait.
///
/// Bytes need no alignment. They are the numbers of this machine's byte order. If they are not a
/// whole number of elements, or the operator does not combine such elements, the collective fails
/// on all ranks.
///
/// ```
/// use oikaze::ffi::{ElementKind, Untyped, UntypedOperator};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let numbers = Untyped::of(&job, ElementKind::U32);
/// let sum = numbers.all_reduce(&1_u32.to_ne_bytes(), UntypedOperator::Sum).wait()?;
/// assert_eq!(sum.into_vec(), job.size().to_ne_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Untyped<'t> {
    start: Start<'t>,
    kind: ElementKind,
    /// Elements are pairs of a value and a location.
    pairs: bool,
}

/// Result of a collective of elements whose type is known at run time only.
///
/// ```
/// use oikaze::ffi::{ElementKind, Untyped, UntypedResult};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let all: UntypedResult =
///     Untyped::of(&job, ElementKind::U8).all_gather(&[job.rank() as u8]).wait()?;
/// let mut ranks = vec![0; all.len()];
/// all.copy_to(&mut ranks)?;
/// assert_eq!(ranks.len(), job.size() as usize);
/// # Ok(())
/// # }
/// ```
pub struct UntypedResult {
    len: usize,
    output: Box<dyn CopyOut + Send>,
}

/// The result of a plan, whose type is forgotten.
trait CopyOut {
    fn copy_to(self: Box<Self>, bytes: &mut [u8]);
}

impl<T: Item> CopyOut for Output<T> {
    fn copy_to(self: Box<Self>, bytes: &mut [u8]) {
        Output::copy_to_bytes(*self, bytes);
    }
}

impl UntypedResult {
    fn new<T: Item>(output: Output<T>) -> Self {
        Self { len: output.byte_len(), output: Box::new(output) }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes.
    ///
    /// # Errors
    /// The destination has another length.
    pub fn copy_to(self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() != self.len {
            let why =
                format!("{} bytes have come, and there is room for {}", self.len, bytes.len());
            return Err(Error::invalid("take the result of a collective", why));
        }
        self.output.copy_to(bytes);
        Ok(())
    }

    /// Returns the bytes in memory of their own.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.output.copy_to(&mut bytes);
        bytes
    }
}

impl fmt::Debug for UntypedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedResult").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Returns the elements that bytes are. The caller has checked that their number is whole.
fn elements<T: Item>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => {
            let elements = bytes.chunks_exact(size_of::<T>());
            Cow::Owned(elements.map(bytemuck::pod_read_unaligned).collect())
        }
    }
}

fn vectors<T: Item>(vectors: &[&[u8]]) -> Vec<Vec<T>> {
    vectors.iter().map(|bytes| elements(bytes).into_owned()).collect()
}

/// Evaluates `$body` with `$T` as the type of the elements.
macro_rules! with_type {
    ($untyped:expr, $T:ident => $body:expr) => {
        for_each_kind!(match_kind $untyped, $T => $body;)
    };
}

macro_rules! match_kind {
    ($untyped:expr, $T:ident => $body:expr; $(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt, $faces:tt;
    )*) => {
        match $untyped.kind {
            $(ElementKind::$kind => one_or_pair!($class $untyped, $T = $type => $body),)*
        }
    };
}

/// Pairs are of numbers that have an order.
macro_rules! one_or_pair {
    (complex $untyped:expr, $T:ident = $type:ty => $body:expr) => {{
        type $T = $type;
        $body
    }};
    (truth $untyped:expr, $T:ident = $type:ty => $body:expr) => {
        one_or_pair!(complex $untyped, $T = $type => $body)
    };
    ($class:ident $untyped:expr, $T:ident = $type:ty => $body:expr) => {
        if $untyped.pairs {
            type $T = [$type; 2];
            $body
        } else {
            type $T = $type;
            $body
        }
    };
}

impl<'t> Untyped<'t> {
    /// Returns the collectives of a team, or of a job, for elements of one kind.
    #[must_use]
    pub fn of(team: &'t impl Collectives, kind: ElementKind) -> Self {
        Self { start: team.start(), kind, pairs: false }
    }

    /// Makes the ranks compare a text, too, which says what the values are to the caller: a shape,
    /// or the fields of a structure. Calls with other texts fail on all ranks (COLL-3.8). An empty
    /// text is as none, so that ranks of other languages call the same.
    ///
    /// ```
    /// use oikaze::ffi::{ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let grids = Untyped::of(&job, ElementKind::U8).meaning("grid of 2 x 3");
    /// assert_eq!(grids.all_gather(&[7; 6]).wait()?.len(), 6 * job.size() as usize);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn meaning(mut self, text: &str) -> Self {
        self.start.meaning = if text.is_empty() { 0 } else { ElementCode::meaning(text) };
        self
    }

    /// Makes the ranks compare the bytes as values that only the caller understands. With a
    /// collective, the program calls that one: each rank combines the values of all by itself, by
    /// an operator or else by a function (COLL-3.10).
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let scan = Some((CollectiveKind::Scan, None));
    /// let pending = Untyped::of(&job, ElementKind::U8).values(scan).all_gather(&[7]);
    /// assert!(format!("{pending:?}").contains("scan of values with an ordered function"));
    /// assert_eq!(pending.wait()?.len(), job.size() as usize);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn values(mut self, combined: Option<(CollectiveKind, Option<UntypedOperator>)>) -> Self {
        let combined = combined.map(|(kind, operator)| {
            (kind, operator.map_or(OperatorCode::Ordered, UntypedOperator::code))
        });
        self.start.carries = Carries::Values(combined);
        self
    }

    /// Returns the collectives of the elements that the operator combines. The error says why it
    /// does not fit.
    fn with(self, operator: UntypedOperator) -> std::result::Result<(Self, Applied), String> {
        operator.fits(self.kind)?;
        Ok((Self { pairs: operator.takes_pairs(), ..self }, Applied(operator)))
    }

    fn element_size(&self) -> usize {
        self.kind.size() * if self.pairs { 2 } else { 1 }
    }

    /// Refuses bytes that are not a whole number of elements.
    fn check(&self, bytes: &[u8]) -> std::result::Result<(), String> {
        if bytes.len().is_multiple_of(self.element_size()) {
            return Ok(());
        }
        Err(format!(
            "{} bytes are not a whole number of elements of {} bytes ({}{})",
            bytes.len(),
            self.element_size(),
            if self.pairs { "pairs of " } else { "" },
            self.kind.name()
        ))
    }

    fn check_all(&self, vectors: &[&[u8]]) -> std::result::Result<(), String> {
        vectors.iter().try_for_each(|bytes| self.check(bytes))
    }

    /// Takes part in a collective whose arguments this rank refuses, for the reason `why`. It fails
    /// on all ranks, which name the reason.
    ///
    /// A binding that refuses arguments calls it in place of the collective. Otherwise this rank
    /// would be one collective behind the others, and later results would be wrong.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let team = Untyped::of(&job, ElementKind::U8);
    /// let refused = team.refused::<()>(CollectiveKind::Scan, "object of type set".to_owned());
    /// let error = refused.wait().unwrap_err();
    /// assert!(error.to_string().contains("object of type set"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refused<R: Send + 'static>(self, kind: CollectiveKind, why: String) -> Pending<R> {
        with_type!(self, T => self.start.refused::<T, R>(kind, why))
    }

    fn rooted(self, kind: CollectiveKind, root: Rank, values: &[u8]) -> Pending<UntypedResult> {
        if let Err(why) = self.check(values) {
            return self.refused(kind, why);
        }
        with_type!(self, T => {
            self.start.rooted(kind, root, &elements::<T>(values), NoOperator, UntypedResult::new)
        })
    }

    fn moves(self, kind: CollectiveKind, values: &[u8]) -> Pending<UntypedResult> {
        if let Err(why) = self.check(values) {
            return self.refused(kind, why);
        }
        with_type!(self, T => {
            self.start.symmetric(kind, &elements::<T>(values), NoOperator, UntypedResult::new)
        })
    }

    fn moves_into(self, kind: CollectiveKind, values: &[u8], received: &mut [u8]) -> Result<()> {
        if let Err(why) = self.check_all(&[values, received]) {
            return self.refused(kind, why).wait();
        }
        with_type!(self, T => {
            let room = received.len() / size_of::<T>();
            let pending = self.start.exchange_counted(kind, &elements::<T>(values), room);
            pending.wait()?.copy_to_bytes(received);
        });
        Ok(())
    }

    fn combines(
        self,
        kind: CollectiveKind,
        values: &[u8],
        operator: UntypedOperator,
    ) -> Pending<UntypedResult> {
        match self.with(operator).and_then(|(this, how)| this.check(values).map(|()| (this, how))) {
            Ok((this, how)) => with_type!(this, T => {
                this.start.symmetric(kind, &elements::<T>(values), how, UntypedResult::new)
            }),
            Err(why) => self.refused(kind, why),
        }
    }

    /// Does what [`Start::broadcast`] does.
    pub fn broadcast(self, root: Rank, values: &[u8]) -> Pending<UntypedResult> {
        self.rooted(CollectiveKind::Broadcast, root, values)
    }

    /// Sends the root's bytes to all ranks, as [`Collectives::broadcast_into`], and waits.
    ///
    /// # Errors
    /// As [`Collectives::broadcast_into`].
    pub fn broadcast_into(self, root: Rank, values: &mut [u8]) -> Result<()> {
        if let Err(why) = self.check(values) {
            return self.refused(CollectiveKind::Broadcast, why).wait();
        }
        let is_root = self.start.team.rank() == root;
        with_type!(self, T => {
            let all = self.start.broadcast_counted(root, &elements::<T>(values)).wait()?;
            if !is_root {
                all.copy_to_bytes(values);
            }
        });
        Ok(())
    }

    /// Does what [`Start::gather`] does.
    pub fn gather(self, root: Rank, values: &[u8]) -> Pending<UntypedResult> {
        self.rooted(CollectiveKind::Gather, root, values)
    }

    /// Does what [`Start::scatter`] does.
    pub fn scatter(self, root: Rank, values: &[u8]) -> Pending<UntypedResult> {
        self.rooted(CollectiveKind::Scatter, root, values)
    }

    /// Does what [`Start::all_gather`] does.
    pub fn all_gather(self, values: &[u8]) -> Pending<UntypedResult> {
        self.moves(CollectiveKind::AllGather, values)
    }

    /// Does what [`Start::all_to_all`] does.
    pub fn all_to_all(self, values: &[u8]) -> Pending<UntypedResult> {
        self.moves(CollectiveKind::AllToAll, values)
    }

    /// Collects the bytes of all ranks, as [`Collectives::all_gather_into`], and waits.
    ///
    /// # Errors
    /// As [`Collectives::all_gather_into`].
    pub fn all_gather_into(self, values: &[u8], all: &mut [u8]) -> Result<()> {
        self.moves_into(CollectiveKind::AllGather, values, all)
    }

    /// Sends block `r` of the bytes to rank `r`, as [`Collectives::all_to_all_into`], and waits.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all_into`].
    pub fn all_to_all_into(self, values: &[u8], received: &mut [u8]) -> Result<()> {
        self.moves_into(CollectiveKind::AllToAll, values, received)
    }

    /// Does what [`Start::reduce`] does.
    pub fn reduce(
        self,
        root: Rank,
        values: &[u8],
        operator: UntypedOperator,
    ) -> Pending<UntypedResult> {
        let kind = CollectiveKind::Reduce;
        match self.with(operator).and_then(|(this, how)| this.check(values).map(|()| (this, how))) {
            Ok((this, how)) => with_type!(this, T => {
                this.start.rooted(kind, root, &elements::<T>(values), how, UntypedResult::new)
            }),
            Err(why) => self.refused(kind, why),
        }
    }

    /// Does what [`Start::all_reduce`] does.
    pub fn all_reduce(self, values: &[u8], operator: UntypedOperator) -> Pending<UntypedResult> {
        self.combines(CollectiveKind::AllReduce, values, operator)
    }

    /// Combines bytes in place, as [`Collectives::all_reduce_into`], and waits.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce_into`]; or the operator does not combine such elements.
    pub fn all_reduce_into(self, values: &mut [u8], operator: UntypedOperator) -> Result<()> {
        let kind = CollectiveKind::AllReduce;
        match self.with(operator).and_then(|(this, how)| this.check(values).map(|()| (this, how))) {
            Ok((this, how)) => with_type!(this, T => {
                let pending = this.start.symmetric(kind, &elements::<T>(values), how, |all| all);
                pending.wait()?.copy_to_bytes(values);
            }),
            Err(why) => return self.refused(kind, why).wait(),
        }
        Ok(())
    }

    /// Does what [`Start::reduce_scatter`] does.
    pub fn reduce_scatter(
        self,
        values: &[u8],
        operator: UntypedOperator,
    ) -> Pending<UntypedResult> {
        self.combines(CollectiveKind::ReduceScatter, values, operator)
    }

    /// Does what [`Start::scan`] does.
    pub fn scan(self, values: &[u8], operator: UntypedOperator) -> Pending<UntypedResult> {
        self.combines(CollectiveKind::Scan, values, operator)
    }

    /// Does what [`Start::exclusive_scan`] does.
    pub fn exclusive_scan(
        self,
        values: &[u8],
        operator: UntypedOperator,
    ) -> Pending<UntypedResult> {
        self.combines(CollectiveKind::ExclusiveScan, values, operator)
    }

    /// As [`Collectives::sum_exact`], of `f32` or `f64`. The sum of `f32` is one as well.
    ///
    /// # Errors
    /// As [`Collectives::sum_exact`]; or elements are of another kind.
    pub fn sum_exact(self, values: &[u8]) -> Result<f64> {
        let kind = CollectiveKind::AllReduce;
        if let Err(why) = self.check(values) {
            return self.refused(kind, why).wait();
        }
        match self.kind {
            ElementKind::F32 => self.start.team.sum_exact(&elements::<f32>(values)).map(f64::from),
            ElementKind::F64 => self.start.team.sum_exact(&elements::<f64>(values)),
            other => {
                let why = format!("the exact sum is one of f32 or f64, not of {}", other.name());
                self.refused(kind, why).wait()
            }
        }
    }

    /// Does what [`Start::gather_uneven`] does.
    pub fn gather_uneven(self, root: Rank, values: &[u8]) -> Pending<Vec<Vec<u8>>> {
        if let Err(why) = self.check(values) {
            return self.refused(CollectiveKind::Gather, why);
        }
        with_type!(self, T => {
            self.start.gather_uneven_then(root, &elements::<T>(values), to_bytes)
        })
    }

    /// Does what [`Start::all_gather_uneven`] does.
    pub fn all_gather_uneven(self, values: &[u8]) -> Pending<Vec<Vec<u8>>> {
        if let Err(why) = self.check(values) {
            return self.refused(CollectiveKind::AllGather, why);
        }
        with_type!(self, T => {
            self.start.all_gather_uneven_then(&elements::<T>(values), to_bytes)
        })
    }

    /// Does what [`Start::scatter_uneven`] does.
    pub fn scatter_uneven(self, root: Rank, given: &[&[u8]]) -> Pending<Vec<u8>> {
        if let Err(why) = self.check_all(given) {
            return self.refused(CollectiveKind::Scatter, why);
        }
        with_type!(self, T => {
            let to_bytes = |all: Vec<T>| cast_slice(&all).to_vec();
            self.start.scatter_uneven_then(root, &vectors::<T>(given), to_bytes)
        })
    }

    /// Does what [`Start::all_to_all_uneven`] does.
    pub fn all_to_all_uneven(self, given: &[&[u8]]) -> Pending<Vec<Vec<u8>>> {
        if let Err(why) = self.check_all(given) {
            return self.refused(CollectiveKind::AllToAll, why);
        }
        with_type!(self, T => {
            self.start.all_to_all_uneven_then(&vectors::<T>(given), to_bytes)
        })
    }

    /// Does what [`Start::reduce_scatter_uneven`] does.
    pub fn reduce_scatter_uneven(
        self,
        given: &[&[u8]],
        operator: UntypedOperator,
    ) -> Pending<UntypedResult> {
        match self
            .with(operator)
            .and_then(|(this, how)| this.check_all(given).map(|()| (this, how)))
        {
            Ok((this, how)) => with_type!(this, T => {
                this.start.reduce_scatter_uneven_then(&vectors::<T>(given), how, UntypedResult::new)
            }),
            Err(why) => self.refused(CollectiveKind::ReduceScatter, why),
        }
    }
}

fn to_bytes<T: Item>(vectors: Vec<Vec<T>>) -> Vec<Vec<u8>> {
    vectors.iter().map(|vector| cast_slice(vector).to_vec()).collect()
}
