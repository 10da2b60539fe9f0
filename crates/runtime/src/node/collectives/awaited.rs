//! Long parcels for which collectives of this node wait, and the memory for their bytes (COLL-1.5).

use crate::sync::lock;
use oikaze_engine::{Keep, MessagePlacement};
use oikaze_os::memory::{Region, Scatter};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Memory into which a parcel is placed. It may be exchanged while the parcel arrives.
pub struct ParcelMemory(Mutex<ParcelPlaces>);

#[derive(Default)]
struct ParcelPlaces {
    /// Memory that takes the place of the other, and the number of the first bytes that go there.
    new: Option<(u64, ParcelPlace)>,
    /// Memory of all other bytes. `None`: they go nowhere.
    rest: Option<ParcelPlace>,
}

/// Bytes of a region from an offset on.
pub struct ParcelPlace {
    pub region: Region,
    pub offset: u64,
    /// Keeps the region from other uses while the parcel arrives.
    pub keep: Keep,
}

impl ParcelMemory {
    /// Takes this place.
    pub fn new(place: ParcelPlace) -> Arc<ParcelMemory> {
        Arc::new(ParcelMemory(Mutex::new(ParcelPlaces { new: None, rest: Some(place) })))
    }

    /// Makes the first `len` bytes of the parcel go to other memory. The caller is in the engine,
    /// and has copied what there is of them.
    pub fn exchange(&self, len: u64, place: ParcelPlace) {
        lock(&self.0).new = Some((len, place));
    }

    /// Makes the rest of the parcel go nowhere, because the parcel has come otherwise. The caller
    /// is in the engine.
    pub fn close(&self) {
        *lock(&self.0) = ParcelPlaces::default();
    }
}

impl ParcelPlaces {
    /// Returns the number of bytes from `at` on, at most `len`, that are in one piece of memory,
    /// and their place.
    fn find(&self, at: u64, len: u64) -> (u64, Option<(&Region, u64)>) {
        let (len, place) = match &self.new {
            Some((moved, place)) if at < *moved => (len.min(moved - at), Some(place)),
            _ => (len, self.rest.as_ref()),
        };
        (len, place.map(|place| (&place.region, place.offset.saturating_add(at))))
    }
}

struct AwaitedParcel {
    from: Rank,
    head: ParcelHead,
    len: u64,
    memory: Arc<ParcelMemory>,
}

/// Parcels of this node that are awaited and have not begun to arrive.
#[derive(Default)]
pub struct AwaitedParcels {
    inside: Mutex<Vec<AwaitedParcel>>,
    /// Number of parcels, so that a check costs one load.
    count: AtomicUsize,
}

impl AwaitedParcels {
    /// Adds a parcel of `len` bytes from a rank of the job. The call in `head` is that of this
    /// rank.
    pub fn add(&self, from: Rank, head: ParcelHead, len: u64, memory: Arc<ParcelMemory>) {
        let mut inside = lock(&self.inside);
        inside.push(AwaitedParcel { from, head, len, memory });
        self.count.store(inside.len(), Ordering::Release);
    }

    /// Removes the parcel for this memory. Returns `false` if it has begun to arrive.
    pub fn remove(&self, memory: &Arc<ParcelMemory>) -> bool {
        let mut inside = lock(&self.inside);
        let before = inside.len();
        inside.retain(|one| !Arc::ptr_eq(&one.memory, memory));
        self.count.store(inside.len(), Ordering::Release);
        inside.len() < before
    }

    /// Takes the memory for a parcel that has begun to arrive, if its call fits that of this rank.
    pub fn begin(
        &self,
        from: Rank,
        head: &ParcelHead,
        len: u64,
    ) -> Option<Box<dyn MessagePlacement>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut inside = lock(&self.inside);
        let at = inside.iter().position(|one| {
            let like = ParcelHead { call: head.call, ..one.head };
            (one.from, one.len, like) == (from, len, *head)
                && !one.head.call.contradicts(&head.call)
        })?;
        let memory = inside.swap_remove(at).memory;
        self.count.store(inside.len(), Ordering::Release);
        Some(Box::new(ParcelPlacement { memory, is_gone: false }))
    }
}

struct ParcelPlacement {
    memory: Arc<ParcelMemory>,
    /// Bytes are lost, because the memory was lent and its loan has ended.
    is_gone: bool,
}

impl MessagePlacement for ParcelPlacement {
    fn scatter(&self, offset: u64, len: u64) -> Option<Scatter> {
        let places = lock(&self.memory.0);
        let (found, place) = places.find(offset, len);
        let (region, at) = place.filter(|_| found == len)?;
        region.scatter(at, len)
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let places = lock(&self.memory.0);
        while !bytes.is_empty() {
            let (len, place) = places.find(offset, bytes.len() as u64);
            let (here, rest) = bytes.split_at(len as usize);
            self.is_gone |= place.is_some_and(|(region, at)| region.write(at, here).is_err());
            (offset, bytes) = (offset + len, rest);
        }
    }

    fn finish(self: Box<Self>) -> bool {
        !self.is_gone
    }

