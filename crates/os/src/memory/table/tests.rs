//! Tests the region table against a model: a list of all registrations ever made, with their
//! expected state.

use super::*;
use oikaze_protocol::rma::Memory;
use oikaze_protocol::wind::Refusal;
use proptest::prelude::*;

const PAGES: u64 = 4;
const P: u64 = PAGE as u64;

#[derive(Clone, Debug)]
enum Step {
    Insert { rights: u8 },
    Remove { which: usize },
    Close { which: usize },
    Renew { which: usize, rights: u8 },
    SetRights { which: usize, rights: u8 },
    Protect { which: usize, pages: (u64, u64), rights: u8 },
    Grow { which: usize, len: u64 },
    Ask { which: usize, offset: u64, len: u64, right: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0_usize..10;
    let rights = || 0_u8..8;
    let offset = prop_oneof![3 => 0..PAGES * P, 2 => (0..=PAGES).prop_map(|page| page * P), 1 => Just(u64::MAX)];
    let len = prop_oneof![3 => 0..64_u64, 2 => 0..3 * P, 1 => Just(u64::MAX)];
    prop_oneof![
        3 => rights().prop_map(|rights| Step::Insert { rights }),
        1 => which().prop_map(|which| Step::Remove { which }),
        1 => which().prop_map(|which| Step::Close { which }),
        2 => (which(), rights()).prop_map(|(which, rights)| Step::Renew { which, rights }),
        2 => (which(), rights()).prop_map(|(which, rights)| Step::SetRights { which, rights }),
        4 => (which(), (0..PAGES + 1, 0..PAGES + 1), rights())
            .prop_map(|(which, pages, rights)| Step::Protect { which, pages, rights }),
        1 => (which(), 0..PAGES * P + 2).prop_map(|(which, len)| Step::Grow { which, len }),
        8 => (which(), offset, len, rights()).prop_map(|(which, offset, len, right)| Step::Ask { which, offset, len, right }),
    ]
}

/// Expected state of a registration.
struct Known {
    registered: Registered,
    region: Region,
    /// Expected rights of each page up to the capacity of the region, and of the page behind it,
    /// where an empty range may begin.
    pages: Vec<Rights>,
    whole: Rights,
    len: u64,
    live: bool,
    closed: bool,
}

impl Known {
    fn new(registered: Registered, region: Region, rights: Rights, len: u64) -> Known {
        let pages = vec![rights; PAGES as usize + 1];
        Known { registered, region, pages, whole: rights, len, live: true, closed: false }
    }

