//! Kills or stops processes at each point between two stores that other nodes see, in their work on
//! memory that all nodes map (COH-16). The others go on at once, or their calls end in time.

use crate::segment_faults::{NEVER, Nodes, ROLE, outcome, say};
use oikaze::ffi::ElementKind;
use oikaze::prelude::*;
use oikaze_os::shm::signal_at_point;
use rustix::process::Signal;
use std::time::Duration;

/// The test that is a node.
const NODE: &str = "segment_points::plays_its_role";
/// Variable with the time limit in seconds of each call of a node.
const LIMIT: &str = "OIKAZE_TEST_LIMIT";
/// More points than any work has.
const MANY: u64 = 1 << 40;
/// Element that a guard merges. All its bytes change, so that elements side by side are one run.
const MERGED: u64 = 0x0909_0909_0909_0909;
/// Elements that are of one node.
const EACH: usize = 1024;

/// Sends a signal to this process at the point of this number from now on.
fn arm(words: &str) {
    let (signal, number) = words.split_once(' ').unwrap();
    let signal = if signal == "kill" { Signal::KILL } else { Signal::STOP };
    signal_at_point(number.parse().unwrap(), signal);
}

/// Adds 1 to two elements, which are in two groups of pages.
fn add(array: &SharedArray<u64>, node: usize) -> oikaze::Result<()> {
    array.accumulate(EACH * node + EACH / 2 - 1, Sum, &[1, 1])
}

/// Changes two runs of elements by a guard that merges.
fn merge(array: &SharedArray<u64>, node: usize) -> oikaze::Result<()> {
    let mut merged = array.write_merged(EACH * node..EACH * (node + 1))?;
    merged[10..20].fill(MERGED);
    merged[EACH / 2..EACH / 2 + 10].fill(MERGED);
    merged.release()
}

/// Checks what [`merge`] may leave if its process is killed: each run is stored or not.
fn check_merged(array: &SharedArray<u64>, nodes: usize) -> oikaze::Result<()> {
    let all = array.read(0..EACH * nodes)?;
    for of_node in all.chunks_exact(EACH) {
        let mut places = of_node.iter().enumerate();
        let runs = [10..20, EACH / 2..EACH / 2 + 10];
        let is_run = |at: usize| runs.iter().any(|run| run.contains(&at));
        assert!(places.all(|(at, value)| *value == 0 || (*value == MERGED && is_run(at))));
        assert!(of_node[10..20].iter().all(|value| *value == of_node[10]), "a part of a run");
    }
    all.release()
}

/// Runs a node of a job that the other tests start. Not a test by itself.
#[test]
fn plays_its_role() {
    if std::env::var(ROLE).as_deref() != Ok("segment") {
        return;
    }
    let limit = std::env::var(LIMIT).map_or(30, |seconds| seconds.parse().unwrap());
    let job = Job::builder().time_limit(Duration::from_secs(limit)).join().unwrap();
    let (me, size) = (job.rank() as usize, job.size() as usize);
    let array = job.array::<u64>("array", size * EACH).unwrap();
    assert_eq!(array.why_not_shared(), None);
    // The last node has guards, and the others have plain pointers.
    let (mut plain, mut typed) = (None, None);
    if me + 1 == size {
        typed = Some(job.array::<u64>("plain", EACH).unwrap());
    } else {
        let of_words = job.untyped_array("plain", &[EACH], ElementKind::U64.into());
        plain = Some(of_words.build_untyped().unwrap());
    }
    let mut guard = None;
    for asked in std::io::stdin().lines() {
        let asked = asked.unwrap();
        let (word, rest) = asked.split_once(' ').unwrap_or((&asked, ""));
        match word {
            "barrier" => say(&outcome(job.barrier())),
            "arm" => {
                arm(rest);
                say("done");
            }
            "left" => say(&signal_at_point(0, Signal::KILL).to_string()),
            "add" => say(&outcome(add(&array, me))),
            "add-for" => {
                // For all of these nodes at the same time.
                let results = std::thread::scope(|scope| {
                    let nodes = 0..rest.parse::<usize>().unwrap();
                    let array = &array;
                    let adding = nodes.map(|node| scope.spawn(move || outcome(add(array, node))));
                    let adding: Vec<_> = adding.collect();
                    adding.into_iter().map(|adds| adds.join().unwrap()).collect::<Vec<_>>()
                });
                say(&results.join("|"));
            }
            "sums" => {
                let elements = |node| EACH * node + EACH / 2 - 1..EACH * node + EACH / 2 + 1;
                let sums = (0..size).map(|node| array.get(elements(node)).unwrap());
                say(&format!("{:?}", sums.collect::<Vec<_>>()));
            }
            "lock" => say(&outcome(job.lock(5).and_then(|held| held.release()))),
            "read-lock" => say(&outcome(job.read_lock(5).and_then(|held| held.release()))),
            "merge" => say(&outcome(merge(&array, me))),
            "check-merged" => say(&outcome(check_merged(&array, size))),
            "write-all" => say(&outcome(array.write(..).and_then(|all| all.release()))),
            "mark" => say(&outcome(plain.as_ref().unwrap().plain().map(drop))),
            "take" => {
                let mut taken = typed.as_ref().unwrap().write(0..10).unwrap();
                taken[3] += 1;
                guard = Some(taken);
                say("done");
            }
            "end" => say(&outcome(guard.take().unwrap().release())),
            "third" => say(&typed.as_ref().unwrap().get(3..4).unwrap()[0].to_string()),
            "declare" => say(&match job.array::<u64>("new", EACH) {
                Ok(new) => format!("done {:?}", new.why_not_shared()),
                Err(error) => format!("lost {:?}: {error}", error.lost_peer()),
            }),
            "go-on" => {
                let survivors = job.shrink().unwrap();
                say(&survivors.all_reduce(1_u32, Sum).unwrap().to_string());
            }
            "leave" => return say(&outcome(job.leave())),
            other => panic!("no work {other}"),
        }
    }
    // Another node is lost, so this node cannot leave together with it.
    std::process::exit(0);
}

