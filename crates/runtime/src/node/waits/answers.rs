//! Answers to questions about this node, and questions to other nodes
//! ([`Bootstrap::ask_node`](oikaze_launch::Bootstrap::ask_node)).

use super::cause::{COLLECTIVE, DOING, Facts, HOLDS, LOCK, NOT_HELD, WANTED, thread_text};
use super::{Node, Wait, WaitSubject, Waits};
use crate::sync::lock;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockView;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which an answer waits until threads of this node register their waits. They read the
/// clock at least ten times a second.
const REGISTER_TIME: Duration = Duration::from_millis(150);
/// Time that the others get after the first thread has registered.
const REGISTER_MORE: Duration = Duration::from_millis(10);
/// Maximum number of waits, and of locks, that an answer contains.
const SHOWN_MAX: usize = 3;
/// Maximum number of late nodes in an answer.
const LATE_MAX: usize = 32;
/// Longest time that one question takes.
const ASK_TIME: Duration = Duration::from_millis(700);

impl Waits {
    /// Answers a question from this node's own knowledge. It asks no other node, so that no two
    /// nodes wait for each other's answer.
    pub(super) fn answer(&self, question: &str) -> String {
        let number = |prefix: &str| {
            question.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok())
        };
        if question == DOING {
            self.doing()
        } else if question == WANTED {
            self.wanted()
        } else if question == oikaze_launch::REPORT {
            self.pass_quit_on();
            self.doing()
        } else if question == COLLECTIVE {
            self.with_node(|node| node.late_and_come()).map_or_else(
                || "is joining".to_owned(),
                |(late, arrived)| collective_answer(&late, &arrived),
            )
        } else if let Some(number) = number(LOCK) {
            self.with_node(|node| node.lock_view(number))
                .flatten()
                .map_or_else(|| "is another node's to manage".to_owned(), lock_answer)
        } else if let Some(number) = number(HOLDS) {
            let held = lock(&self.held);
            held.iter().find(|held| held.lock == number).map_or_else(
                || NOT_HELD.to_owned(),
                |held| {
                    let (since, thread) = (held.since.elapsed(), thread_text(&held.thread));
                    let taken =
                        held.place.map_or_else(String::new, |at| format!(" (taken at {at})"));
                    format!("for {:.1} s{taken} {thread}", since.as_secs_f64())
                },
            )
        } else {
            "does not understand the question".to_owned()
        }
    }

    /// Returns what `look` sees of the node, if its engine runs.
    pub(super) fn with_node<T>(&self, look: impl FnOnce(&Arc<Node>) -> T) -> Option<T> {
        self.node.get()?.upgrade().map(|node| look(&node))
    }

    /// Returns the predicate of "node 2 …": the waits of its threads, and the locks that it holds.
    fn doing(&self) -> String {
        let text = |wait: &Wait| {
            format!("waits for {} ({:.1} s)", wait.text(), wait.begun.elapsed().as_secs_f64())
        };
        self.states(SHOWN_MAX, text).join("; ")
    }

    /// Returns the waits of this node's threads as `text` puts them, and the locks that it holds:
    /// at most `shown` of each.
    pub(super) fn states(&self, shown: usize, text: impl Fn(&Wait) -> String) -> Vec<String> {
        if self.is_closed() {
            return vec!["has left the job".to_owned()];
        }
        self.let_waits_register();
        let mut waits = lock(&self.entries).waits.clone();
        waits.sort_by_key(|wait| wait.begun);
        let mut parts: Vec<String> = waits.iter().take(shown).map(|wait| text(wait)).collect();
        if waits.len() > shown {
            parts.push(format!("{} more threads wait", waits.len() - shown));
        }
        // Rank 0 and managers of locks know more than the wait itself.
        let is_collective = |wait: &Arc<Wait>| matches!(wait.subject, WaitSubject::Collective(_));
        if waits.iter().any(is_collective)
            && let Some(late) = self.with_node(|node| node.late_and_come().0)
            && !late.is_empty()
        {
            let has = if late.len() == 1 { "has" } else { "have" };
            parts.push(format!("{} {has} not come", super::subject::nodes_text(&late, late.len())));
        }
        if parts.is_empty() {
            parts.push(match self.node.get() {
                Some(_) => "computes: no call of Oikaze waits".to_owned(),
                None => "is joining the job".to_owned(),
            });
        }
        let held: Vec<u64> = lock(&self.held).iter().map(|held| held.lock).collect();
        let locks: Vec<String> =
            held.iter().take(shown).map(|number| self.lock_text(*number)).collect();
        if !locks.is_empty() {
            let more = match held.len().saturating_sub(shown) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            parts.push(format!("holds {}{more}", locks.join(", ")));
        }
        parts
    }

    /// Returns the lock for which a thread of this node has waited longest: its number, and how
    /// this node names it.
    fn wanted(&self) -> String {
        self.let_waits_register();
        let entries = lock(&self.entries);
        let waits = entries.waits.iter().filter_map(|wait| match &wait.subject {
            WaitSubject::Lock { number, text } => Some((wait.begun, format!("{number} {text}"))),
            _ => None,
        });
        waits.min().map_or_else(|| "no lock".to_owned(), |(_, wanted)| wanted)
    }

    /// Makes waiting threads register now, however short their wait has been.
    fn let_waits_register(&self) {
        let begun = Instant::now();
        self.asked.store(true, Ordering::SeqCst);
        self.with_node(|node| node.threads.wake_for_question());
        let mut entries = lock(&self.entries);
        loop {
            let time = if entries.waits.is_empty() { REGISTER_TIME } else { REGISTER_MORE };
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            entries = entries.wait_timeout(&self.changed, left);
        }
        self.asked.store(false, Ordering::Relaxed);
    }
}

