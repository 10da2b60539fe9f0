//! Decisions of the launcher, step by step.

use super::*;

const GRACE: Duration = Duration::from_secs(7);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn signals(policy: &mut Policy) -> Vec<i32> {
    policy
        .actions()
        .into_iter()
        .filter_map(|action| if let Action::Signal(signal) = action { Some(signal) } else { None })
        .collect()
}

#[test]
fn good_ends_are_only_told() {
    let mut policy = Policy::new(2, GRACE, None);
    policy.ended(at(0), 1, &Ending::Status(0));
    assert_eq!(
        policy.actions(),
        [Action::Ended(NodeEnd { rank: 1, how: "ended with status 0".into(), success: true })]
    );
    assert!(!policy.is_over() && policy.next_timeout().is_none());
    policy.ended(at(0), 0, &Ending::Status(0));
    assert!(policy.is_over() && policy.status() == 0);
}

#[test]
fn the_first_failure_counts_and_the_rest_is_ended() {
    let mut policy = Policy::new(3, GRACE, None);
    policy.ended(at(1), 2, &Ending::Signal(9));
    policy.ended(at(2), 0, &Ending::Status(3));
    assert!(
        policy.actions().contains(&Action::Abort("node 2 was killed by signal 9 (SIGKILL)".into()))
    );
    assert_eq!(policy.next_timeout(), Some(at(8)));
    policy.timeout(at(7));
    assert!(signals(&mut policy).is_empty());
    policy.timeout(at(8));
    assert_eq!(signals(&mut policy), [15]);
    policy.timeout(at(10));
    assert_eq!(signals(&mut policy), [9]);
    assert!(!policy.is_over());
    policy.timeout(at(15));
    assert!(policy.is_over() && policy.status() == 137);
}

#[test]
fn who_was_killed_is_the_cause_though_another_ended_sooner() {
    let mut policy = Policy::new(3, GRACE, None);
    policy.ended(at(1), 0, &Ending::Status(1));
    policy.ended(at(1), 2, &Ending::Signal(SIGKILL));
    policy.ended(at(1), 1, &Ending::Status(1));
    assert_eq!((policy.status(), policy.is_over()), (128 + 9, true));
    // By the launcher itself, when the others did not end.
    let mut policy = Policy::new(2, GRACE, None);
    policy.ended(at(1), 0, &Ending::Status(1));
    policy.timeout(at(1) + GRACE);
    policy.timeout(at(1) + GRACE + TERM_TIME);
    assert!(signals(&mut policy).contains(&SIGKILL));
    policy.ended(at(20), 1, &Ending::Signal(SIGKILL));
    assert_eq!(policy.status(), 1);
}

#[test]
fn the_second_interrupt_kills() {
    let mut policy = Policy::new(2, GRACE, None);
    policy.signalled(at(0), 2);
    assert_eq!(signals(&mut policy), [2]);
    policy.signalled(at(1), 10);
    assert_eq!(signals(&mut policy), [10]);
    policy.signalled(at(1), 2);
    assert_eq!(signals(&mut policy), [9]);
    policy.ended(at(1), 0, &Ending::Signal(9));
    policy.ended(at(1), 1, &Ending::Signal(9));
    assert!(policy.is_over());
}

/// LAUNCH-4.2.
#[test]
fn quit_asks_what_nodes_do_and_is_passed_on_only_when_it_comes_again_at_once() {
    let mut policy = Policy::new(2, GRACE, None);
    for second in [0, 2, 4] {
        policy.signalled(at(second), 3);
        assert_eq!(policy.actions(), [Action::Report]);
    }
    policy.reported(&[(0, Some("waits for barrier 1\n".into())), (1, None)]);
    assert_eq!(
        printed(&mut policy),
        ["node 0: waits for barrier 1".to_owned(), format!("node 1: {NO_ANSWER}")]
    );
    policy.signalled(at(4), 3);
    assert_eq!(signals(&mut policy), [3]);
    policy.signalled(at(9), 3);
    assert_eq!(signals(&mut policy), [9]);
}

#[test]
fn a_launcher_told_to_go_leaves_nobody() {
    for signal in [1, 15] {
        let mut policy = Policy::new(1, GRACE, None);
        policy.signalled(at(0), signal);
        assert_eq!(signals(&mut policy), [signal]);
        policy.timeout(at(7));
        assert_eq!(signals(&mut policy), [9]);
    }
}