    /// The rest of a parcel does not come because its sender sends it anew, or has failed. A parcel
    /// that is sent anew comes as any other.
    fn abort(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_os::memory::with_borrowed_mut;
    use oikaze_protocol::collective::{CollectiveCall, CollectiveKind, ParcelPurpose};

    const LEN: u64 = 8;

    fn place(region: &Region, offset: u64) -> ParcelPlace {
        ParcelPlace { region: region.clone(), offset, keep: None }
    }

    fn head(round: u32, count: Option<u64>) -> ParcelHead {
        let call =
            CollectiveCall { kind: CollectiveKind::AllGather, count, ..CollectiveCall::SHRINK };
        ParcelHead { purpose: ParcelPurpose::Data, team: 3, number: 5, round, call }
    }

    /// COLL-1.5: only the awaited parcel is placed, and none whose call is another (COLL-3.1).
    #[test]
    fn parcel_is_placed_if_it_is_the_awaited_one_and_its_call_fits() {
        let parcels = AwaitedParcels::default();
        let region = Region::zeroed(16).unwrap();
        let memory = ParcelMemory::new(place(&region, 4));
        parcels.add(1, head(2, None), LEN, Arc::clone(&memory));
        assert!(parcels.begin(0, &head(2, None), LEN).is_none(), "another rank");
        assert!(parcels.begin(1, &head(3, None), LEN).is_none(), "another round");
        assert!(parcels.begin(1, &head(2, None), LEN + 1).is_none(), "another length");
        let other = CollectiveCall { root: 1, ..head(2, None).call };
        let other = ParcelHead { call: other, ..head(2, None) };
        assert!(parcels.begin(1, &other, LEN).is_none(), "another call");
        let mut placement = parcels.begin(1, &head(2, Some(9)), LEN).unwrap();
        assert!(parcels.begin(1, &head(2, None), LEN).is_none(), "it has begun");
        placement.write(2, &[7; 6]);
        let later = Region::zeroed(16).unwrap();
        memory.exchange(4, place(&later, 0));
        placement.write(0, &[8; 2]);
        placement.write(3, &[9; 2]);
        assert!([(0, 4), (4, 4)].iter().all(|(at, len)| placement.scatter(*at, *len).is_some()));
        assert!(placement.scatter(3, 2).is_none(), "it is in two places");
        assert!(placement.finish());
        let bytes = |region: &Region| {
            let mut bytes = [0; 16];
            region.read(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(&region)[..12], [0, 0, 0, 0, 0, 0, 7, 7, 9, 7, 7, 7]);
        assert_eq!(bytes(&later)[..6], [8, 8, 0, 9, 0, 0]);
    }

    /// COLL-1.5: rounds have the same numbers in all collectives, so they do not tell them apart.
    #[test]
    fn parcels_of_two_collectives_go_to_the_memory_of_each() {
        let parcels = AwaitedParcels::default();
        let of = |number| ParcelHead { number, ..head(0, None) };
        let regions = [5, 6].map(|number| {
            let region = Region::zeroed(LEN as usize).unwrap();
            parcels.add(1, of(number), LEN, ParcelMemory::new(place(&region, 0)));
            region
        });
        assert!(parcels.begin(1, &of(7), LEN).is_none(), "another collective");
        for number in [6, 5] {
            let mut placement = parcels.begin(1, &of(number), LEN).unwrap();
            placement.write(0, &[number as u8; LEN as usize]);
            assert!(placement.finish());
        }
        for (region, value) in regions.iter().zip([5, 6]) {
            let mut bytes = [0; LEN as usize];
            region.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [value; LEN as usize]);
        }
    }

    /// COLL-1.5: a parcel that is sent anew may come before the rest of the withdrawn one.
    #[test]
    fn rest_of_a_parcel_that_has_come_otherwise_is_not_placed() {
        let parcels = AwaitedParcels::default();
        let region = Region::zeroed(LEN as usize).unwrap();
        let memory = ParcelMemory::new(place(&region, 0));
        parcels.add(1, head(0, None), LEN, Arc::clone(&memory));
        let mut placement = parcels.begin(1, &head(0, None), LEN).unwrap();
        memory.close();
        assert!(placement.scatter(0, LEN).is_none());
        placement.write(0, &[1; LEN as usize]);
        assert!(placement.finish(), "no bytes that are wanted are lost");
        let mut bytes = [1; LEN as usize];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; LEN as usize]);
    }

    /// Otherwise a late parcel of a failed collective would damage the values of a later one.
    #[test]
    fn memory_is_kept_until_the_parcel_that_has_begun_ends() {
        let parcels = AwaitedParcels::default();
        let region = Region::zeroed(LEN as usize).unwrap();
        let kept = Arc::new(());
        let place = ParcelPlace { keep: Some(Arc::<()>::clone(&kept)), ..place(&region, 0) };
        let memory = ParcelMemory::new(place);
        parcels.add(1, head(0, None), LEN, Arc::clone(&memory));
        let placement = parcels.begin(1, &head(0, None), LEN).unwrap();
        assert!(!parcels.remove(&memory));
        drop(memory);
        assert_eq!(Arc::strong_count(&kept), 2);
        placement.abort();
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn parcel_for_memory_whose_loan_is_over_has_not_come() {
        let parcels = AwaitedParcels::default();
        let mut memory = [0; LEN as usize];
        let placement = with_borrowed_mut(&mut memory, |region| {
            let memory = ParcelMemory::new(place(region, 0));
            parcels.add(1, head(0, None), LEN, Arc::clone(&memory));
            parcels.add(1, head(1, None), LEN, Arc::clone(&memory));
            let placement = parcels.begin(1, &head(0, None), LEN);
            assert!(parcels.remove(&memory) && !parcels.remove(&memory));
            placement
        });
        assert!(parcels.begin(1, &head(1, None), LEN).is_none(), "it is not awaited any more");
        let mut placement = placement.unwrap();
        assert!(placement.scatter(0, LEN).is_none());
        placement.write(0, &[1; LEN as usize]);
        assert!(!placement.finish());
        assert_eq!(memory, [0; LEN as usize]);
    }
}