/// Returns the number of points of some work of a node.
fn points_of(nodes: &mut Nodes, rank: usize, work: &str, says: &str) -> u64 {
    assert_eq!(nodes.ask(rank, &format!("arm kill {MANY}")), "done");
    let said = nodes.ask(rank, work);
    assert!(said.contains(says), "{said}");
    MANY - nodes.ask(rank, "left").parse::<u64>().unwrap()
}

/// Most points of any work below.
const POINTS_MAX: usize = 9;

/// Starts nodes of which each but the last is killed at another point of some work. Returns them,
/// and the number of those that were killed. `prepare` is asked of the last one before.
fn kill_at_all_points(work: &str, prepare: Option<&str>, says: &str) -> (Nodes, usize) {
    let mut nodes = Nodes::start_as(NODE, POINTS_MAX as u32 + 2, NEVER);
    nodes.all_do("barrier");
    if let Some(prepare) = prepare {
        assert_eq!(nodes.ask(POINTS_MAX + 1, prepare), "done");
    }
    // This one does its work and lives.
    let points = points_of(&mut nodes, POINTS_MAX, work, says) as usize;
    assert!((1..=POINTS_MAX).contains(&points), "{work} has {points} points");
    for victim in 0..points {
        assert_eq!(nodes.ask(victim, &format!("arm kill {}", victim + 1)), "done");
        nodes.begin(victim, work);
        nodes.wait_for_kill(victim);
    }
    (nodes, points)
}

/// COH-16.12: a node that is killed while it asks for a lock for reading, has it, or gives it back
/// is in nobody's way, and breaks no lock.
#[test]
fn node_killed_at_any_point_of_a_read_lock_is_in_nobodys_way() {
    let (mut nodes, points) = kill_at_all_points("read-lock", None, "done");
    assert!(points > 3, "{points} points");
    let survivor = POINTS_MAX + 1;
    for work in ["read-lock", "lock", "read-lock", "lock"] {
        assert_eq!(nodes.ask(survivor, work), "done");
    }
}

/// COH-16.7: the entries of a killed process do not count, and what it stored is whole runs.
#[test]
fn node_killed_at_any_point_of_a_merge_is_in_nobodys_way() {
    let (mut nodes, _) = kill_at_all_points("merge", None, "done");
    let survivor = POINTS_MAX + 1;
    for work in ["write-all", "check-merged", "merge", "check-merged", "write-all"] {
        assert_eq!(nodes.ask(survivor, work), "done", "{work}");
    }
}

