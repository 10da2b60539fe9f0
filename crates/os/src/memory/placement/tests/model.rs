//! Compares any sequence of exchanges, transfers and writes with the same on plain vectors.

use super::*;
use proptest::prelude::*;

const PAGES: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Exchange { one: (usize, usize), other: (usize, usize), pages: usize, way: PlacementMethod },
    Transfer { from: (usize, usize), to: (usize, usize), pages: usize, way: PlacementMethod },
    Write { to: (usize, usize), len: usize, value: u8 },
    Drop { at: (usize, usize), pages: usize },
}

fn place() -> impl Strategy<Value = (usize, usize)> {
    (0..3_usize, 0..PAGES)
}

fn step() -> impl Strategy<Value = Step> {
    let way = prop_oneof![
        Just(PlacementMethod::Auto),
        Just(PlacementMethod::Move),
        Just(PlacementMethod::Move),
        Just(PlacementMethod::Copy)
    ];
    let pages = 1..10_usize;
    prop_oneof![
        4 => (place(), place(), pages.clone(), way.clone())
            .prop_map(|(one, other, pages, way)| Step::Exchange { one, other, pages, way }),
        2 => (place(), place(), pages.clone(), way).prop_map(|(from, to, pages, way)| Step::Transfer { from, to, pages, way }),
        2 => (place(), 1..9000_usize, 1..=255_u8).prop_map(|(to, len, value)| Step::Write { to, len, value }),
        1 => (place(), pages).prop_map(|(at, pages)| Step::Drop { at, pages }),
    ]
}

/// Three regions and their expected content.
struct World {
    placement: Placement,
    regions: [Fixture; 3],
    model: [Vec<u8>; 3],
}

impl World {
    fn new(without: &str, memory: Memory) -> World {
        let page = page_size();
        let regions = [1, 2, 3].map(|_| make(memory, PAGES * page));
        World {
            placement: placement(without),
            regions,
            model: [1, 2, 3].map(|_| vec![0; PAGES * page]),
        }
    }

    fn at(&self, place: (usize, usize)) -> PageRange<'_> {
        at(&self.regions[place.0].region, (place.1 * page_size()) as u64)
    }

    /// Returns the bytes of one range of the model.
    fn taken(&self, place: (usize, usize), pages: usize) -> Vec<u8> {
        self.model[place.0][place.1 * page_size()..][..pages * page_size()].to_vec()
    }

    fn put(&mut self, place: (usize, usize), bytes: &[u8]) {
        self.model[place.0][place.1 * page_size()..][..bytes.len()].copy_from_slice(bytes);
    }

    fn apply(&mut self, step: &Step) {
        let apart =
            |a: (usize, usize), b: (usize, usize), pages| a.0 != b.0 || a.1.abs_diff(b.1) >= pages;
        let fits = |place: (usize, usize), pages| place.1 + pages <= PAGES;
        match *step {
            Step::Exchange { one, other, pages, way } => {
                let done = self.placement.exchange(self.at(one), self.at(other), pages as u64, way);
                assert_eq!(
                    done.is_ok(),
                    fits(one, pages) && fits(other, pages) && apart(one, other, pages),
                    "{done:?}"
                );
                if done.is_ok() {
                    let (first, second) = (self.taken(one, pages), self.taken(other, pages));
                    self.put(one, &second);
                    self.put(other, &first);
                }
            }
            Step::Transfer { from, to, pages, way } => {
                let done = self.placement.transfer(self.at(from), self.at(to), pages as u64, way);
                assert_eq!(
                    done.is_ok(),
                    fits(from, pages) && fits(to, pages) && apart(from, to, pages),
                    "{done:?}"
                );
                if done.is_ok() {
                    let bytes = self.taken(from, pages);
                    self.put(to, &bytes);
                    // The source's content is undefined afterwards, so fill it again.
                    let again = pattern(bytes.len(), 99);
                    self.regions[from.0]
                        .region
                        .write((from.1 * page_size()) as u64, &again)
                        .unwrap();
                    self.put(from, &again);
                }
            }
            Step::Write { to, len, value } => {
                let offset = to.1 * page_size() + len % 100;
                let len = len.min(PAGES * page_size() - offset);
                self.regions[to.0].region.write(offset as u64, &vec![value; len]).unwrap();
                self.model[to.0][offset..][..len].fill(value);
            }
            Step::Drop { at: place, pages } => self.drop_pages(place, pages.min(PAGES - place.1)),
        }
    }

    /// Drops pages of private memory, which become holes and read as zeros.
    fn drop_pages(&mut self, place: (usize, usize), pages: usize) {
        let region = &self.regions[place.0].region;
        if region.kind() == RegionKind::Private {
            let at = region.view_ptr().wrapping_add(place.1 * page_size());
            // SAFETY: inside the region, whose bytes become zeros.
            unsafe {
                rustix::mm::madvise(
                    at.cast(),
                    pages * page_size(),
                    rustix::mm::Advice::LinuxDontNeed,
                )
            }
            .unwrap();
            self.put(place, &vec![0; pages * page_size()]);
        }
    }

    fn check(&self) {
        for (fixture, model) in self.regions.iter().zip(&self.model) {
            assert!(bytes(&fixture.region) == *model);
        }
    }
}

/// MEM-17.1 and MEM-17.3, for memory that moves and memory that does not.
fn run(without: &str, memory: Memory, steps: &[Step]) {
    let mut world = World::new(without, memory);
    let copies = !memory.moves() || world.placement.why_not().is_some();
    for step in steps {
        let step = match step.clone() {
            // Demanding a move where nothing moves is an error, but this test compares results.
            Step::Exchange { one, other, pages, way: PlacementMethod::Move } if copies => {
                Step::Exchange { one, other, pages, way: PlacementMethod::Auto }
            }
            Step::Transfer { from, to, pages, way: PlacementMethod::Move } if copies => {
                Step::Transfer { from, to, pages, way: PlacementMethod::Auto }
            }
            other => other,
        };
        world.apply(&step);
    }
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn private_pages_follow_the_model(steps in proptest::collection::vec(step(), 1..40)) {
        run("", Memory::PrivateSmall, &steps);
    }

    #[test]
    fn without_moves_they_follow_it_too(steps in proptest::collection::vec(step(), 1..40)) {
        run("move", Memory::PrivateSmall, &steps);
    }

    #[test]
    fn shared_pages_follow_the_model(steps in proptest::collection::vec(step(), 1..40)) {
        run("", Memory::SharedSmall, &steps);
    }
}
