//! Random calls against a model with three levels per page.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const PAGES: u64 = 6;

#[derive(Clone, Debug)]
enum Step {
    Install(u64, u64, bool),
    SetAccess(u64, u64, bool),
    Invalidate(u64, u64),
    Load(u64),
    Store(u64),
    Poke(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let run = || (0..PAGES, 0..=PAGES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        (run(), any::<bool>()).prop_map(|((a, b), w)| Step::Install(a, b, w)),
        (run(), any::<bool>()).prop_map(|((a, b), w)| Step::SetAccess(a, b, w)),
        run().prop_map(|(a, b)| Step::Invalidate(a, b)),
        (0..PAGES).prop_map(Step::Load),
        (0..PAGES).prop_map(Step::Store),
        (0..PAGES).prop_map(Step::Poke),
    ]
}

/// Level (0, 1 load, 2 store) and content of each page.
#[derive(Default)]
struct Model {
    level: [u8; PAGES as usize],
    value: [u64; PAGES as usize],
}

fn access(write: bool) -> Access {
    if write { Access::Write } else { Access::Read }
}

/// Applies one step to both and returns the faults that it must cause.
fn apply(step: &Step, count: u64, memory: &SharedMemory, model: &mut Model) -> Vec<(u64, Access)> {
    let level = |write: bool| if write { 2 } else { 1 };
    match *step {
        Step::Install(a, b, w) => {
            memory.install(a..b, access(w)).unwrap();
            model.level[a as usize..b as usize].fill(level(w));
        }
        Step::SetAccess(a, b, w) => {
            memory.set_access(a..b, access(w)).unwrap();
            model.level[a as usize..b as usize]
                .iter_mut()
                .filter(|l| **l > 0)
                .for_each(|l| *l = level(w));
        }
        Step::Invalidate(a, b) => {
            memory.invalidate(a..b).unwrap();
            model.level[a as usize..b as usize].fill(0);
        }
        Step::Load(page) => {
            assert_eq!(load(memory, page as usize), model.value[page as usize]);
            let level = &mut model.level[page as usize];
            let old = std::mem::replace(level, (*level).max(1));
            return if old < 1 { vec![(page, Access::Read)] } else { vec![] };
        }
        Step::Store(page) => {
            store(memory, page as usize, count);
            model.value[page as usize] = count;
            let old = std::mem::replace(&mut model.level[page as usize], 2);
            return if old < 2 { vec![(page, Access::Write)] } else { vec![] };
        }
        Step::Poke(page) => {
            poke(memory, page as usize, count);
            model.value[page as usize] = count;
        }
    }
    vec![]
}

pub(super) fn any_sequence_of_calls_traps_what_a_model_says(tracker: &Arc<dyn Tracker>) {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(step(), 1..60), |steps| {
            let memory = array(tracker, 9, PAGES as usize);
            let mut model = Model::default();
            let (expected, faults) = serve(tracker, grant(&memory), || {
                let steps = steps.iter().zip(1..);
                steps
                    .flat_map(|(step, count)| apply(step, count, &memory, &mut model))
                    .collect::<Vec<_>>()
            });
            // Where loads and stores are not distinguished, a store to an unmapped page causes two
            // faults.
            let told: Vec<_> = faults.iter().filter_map(|f| Some((f.page, f.access?))).collect();
            if faults.len() == told.len() {
                prop_assert_eq!(told, expected);
            } else {
                prop_assert_eq!(
                    pages_of(&faults).len(),
                    expected
                        .iter()
                        .map(|(p, _)| p)
                        .collect::<std::collections::BTreeSet<_>>()
                        .len()
                );
            }
            Ok(())
        })
        .unwrap();
}