/// COH-16.8: the mark of a killed process may stay, and then the others get copies.
#[test]
fn node_killed_at_any_point_of_a_mark_is_in_nobodys_way() {
    let survivor = POINTS_MAX + 1;
    for (prepare, says) in [(None, "done"), (Some("take"), "a guard of node")] {
        let (mut nodes, _) = kill_at_all_points("mark", prepare, says);
        if prepare.is_some() {
            assert_eq!(nodes.ask(survivor, "end"), "done");
        }
        for round in 1..3 {
            assert_eq!(nodes.ask(survivor, "take"), "done");
            assert_eq!(nodes.ask(survivor, "end"), "done");
            let sum = round + usize::from(prepare.is_some());
            assert_eq!(nodes.ask(survivor, "third"), sum.to_string(), "it is stored");
        }
    }
}

/// COH-16.9: the groups of a killed process are taken over, wherever it was killed.
#[test]
fn node_killed_at_any_point_of_an_operation_is_in_nobodys_way() {
    let (mut nodes, killed) = kill_at_all_points("add", None, "done");
    let survivor = POINTS_MAX + 1;
    let all = format!("add-for {}", POINTS_MAX + 2);
    let done = ["done"; POINTS_MAX + 2].join("|");
    (0..2).for_each(|_| assert_eq!(nodes.ask(survivor, &all), done));
    assert_eq!(nodes.ask(survivor, "write-all"), "done");
    let sums = nodes.ask(survivor, "sums");
    // The node that was not killed has added its own, too.
    let mut expected = ["[2, 2]"; POINTS_MAX + 2];
    expected[POINTS_MAX] = "[3, 3]";
    let sums: Vec<_> = sums.trim_matches(['[', ']']).split("], [").collect();
    for (node, (sum, expected)) in sums.iter().zip(expected).enumerate() {
        let sum = format!("[{sum}]");
        let may_be = node < killed && sum == "[3, 3]";
        assert!(sum == expected || may_be, "node {node}: {sum}");
    }
}

/// COH-16.9: the others wait for a stopped node that has entered a group, until their time limit.
/// All is well when the node has gone on.
#[test]
fn node_stopped_at_any_point_of_an_operation_keeps_others_waiting_for_their_time_limit() {
    let mut nodes = Nodes::start_with(NODE, POINTS_MAX as u32 + 2, NEVER, &[(LIMIT, "8")]);
    let survivor = POINTS_MAX + 1;
    nodes.all_do("barrier");
    let points = points_of(&mut nodes, POINTS_MAX, "add", "done") as usize;
    assert!((1..=POINTS_MAX).contains(&points), "{points}");
    for victim in 0..points {
        assert_eq!(nodes.ask(victim, &format!("arm stop {}", victim + 1)), "done");
        nodes.begin(victim, "add");
        nodes.wait_for_stop(victim);
    }
    let said = nodes.ask(survivor, &format!("add-for {points}"));
    let outcomes: Vec<_> = said.split('|').map(|outcome| outcome == "done").collect();
    let timeouts: Vec<_> = said.split('|').filter(|outcome| *outcome != "done").collect();
    let words = ["accumulate of elements", "of array \"array\": not done after"];
    let clear = |text: &&str| words.iter().all(|word| text.contains(word));
    assert!(!timeouts.is_empty() && timeouts.iter().all(clear), "{said}");
    assert!(outcomes.first() == Some(&true) && outcomes.last() == Some(&true), "{said}");
    for victim in 0..points {
        nodes.let_go_on(victim);
        assert_eq!(nodes.answer(victim, "add"), "done");
    }
    nodes.all_do("barrier");
    let sums = nodes.ask(survivor, "sums");
    let mut expected = ["[0, 0]"; POINTS_MAX + 2];
    expected[POINTS_MAX] = "[1, 1]";
    for (sum, is_done) in expected.iter_mut().zip(outcomes) {
        *sum = if is_done { "[2, 2]" } else { "[1, 1]" };
    }
    assert_eq!(sums, format!("[{}]", expected.join(", ")));
    nodes.all_do("leave");
}

/// Number of nodes that agree on a declaration.
const AGREEING: u32 = 3;

