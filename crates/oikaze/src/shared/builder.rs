//! Settings of a shared array.

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
    len: usize,
    homes: Homes,
    delivery: Option<Delivery>,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Element> ArrayBuilder<'a, T> {
    pub(super) fn new(job: &'a Job, name: &str, len: usize) -> Self {
        let (name, element) = (name.to_owned(), std::marker::PhantomData);
        Self { job, name, len, homes: Homes::Block, delivery: None, element }
    }

    /// Sets the homes of the array's pages. The default is one block for each node.
    pub fn homes(mut self, homes: Homes) -> Self {
        self.homes = homes;
        self
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
        let Self { job, name, len, homes, delivery, .. } = self;
        let delivery = match delivery {
            Some(delivery) => Ok(Some(delivery)),
            None => from_environment(&name),
        };
        SharedArray::declare(&job.node, &job.tracker, &name, len, homes, delivery, job.limit)
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
