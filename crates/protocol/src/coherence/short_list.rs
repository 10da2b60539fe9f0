//! List that needs no allocation for one entry.

use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::{Deref, DerefMut};

/// List that most often has one entry, which it holds without an allocation.
#[derive(Clone, Debug)]
pub(crate) enum ShortList<T> {
    Short(ArrayVec<T, 1>),
    Long(Vec<T>),
}

impl<T> ShortList<T> {
    pub fn one(entry: T) -> ShortList<T> {
        ShortList::Short(ArrayVec::from([entry]))
    }

    pub fn push(&mut self, entry: T) {
        match self {
            ShortList::Long(list) => list.push(entry),
            ShortList::Short(list) => {
                let Err(full) = list.try_push(entry) else { return };
                let entry = full.element();
                *self = ShortList::Long(list.take().into_iter().chain([entry]).collect());
            }
        }
    }

    /// Calls `each` with all entries.
    pub fn for_each(self, each: impl FnMut(T)) {
        match self {
            ShortList::Short(list) => list.into_iter().for_each(each),
            ShortList::Long(list) => list.into_iter().for_each(each),
        }
    }

    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        match self {
            ShortList::Short(list) => list.retain(|entry| stays(entry)),
            ShortList::Long(list) => list.retain(stays),
        }
    }
}

impl<T> Default for ShortList<T> {
    fn default() -> ShortList<T> {
        ShortList::Short(ArrayVec::new())
    }
}

impl<T> Deref for ShortList<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            ShortList::Short(list) => list,
            ShortList::Long(list) => list,
        }
    }
}

impl<T> DerefMut for ShortList<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            ShortList::Short(list) => list,
            ShortList::Long(list) => list,
        }
    }
}

impl<T> FromIterator<T> for ShortList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> ShortList<T> {
        let mut list = ShortList::default();
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

/// Lists are equal if their entries are, wherever those are stored.
impl<T: PartialEq> PartialEq for ShortList<T> {
    fn eq(&self, other: &ShortList<T>) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for ShortList<T> {}

#[cfg(test)]
impl<T: core::hash::Hash> core::hash::Hash for ShortList<T> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
