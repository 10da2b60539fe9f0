//! Collectives of elements whose type is known at run time only, for bindings of other languages.
//! They are the collectives of [`Collectives`]: ranks in different languages call one together.

mod operator;

pub use operator::UntypedOperator;

use super::operator::{Combiner, Item, OperatorCode};
use crate::collective::begin::{Carries, Start, Values};
use crate::collective::calls::Collectives;
use crate::collective::pending::Pending;
use crate::collective::run::memory::{Buffers, InPlace, IntoSlice};
use crate::collective::run::work::UntypedResult;
use crate::error::Result;
use crate::tables::element_kind::{ElementKind, ItemType};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveKind, ElementCode};

/// Collectives of elements of one kind, over bytes. [`Untyped::of`] makes one.
///
/// Bytes need no alignment. They are the numbers of this machine's byte order. If they are not a
/// whole number of elements, or the operator does not combine such elements, the collective fails
/// on all ranks.
///
/// ```
/// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let numbers = Untyped::of(&job, ElementKind::U32);
/// let (one, sum) = (1_u32.to_ne_bytes(), Some(UntypedOperator::Sum));
/// let sum = numbers.even(CollectiveKind::AllReduce, 0, &one, sum).wait()?;
/// assert_eq!(sum.into_vec(), job.size().to_ne_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Untyped<'t> {
    start: Start<'t>,
    kind: ElementKind,
    /// Bytes of the caller's memory for the result, if the ranks are to compare them.
    room: Option<usize>,
}

impl<'t> Untyped<'t> {
    /// Returns the collectives of a team, or of a job, for elements of one kind.
    #[must_use]
    pub fn of(team: &'t impl Collectives, kind: ElementKind) -> Self {
        Self { start: team.start(), kind, room: None }
    }

