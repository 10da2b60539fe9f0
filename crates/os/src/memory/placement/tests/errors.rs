//! Tests that refusals change nothing (MEM-17.2).

use super::super::super::borrowed::{with_borrowed, with_borrowed_mut};
use super::super::super::{AccessError, RegionTable};
use super::super::{PlacementError, install, retract};
use super::*;

fn refused(a: PageRange<'_>, b: PageRange<'_>, pages: u64) -> PlacementError {
    for without in WITHOUT {
        let placement = placement(without);
        let (one, other) = (bytes_if_open(a.region), bytes_if_open(b.region));
        let both = [
            placement.exchange(a, b, pages, PlacementMethod::Auto),
            placement.transfer(a, b, pages, PlacementMethod::Auto),
        ];
        assert!(both.iter().all(Result::is_err), "{both:?}");
        assert!(bytes_if_open(a.region) == one && bytes_if_open(b.region) == other);
    }
    placement("").exchange(a, b, pages, PlacementMethod::Auto).unwrap_err()
}

fn bytes_if_open(region: &Region) -> Option<Vec<u8>> {
    (!region.is_closed()).then(|| bytes(region))
}

#[test]
fn bad_ranges_are_refused_before_anything_is_changed() {
    let page = page_size() as u64;
    let ((a, _), (b, _)) = (small(4, 1), small(4, 2));
    for (offset, pages) in
        [(0, 5), (4 * page, 1), (3 * page, 2), (u64::MAX - page + 1, 2), (u64::MAX - page + 1, 1)]
    {
        let error = refused(at(&a, offset), at(&b, 0), pages);
        assert!(
            matches!(error, PlacementError::Access(AccessError::OutOfBounds { .. })),
            "{error}"
        );
        assert!(refused(at(&a, 0), at(&b, offset), pages).to_string().contains("outside a region"));
    }
    for offset in [1, page - 1, page + 8, u64::MAX] {
        assert!(matches!(refused(at(&a, offset), at(&b, 0), 1), PlacementError::Misaligned { .. }));
        assert!(refused(at(&a, 0), at(&b, offset), 1).to_string().contains("only whole pages"));
    }
    assert!(matches!(
        refused(at(&a, 0), at(&b, 0), u64::MAX),
        PlacementError::TooMany { pages: u64::MAX }
    ));
}

#[test]
fn ranges_with_bytes_in_common_are_refused_and_adjacent_ones_are_not() {
    let page = page_size() as u64;
    let (a, mut expected) = small(6, 1);
    for (one, other) in [(0, 0), (0, 1), (1, 0), (3, 1)] {
        assert!(matches!(
            refused(at(&a, one * page), at(&a, other * page), 3),
            PlacementError::Overlap { .. }
        ));
    }
    for way in [PlacementMethod::Auto, PlacementMethod::Copy] {
        placement("").exchange(at(&a, 0), at(&a, 3 * page), 3, way).unwrap();
        let (low, high) = expected.split_at_mut(3 * page as usize);
        low.swap_with_slice(high);
        assert!(bytes(&a) == expected);
    }
    // A range of no pages overlaps nothing and changes nothing, but a bad offset is still refused.
    let nothing =
        placement("").exchange(at(&a, page), at(&a, page), 0, PlacementMethod::Auto).unwrap();
    assert_eq!(nothing, Placed::default());
    assert!(placement("").exchange(at(&a, 7 * page), at(&a, 0), 0, PlacementMethod::Auto).is_err());
    assert!(bytes(&a) == expected);
}

#[test]
fn lent_memory_is_touched_only_as_far_as_it_was_lent() {
    let (a, expected) = small(2, 1);
    let mut lent = vec![7; 2 * page_size()];
    let kept = with_borrowed(&lent, |region| {
        assert!(matches!(
            refused(at(&a, 0), at(region, 0), 1),
            PlacementError::Access(AccessError::ReadOnly)
        ));
        region.clone()
    });
    assert!(matches!(
        refused(at(&a, 0), at(&kept, 0), 1),
        PlacementError::Access(AccessError::Closed)
    ));
    with_borrowed_mut(&mut lent, |region| {
        placement("").exchange(at(&a, 0), at(region, 0), 2, PlacementMethod::Auto).unwrap()
    });
    assert!(lent == expected);
}

/// MEM-17.4.
#[test]
fn the_memory_of_shared_arrays_never_takes_part() {
    let page = page_size();
    let mut owned = vec![3_u8; 2 * page];
    let owner: std::sync::Arc<dyn super::super::super::region::Owner> = std::sync::Arc::new(());
    // SAFETY: `owned` outlives the region, and nobody else refers to it meanwhile.
    let alias =
        unsafe { Region::from_alias(owner, NonNull::new(owned.as_mut_ptr()).unwrap(), 2 * page) };
    let (a, _) = small(2, 1);
    assert_eq!(refused(at(&alias, 0), at(&a, 0), 1), PlacementError::SharedArray);
    assert_eq!(refused(at(&a, 0), at(&alias, 0), 1), PlacementError::SharedArray);
    assert_eq!(install(at(&alias, 0), 1), Err(PlacementError::SharedArray));
}

#[test]
fn a_demand_that_cannot_be_met_says_why() {
    let ((a, _), (b, _)) = (small(2, 1), small(2, 2));
    let text = placement("move")
        .exchange(at(&a, 0), at(&b, 0), 1, PlacementMethod::Move)
        .unwrap_err()
        .to_string();
    assert!(text.contains("OIKAZE_WITHOUT=move") && text.contains("Private"), "{text}");
    let shared = Region::shared(2 * page_size()).unwrap();
    let error =
        placement("").transfer(at(&a, 0), at(&shared, 0), 1, PlacementMethod::Move).unwrap_err();
    assert!(
        matches!(
            error,
            PlacementError::NotMovable { from: RegionKind::Private, to: RegionKind::Shared, .. }
        ),
        "{error}"
    );
    for denied in [install(at(&a, 0), 1), retract(at(&a, 0), 1)] {
        assert_eq!(denied, Err(PlacementError::NoView { kind: RegionKind::Private }));
    }
}

/// Regions whose pages have moved work like others with the table and when dropped.
#[test]
fn moved_pages_are_reached_by_peers_and_given_back() {
    let Some(placement) = moving() else { return };
    let (a, _) = small(64, 1);
    let (b, expected) = small(64, 2);
    let mut table = RegionTable::new();
    let slot = table.insert_local(a.clone()).unwrap();
    placement.exchange(at(&a, 0), at(&b, 0), 64, PlacementMethod::Move).unwrap();
    let mut found = vec![0; expected.len()];
    assert!(oikaze_protocol::rma::Memory::read(&table, slot, 0, &mut found) && found == expected);
}
