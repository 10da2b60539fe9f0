//! Finds out why a wait lasts (MEM-21.2): asks the nodes that know, and puts their answers into one
//! sentence. No I/O of its own.
//!
//! Answers are lines of text that [`super::answers`] writes. A node answers from what it knows
//! itself and never asks in turn, so that two nodes that ask each other never wait for each other.

use super::subject::{WaitSubject, WaitingThread, nodes_text};
use oikaze_protocol::Rank;

/// Question to rank 0 for the nodes that have come to the collective, and those that have not.
pub(super) const COLLECTIVE: &str = "collective";
/// Question to a lock's manager, with the lock's number, for its holder and its waiters.
pub(super) const LOCK: &str = "lock ";
/// Question to a lock's holder, with the lock's number, for the time since when it is held and the
/// thread.
pub(super) const HOLDS: &str = "holds ";
/// Question to any node for the lock that it waits for: the answer is the lock's number, and how
/// the node names it.
pub(super) const WANTED: &str = "wanted";
/// Question to any node for what it does.
pub(super) const DOING: &str = "doing";
/// Answer to [`HOLDS`] of a node that does not hold the lock.
pub(super) const NOT_HELD: &str = "not held";

/// Maximum number of nodes whose state one explanation contains.
const NODES_SHOWN: usize = 3;
/// Maximum number of locks that one explanation follows from holder to holder.
const LOCKS_FOLLOWED: usize = 4;
/// Maximum number of characters taken from one answer.
const ANSWER_MAX: usize = 300;

/// Source of what an explanation is made of.
pub(super) trait Facts {
    /// Rank of this node.
    fn me(&self) -> Rank;
    /// Number of nodes in the job.
    fn nodes(&self) -> u32;
    /// Answer of a node, this one included; `None` if none came in time.
    fn ask(&self, rank: Rank, question: &str) -> Option<String>;
    /// Returns the answer to [`LOCK`] if this node sees the lock in the memory of its machine,
    /// whoever manages it.
    fn lock_here(&self, _: u64) -> Option<String> {
        None
    }
    /// Returns how a node's process or connection has ended, as predicate of "node 2 …".
    fn end_of(&self, rank: Rank) -> Option<String>;
}

/// Cause of a long wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitCause {
    /// Follows "node 1 has waited 5 s for barrier: ".
    pub text: String,
    /// False if another node has the same reason to wait and prints it: one line for each cause,
    /// not for each node.
    pub is_reporter: bool,
}

impl WaitCause {
    fn of(text: String) -> Self {
        Self { text, is_reporter: true }
    }
}

/// Finds out why a thread of this node waits.
pub(super) fn cause(
    facts: &dyn Facts,
    subject: &WaitSubject,
    waiter: Option<&WaitingThread>,
) -> WaitCause {
    let peer = match subject {
        WaitSubject::Collective(_) => return collective(facts),
        WaitSubject::Lock { number, .. } => return of_lock(facts, *number, waiter),
        WaitSubject::Join { nodes, .. } => return WaitCause::of(states(facts, nodes, nodes.len())),
        WaitSubject::Message { from: peer, .. }
        | WaitSubject::Word { by: peer, .. }
        | WaitSubject::Operation { peer, .. } => *peer,
        WaitSubject::Pop { .. } | WaitSubject::Arrival => None,
        WaitSubject::Push { owner, .. }
        | WaitSubject::Name { owner, .. }
        | WaitSubject::Page { home: owner, .. } => Some(*owner),
    };
    WaitCause::of(match peer {
        Some(peer) if peer == facts.me() => {
            "only another thread of this node can end the wait".to_owned()
        }
        Some(peer) => state(facts, peer, &mut Vec::new()),
        None if facts.nodes() == 1 => {
            "this job has no other node; only another thread of this node can end the wait"
                .to_owned()
        }
        None => {
            let others: Vec<Rank> = (0..facts.nodes()).filter(|rank| *rank != facts.me()).collect();
            states(facts, &others, others.len())
        }
    })
}

/// Returns the states of the first few of `total` nodes.
fn states(facts: &dyn Facts, ranks: &[Rank], total: usize) -> String {
    let mut text: Vec<String> =
        ranks.iter().take(NODES_SHOWN).map(|rank| state(facts, *rank, &mut Vec::new())).collect();
    if total > NODES_SHOWN {
        text.push(format!("and {} more nodes", total - NODES_SHOWN));
    }
    text.join("; ")
}