impl Node {
    /// Returns the state of a lock in the arena, or as this node manages it.
    pub fn lock_view(&self, lock: u64) -> Option<LockView> {
        let managed = || self.with_engine(|engine| engine.coherence().lock_view(lock));
        self.coherence.calls.lock_view(lock, self).or_else(managed)
    }

    /// Returns the nodes that have not come to the collective of coherence under way, and those
    /// that have, as far as this node knows. Rank 0 tells it of an arena, too, as of the engines.
    fn late_and_come(&self) -> (Vec<Rank>, Vec<Rank>) {
        let (late, come) = match self.rank() {
            0 => self.coherence.calls.late_and_come(),
            _ => Default::default(),
        };
        if !late.is_empty() {
            return (late, come);
        }
        self.with_engine(|engine| (engine.coherence().late(), engine.coherence().gathered()))
    }
}

fn ranks(ranks: &[Rank]) -> String {
    ranks.iter().take(LATE_MAX).map(Rank::to_string).collect::<Vec<_>>().join(" ")
}

fn collective_answer(late: &[Rank], arrived: &[Rank]) -> String {
    let first = arrived.first().map_or_else(String::new, |first| format!("; first {first}"));
    format!("late {}; missing {}{first}", ranks(late), late.len())
}

fn lock_answer(view: LockView) -> String {
    let LockView { holder, first, waiting, .. } = view;
    let one = |word: &str, rank: Option<Rank>| rank.map(|rank| format!("{word} {rank}"));
    let parts = [one("holder", holder), one("first", first), Some(format!("waiting {waiting}"))];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Asks nodes through the launcher until a deadline.
pub(super) struct Asking<'w> {
    waits: &'w Waits,
    deadline: Instant,
}

impl<'w> Asking<'w> {
    pub fn new(waits: &'w Waits, limit: Duration) -> Self {
        let now = Instant::now();
        Self { waits, deadline: now.checked_add(limit).unwrap_or(now) }
    }
}

impl Facts for Asking<'_> {
    fn me(&self) -> Rank {
        self.waits.bootstrap.rank()
    }

    fn nodes(&self) -> u32 {
        self.waits.bootstrap.size()
    }

    fn ask(&self, rank: Rank, question: &str) -> Option<String> {
        if rank == self.me() {
            return Some(self.waits.answer(question));
        }
        let left = self.deadline.saturating_duration_since(Instant::now()).min(ASK_TIME);
        if left.is_zero() { None } else { self.waits.bootstrap.ask_node(rank, question, left) }
    }

    fn lock_here(&self, lock: u64) -> Option<String> {
        let view = self.waits.with_node(|node| node.coherence.calls.lock_view(lock, node.as_ref()));
        view.flatten().map(lock_answer)
    }

    fn end_of(&self, rank: Rank) -> Option<String> {
        let ended = self
            .waits
            .bootstrap
            .ended()
            .into_iter()
            .find(|end| end.rank == rank)
            .map(|end| end.how);
        let lost = || {
            self.waits
                .with_node(|node| node.departures.death_of(rank))
                .flatten()
                .map(|death| format!("is lost: {death}"))
        };
        ended.or_else(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_locks_and_collectives_name_ranks_in_numbers() {
        assert_eq!(collective_answer(&[2, 5], &[0, 1]), "late 2 5; missing 2; first 0");
        assert_eq!(collective_answer(&[], &[]), "late ; missing 0");
        let view = LockView { holder: Some(1), first: Some(2), waiting: 3, abandoned: 1 };
        assert_eq!(lock_answer(view), "holder 1; first 2; waiting 3");
        assert_eq!(lock_answer(LockView::default()), "waiting 0");
    }
}
