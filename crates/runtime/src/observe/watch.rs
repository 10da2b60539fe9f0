//! Reader's side of the boards: the nodes of this machine, as they show themselves.

use super::page::{self, FlowsPage, NodePage, PeerPage};
use super::words::Reader;
use oikaze_os::stats_page::{self, Found};
use oikaze_protocol::Rank;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// State of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Process of the node.
    pub pid: u32,
    /// The node itself.
    pub node: NodePage,
    /// Peers of the node, by rank. A peer is missing if it was never connected, or if its record
    /// was not finished.
    pub peers: Vec<(Rank, PeerPage)>,
    /// Flows of bulk to peers with several.
    pub flows: FlowsPage,
}

impl NodeView {
    /// Returns the job's name, for people: eight hexadecimal digits.
    #[must_use]
    pub fn job(&self) -> String {
        format!("{:08x}", self.node.job)
    }

    /// Returns the time since the last write. A tenth of a second is usual, and much more means
    /// that the node is stopped.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_micros(self.node.started).saturating_add(self.node.at))
    }
}

/// Process whose board this release does not understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Id of the process.
    pub pid: u32,
    /// Reason why the board cannot be read.
    pub why: &'static str,
}

/// Returns all nodes of this user on this machine (for root, of every user), by job and rank. Also
/// returns processes that look like nodes and cannot be read.
///
/// # Errors
/// `/proc` cannot be read.
pub fn nodes() -> io::Result<(Vec<NodeView>, Vec<Unreadable>)> {
    let (mut views, mut unreadable) = (Vec::new(), Vec::new());
    // A board that has not been written yet belongs to a node that is just starting.
    for found in
        stats_page::find(page::BOARD)?.into_iter().filter(|found| found.view.sequence(0) != Some(0))
    {
        match read(&found) {
            Ok(view) => views.push(view),
            Err(why) => unreadable.push(Unreadable { pid: found.pid, why }),
        }
    }
    views.sort_by_key(|view: &NodeView| (view.node.job, view.node.rank, view.node.started));
    Ok((views, unreadable))
}

fn read(found: &Found) -> Result<NodeView, &'static str> {
    const NONSENSE: &str = "what it shows makes no sense";
    let (layout, known) = (found.view.layout(), page::layout(0));
    if layout.version != known.version {
        return Err("it runs another release of Oikaze: use that release's oikaze top");
    }
    // Any process may show records of any size, and reading them would take this process's time.
    if layout.words != known.words {
        return Err(NONSENSE);
    }
    let row = found.view.read(0).ok_or("it was stopped while it wrote")?;
    let node = NodePage::read(Reader(row.iter())).ok_or(NONSENSE)?;
    if layout != page::layout(node.nodes) {
        return Err(NONSENSE);
    }
    let written = |record: usize| {
        // Most records of a large job were never written, so they need no copy.
        found.view.sequence(record).filter(|written| *written > 0)?;
        found.view.read(record)
    };
    let peer =
        |rank: Rank| Some((rank, PeerPage::read(Reader(written(1 + rank as usize)?.iter()))?));
    let peers = (0..node.nodes).filter_map(peer).collect();
    let flows = written(page::flows_record(node.nodes))
        .and_then(|row| FlowsPage::read(Reader(row.iter())))
        .unwrap_or_default();
    Ok(NodeView { pid: found.pid, node, peers, flows })
}
