//! Settings of a shared array.

use super::array::Settings;
use super::distribution::Distribution;
use super::shape::{Extents, Shape};
use super::{Element, Homes, SharedArray};
use crate::job::Job;
use crate::{Error, Result};
use oikaze_protocol::coherence::Delivery;

/// Environment variable that sets the delivery of all arrays that do not set their own.
const VARIABLE: &str = "OIKAZE_DELIVERY";

/// Settings of a shared array that is about to be made. [`Job::array_builder`] makes one.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::shared::{Delivery, Homes};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let field = job
///     .array_builder::<f64>("field", 10_000)
///     .homes(Homes::Cyclic { pages: 1 })
///     .delivery(Delivery::DirectDiffDecode)
///     .build()?;
/// assert_eq!(field.len(), 10_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "`build` makes the array"]
pub struct ArrayBuilder<'a, T> {
    job: &'a Job,
    name: String,
    extents: Extents,
    distribution: Distribution,
    delivery: Option<Delivery>,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Element> ArrayBuilder<'a, T> {
    pub(super) fn new(job: &'a Job, name: &str, shape: impl Shape) -> Self {
        let (name, element) = (name.to_owned(), std::marker::PhantomData);
        let extents = shape.extents();
        let distribution = Distribution::of(&extents);
        Self { job, name, extents, distribution, delivery: None, element }
    }

    /// Sets which node is home to which elements. The default is one block for each node: of the
    /// pages of an array of one dimension, and otherwise of the indices of the outermost axis.
    pub fn distribution(mut self, distribution: impl Into<Distribution>) -> Self {
        self.distribution = distribution.into();
        self
    }

    /// Sets the homes of the array's pages, whatever elements they hold.
    pub fn homes(self, homes: Homes) -> Self {
        self.distribution(homes)
    }

    /// Sets how transfers of the array end at their receiver (`OIKAZE_DELIVERY`). Without it, the
    /// runtime chooses for each transfer: ranges of guards are mapped directly, and scattered
    /// changes travel as diffs. Every node may choose for itself.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Makes the array. Collective, as [`Job::array`].
    ///
    /// # Errors
    /// As [`Job::array`]; `OIKAZE_DELIVERY` names no delivery.
    pub fn build(self) -> Result<SharedArray<T>> {
        let Self { job, name, extents, distribution, delivery, .. } = self;
        let delivery = match delivery {
            Some(delivery) => Ok(Some(delivery)),
            None => from_environment(&name),
        };
        let settings = delivery.map(|delivery| Settings { extents, distribution, delivery });
        SharedArray::declare(&job.node, &job.tracker, &name, settings, None, job.limit)
    }
}

fn from_environment(array: &str) -> Result<Option<Delivery>> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let known = text.to_str().and_then(Delivery::from_name);
    known.map(Some).ok_or_else(|| {
        let names = Delivery::ALL.map(Delivery::name).join(", ");
        let why = format!("{VARIABLE}={} names no delivery: use one of {names}", text.display());
        Error::invalid(format!("declare array \"{array}\""), why)
    })
}