#[test]
fn the_time_limit() {
    let mut policy = Policy::new(1, GRACE, Some(at(3)));
    policy.timeout(at(2));
    assert!(signals(&mut policy).is_empty());
    assert!(!policy.wants_an_end(at(2)));
    policy.timeout(at(3));
    assert!(policy.wants_an_end(at(3)));
    assert_eq!(policy.actions(), [Action::Ask]);
    policy.answered(at(3), &[(0, None)]);
    // END-3.3: the nodes may end by the errors of their own waits.
    assert!(signals(&mut policy).is_empty());
    assert_eq!(policy.next_timeout(), Some(at(4)));
    policy.timeout(at(4));
    assert_eq!(signals(&mut policy), [15]);
    policy.ended(at(4), 0, &Ending::Signal(15));
    assert!(policy.is_over() && policy.status() == STATUS_TIMED_OUT);
}

fn printed(policy: &mut Policy) -> Vec<String> {
    let printed = |action| if let Action::Print(text) = action { Some(text) } else { None };
    policy.actions().into_iter().filter_map(printed).collect()
}

/// LAUNCH-3.3: one line for each living node; without answers the job ends all the same.
#[test]
fn timeout_with_answers_prints_one_line_for_each_living_node() {
    let mut policy = Policy::new(3, GRACE, Some(at(3)));
    policy.ended(at(1), 0, &Ending::Status(0));
    policy.timeout(at(3));
    policy.actions();
    policy.answered(at(4), &[(0, None), (1, Some("in a barrier\nfor 2 s".into())), (2, None)]);
    let lines = printed(&mut policy);
    assert_eq!(
        lines[1..],
        ["node 1: in a barrier for 2 s".to_owned(), format!("node 2: {NO_ANSWER}")],
        "{lines:?}"
    );
    policy.answered(at(4), &[(1, None)]);
    assert!(printed(&mut policy).is_empty(), "asked once");
    let mut policy = Policy::new(1, GRACE, Some(at(3)));
    policy.timeout(at(3));
    policy.actions();
    // Without answers the limit holds all the same. The launcher reports it, and terminates the
    // nodes that are left.
    policy.timeout(policy.next_timeout().unwrap());
    policy.timeout(policy.next_timeout().unwrap());
    assert_eq!(signals(&mut policy), [15]);
}

/// LAUNCH-3.1: the status of an aborted job is the aborter's own failing status, else 1.
#[test]
fn abort_by_a_node_ends_the_job_with_its_status() {
    for (own, expected) in
        [(Ending::Status(3), 3), (Ending::Status(0), 1), (Ending::Signal(6), 134)]
    {
        let mut policy = Policy::new(3, GRACE, None);
        policy.keep_going();
        policy.aborted(at(1), 1, "the input is broken");
        assert!(
            printed(&mut policy)[0]
                .starts_with("node 1 aborted the job: the input is broken; 3 nodes have 7 s")
        );
        policy.ended(at(2), 0, &Ending::Status(9));
        policy.ended(at(2), 1, &own);
        policy.ended(at(2), 2, &Ending::Status(8));
        assert_eq!((policy.is_over(), policy.status()), (true, expected));
    }
    let mut policy = Policy::new(1, GRACE, None);
    policy.aborted(at(1), 0, "hangs now");
    policy.timeout(at(8));
    assert_eq!(signals(&mut policy), [15]);
    policy.timeout(at(10));
    policy.ended(at(10), 0, &Ending::Signal(9));
    assert_eq!(policy.status(), 1, "the launcher's own signal is not the node's status");
}

/// LAUNCH-3.2: survivors are neither aborted nor signalled, each death is said once, and the first
/// failure gives the status.
#[test]
fn keep_going_lets_survivors_end_by_themselves() {
    let mut policy = Policy::new(4, GRACE, None);
    policy.keep_going();
    policy.ended(at(1), 2, &Ending::Status(3));
    policy.ended(at(2), 1, &Ending::Signal(SIGKILL));
    let actions = policy.actions();
    assert!(
        !actions.iter().any(|action| matches!(action, Action::Abort(_) | Action::Signal(_))),
        "{actions:?}"
    );
    let deaths = actions
        .iter()
        .filter(|action| matches!(action, Action::Print(text) if text.starts_with("node ")));
    assert_eq!(deaths.count(), 2);
    assert_eq!(policy.next_timeout(), None);
    policy.ended(at(99), 0, &Ending::Status(0));
    policy.ended(at(99), 3, &Ending::Status(0));
    assert_eq!((policy.is_over(), policy.status()), (true, 3));
}