    fn answer(&self, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        if !self.live || self.closed {
            return Err(Refusal::UnknownKey);
        }
        let end = u128::from(offset) + u128::from(len);
        if end > u128::from(self.len) {
            return Err(if self.whole.contains(right) {
                Refusal::OutOfBounds
            } else {
                Refusal::NotPermitted
            });
        }
        let touched = (offset..(offset + len).max(offset + 1))
            .step_by(64)
            .chain([(offset + len).max(offset + 1) - 1]);
        let granted =
            touched.map(|at| self.pages[(at / P) as usize]).all(|rights| rights.contains(right));
        if granted { Ok(self.registered.slot) } else { Err(Refusal::NotPermitted) }
    }
}

fn apply(table: &mut RegionTable, all: &mut Vec<Known>, step: Step) -> Result<(), TestCaseError> {
    let new = |all: &[Known], registered: Registered| {
        let old = |known: &Known| {
            known.registered.id == registered.id || known.registered.key == registered.key
        };
        !all.iter().any(old)
    };
    match step {
        Step::Insert { rights } => {
            let region =
                Region::private_with_capacity(P as usize + 100, (PAGES * P) as usize).unwrap();
            let registered = table.insert(region.clone(), Rights(rights)).unwrap();
            prop_assert!(new(all, registered), "nothing is used twice");
            all.push(Known::new(registered, region, Rights(rights), P + 100));
        }
        Step::Remove { which } => {
            let Some(known) = all.get_mut(which) else { return Ok(()) };
            prop_assert_eq!(table.remove(known.registered.slot).is_some(), known.live);
            known.live = false;
        }
        Step::Close { which } => {
            let Some(known) = all.get_mut(which) else { return Ok(()) };
            table.close(known.registered.slot);
            known.closed = true;
        }
        Step::Renew { which, rights } => {
            let Some(known) = all.get_mut(which) else { return Ok(()) };
            let renewed = table.renew(known.registered.slot, Rights(rights));
            prop_assert_eq!(renewed.is_ok(), known.live);
            if let Ok(registered) = renewed {
                known.live = false;
                let (region, len) = (known.region.clone(), known.len);
                prop_assert_eq!(
                    index_of(registered.slot),
                    index_of(known.registered.slot),
                    "the same entry"
                );
                prop_assert!(new(all, registered), "nothing is used twice");
                all.push(Known::new(registered, region, Rights(rights), len));
            }
        }
        Step::SetRights { which, rights } => {
            let Some(known) = all.get_mut(which) else { return Ok(()) };
            prop_assert_eq!(
                table.set_rights(known.registered.slot, Rights(rights)).is_ok(),
                known.live
            );
            (known.whole, known.pages) = (Rights(rights), vec![Rights(rights); PAGES as usize + 1]);
        }
        Step::Protect { which, pages: (first, last), rights } => {
            let Some(known) = all.get_mut(which) else { return Ok(()) };
            let end = if last * P > known.len && (last - 1) * P < known.len {
                known.len
            } else {
                last * P
            };
            let fits = first * P <= end && end <= known.len;
            let outcome = table.protect(known.registered.slot, first * P..end, Rights(rights));
            prop_assert_eq!(outcome.is_ok(), known.live && fits, "{:?}", outcome);
            if outcome.is_ok() && first < last {
                known.pages[first as usize..last as usize].fill(Rights(rights));
            }
        }
        Step::Grow { which, len } => {
            let Some(known) = all.get(which) else { return Ok(()) };
            let (region, fits) = (known.region.clone(), len >= known.len && len <= PAGES * P);
            prop_assert_eq!(region.grow(len as usize).is_ok(), fits);
            // The same memory may have been registered several times.
            for known in
                all.iter_mut().filter(|known| fits && known.region.view_ptr() == region.view_ptr())
            {
                known.len = len;
            }
        }
        Step::Ask { which, offset, len, right } => {
            let Some(known) = all.get(which) else { return Ok(()) };
            let Registered { key, slot, id } = known.registered;
            prop_assert_eq!(
                table.locate(key, offset, len, Rights(right)),
                known.answer(offset, len, Rights(right))
            );
            let usable = known.live && !known.closed;
            prop_assert_eq!(table.resolve(id).map(|(slot, ..)| slot), usable.then_some(slot));
            let inside = u128::from(offset) + u128::from(len) <= u128::from(known.len);
            prop_assert_eq!(table.is_inside(slot, offset, len), known.live && inside);
            prop_assert_eq!(table.is_usable(slot, offset, len), known.live && inside);
        }
    }
    Ok(())
}

proptest! {
    /// MEM-1.5 to MEM-1.8.
    #[test]
    fn registrations_do_what_a_list_of_them_does(steps in proptest::collection::vec(step(), 1..150)) {
        let (mut table, mut all) = (RegionTable::new(), Vec::new());
        for step in steps {
            apply(&mut table, &mut all, step)?;
        }
        prop_assert_eq!(table.len(), all.iter().filter(|known| known.live).count());
        for known in &all {
            prop_assert_eq!(table.id(known.registered.slot) == Some(known.registered.id), known.live);
        }
    }
}

/// An old id stays invalid, even when its slot number is in use again (MEM-1.5). A slot number
/// repeats, because it holds fewer bits of the generation than the id.
#[test]
fn an_id_is_never_used_again() {
    let mut table = RegionTable::new();
    let region = Region::private(64).unwrap();
    let first = table.insert(region, Rights::ALL).unwrap();
    let mut now = first;
    for _ in 0..1 << 12 {
        now = table.renew(now.slot, Rights::ALL).unwrap();
    }
    assert_eq!(now.slot, first.slot, "the slot is the same again, the id is not");
    assert!(now.id != first.id, "the slot is the same again, the id is not");
    assert!(table.resolve(first.id).is_none() && table.resolve(now.id).is_some());
    for bits in [0, 1, u64::MAX, first.id.to_bits() ^ 1] {
        assert!(table.resolve(RegionId::from_bits(bits)).is_none(), "{bits:#x}");
    }
}

#[test]
fn rights_are_granted_to_whole_pages() {
    let mut table = RegionTable::new();
    let slot = table.insert(Region::private(2 * PAGE + 10).unwrap(), Rights::ALL).unwrap().slot;
    for range in [1..P, 0..P - 1, P..2 * P + 9, 2 * P..4 * P, 3 * P..3 * P, u64::MAX - 1..u64::MAX]
    {
        let error = table.protect(slot, range.clone(), Rights::NONE).unwrap_err();
        assert!(error.to_string().contains("not whole pages of 4096 bytes"), "{error}");
    }
    table.protect(slot, P..2 * P + 10, Rights::READ).unwrap();
    assert!(table.has_page_rights(slot));
    table.protect(slot, 0..P, Rights::READ).unwrap();
    table.set_rights(slot, Rights::WRITE).unwrap();
    assert!(!table.has_page_rights(slot));
    assert_eq!(table.set_rights(slot + 1, Rights::NONE), Err(MemoryError::NotRegistered));
}

#[test]
fn a_table_that_is_full_says_so() {
    let mut table = RegionTable::new();
    let region = Region::private(64).unwrap();
    let slots: Vec<u32> =
        (0..REGIONS_MAX).map(|_| table.insert_local(region.clone()).unwrap()).collect();
    let error = table.insert(region.clone(), Rights::ALL).unwrap_err();
    assert_eq!(error, MemoryError::TableFull(REGIONS_MAX));
    assert!(error.to_string().contains("1048576 regions are registered"), "{error}");
    table.remove(slots[77]).unwrap();
    assert!(table.insert(region, Rights::ALL).is_ok());
}

#[test]
fn a_region_grows_into_what_was_set_aside() {
    for region in [
        Region::shared_with_capacity(100, 3 * PAGE).unwrap(),
        Region::private_with_capacity(100, 3 * PAGE).unwrap(),
    ] {
        let view = region.view_ptr();
        region.fill(0, 100, 7).unwrap();
        assert!(region.write(100, &[1]).is_err());
        region.grow(2 * PAGE).unwrap();
        assert_eq!((region.len(), region.view_ptr()), (2 * PAGE, view));
        let mut bytes = vec![9; 2 * PAGE];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if at < 100 { 7 } else { 0 }));
        for wrong in [PAGE, 3 * PAGE + 1] {
            let error = region.grow(wrong).unwrap_err();
            assert!(error.to_string().contains("it may grow to 12288"), "{error}");
        }
        assert_eq!(region.len(), 2 * PAGE);
    }
}

#[test]
fn what_begins_with_a_page_is_told_by_where_it_lies() {
    let mut table = RegionTable::new();
    let region = table.insert_local(Region::zeroed(3 * PAGE).unwrap()).unwrap();
    let begins = |table: &RegionTable, region, offset| {
        table.begins_with_page(&Segment { region, offset, len: P })
    };
    assert_eq!(
        [0, P, 8, P - 1].map(|offset| begins(&table, region, offset)),
        [true, true, false, false]
    );
    assert!(!begins(&table, region, 3 * P), "there is nothing");
    assert!(!begins(&table, region + 1, 0), "nor there");
    let bytes = vec![0_u8; 3 * PAGE];
    crate::memory::scope(|scope| {
        let lent = table.insert_local(scope.borrow(&bytes)).unwrap();
        assert!(
            (0..P).all(|offset| !begins(&table, lent, offset)),
            "what is lent is lent until the scope ends"
        );
    });
}
