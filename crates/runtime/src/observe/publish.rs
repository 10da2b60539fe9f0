//! Writer's side of the board: now and then, the engine's counters are written to the board.

use super::page::{self, FlowsPage, NodePage, PeerPage};
use super::program::own_name;
use super::slow::PathNotes;
use super::words::Row;
use oikaze_engine::Engine;
use oikaze_launch::Bootstrap;
use oikaze_os::net::Link;
use oikaze_os::stats_page::Board;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{SHOWN_EVERY, SHOWN_PEERS};
use oikaze_protocol::time::Time;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Variable with `on` (default) or `off`: whether the node shows its numbers.
pub const VARIABLE: &str = "OIKAZE_STATISTICS";

/// Counts of what a node has done without its engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutEngine {
    /// Number of barriers.
    pub barriers: u64,
    /// Number of locks that were taken.
    pub locks: u64,
}

/// Returns the fixed part of a node's page. All counters are still zero.
fn identity(job: &dyn Bootstrap) -> NodePage {
    let [a, b, c, d, ..] = job.secret().mac(&[b"oikaze name of the job"]);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    NodePage {
        job: u32::from_be_bytes([a, b, c, d]),
        rank: job.rank(),
        nodes: job.size(),
        seal: job.settings().seal.unwrap_or_default(),
        program: own_name(),
        started: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        ..NodePage::default()
    }
}

/// Publisher of a node's page, or of nothing if the user does not want it.
#[derive(Debug, Default)]
pub struct Publisher {
    /// Time of the next write, in nanoseconds since the node's start; `u64::MAX` if never.
    next: AtomicU64,
    /// Board of the node. Only the thread in the engine writes, so no thread waits for this lock.
    board: Mutex<Option<Writer>>,
    paths: PathNotes,
}

impl Publisher {
    /// Publishes this node, unless [`VARIABLE`] is `off`. If the board cannot be made, the node
    /// runs all the same, and the text says why.
    ///
    /// # Errors
    /// The text says what is wrong with the variable.
    pub fn of(job: &dyn Bootstrap) -> Result<(Self, Option<String>), String> {
        match std::env::var(VARIABLE).ok().as_deref() {
            None | Some("on") => {}
            Some("off") => return Ok((Self::nothing(), None)),
            Some(other) => return Err(format!("{VARIABLE}={other}: expected on or off")),
        }
        // Made before the board, because a reader passes over a board that is not written.
        let identity = identity(job);
        Ok(match Board::new(page::BOARD, page::layout(job.size())) {
            Ok(board) => {
                let writer = Writer::new(board, identity);
                (Self { board: Mutex::new(Some(writer)), ..Self::default() }, None)
            }
            Err(why) => (
                Self::nothing(),
                Some(format!(
                    "oikaze top will not see this node: no memory file for its numbers: {why}"
                )),
            ),
        })
    }

    /// Makes a publisher that shows nothing.
    pub fn nothing() -> Self {
        Self { next: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Writes after a turn, if a write is due. Costs a load and a comparison otherwise.
    pub fn publish_if_due<L: Link, P: Pages>(
        &self,
        engine: &mut Engine<L, P>,
        mail: usize,
        without: WithoutEngine,
        now: Time,
        waits: impl FnOnce() -> String,
    ) {
        if now.0 >= self.next.load(Ordering::Relaxed) {
            self.next.store((now + SHOWN_EVERY).0, Ordering::Relaxed);
            if let Some(writer) = &mut *self.board.lock().unwrap_or_else(PoisonError::into_inner) {
                writer.write(engine, mail, now, waits(), &self.paths, without);
            }
        }
    }

    /// Returns the notes on which fast paths are in use.
    pub fn paths(&self) -> &PathNotes {
        &self.paths
    }

    /// Takes the board down.
    pub fn end(&self) {
        self.next.store(u64::MAX, Ordering::Relaxed);
        *self.board.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    board: Board,
    identity: NodePage,
    row: Row,
    /// Peer that is checked next.
    next: Rank,
    /// Sum of each rank's counters at its last write. Another sum means another record.
    sums: Vec<u64>,
    /// Peers with several flows of bulk.
    with_flows: BTreeSet<Rank>,
    /// Whether the record of flows has any.
    shows_flows: bool,
}

impl Writer {
    pub fn new(board: Board, identity: NodePage) -> Self {
        let sums = vec![u64::MAX; identity.nodes as usize];
        let (row, with_flows, shows_flows) = (Row::default(), BTreeSet::new(), false);
        let mut writer = Self { board, identity, row, next: 0, sums, with_flows, shows_flows };
        // Visible from here on, also while the node waits for the other nodes to be started.
        writer.write_node(&writer.identity.clone());
        writer
    }

    pub fn write<L: Link, P: Pages>(
        &mut self,
        engine: &mut Engine<L, P>,
        mail: usize,
        now: Time,
        waits: String,
        paths: &PathNotes,
        without: WithoutEngine,
    ) {
        let nodes = self.identity.nodes;
        for _ in 0..nodes.min(SHOWN_PEERS) {
            let rank = self.next;
            self.next = (rank + 1) % nodes;
            self.write_peer(engine, rank);
        }
        self.write_flows(engine, now);
        let link = engine.link().statistics();
        let mut page = NodePage {
            at: Duration::from_nanos(now.0),
            operations: engine.ops().in_flight() as u64,
            mail: mail as u64,
            waits,
            engine: engine.counters(),
            groups: engine.group_counters(),
            link: link.into(),
            coherence: *engine.coherence().statistics(),
            refusals: *engine.rma().refusals().0,
            ..self.identity.clone()
        };
        page.coherence.barriers += without.barriers;
        page.coherence.locks += without.locks;
        paths.show(&link, &mut page);
        self.write_node(&page);
    }

    fn write_node(&mut self, page: &NodePage) {
        self.row.0.clear();
        page.write(&mut self.row);
        self.board.write(0, &self.row.0);
    }

    /// Writes the record of flows, unless it is and was empty.
    fn write_flows<L: Link, P: Pages>(&mut self, engine: &Engine<L, P>, now: Time) {
        let any = !self.with_flows.is_empty();
        if std::mem::replace(&mut self.shows_flows, any) || any {
            self.row.0.clear();
            FlowsPage::of(engine, self.with_flows.iter().copied(), now).write(&mut self.row);
            self.board.write(page::flows_record(self.identity.nodes), &self.row.0);
        }
    }

    /// Writes a peer's record, if something has happened to the peer.
    fn write_peer<L: Link, P: Pages>(&mut self, engine: &Engine<L, P>, rank: Rank) {
        let (Some(counters), Some(snapshot)) =
            (engine.peer_statistics(rank), engine.peers().snapshot(rank))
        else {
            return;
        };
        match snapshot.flows > 1 {
            true => _ = self.with_flows.insert(rank),
            false => _ = self.with_flows.remove(&rank),
        }
        let Some(written) = self.sums.get_mut(rank as usize) else { return };
        let state = page::State::from(snapshot.standing);
        // Counters only grow, so their sum changes with any of them.
        let sum =
            counters.values().iter().fold(state as u64, |sum, value| sum.wrapping_add(*value));
        if std::mem::replace(written, sum) == sum {
            return;
        }
        let Some(page) = PeerPage::of(engine, rank) else { return };
        self.row.0.clear();
        page.write(&mut self.row);
        self.board.write(1 + rank as usize, &self.row.0);
    }
}