/// Kills a node at a point of the declaration of an array. Returns `false` if the declaration has
/// ended before.
fn is_killed_in_declaration(point: u64) -> bool {
    let victim = (point % u64::from(AGREEING)) as usize;
    let mut nodes = Nodes::start_as(NODE, AGREEING, NEVER);
    nodes.all_do("barrier");
    assert_eq!(nodes.ask(victim, &format!("arm kill {point}")), "done");
    (0..AGREEING as usize).for_each(|rank| nodes.begin(rank, "declare"));
    let survivors = (0..AGREEING as usize).filter(|rank| *rank != victim);
    let said: Vec<_> = survivors.clone().map(|rank| nodes.answer(rank, "declare")).collect();
    let has_ended = nodes.answer_or_kill(victim, "declare").is_none();
    let lost = format!("lost Some({victim}): ");
    for text in &said {
        assert!(text == "done None" || text.starts_with(&lost), "point {point}: {text}");
    }
    if has_ended {
        survivors.clone().for_each(|rank| nodes.begin(rank, "go-on"));
        for rank in survivors {
            assert_eq!(nodes.answer(rank, "go-on"), "2", "point {point}: {said:?}");
        }
    }
    has_ended
}

/// COH-16.1, COH-8.2: the others declare the array without the node, or learn of its death.
#[test]
fn node_killed_at_any_point_of_a_declaration_is_lost_to_the_others() {
    let points = (1..).take_while(|point| is_killed_in_declaration(*point)).count();
    assert!(points > 1, "a declaration has {points} points");
}

/// COH-8.2, COH-16.9: the process of a node that was given up may go on to store.
#[test]
fn operation_ends_when_the_stopped_holder_of_a_group_is_given_up() {
    let mut nodes = Nodes::start_with(NODE, 3, Duration::from_secs(5), &[(LIMIT, "600")]);
    nodes.all_do("barrier");
    assert_eq!(nodes.ask(0, "arm stop 4"), "done");
    nodes.begin(0, "add");
    nodes.wait_for_stop(0);
    (1..3).for_each(|survivor| nodes.begin(survivor, "add-for 1"));
    for survivor in 1..3 {
        let said = nodes.answer(survivor, "add-for 1");
        assert!(said.contains("accumulate of elements 511..513 of array \"array\""), "{said}");
        assert!(said.contains("node 0 is lost"), "{said}");
        // Other groups are free.
        assert_eq!(nodes.ask(survivor, "add"), "done");
    }
    nodes.let_go_on(0);
    assert!(!nodes.answer(0, "add").is_empty());
    assert_eq!(nodes.ask(1, "add-for 1"), "done", "the group is free again");
}

/// COH-16.9
#[test]
fn operation_goes_on_when_the_stopped_holder_of_a_group_does() {
    let mut nodes = Nodes::start_with(NODE, 2, NEVER, &[(LIMIT, "600")]);
    nodes.all_do("barrier");
    for round in 0..3 {
        assert_eq!(nodes.ask(0, "arm stop 3"), "done");
        nodes.begin(0, "add");
        nodes.wait_for_stop(0);
        nodes.begin(1, "add-for 1");
        nodes.let_go_on(0);
        assert_eq!(nodes.answer(0, "add"), "done", "round {round}");
        assert_eq!(nodes.answer(1, "add-for 1"), "done", "round {round}");
    }
    assert_eq!(nodes.ask(1, "sums"), "[[6, 6], [0, 0]]");
    nodes.all_do("leave");
}

/// COH-6.10, COH-16.1: the others stop waiting for a node that is stopped while all agree on an
/// array. All count arrays alike afterwards.
#[test]
fn nodes_stay_in_step_when_one_was_stopped_in_a_declaration() {
    let mut nodes = Nodes::start_with(NODE, AGREEING, NEVER, &[(LIMIT, "4")]);
    let all = 0..AGREEING as usize;
    nodes.all_do("barrier");
    for point in [1, 3, 5] {
        let victim = point % AGREEING as usize;
        assert_eq!(nodes.ask(victim, &format!("arm stop {point}")), "done");
        all.clone().for_each(|rank| nodes.begin(rank, "declare"));
        nodes.wait_for_stop(victim);
        for rank in all.clone().filter(|rank| *rank != victim) {
            let said = nodes.answer(rank, "declare");
            let words = ["lost None: declare array \"new\"", "not done after"];
            assert!(words.iter().all(|word| said.contains(word)), "point {point}: {said}");
        }
        nodes.let_go_on(victim);
        let said = nodes.answer(victim, "declare");
        // The last collective may have all nodes, though two of them have stopped waiting.
        assert!(said == "done None" || said.contains("cannot go on"), "point {point}: {said}");
        all.clone().for_each(|rank| nodes.begin(rank, "declare"));
        for rank in all.clone() {
            assert_eq!(nodes.answer(rank, "declare"), "done None", "point {point}, node {rank}");
        }
    }
    nodes.all_do("leave");
}
