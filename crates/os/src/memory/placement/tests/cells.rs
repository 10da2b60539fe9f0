//! Tests each kind of memory with each other, by each way, with each mechanism switched off.

use super::*;

/// Calls `test` for each pair of kinds and each way, with each mechanism switched off.
fn every_cell(test: impl Fn(&str, &Placement, (Memory, Memory), PlacementMethod)) {
    for without in WITHOUT {
        let placement = placement(without);
        for (one, other) in ALL.iter().flat_map(|one| ALL.map(|other| (*one, other))) {
            for way in [PlacementMethod::Auto, PlacementMethod::Move, PlacementMethod::Copy] {
                test(without, &placement, (one, other), way);
            }
        }
    }
}

/// MEM-17.1 and MEM-17.5: whatever the way, the contents are exchanged, and the memory around them
/// is unchanged.
#[test]
fn every_pair_of_kinds_exchanges_its_contents_by_every_way() {
    let page = page_size();
    let len = 5 * page;
    every_cell(|without, placement, (one, other), way| {
        let (mut a, mut b) = (filled(one, len, 1), filled(other, len, 2));
        let done = placement.exchange(
            at(&a.0.region, page as u64),
            at(&b.0.region, 2 * page as u64),
            3,
            way,
        );
        let alike = a.0.region.huge_pages() == b.0.region.huge_pages();
        let movable = one.moves() && other.moves() && alike && placement.why_not().is_none();
        if way == PlacementMethod::Move && !movable {
            assert!(done.is_err(), "{without} {one:?} {other:?}");
        } else {
            let placed = done.unwrap();
            assert_eq!(placed.moved + placed.copied, 3 * page as u64);
            assert_eq!(
                placed.moved > 0,
                way == PlacementMethod::Move,
                "{without} {one:?} {other:?} {way:?}"
            );
            a.1[page..4 * page].swap_with_slice(&mut b.1[2 * page..]);
        }
        assert!(bytes(&a.0.region) == a.1, "{without} {one:?} {other:?} {way:?}");
        assert!(bytes(&b.0.region) == b.1, "{without} {one:?} {other:?} {way:?}");
    });
}

/// Repeats all tests without huge pages. The setting is read once per process, so they run in
/// another one.
#[test]
fn without_huge_pages_every_cell_is_as_it_should_be() {
    const SWITCH: &str = "OIKAZE_WITHOUT";
    if std::env::var_os(SWITCH).is_some() {
        assert_eq!(super::super::super::huge_page(), None);
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.arg("placement::tests::cells").env(SWITCH, "huge").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("7 passed"), "{output:?}");
}

/// MEM-17.3.
#[test]
fn every_pair_of_kinds_transfers_its_contents_by_every_way() {
    let page = page_size();
    let len = 5 * page;
    every_cell(|without, placement, (one, other), way| {
        let (from, mut to) = (filled(one, len, 1), filled(other, len, 2));
        let done = placement.transfer(
            at(&from.0.region, page as u64),
            at(&to.0.region, 2 * page as u64),
            3,
            way,
        );
        let movable = one.moves() && other.moves() && placement.why_not().is_none();
        assert_eq!(done.is_ok(), way != PlacementMethod::Move || movable);
        if done.is_ok() {
            to.1[2 * page..].copy_from_slice(&from.1[page..4 * page]);
        }
        assert!(bytes(&to.0.region) == to.1, "{without} {one:?} {other:?} {way:?}");
        let left = bytes(&from.0.region);
        assert!(left[..page] == from.1[..page] && left[4 * page..] == from.1[4 * page..]);
    });
}

/// Covers sizes at which moving pays, and the unaligned ends of huge pages.
#[test]
fn large_ranges_come_to_their_place_by_the_best_way() {
    let page = page_size();
    for without in WITHOUT {
        let placement = placement(without);
        for memory in ALL {
            let (mut a, mut b) = (filled(memory, 9 << 20, 1), filled(memory, 9 << 20, 2));
            for (from, to, len) in [(page, page, 8 << 20), (0, 3 * page, 1 << 20), (0, 0, 4 << 20)]
            {
                let (one, other) = (at(&a.0.region, from as u64), at(&b.0.region, to as u64));
                let placed = placement
                    .exchange(one, other, (len / page) as u64, PlacementMethod::Auto)
                    .unwrap();
                a.1[from..from + len].swap_with_slice(&mut b.1[to..to + len]);
                assert!(bytes(&a.0.region) == a.1, "{without} {memory:?} {from} {to} {len}");
                assert!(bytes(&b.0.region) == b.1, "{without} {memory:?} {from} {to} {len}");
                if !memory.moves() || placement.why_not().is_some() {
                    assert_eq!(placed.moved, 0, "{without} {memory:?}");
                } else if memory == Memory::PrivateHuge
                    && let Some(size) = super::super::super::huge_page()
                {
                    let (one, other) =
                        (a.0.region.view_ptr().addr() + from, b.0.region.view_ptr().addr() + to);
                    assert_eq!(
                        placed.moved,
                        huge_moves::whole(one, other, len, size).len() as u64,
                        "{from} {to}"
                    );
                }
            }
        }
    }
}