/// LAUNCH-3.4: status 0 of a node that has joined and not left is a failure, and ends the job as
/// any other does.
#[test]
fn node_that_ends_well_without_leaving_has_failed() {
    const HOW: &str = "ended with status 0 without leaving the job";
    for keeps_going in [false, true] {
        let mut policy = Policy::new(3, GRACE, None);
        if keeps_going {
            policy.keep_going();
        }
        (0..3).for_each(|rank| policy.joined(rank));
        policy.ended(at(1), 1, &Ending::Status(0));
        let actions = policy.actions();
        let end = NodeEnd { rank: 1, how: HOW.into(), success: false };
        assert_eq!(actions[0], Action::Ended(end));
        let aborts = actions.contains(&Action::Abort(format!("node 1 {HOW}")));
        assert_ne!(aborts, keeps_going, "{actions:?}");
        let says = |action: &Action| matches!(action, Action::Print(text) if text.contains(HOW));
        assert_eq!(actions.iter().filter(|action| says(action)).count(), 1, "{actions:?}");
        (0..3).for_each(|rank| policy.left(rank));
        policy.ended(at(2), 0, &Ending::Status(0));
        policy.ended(at(2), 2, &Ending::Status(0));
        assert_eq!((policy.is_over(), policy.status()), (true, 1));
    }
}

/// LAUNCH-3.4: a node that has left, or has never joined, ends well with status 0.
#[test]
fn node_that_has_left_or_never_joined_ends_well() {
    let mut policy = Policy::new(2, GRACE, None);
    policy.joined(0);
    policy.left(0);
    policy.ended(at(1), 0, &Ending::Status(0));
    policy.ended(at(1), 1, &Ending::Status(0));
    assert_eq!((policy.is_over(), policy.status()), (true, 0));
}

/// LAUNCH-10.5.
#[test]
fn mpi_node_that_ends_without_finalize_or_is_waited_for_has_failed() {
    let mut policy = Policy::new(2, GRACE, None);
    policy.mpi_began(0);
    policy.mpi_finished(0);
    policy.ended(at(0), 0, &Ending::Status(0));
    assert_eq!(policy.status(), 0);
    policy.mpi_began(1);
    policy.ended(at(0), 1, &Ending::Status(0));
    assert_eq!(policy.status(), 1);
    assert!(printed(&mut policy).concat().contains("without MPI_Finalize"));

    let mut policy = Policy::new(3, GRACE, None);
    policy.ended(at(0), 2, &Ending::Status(0));
    policy.mpi_waits_for_ended(at(1), 0, 2);
    policy.mpi_waits_for_ended(at(1), 1, 2);
    let said = printed(&mut policy);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said.concat().contains("node 0 waits in MPI for node 2"), "{said:?}");
    assert_eq!((policy.status(), policy.next_timeout()), (1, Some(at(8))));
}

/// LAUNCH-10.5: no node is ended by the launcher, and the job fails.
#[test]
fn mpi_barrier_without_a_dead_node_only_fails_the_job_that_keeps_going() {
    for (dead, status) in [(Ending::Status(0), 1), (Ending::Status(7), 7)] {
        let mut policy = Policy::new(3, GRACE, None);
        policy.keep_going();
        policy.ended(at(0), 2, &dead);
        policy.mpi_waits_for_ended(at(1), 0, 2);
        let actions = policy.actions();
        let ends = |action: &Action| matches!(action, Action::Abort(_) | Action::Signal(_));
        assert!(!actions.iter().any(ends), "{actions:?}");
        let says = |action: &Action| matches!(action, Action::Print(text) if text.contains("node 0 waits in MPI for node 2"));
        assert_eq!(actions.iter().filter(|action| says(action)).count(), 1, "{actions:?}");
        assert_eq!(policy.next_timeout(), None);
        (0..2).for_each(|rank| policy.ended(at(2), rank, &Ending::Status(0)));
        assert_eq!((policy.is_over(), policy.status()), (true, status));
    }
}

/// LAUNCH-10.6.
#[test]
fn each_kind_of_refusal_is_printed_once() {
    let mut policy = Policy::new(2, GRACE, None);
    for rank in [1, 0, 1] {
        policy.mpi_refused(rank, "lookup_name: no names");
        policy.mpi_refused(rank, "publish_name: no names");
    }
    let said = printed(&mut policy);
    assert_eq!(said, ["node 1: lookup_name: no names", "node 1: publish_name: no names"]);
}

/// LAUNCH-10.5.
#[test]
fn mpi_abort_ends_all_nodes_at_once() {
    let mut policy = Policy::new(2, GRACE, None);
    policy.mpi_aborted(at(0), 1, 3, "MPI_Abort with status 3");
    policy.mpi_aborted(at(0), 0, 4, "MPI_Abort with status 4");
    let actions = policy.actions();
    let why = "node 1 aborted the job: MPI_Abort with status 3";
    let said = format!("{why}; the job ends with 3");
    assert_eq!(actions, [Action::Abort(why.into()), Action::Print(said), Action::Signal(SIGTERM)]);
    policy.ended(at(0), 1, &Ending::Signal(11));
    policy.ended(at(0), 0, &Ending::Signal(SIGTERM));
    assert_eq!((policy.status(), policy.is_over()), (3, true));
    assert!(printed(&mut policy).is_empty());
}
