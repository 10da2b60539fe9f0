//! List that needs no allocation for a few entries.

use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::{Deref, DerefMut};

/// List that holds up to `N` entries without an allocation.
#[derive(Clone, Debug)]
pub(crate) enum ShortList<T, const N: usize = 1> {
    Short(ArrayVec<T, N>),
    Long(Vec<T>),
}

impl<T, const N: usize> ShortList<T, N> {
    pub fn one(entry: T) -> Self {
        Self::from_iter([entry])
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

impl<T, const N: usize> Default for ShortList<T, N> {
    fn default() -> Self {
        ShortList::Short(ArrayVec::new())
    }
}

impl<T, const N: usize> Deref for ShortList<T, N> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            ShortList::Short(list) => list,
            ShortList::Long(list) => list,
        }
    }
}

impl<T, const N: usize> DerefMut for ShortList<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            ShortList::Short(list) => list,
            ShortList::Long(list) => list,
        }
    }
}

impl<T, const N: usize> FromIterator<T> for ShortList<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut list = ShortList::default();
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

/// Lists are equal if their entries are, wherever those are stored.
impl<T: PartialEq, const N: usize> PartialEq for ShortList<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for ShortList<T, N> {}

#[cfg(test)]
impl<T: core::hash::Hash, const N: usize> core::hash::Hash for ShortList<T, N> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_grows_beyond_its_place_keeps_its_entries_in_order() {
        let mut list: ShortList<u64, 2> = [1, 2].into_iter().collect();
        assert!(matches!(list, ShortList::Short(_)));
        list.push(3);
        assert_eq!(*list, [1, 2, 3]);
        list.retain(|entry| *entry != 2);
        let short: ShortList<u64, 2> = [1, 3].into_iter().collect();
        assert!(matches!(list, ShortList::Long(_)));
        assert_eq!(list, short, "wherever the entries are stored");
        let mut entries = Vec::new();
        list.for_each(|entry| entries.push(entry));
        assert_eq!(entries, [1, 3]);
    }
}
