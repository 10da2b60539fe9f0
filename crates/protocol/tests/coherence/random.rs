//! Random programs without data races, against what a sequential machine would read (COH-2.3,
//! COH-3.7).

use crate::cluster::programs::{
    barriers_in_an_arena, changes_back, exchange, late_news, late_update, newer_update, pass_baton,
    request_over_barrier, run, sections,
};
use crate::cluster::seeds;

/// COH-1.1, COH-3.1, 3.2, 3.3 and 3.7, COH-4.1, 4.2, COH-6.1, 6.4, COH-7.1, COH-10.1 to 10.11,
/// 10.15 and 10.20. (The network reads the bytes of an update at any time before it is delivered.)
#[test]
fn random_programs_read_what_a_sequential_machine_would() {
    for seed in seeds(0, 1500) {
        run(1 + (seed % 5) as u32, 1, seed);
    }
}

/// COH-5.1, 5.5, COH-10.13.
#[test]
fn random_programs_with_several_threads_per_node() {
    for seed in seeds(1_000_000, 600) {
        run(1 + (seed % 4) as u32, 2 + (seed % 2) as usize, seed);
    }
}

/// COH-11.1 to 11.6.
#[test]
fn homes_move_in_random_programs() {
    let moved = |seed| {
        let cluster = run(2 + (seed % 3) as u32, 1 + (seed % 2) as usize, 3 * seed);
        cluster.nodes.iter().map(|node| node.coherence.statistics().homes_moved).sum::<u64>()
    };
    assert!(seeds(2_600_000, 200).map(moved).sum::<u64>() > 200);
}

/// COH-6.5: unlocks make intervals while another thread of their node waits in a barrier. The data
/// that threads pass on by locks must be visible after the next barrier of the thread that got it
/// (COH-7.4).
#[test]
fn batons_pass_while_others_wait_in_barriers() {
    for seed in seeds(2_000_000, 600) {
        pass_baton(2 + (seed % 3) as u32, seed);
    }
}

/// COH-5.6, COH-7.3, COH-10.17: pages that a grant brings up to date are right.
#[test]
fn sections_of_locks_see_what_was_written_under_them() {
    let kept: u64 = seeds(5_000_000, 3000).map(|seed| sections(2 + (seed % 3) as u32, seed)).sum();
    assert!(kept > 1000, "{kept} pages stayed valid");
}

/// COH-6.19: a departure tells of pages that were on their way at the arrival.
#[test]
fn requested_pages_are_not_older_than_a_barrier() {
    (0..200).for_each(request_over_barrier);
}

/// COH-10.4, COH-10.17: a grant brings no older bytes than those of an update that has come, and a
/// late update none that are older than a grant.
#[test]
fn bytes_of_newer_updates_are_kept() {
    (0..20).for_each(newer_update);
    (0..200).for_each(late_update);
}

/// COH-6.5: a late interval is visible to all after the barrier of the node that learnt it.
#[test]
fn late_intervals_are_told_by_those_who_learnt_them() {
    for seed in seeds(4_000_000, 300) {
        late_news([2, 3, 5, 12][seed as usize % 4], seed);
    }
}

/// COH-6.11: barriers in a row, in which one node is ahead of another.
#[test]
fn barriers_in_a_row_keep_nodes_in_step() {
    for seed in seeds(5_000_000, 200) {
        exchange([2, 2, 3, 12][seed as usize % 4], seed);
    }
}

/// COH-10.21: what an answer shows late, and what was changed back since, is named.
#[test]
fn bytes_that_were_changed_back_are_not_kept() {
    seeds(6_500_000, 300).for_each(changes_back);
}

/// COH-6.14, COH-16.3: a node knows when a barrier is for the engines.
#[test]
fn barriers_in_an_arena_tell_of_pages_and_of_dropped_arrays() {
    for seed in seeds(7_000_000, 100) {
        barriers_in_an_arena([2, 3, 12][seed as usize % 3], seed);
    }
}

/// COH-6.12: the same programs, with inner nodes that forward arrivals and departures.
#[test]
fn random_programs_along_a_tree() {
    for seed in seeds(3_000_000, 60) {
        run(10 + (seed % 9) as u32, 1, seed);
        pass_baton(10 + (seed % 3) as u32, seed);
    }
}

/// COH-6.19 to 6.21: threads read while another thread of their node waits in a barrier.
#[test]
fn random_programs_along_a_tree_read_while_their_nodes_wait() {
    for seed in seeds(3_500_000, 60) {
        run(10 + (seed % 3) as u32, 2, seed);
    }
}
