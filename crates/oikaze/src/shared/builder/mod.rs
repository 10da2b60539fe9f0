//! Settings of a shared array: where its pages live, and how its transfers end.

pub(crate) mod distribution;

pub use distribution::Distribution;
/// How transfers of a shared array end at their receiver: the five deliveries of the Wind paper,
/// for experiments. The runtime chooses well without a setting.
///
/// ```
/// use oikaze::shared::builder::Delivery;
/// # fn main() {
/// assert_eq!(Delivery::from_name("direct_map"), Some(Delivery::DirectMap));
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::Delivery;
/// Assignment of the pages of a shared array to nodes.
///
/// ```
/// use oikaze::shared::builder::Homes;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let dealt = job.array_with_homes::<u8>("dealt", 1 << 20, Homes::Cyclic { pages: 1 })?;
/// assert_eq!(dealt.home_of(0), Some(0));
/// # Ok(())
/// # }
/// ```
///
/// [`Distribution`] assigns elements along an axis instead.
#[doc(inline)]
pub use oikaze_protocol::coherence::Homes;

use super::core::{ArrayCore, Settings};
use super::element::ElementType;
use super::shape::{Extents, Shape};
use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::shared::array::SharedArray;
use crate::shared::element::Element;
use oikaze_protocol::wind::Class;

/// Environment variable that sets the delivery of all arrays that do not set their own.
const DELIVERY: &str = "OIKAZE_DELIVERY";
/// Environment variable that sets the class of updates of all arrays that do not set their own.
const CLASS: &str = "OIKAZE_UPDATE_CLASS";

/// Settings of a shared array that is about to be made. [`Job::array_builder`] makes one.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::shared::builder::{Delivery, Homes};
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
    layout: ElementType,
    /// Why there is none, if the shape was given at run time and does not fit.
    extents: std::result::Result<Extents, String>,
    distribution: Distribution,
    delivery: Option<Delivery>,
    update_class: Option<Class>,
    moving_homes: bool,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Element> ArrayBuilder<'a, T> {
    pub(crate) fn new(job: &'a Job, name: &str, shape: impl Shape) -> Self {
        Self::of_extents(job, name, Ok(shape.extents()), ElementType::of::<T>())
    }
}

impl<'a, T> ArrayBuilder<'a, T> {
    /// Returns a builder of an array whose elements and shape are known at run time only.
    pub(crate) fn with_layout(
        job: &'a Job,
        name: &str,
        shape: &[usize],
        layout: ElementType,
    ) -> Self {
        Self::of_extents(job, name, Extents::of_slice(shape), layout)
    }

    fn of_extents(
        job: &'a Job,
        name: &str,
        extents: std::result::Result<Extents, String>,
        layout: ElementType,
    ) -> Self {
        let (name, element) = (name.to_owned(), std::marker::PhantomData);
        let axes = extents.as_ref().map(Distribution::of);
        let distribution = axes.unwrap_or(Distribution::Pages(Homes::Block));
        let (delivery, update_class, moving_homes) = (None, None, true);
        Self {
            job,
            name,
            layout,
            extents,
            distribution,
            delivery,
            update_class,
            moving_homes,
            element,
        }
    }

    /// Sets which node is home to which elements. The default is one block for each node: of the
    /// pages of an array of one dimension, and otherwise of the indices of the outermost axis.
    /// Homes that are set do not [move](Self::moving_homes).
    pub fn distribution(mut self, distribution: impl Into<Distribution>) -> Self {
        self.distribution = distribution.into();
        self.moving_homes = false;
        self
    }

    /// Sets whether this node becomes the home of pages that it alone writes, from a barrier of the
    /// job on. It does by default, unless [`distribution`](Self::distribution) or
    /// [`homes`](Self::homes) is called, and asks at the first barrier after the declaration, or
    /// when it has written a page twice in a row. [`SharedArray::home_range`] and the like tell the
    /// homes that were set, which never change. Every node may choose for itself.
    pub fn moving_homes(mut self, moving_homes: bool) -> Self {
        self.moving_homes = moving_homes;
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

    /// Sets the class of the array's updates (`OIKAZE_UPDATE_CLASS`): in which order they arrive
    /// among all messages of this node to the same reader. Without it they are unordered, which is
    /// the fastest. Arrays hold the same in every class. Every node may choose for itself.
    pub fn update_class(mut self, class: Class) -> Self {
        self.update_class = Some(class);
        self
    }

    /// Makes the core of the array.
    #[track_caller]
    pub(super) fn declare(self) -> Result<ArrayCore> {
        let Self { job, name, layout, extents, distribution, delivery, update_class, .. } = self;
        let moving_homes = self.moving_homes;
        let declaring = || format!("declare array \"{name}\"");
        let deliveries = Delivery::ALL.map(|delivery| (delivery.name(), delivery));
        let classes = Class::ALL.map(|class| (class.name(), class));
        let settings = chosen(delivery, DELIVERY, &deliveries).and_then(|delivery| {
            let extents = extents?;
            let update_class = chosen(update_class, CLASS, &classes)?.unwrap_or(Class::Unordered);
            let element = layout;
            Ok(Settings { element, extents, distribution, delivery, update_class, moving_homes })
        });
        let settings = settings.map_err(|why| Error::invalid(declaring(), why));
        ArrayCore::declare(&job.node, &job.tracker, &name, settings, None, job.limit)
    }
}

impl<T: Element> ArrayBuilder<'_, T> {
    /// Makes the array. Collective, as [`Job::array`].
    ///
    /// # Errors
    /// As [`Job::array`]; `OIKAZE_DELIVERY` names no delivery, or `OIKAZE_UPDATE_CLASS` no class.
    #[track_caller]
    pub fn build(self) -> Result<SharedArray<T>> {
        self.declare().map(SharedArray::over)
    }
}

/// Returns what the program has set, or else what the variable names.
fn chosen<V: Copy>(
    set: Option<V>,
    variable: &str,
    values: &[(&str, V)],
) -> std::result::Result<Option<V>, String> {
    let text = std::env::var_os(variable).filter(|text| !text.is_empty() && set.is_none());
    let Some(text) = text else { return Ok(set) };
    let known = values.iter().find(|(name, _)| text.to_str() == Some(name));
    known.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        format!("{variable}={} is not known: use one of {}", text.display(), names.join(", "))
    })
}
