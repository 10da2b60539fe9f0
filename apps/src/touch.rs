//! Ways in which a program touches a shared array.

use std::ops::Range;

use clap::{Args, ValueEnum};
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

/// Homes of the pages of a program's shared arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HomeChoice {
    /// The program's own choice: each page is at home where it is written.
    Declared,
    /// A block for each node, from which homes move to where their pages are written.
    Default,
    /// Pages in turn, so that nearly all homes have to move.
    Cyclic,
}

/// Options of programs over shared arrays.
#[derive(Args, Clone, Copy, Debug)]
pub struct ArrayOptions {
    /// How shared memory is touched.
    #[arg(long, value_enum, default_value = "ahead")]
    pub touch: Touch,
    /// Homes of the pages of shared arrays.
    #[arg(long, value_enum, default_value = "declared")]
    pub homes: HomeChoice,
}

/// A shared array, and the way in which its program touches it.
pub struct Touched<T> {
    /// The array itself.
    pub array: SharedArray<T>,
    touch: Touch,
}

impl<T: Element> Touched<T> {
    /// Makes a shared array with the homes that the options choose, or else with these. Collective.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn new(
        job: &Job,
        name: &str,
        len: usize,
        homes: Homes,
        options: ArrayOptions,
    ) -> Result<Self> {
        let builder = job.array_builder(name, len);
        let builder = match options.homes {
            HomeChoice::Declared => builder.homes(homes),
            HomeChoice::Default => builder,
            HomeChoice::Cyclic => builder.homes(Homes::Cyclic { pages: 1 }).moving_homes(true),
        };
        Ok(Self { array: builder.build()?, touch: options.touch })
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
