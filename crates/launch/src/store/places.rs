//! Ranks and the processes that hold them (WIND-11.2).

use super::protocol::PROCESS_LEN;
use oikaze_protocol::Rank;
use std::collections::BTreeMap;

/// Connection of a process, as its proof says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Identity of the process.
    pub process: [u8; PROCESS_LEN],
    /// Number of the proof. A newer connection has a greater number.
    pub attempt: u32,
}

struct RankHolder {
    claim: Claim,
    is_connected: bool,
    /// Set once the process has published. Others may know its values, so no other process can
    /// stand in for it.
    has_published: bool,
}

/// Table of the ranks that have been taken.
#[derive(Default)]
pub(super) struct Places(BTreeMap<Rank, RankHolder>);

impl Places {
    /// Gives a rank to a connection. Returns `true` if the connection continues an earlier one of
    /// the same process.
    ///
    /// # Errors
    /// The text says why the connection cannot have the rank.
    pub fn take(&mut self, rank: Rank, claim: Claim) -> Result<bool, String> {
        match self.0.get_mut(&rank) {
            Some(place) if place.claim.process == claim.process => {
                if claim.attempt <= place.claim.attempt {
                    return Err(format!("node {rank} has opened a newer connection meanwhile"));
                }
                place.claim = claim;
                place.is_connected = true;
                return Ok(true);
            }
            Some(place) if place.is_connected => {
                return Err(format!(
                    "node {rank} has joined already: only one process may join as one node (did a child of it try, too?)"
                ));
            }
            Some(place) if place.has_published => {
                return Err(format!(
                    "node {rank} has joined before, and that process has left or failed to join: a process joins its job once; \
                     keep the job that `join` returned, or start the program again with `oikaze run`"
                ));
            }
            _ => {}
        }
        self.0.insert(rank, RankHolder { claim, is_connected: true, has_published: false });
        Ok(false)
    }

    /// Notes that a process has published something.
    pub fn published(&mut self, rank: Rank) {
        if let Some(place) = self.0.get_mut(&rank) {
            place.has_published = true;
        }
    }

    /// Returns `true` while the connection is the newest of its rank.
    pub fn holds(&self, rank: Rank, claim: &Claim) -> bool {
        self.0.get(&rank).is_some_and(|place| place.is_connected && place.claim == *claim)
    }

    /// Notes that a connection has ended.
    pub fn leave(&mut self, rank: Rank) {
        if let Some(place) = self.0.get_mut(&rank) {
            place.is_connected = false;
        }
    }

    /// Returns `true` while a connection holds the rank.
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.0.get(&rank).is_some_and(|place| place.is_connected)
    }

    /// Returns the ranks that are connected.
    pub fn connected(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().filter(|(_, place)| place.is_connected).map(|(rank, _)| *rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(process: u8, attempt: u32) -> Claim {
        Claim { process: [process; PROCESS_LEN], attempt }
    }

    /// WIND-11.2.
    #[test]
    fn newer_connection_of_a_process_replaces_the_older() {
        let mut places = Places::default();
        assert_eq!(places.take(0, claim(1, 1)), Ok(false));
        assert_eq!(places.take(0, claim(1, 3)), Ok(true));
        assert!(places.take(0, claim(1, 2)).unwrap_err().contains("newer connection"));
        assert!(places.holds(0, &claim(1, 3)) && !places.holds(0, &claim(1, 1)));
        assert!(places.take(0, claim(2, 9)).unwrap_err().contains("joined already"));
    }

    /// WIND-11.2.
    #[test]
    fn rank_is_taken_anew_until_something_is_published() {
        let mut places = Places::default();
        places.take(0, claim(1, 1)).unwrap();
        places.leave(0);
        assert_eq!(places.take(0, claim(2, 1)), Ok(false));
        places.published(0);
        places.leave(0);
        assert!(places.take(0, claim(3, 1)).unwrap_err().contains("a process joins its job once"));
        assert_eq!(places.take(0, claim(2, 2)), Ok(true));
    }
}
