//! A few seeds of each scenario; a seed is a run.

use oikaze_sim::hunt::{Hunt, hunt};
use oikaze_sim::plan::Scenario;
use oikaze_sim::run::run;

/// Limits the number of seeds of long scenarios. Counts run with one seed without a death and with
/// one seed with a death.
fn few(scenario: Scenario, seeds: u64) -> u64 {
    match scenario {
        Scenario::Counts => 2,
        Scenario::Deaths => 4,
        Scenario::Groups | Scenario::Flows => 12,
        _ => seeds,
    }
}

#[test]
fn a_seed_repeats_itself_bit_for_bit() {
    for scenario in Scenario::ALL {
        for seed in 40..40 + few(scenario, 16) / 2 {
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
        let seeds = few(scenario, 20);
        let asked = Hunt { from: 0, seeds, jobs: 2, scenario: Some(scenario), stop_at_first: true };
        let hunted = hunt(&asked, |_| {});
        assert!(hunted.failures.is_empty(), "{}", hunted.failures[0]);
        assert_eq!(hunted.runs, seeds);
    }
}

/// WIND-12.1, WIND-13.1: nodes share in spite of loss at one of them, a death and a partition. A
/// run in which nothing was shared proves nothing.
#[test]
fn nodes_share_by_multicast_on_a_bad_network() {
    for seed in 300..309 {
        let outcome = run(seed, Scenario::Groups, false);
        let copies = outcome.result.as_ref().map(|summary| summary.group_copies);
        assert!(copies.is_ok_and(|copies| copies > 100), "{outcome}: {copies:?}");
    }
}

/// WIND-14.1, WIND-14.5: bulk arrives by flows of which some are slow, and one carries nothing. A
/// run in which all went by the first flow proves nothing.
#[test]
fn bulk_goes_by_several_flows_on_a_bad_network() {
    for seed in 301..304 {
        let outcome = run(seed, Scenario::Flows, false);
        let further = outcome.result.as_ref().map(|summary| summary.by_further_flows);
        assert!(further.is_ok_and(|further| further > 50), "{outcome}: {further:?}");
    }
}

/// WIND-12.3, WIND-6.5: all receivers had room only for a message that waited for group datagrams,
/// and these waited until a receiver had room.
#[test]
fn message_that_all_others_wait_for_does_not_wait_for_the_group() {
    for seed in [0x6, 0x2d, 0x7b] {
        let outcome = run(seed, Scenario::Groups, false);
        assert!(outcome.result.is_ok(), "{outcome}");
    }
}

/// A death that finds nothing under way proves nothing.
#[test]
fn nodes_die_while_operations_of_every_kind_are_under_way() {
    let asked = Hunt {
        from: 100,
        seeds: 12,
        jobs: 2,
        scenario: Some(Scenario::Deaths),
        stop_at_first: true,
    };
    let hunted = hunt(&asked, |_| {});
    assert!(hunted.failures.is_empty(), "{}", hunted.failures[0]);
    let kinds: Vec<_> = hunted.ends.kinds.keys().copied().collect();
    for kind in [
        "accumulate",
        "add",
        "exchange",
        "fetch-add",
        "flush",
        "get",
        "lookup",
        "message",
        "push",
        "put",
        "put behind a fence",
        "put of a block",
        "put of a list",
        "put with signal",
        "quiet",
        "what comes and goes",
    ] {
        assert!(kinds.contains(&kind), "{kind} was never under way: {}", hunted.ends);
    }
    // And of what was, some had been done, some is lost.
    let (done, lost) = hunted
        .ends
        .kinds
        .values()
        .fold((0, 0), |(done, lost), ended| (done + ended.done, lost + ended.lost));
    assert!(done > 20 && lost > 20, "{}", hunted.ends);
}

#[test]
fn a_failed_run_says_how_to_have_it_again() {
    let outcome = run(0x1234, Scenario::Shared, false);
    assert_eq!(
        outcome.replay(),
        "cargo run --release -p oikaze-sim -- --seed 0x1234 --scenario shared --trace"
    );
}
