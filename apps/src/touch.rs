//! Ways in which a program touches a shared array.

use std::ops::Range;

use clap::ValueEnum;
use oikaze::shared::builder::Homes;
use oikaze::shared::{Element, ReadGuard, SharedArray, WriteGuard};
use oikaze::{Job, Result};

/// Way in which a node touches shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Touch {
    /// Fetches beforehand, in one go, everything that the node will touch.
    Ahead,
    /// Nothing is fetched before a load or a store faults on it.
    Lazily,
}

impl Touch {
    /// Returns the name of the option's value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Lazily => "lazily",
        }
    }
}

/// A shared array, and the way in which its program touches it.
pub struct Touched<T> {
    /// The array itself.
    pub array: SharedArray<T>,
    touch: Touch,
}

impl<T: Element> Touched<T> {
    /// Makes a shared array as [`Job::array_with_homes`] does. Collective.
    ///
    /// # Errors
    /// As [`Job::array_with_homes`].
    pub fn new(job: &Job, name: &str, len: usize, homes: Homes, touch: Touch) -> Result<Self> {
        Ok(Self { array: job.array_with_homes(name, len, homes)?, touch })
    }

    /// Returns a guard of elements to read.
    ///
    /// # Errors
    /// As [`SharedArray::read`].
    #[track_caller]
    pub fn read(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>> {
        match self.touch {
            Touch::Ahead => self.array.read(elements),
            Touch::Lazily => self.array.read_lazily(elements),
        }
    }

    /// Returns a guard of elements to write.
    ///
    /// # Errors
    /// As [`SharedArray::write`].
    #[track_caller]
    pub fn write(&self, elements: Range<usize>) -> Result<WriteGuard<'_, T>> {
        match self.touch {
            Touch::Ahead => self.array.write(elements),
            Touch::Lazily => self.array.write_lazily(elements),
        }
    }
}
