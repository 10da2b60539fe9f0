//! The end of arrays at a collective (COH-14).

use crate::coherence::fetching::runs::Fetches;
use crate::coherence::fetching::targets::Targets;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::table::Arrays;
use crate::coherence::writes::Writes;
use alloc::vec::Vec;

/// Returns the dropped arrays of which no page is on its way to this node (COH-14.2).
pub(crate) fn arrays_to_free(fetches: &Fetches, targets: &Targets, arrays: &Arrays) -> NumberSet {
    let mut dropped = arrays.dropped().clone();
    for array in fetches.arrays().chain(targets.arrays()).map(u64::from) {
        dropped.remove(array..array + 1);
    }
    dropped
}

/// Removes all state of an array. No node uses it any more, or not all nodes have declared it
/// alike. Returns the slot of its alias.
pub(crate) fn remove_array(
    array: ArrayId,
    fetches: &mut Fetches,
    w: &mut Writes<'_>,
) -> Option<u32> {
    w.releasing.forget(array);
    w.updates.forget(array);
    fetches.forget(array);
    w.base.arrays.remove(array)
}

/// Frees arrays that all nodes have dropped (COH-14.3).
pub(crate) fn free_arrays(freed: &NumberSet, fetches: &mut Fetches, w: &mut Writes<'_>) {
    let numbers = freed.iter().flatten().filter_map(|number| ArrayId::try_from(number).ok());
    for array in numbers.collect::<Vec<_>>() {
        if w.base.arrays.get(array).is_none() {
            continue;
        }
        w.base.statistics.arrays_freed += 1;
        w.base.arrays.keep_counters(array);
        let slot = remove_array(array, fetches, w);
        w.base.arrays.retire(array, slot);
    }
}