/// Returns what a node does and, if the node waits for a lock, who holds the lock.
fn state(facts: &dyn Facts, rank: Rank, followed: &mut Vec<u64>) -> String {
    if let Some(end) = facts.end_of(rank) {
        return format!("node {rank} {end}");
    }
    let Some(doing) = facts.ask(rank, DOING).map(|answer| clean(&answer)) else {
        return format!("node {rank} does not say what it does (stopped, or too busy to answer)");
    };
    match wanted(facts, rank, &doing) {
        Some((number, name)) => {
            format!("node {rank} {doing}; {name} is {}", holder(facts, number, followed))
        }
        None => format!("node {rank} {doing}"),
    }
}

fn collective(facts: &dyn Facts) -> WaitCause {
    let Some(answer) = facts.end_of(0).map_or_else(|| facts.ask(0, COLLECTIVE), |_| None) else {
        let text =
            format!("{}; only node 0 knows who has not come", state(facts, 0, &mut Vec::new()));
        return WaitCause { text, is_reporter: facts.me() <= 1 };
    };
    let (late, first) = (numbers(&answer, "late"), numbers(&answer, "first"));
    let late: Vec<Rank> = late.into_iter().filter_map(|rank| Rank::try_from(rank).ok()).collect();
    if late.contains(&facts.me()) {
        return WaitCause::of(
            "what this node wrote to shared arrays is still on its way to its home nodes"
                .to_owned(),
        );
    }
    let missing = numbers(&answer, "missing")
        .first()
        .map_or(late.len(), |count| usize::try_from(*count).unwrap_or(usize::MAX));
    let has = if missing == 1 { "has" } else { "have" };
    let text = match late.is_empty() {
        true => "all nodes have come, and the answer of node 0 is on its way".to_owned(),
        false => format!(
            "{} {has} not come; {}",
            nodes_text(&late, missing),
            states(facts, &late, missing)
        ),
    };
    WaitCause {
        text,
        is_reporter: first.first().is_none_or(|first| *first == u64::from(facts.me())),
    }
}

fn of_lock(facts: &dyn Facts, lock: u64, waiter: Option<&WaitingThread>) -> WaitCause {
    let view = lock_view(facts, lock);
    let is_first =
        view.as_ref().ok().and_then(|view| view.first).is_none_or(|first| first == facts.me());
    let text = match view {
        Ok(LockAnswer { holder: Some(holder), .. }) if holder == facts.me() => {
            let since = facts.ask(holder, &format!("{HOLDS}{lock}")).unwrap_or_default();
            let own = waiter.is_some_and(|waiter| since.ends_with(&thread_text(waiter)));
            let deadlock =
                if own { ", the one that waits: it waits for itself (deadlock)" } else { "" };
            format!("held by this node itself {since}{deadlock}")
        }
        _ => holder(facts, lock, &mut Vec::new()),
    };
    WaitCause { text, is_reporter: is_first }
}

/// Returns how an answer to [`HOLDS`] names a thread.
pub(super) fn thread_text(thread: &WaitingThread) -> String {
    format!("by thread {}", thread.name)
}

struct LockAnswer {
    holder: Option<Rank>,
    first: Option<Rank>,
}

/// Returns a lock as its manager sees it, or why that is not known.
fn lock_view(facts: &dyn Facts, lock: u64) -> Result<LockAnswer, String> {
    let manager = (lock % u64::from(facts.nodes().max(1))) as Rank;
    let answer = match (facts.lock_here(lock), facts.end_of(manager)) {
        (Some(here), _) => Some(here),
        (None, Some(end)) => return Err(format!("managed by node {manager}, which {end}")),
        (None, None) => facts.ask(manager, &format!("{LOCK}{lock}")),
    };
    let answer = answer
        .ok_or_else(|| format!("managed by node {manager}, which does not say who holds it"))?;
    let one = |word| numbers(&answer, word).first().and_then(|rank| Rank::try_from(*rank).ok());
    Ok(LockAnswer { holder: one("holder"), first: one("first") })
}

