//! Questions of the launcher to all nodes at once (LAUNCH-2.3).

use super::table::{NodeAnswer, Table};
use oikaze_protocol::Rank;
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Surveys of the launcher: destination and number of the missing answers, by token.
#[derive(Default)]
pub struct Surveys {
    open: HashMap<u64, (Sender<NodeAnswer>, u32)>,
    last: u64,
}

impl Surveys {
    /// Asks all nodes. The answers go to `to`, one for each node.
    pub fn begin(
        &mut self,
        now: Duration,
        table: &mut Table,
        question: &str,
        limit: Duration,
        to: Sender<NodeAnswer>,
    ) {
        self.last += 1;
        self.open.insert(self.last, (to, table.size()));
        (0..table.size())
            .for_each(|rank| table.ask(now, self.last, rank, limit, question.to_owned()));
    }

    /// Hands the table's answers to their askers.
    pub fn hand_out(&mut self, table: &mut Table) {
        while let Some(answer) = table.poll_answer() {
            let token = answer.token;
            if let Some((to, missing)) = self.open.get_mut(&token) {
                // No thread waits any more, because the limit has passed.
                let _ = to.send(answer);
                *missing -= 1;
                if *missing == 0 {
                    self.open.remove(&token);
                }
            }
        }
    }
}

/// Waits for the answers of all nodes, at most until `deadline`. A text is `None` if its node gave
/// no answer.
pub fn collect(
    size: u32,
    deadline: Instant,
    answers: &Receiver<NodeAnswer>,
) -> Vec<(Rank, Option<String>)> {
    let mut all: BTreeMap<Rank, Option<String>> = (0..size).map(|rank| (rank, None)).collect();
    for _ in 0..size {
        let Ok(answer) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        all.insert(answer.rank, answer.text);
    }
    all.into_iter().collect()
}