/// A transfer copies nothing, neither into an empty place nor into a full one, whose pages are
/// exchanged.
#[test]
fn a_transfer_moves_into_empty_places_and_takes_what_fills_others() {
    let Some(placement) = moving() else { return };
    let (len, page) = (4 << 20, page_size());
    for memory in [Memory::PrivateSmall, Memory::PrivateHuge] {
        let ((from, expected), (full, _)) = (filled(memory, len, 1), filled(memory, len, 2));
        let empty = make(memory, len).region;
        let all = Placed { moved: len as u64, copied: 0 };
        let transfer = |from: &Region, to: &Region| {
            placement.transfer(at(from, 0), at(to, 0), (len / page) as u64, PlacementMethod::Auto)
        };
        assert_eq!(transfer(&from.region, &empty), Ok(all), "{memory:?}");
        assert_eq!(transfer(&empty, &full.region), Ok(all), "{memory:?}");
        assert!(bytes(&full.region) == expected);
    }
}

/// Exchanges between huge and small pages are copied, because splitting the huge ones costs more.
#[test]
fn memory_of_other_pages_is_copied() {
    let placement = placement("");
    let ((a, first), (b, second)) =
        (filled(Memory::PrivateHuge, 4 << 20, 1), filled(Memory::PrivateSmall, 4 << 20, 2));
    let pages = ((4 << 20) / page_size()) as u64;
    let placed = placement
        .exchange(at(&a.region, 0), at(&b.region, 0), pages, PlacementMethod::Auto)
        .unwrap();
    assert_eq!(placed.moved > 0, a.region.huge_pages().is_none() && placement.why_not().is_none());
    assert!(bytes(&a.region) == second && bytes(&b.region) == first);
    // A demand is met where both have huge pages, even from inside one on: the huge pages are
    // split.
    if placement.why_not().is_some() {
        return;
    }
    let (b, second_again) = filled(Memory::PrivateHuge, 4 << 20, 3);
    let page = page_size();
    placement
        .exchange(
            at(&a.region, page as u64),
            at(&b.region, 3 * page as u64),
            700,
            PlacementMethod::Move,
        )
        .unwrap();
    let (mut one, mut other) = (second, second_again);
    one[page..701 * page].swap_with_slice(&mut other[3 * page..703 * page]);
    assert!(bytes(&a.region) == one && bytes(&b.region) == other);
}

/// MEM-17.6: bytes written through the alias are visible in the view before, after and without
/// being installed.
#[test]
fn installed_pages_show_what_the_alias_has() {
    let page = page_size();
    for memory in [Memory::SharedSmall, Memory::SharedHuge] {
        let (fixture, mut expected) = filled(memory, 5 << 20, 1);
        let region = &fixture.region;
        for (first, pages) in [(0, 1), (3, 40), (0, (5 << 20) / page), (17, 1000)] {
            super::super::retract(at(region, (first * page) as u64), pages as u64).unwrap();
            let new = pattern(pages * page, first as u64 + 7);
            region
                .write_from(super::super::super::region::Side::Runtime, (first * page) as u64, &new)
                .unwrap();
            super::super::install(at(region, (first * page) as u64), pages as u64).unwrap();
            expected[first * page..][..new.len()].copy_from_slice(&new);
            assert!(bytes(region) == expected, "{memory:?} {first} {pages}");
            assert_eq!(
                present(region, first * page, pages * page),
                pages,
                "{memory:?} {first} {pages}"
            );
        }
        // The other mapping has lost nothing.
        super::super::retract(at(region, 0), (5 << 20) / page as u64).unwrap();
        assert!(bytes(region) == expected);
    }
}

/// Returns the number of mapped pages of the view.
fn present(region: &Region, offset: usize, len: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let (page, first) = (page_size(), region.view_ptr().addr() + offset);
    let mut words = vec![0; len / page * 8];
    std::fs::File::open("/proc/self/pagemap")
        .unwrap()
        .read_exact_at(&mut words, (first / page * 8) as u64)
        .unwrap();
    words.as_chunks::<8>().0.iter().filter(|word| u64::from_ne_bytes(**word) >> 63 == 1).count()
}