/// Returns who holds a lock, since when, and what that node does. Follows locks that wait for one
/// another, each once.
fn holder(facts: &dyn Facts, lock: u64, followed: &mut Vec<u64>) -> String {
    followed.push(lock);
    let holder = match lock_view(facts, lock) {
        Ok(LockAnswer { holder: Some(holder), .. }) => holder,
        Ok(_) => return "free, and will be granted".to_owned(),
        Err(why) => return why,
    };
    let since = facts.ask(holder, &format!("{HOLDS}{lock}")).filter(|since| since != NOT_HELD);
    let mut text = format!("held by node {holder}");
    since.into_iter().for_each(|since| text += &format!(" {}", clean(&since)));
    if let Some(end) = facts.end_of(holder) {
        return format!("{text}, which {end}");
    }
    let Some(doing) = facts.ask(holder, DOING).map(|answer| clean(&answer)) else {
        return format!("{text}, which does not say what it does (stopped, or too busy to answer)");
    };
    text += &format!(", which {doing}");
    match wanted(facts, holder, &doing) {
        Some((next, _)) if followed.contains(&next) => {
            text + ": these waits form a cycle (deadlock)"
        }
        Some((next, name)) if followed.len() < LOCKS_FOLLOWED => {
            let next_holder = self::holder(facts, next, followed);
            format!("{text}; {name} is {next_holder}")
        }
        _ => text,
    }
}

/// Returns the number and the name of the lock that a node waits for, if it does one.
fn wanted(facts: &dyn Facts, rank: Rank, doing: &str) -> Option<(u64, String)> {
    if !doing.contains("waits for lock ") {
        return None;
    }
    let answer = clean(&facts.ask(rank, WANTED)?);
    let (number, name) = answer.split_once(' ')?;
    Some((number.parse().ok()?, name.to_owned()))
}

/// Returns the numbers that follow `word` in an answer such as `late 2 5; first 0`.
fn numbers(answer: &str, word: &str) -> Vec<u64> {
    let part = answer.split("; ").find_map(|part| part.strip_prefix(word)?.strip_prefix(' '));
    part.into_iter()
        .flat_map(str::split_whitespace)
        .map_while(|number| number.parse().ok())
        .collect()
}

