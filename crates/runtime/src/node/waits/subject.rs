//! Subjects of waits, in words.

use crate::sync::{Thread, current, current_name};
use oikaze_engine::{ANY_PEER, OperationLabel};
use oikaze_protocol::Rank;
use std::fmt;

/// Subject of a blocked thread's wait. Displayed, it ends the sentence "node 1 has waited 5 s for
/// …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitSubject {
    /// All nodes, in a collective operation.
    Collective(String),
    /// A lock of the job: its number, and how the node's texts name it.
    Lock { number: u64, text: String },
    /// One message, or several, of a node or of any.
    Message { from: Option<Rank>, count: usize },
    /// A put with notice, of any node.
    Arrival,
    /// A change of a word of this node's memory.
    Word { offset: u64, region: Option<String>, by: Option<Rank> },
    /// An element of a FIFO of this node.
    Pop { fifo: String },
    /// Room in a FIFO of another node.
    Push { fifo: String, owner: Rank },
    /// A name that another node is to publish.
    Name { name: String, owner: Rank },
    /// The end of an operation; of any peer's if there is none.
    Operation { what: String, peer: Option<Rank> },
    /// A page of a shared array that a load or store has touched.
    Page { array: String, page: u64, home: Rank },
    /// The first sign of life of nodes while the job begins.
    Join { nodes: Vec<Rank>, what: &'static str },
}

impl WaitSubject {
    /// Returns the subject of a wait for the end of an operation.
    pub fn of_operation(label: &OperationLabel) -> Self {
        let peer = Some(label.peer).filter(|peer| *peer != ANY_PEER);
        WaitSubject::Operation { what: label.to_string(), peer }
    }

    /// The end of something about which no more is known than its name.
    pub fn other(what: impl Into<String>) -> Self {
        WaitSubject::Operation { what: what.into(), peer: None }
    }
}

impl fmt::Display for WaitSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitSubject::Collective(what) if what == "leave" => {
                f.write_str("all nodes to leave the job")
            }
            WaitSubject::Collective(what) => f.write_str(what),
            WaitSubject::Lock { text, .. } => f.write_str(text),
            WaitSubject::Message { from, count } => {
                match count {
                    1 => f.write_str("a message from ")?,
                    count => write!(f, "{count} messages from ")?,
                }
                match from {
                    Some(from) => write!(f, "node {from}"),
                    None => f.write_str("any node"),
                }
            }
            WaitSubject::Arrival => f.write_str("a put with notice"),
            WaitSubject::Word { offset, region, by } => {
                match region {
                    Some(region) => {
                        write!(f, "a change of the word at offset {offset} of region \"{region}\"")?
                    }
                    None => write!(f, "a change of the word at offset {offset} of a region")?,
                }
                by.map_or(Ok(()), |by| write!(f, " by node {by}"))
            }
            WaitSubject::Pop { fifo } => write!(f, "an element of FIFO \"{fifo}\""),
            WaitSubject::Push { fifo, owner } => {
                write!(f, "room in FIFO \"{fifo}\" of node {owner}")
            }
            WaitSubject::Name { name, owner } => write!(f, "node {owner} to publish \"{name}\""),
            WaitSubject::Operation { what, .. } => f.write_str(what),
            WaitSubject::Page { array, page, home } => {
                write!(
                    f,
                    "page {page} of array \"{array}\" from its home, node {home} (a load or store)"
                )
            }
            WaitSubject::Join { nodes, what } => {
                write!(f, "{} to {what}", nodes_text(nodes, nodes.len()))
            }
        }
    }
}

/// Names `total` nodes, of which `ranks` are the first: "node 2", "nodes 2, 5", and of many the
/// first eight.
pub(super) fn nodes_text(ranks: &[Rank], total: usize) -> String {
    const SHOWN_MAX: usize = 8;
    let mut text: Vec<String> = ranks.iter().take(SHOWN_MAX).map(Rank::to_string).collect();
    if total > text.len() {
        text.push(format!("{} more", total - text.len()));
    }
    format!("node{} {}", if total == 1 { "" } else { "s" }, text.join(", "))
}

/// Identity of a thread that waits or holds a lock.
#[derive(Clone, Debug)]
pub(super) struct WaitingThread {
    thread: Thread,
    pub name: String,
}

impl WaitingThread {
    /// Returns the calling thread.
    pub fn current() -> Self {
        Self { thread: current(), name: format!("\"{}\"", current_name()) }
    }

    /// Returns `true` if this is the calling thread.
    pub fn is_current(&self) -> bool {
        self.thread.id() == current().id()
    }
}
