//! Open questions of nodes and the launcher to nodes: their origin and time limit (LAUNCH-2.2). No
//! I/O, no clock.

use oikaze_protocol::Rank;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of open questions of one node.
pub const ASKED_MAX: usize = 16;
/// Maximum number of open questions of nodes to one node. Questions of the launcher do not count.
pub const TO_ONE_MAX: usize = 64;

/// Origin of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The node of this rank, by the request of this number.
    Node(Rank, u32),
    /// The launcher, with a token of its own.
    Launcher(u64),
}

struct Question {
    asker: Asker,
    to: Rank,
    deadline: Duration,
    text: String,
}

/// Open questions by number. Each is handed back exactly once, unless its asker disconnects first.
#[derive(Default)]
pub struct Questions {
    open: BTreeMap<u32, Question>,
    last: u32,
}

impl Questions {
    /// Opens a question and returns its number.
    ///
    /// # Errors
    /// Too many questions are open.
    pub fn ask(
        &mut self,
        asker: Asker,
        to: Rank,
        deadline: Duration,
        text: String,
    ) -> Result<u32, String> {
        if let Asker::Node(rank, _) = asker {
            let of_nodes =
                || self.open.values().filter(|open| matches!(open.asker, Asker::Node(..)));
            let asked = of_nodes()
                .filter(|open| matches!(open.asker, Asker::Node(of, _) if of == rank))
                .count();
            if asked >= ASKED_MAX {
                return Err(format!("{ASKED_MAX} questions of node {rank} are open already"));
            }
            if of_nodes().filter(|open| open.to == to).count() >= TO_ONE_MAX {
                return Err(format!("{TO_ONE_MAX} questions to node {to} are open already"));
            }
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        self.open.insert(self.last, Question { asker, to, deadline, text });
        Ok(self.last)
    }

    /// Closes a question that `from` has answered. Returns `None` if no such question to `from` is
    /// open (late, or invented).
    pub fn answered(&mut self, from: Rank, number: u32) -> Option<(Asker, Rank)> {
        if self.open.get(&number)?.to != from {
            return None;
        }
        self.open.remove(&number).map(|question| (question.asker, question.to))
    }

    /// Returns the open questions to a node: number and text.
    pub fn open_to(&self, to: Rank) -> impl Iterator<Item = (u32, &str)> {
        self.open
            .iter()
            .filter(move |(_, open)| open.to == to)
            .map(|(number, open)| (*number, open.text.as_str()))
    }

    /// Closes all questions to a node that can no longer answer.
    pub fn unanswered(&mut self, to: Rank) -> Vec<Asker> {
        self.close(|open| open.to == to).into_iter().map(|(asker, _)| asker).collect()
    }

    /// Closes all questions of a node that has disconnected.
    pub fn forget(&mut self, rank: Rank) {
        self.close(|open| matches!(open.asker, Asker::Node(of, _) if of == rank));
    }

    /// Closes the questions whose time limit has passed, and returns them.
    pub fn late(&mut self, now: Duration) -> Vec<(Asker, Rank)> {
        self.close(|open| open.deadline <= now)
    }

    /// Returns the time at which [`Questions::late`] has something to return.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.open.values().map(|open| open.deadline).min()
    }

    fn close(&mut self, wanted: impl Fn(&Question) -> bool) -> Vec<(Asker, Rank)> {
        let closed: Vec<u32> =
            self.open.iter().filter(|(_, open)| wanted(open)).map(|(number, _)| *number).collect();
        closed
            .into_iter()
            .filter_map(|number| self.open.remove(&number))
            .map(|closed| (closed.asker, closed.to))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(9);

    #[test]
    fn question_answered_by_another_node_stays_open() {
        let mut questions = Questions::default();
        let number = questions.ask(Asker::Launcher(7), 1, LATE, String::new()).unwrap();
        assert_eq!(questions.answered(2, number), None);
        assert_eq!(questions.answered(1, number), Some((Asker::Launcher(7), 1)));
        assert_eq!(questions.answered(1, number), None);
    }

    #[test]
    fn questions_beyond_the_bounds_are_refused_and_the_launcher_is_exempt() {
        let mut questions = Questions::default();
        for id in 0..ASKED_MAX as u32 {
            questions.ask(Asker::Node(0, id), 9, LATE, String::new()).unwrap();
        }
        assert!(questions.ask(Asker::Node(0, 99), 9, LATE, String::new()).is_err());
        for id in ASKED_MAX as u32..TO_ONE_MAX as u32 {
            questions.ask(Asker::Node(id, 1), 9, LATE, String::new()).unwrap();
        }
        assert!(questions.ask(Asker::Node(100, 1), 9, LATE, String::new()).is_err());
        assert!(questions.ask(Asker::Node(100, 1), 8, LATE, String::new()).is_ok());
        assert!(questions.ask(Asker::Launcher(1), 9, LATE, String::new()).is_ok());
    }

    #[test]
    fn questions_close_by_time_and_by_disconnection() {
        let mut questions = Questions::default();
        questions.ask(Asker::Node(0, 1), 1, Duration::from_secs(1), String::new()).unwrap();
        questions.ask(Asker::Node(0, 2), 2, LATE, String::new()).unwrap();
        questions.ask(Asker::Node(3, 1), 0, LATE, String::new()).unwrap();
        assert_eq!(questions.next_timeout(), Some(Duration::from_secs(1)));
        assert_eq!(questions.late(Duration::from_secs(1)), [(Asker::Node(0, 1), 1)]);
        assert_eq!(questions.unanswered(2), [Asker::Node(0, 2)]);
        questions.forget(3);
        assert_eq!(questions.next_timeout(), None);
    }
}