/// Cleans an answer for a terminal line, because other nodes may send anything.
pub(super) fn clean(answer: &str) -> String {
    answer.chars().map(|c| if c.is_control() { ' ' } else { c }).take(ANSWER_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct KnownAnswers {
        me: Rank,
        nodes: u32,
        answers: BTreeMap<(Rank, String), String>,
        ends: BTreeMap<Rank, String>,
    }

    impl Facts for KnownAnswers {
        fn me(&self) -> Rank {
            self.me
        }
        fn nodes(&self) -> u32 {
            self.nodes
        }
        fn ask(&self, rank: Rank, question: &str) -> Option<String> {
            self.answers.get(&(rank, question.to_owned())).cloned()
        }
        fn end_of(&self, rank: Rank) -> Option<String> {
            self.ends.get(&rank).cloned()
        }
    }

    fn known_answers(me: Rank, nodes: u32, answers: &[(Rank, &str, &str)]) -> KnownAnswers {
        let answers = answers
            .iter()
            .map(|&(rank, question, answer)| ((rank, question.to_owned()), answer.to_owned()))
            .collect();
        KnownAnswers { me, nodes, answers, ends: BTreeMap::new() }
    }

    fn text(facts: &KnownAnswers, subject: &WaitSubject) -> String {
        cause(facts, subject, None).text
    }

    /// MEM-21.2.
    #[test]
    fn barrier_with_a_late_node_names_it_and_the_lock_it_waits_for() {
        let barrier = WaitSubject::Collective("barrier".into());
        let answers = [
            (0, COLLECTIVE, "late 2; first 0"),
            (2, DOING, "waits for lock 3 (4.8 s)"),
            (2, WANTED, "3 lock 3"),
            (0, "lock 3", "holder 1; waiting 1; first 2"),
            (1, "holds 3", "for 5.0 s by thread \"main\""),
            (1, DOING, "waits for barrier (4.9 s)"),
        ];
        let facts = known_answers(0, 3, &answers);
        assert_eq!(
            cause(&facts, &barrier, None),
            WaitCause {
                text: "node 2 has not come; node 2 waits for lock 3 (4.8 s); lock 3 is held by node 1 for 5.0 s by thread \
                       \"main\", which waits for barrier (4.9 s)"
                    .into(),
                is_reporter: true,
            }
        );
        assert!(
            !cause(&known_answers(1, 3, &answers), &barrier, None).is_reporter,
            "node 0 says it for all"
        );
        let silent = known_answers(1, 3, &[]);
        assert!(
            text(&silent, &barrier).starts_with("node 0 does not say what it does"),
            "{}",
            text(&silent, &barrier)
        );
        let many =
            known_answers(0, 99, &[(0, COLLECTIVE, "late 1 2 3 4 5 6 7 8; first 0; missing 90")]);
        assert!(text(&many, &barrier).starts_with(
            "nodes 1, 2, 3, 4, 5, 6, 7, 8, 82 more have not come; node 1 does not say"
        ));
        assert!(text(&many, &barrier).ends_with("; and 87 more nodes"));
        let own = known_answers(1, 2, &[(0, COLLECTIVE, "late 1; first 0")]);
        assert!(text(&own, &barrier).contains("on its way to its home nodes"));
    }

    fn subject_of_lock(number: u64) -> WaitSubject {
        WaitSubject::Lock { number, text: format!("lock {number}") }
    }

    /// MEM-21.2.
    #[test]
    fn locks_in_crossed_order_are_called_a_cycle() {
        let facts = known_answers(
            0,
            2,
            &[
                (0, "lock 2", "holder 1; waiting 1; first 0"),
                (1, "holds 2", "for 5.0 s by thread \"main\""),
                (1, DOING, "waits for lock 1 (5.0 s)"),
                (1, WANTED, "1 lock 1"),
                (1, "lock 1", "holder 0; waiting 1; first 1"),
                (0, "holds 1", "for 5.0 s by thread \"main\""),
                (0, DOING, "waits for lock 2 (5.0 s)"),
                (0, WANTED, "2 lock 2"),
            ],
        );
        let text = text(&facts, &subject_of_lock(2));
        assert!(
            text.starts_with(
                "held by node 1 for 5.0 s by thread \"main\", which waits for lock 1 (5.0 s); lock 1 is held by node 0"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("which waits for lock 2 (5.0 s): these waits form a cycle (deadlock)"),
            "{text}"
        );
    }

    /// MEM-21.2.
    #[test]
    fn lock_taken_twice_by_one_thread_is_called_a_deadlock() {
        let waiter = WaitingThread::current();
        let holds = format!("for 5.0 s {}", thread_text(&waiter));
        let facts = known_answers(
            1,
            2,
            &[(1, "lock 3", "holder 1; waiting 1; first 1"), (1, "holds 3", &holds)],
        );
        let found = cause(&facts, &subject_of_lock(3), Some(&waiter));
        assert_eq!(
            found.text,
            format!(
                "held by this node itself {holds}, the one that waits: it waits for itself (deadlock)"
            )
        );
        let other = known_answers(
            1,
            2,
            &[
                (1, "lock 3", "holder 1; waiting 1; first 1"),
                (1, "holds 3", "for 1.0 s by thread \"x\""),
            ],
        );
        assert_eq!(
            cause(&other, &subject_of_lock(3), Some(&waiter)).text,
            "held by this node itself for 1.0 s by thread \"x\""
        );
        let second = known_answers(0, 2, &[(1, "lock 3", "holder 1; waiting 2; first 1")]);
        assert!(
            !cause(&second, &subject_of_lock(3), None).is_reporter,
            "node 1 waits longest and says it"
        );
    }

    /// MEM-21.2.
    #[test]
    fn node_that_has_ended_or_answers_nonsense_is_still_one_line() {
        let mut facts = known_answers(0, 3, &[(1, DOING, "computes\n\x1b[2Jfor ever")]);
        facts.ends.insert(2, "was killed by signal 9 (SIGKILL)".into());
        let message = WaitSubject::Message { from: None, count: 1 };
        assert_eq!(
            text(&facts, &message),
            "node 1 computes  [2Jfor ever; node 2 was killed by signal 9 (SIGKILL)"
        );
        assert!(numbers("late x; late 1", "late").is_empty() && numbers("", "late").is_empty());
        assert_eq!(clean(&"x".repeat(9999)).len(), ANSWER_MAX);
        let alone = known_answers(0, 1, &[]);
        assert!(
            text(&alone, &WaitSubject::Pop { fifo: "f".into() })
                .starts_with("this job has no other node")
        );
    }
}