    /// Makes the ranks compare a text, too, which says what the values are to the caller: a shape,
    /// or the fields of a structure. Calls with other texts fail on all ranks (COLL-3.8). An empty
    /// text is as none, so that ranks of other languages call the same.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let grids = Untyped::of(&job, ElementKind::U8).meaning("grid of 2 x 3");
    /// let all = grids.even(CollectiveKind::AllGather, 0, &[7; 6], None).wait()?;
    /// assert_eq!(all.len(), 6 * job.size() as usize);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn meaning(mut self, text: &str) -> Self {
        self.start.meaning = if text.is_empty() { 0 } else { ElementCode::meaning(text) };
        self
    }

    /// Makes the ranks compare the length of a broadcast in [`Untyped::even`]: the caller has
    /// memory for so many bytes. Otherwise a rank that is not the root takes a result of any
    /// length.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let bytes = Untyped::of(&job, ElementKind::U8).room(3);
    /// let copies = bytes.even(CollectiveKind::Broadcast, 0, &[7; 3], None).wait()?;
    /// assert_eq!(copies.into_vec(), [7; 3]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn room(mut self, bytes: usize) -> Self {
        self.room = Some(bytes);
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
    /// let values = Untyped::of(&job, ElementKind::U8).values(scan);
    /// let pending = values.even(CollectiveKind::AllGather, 0, &[7], None);
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

    /// Returns the type of the elements, and the operator over their bytes. The error says why the
    /// operator does not fit, or which bytes are not a whole number of elements.
    fn checked(
        self,
        kind: CollectiveKind,
        operator: Option<UntypedOperator>,
        vectors: &[&[u8]],
    ) -> std::result::Result<(ItemType, Option<Combiner>), String> {
        let combiner = operator.map(|operator| operator.combiner(self.kind)).transpose()?;
        if kind.combines() != combiner.is_some() {
            let text = if kind.combines() { "takes an operator" } else { "takes no operator" };
            return Err(format!("{kind} {text}"));
        }
        let pairs = operator.is_some_and(UntypedOperator::takes_pairs);
        let item = self.kind.item(pairs);
        match vectors.iter().find(|bytes| !bytes.len().is_multiple_of(item.size)) {
            None => Ok((item, combiner)),
            Some(bytes) => Err(format!(
                "{} bytes are not a whole number of elements of {} bytes ({}{})",
                bytes.len(),
                item.size,
                if pairs { "pairs of " } else { "" },
                self.kind.name()
            )),
        }
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
    /// let refused = team.refused(CollectiveKind::Scan, "object of type set".to_owned());
    /// let error = refused.wait().unwrap_err();
    /// assert!(error.to_string().contains("object of type set"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refused(self, kind: CollectiveKind, why: String) -> Pending<UntypedResult> {
        self.start.refused(kind, self.kind.item(false), why)
    }

    /// Begins a collective of equal parts: that of [`Collectives`] with the name of the kind. The
    /// root counts if the kind has one. Reductions take an operator.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let texts = Untyped::of(&job, ElementKind::U8);
    /// let said = texts.even(CollectiveKind::Broadcast, 0, b"of rank 0", None).wait()?;
    /// assert_eq!(said.into_vec(), b"of rank 0");
    /// # Ok(())
    /// # }
    /// ```
    pub fn even(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[u8],
        operator: Option<UntypedOperator>,
    ) -> Pending<UntypedResult> {
        match self.checked(kind, operator, &[values]) {
            Ok((item, combiner)) => {
                let values = Values::of_bytes(values, item);
                let room = self.room.map(|bytes| bytes / item.size.max(1));
                self.start.begin_even((kind, root), item, values, combiner, room)
            }
            Err(why) => self.refused(kind, why),
        }
    }

    /// Calls a collective as [`Untyped::even`] does, waits, and writes the result over `result`.
    /// Without `values`, those of this rank stand there, too. A rank that gets no result leaves it
    /// as it is.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedOperator};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let bytes = Untyped::of(&job, ElementKind::U8);
    /// let (mut sum, operator) = ([1, 2], Some(UntypedOperator::Sum));
    /// bytes.even_into(CollectiveKind::AllReduce, 0, None, &mut sum, operator)?;
    /// assert_eq!(sum[1], 2 * sum[0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::reduce`]; or the result has another length.
    pub fn even_into(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: Option<&[u8]>,
        result: &mut [u8],
        operator: Option<UntypedOperator>,
    ) -> Result<()> {
        let given = values.unwrap_or(result);
        let (item, combiner) = match self.checked(kind, operator, &[given, result]) {
            Ok(checked) => checked,
            Err(why) => return self.refused(kind, why).wait().map(drop),
        };
        let (len, room) = (given.len() / item.size, Some(result.len() / item.size));
        let run = |buffers: &mut dyn Buffers| {
            self.start.run_even((kind, root), item, (buffers, len), combiner, room)
        };
        match values {
            None => run(&mut InPlace(result)),
            Some(given) => run(&mut IntoSlice { given, result }),
        }
    }

    /// As [`Collectives::sum_exact`], of `f32` or `f64`. The sum of `f32` is one as well.
    ///
    /// # Errors
    /// As [`Collectives::sum_exact`]; or elements are of another kind.
    pub fn sum_exact(self, values: &[u8]) -> Result<f64> {
        let why = match (self.checked(CollectiveKind::AllGather, None, &[values]), self.kind) {
            (Ok(_), ElementKind::F32) => {
                return self.start.team.sum_exact(&numbers::<f32>(values)).map(f64::from);
            }
            (Ok(_), ElementKind::F64) => {
                return self.start.team.sum_exact(&numbers::<f64>(values));
            }
            (Ok(_), other) => {
                format!("the exact sum is one of f32 or f64, not of {}", other.name())
            }
            (Err(why), _) => why,
        };
        self.refused(CollectiveKind::AllReduce, why).wait().map(|_| 0.0)
    }

    /// Begins a collective of parts whose lengths may differ: that of [`Collectives`] whose name is
    /// that of the kind with `_uneven`. This rank gives one vector for each rank, or one vector
    /// where it gives the same to all. The result has vectors, but for a scatter and a
    /// reduce_scatter, whose result is one.
    ///
    /// ```
    /// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let texts = Untyped::of(&job, ElementKind::U8);
    /// let mine = vec![b'x'; job.rank() as usize];
    /// let all = texts.uneven(CollectiveKind::AllGather, 0, &[&mine], None).wait()?;
    /// assert_eq!(all.into_vectors()[job.rank() as usize], mine);
    /// # Ok(())
    /// # }
    /// ```
    pub fn uneven(
        self,
        kind: CollectiveKind,
        root: Rank,
        given: &[&[u8]],
        operator: Option<UntypedOperator>,
    ) -> Pending<UntypedResult> {
        let (item, combiner) = match self.checked(kind, operator, given) {
            Ok(checked) => checked,
            Err(why) => return self.refused(kind, why),
        };
        let vectors: Vec<_> = given.iter().map(|bytes| Values::of_bytes(bytes, item)).collect();
        match (kind, combiner) {
            (CollectiveKind::ReduceScatter, Some(combiner)) => {
                self.start.begin_reduce_scatter_uneven(item, &vectors, combiner)
            }
            (_, None) => self.start.begin_uneven((kind, root), item, &vectors),
            (_, Some(_)) => self.refused(kind, format!("{kind} has no form of uneven parts")),
        }
    }
}

fn numbers<T: Item>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
