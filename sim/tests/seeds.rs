//! A few seeds of each scenario; a seed is a run.

use oikaze_sim::hunt::{Hunt, hunt};
use oikaze_sim::plan::Scenario;
use oikaze_sim::run::run;

#[test]
fn a_seed_repeats_itself_bit_for_bit() {
    for scenario in Scenario::ALL {
        for seed in 40..if scenario == Scenario::Counts { 41 } else { 48 } {
            let (one, two) = (run(seed, scenario, false), run(seed, scenario, false));
            assert_eq!(one.digest, two.digest, "{} {seed}", scenario.name());
            assert!(one.digest.1 > 10);
        }
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run(1, Scenario::Mixed, false).digest, run(2, Scenario::Mixed, false).digest);
}

#[test]
fn every_scenario_keeps_its_promises() {
    for scenario in Scenario::ALL {
        // Of 100,000 additions each, one without a death and one with one.
        let seeds = if scenario == Scenario::Counts { 2 } else { 20 };
        let asked = Hunt { from: 0, seeds, jobs: 2, scenario: Some(scenario), stop_at_first: true };
        let hunted = hunt(&asked, |_| {});
        assert!(hunted.failures.is_empty(), "{}", hunted.failures[0]);
        assert_eq!(hunted.runs, seeds);
    }
}

#[test]
fn a_failed_run_says_how_to_have_it_again() {
    let outcome = run(0x1234, Scenario::Shared, false);
    assert_eq!(outcome.replay(), "cargo run --release -p oikaze-sim -- --seed 0x1234 --scenario shared --trace");
}
