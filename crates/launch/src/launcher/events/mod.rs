//! Events that the main thread of a launcher or agent waits for.

pub(in crate::launcher) mod signals;

use crate::launcher::ending::Ending;
use crate::pmi::{PmiNews, PmiOrder};
use crate::store::Notice;
use oikaze_protocol::Rank;

/// Event that the main thread of a launcher or agent waits for.
pub(in crate::launcher) enum Event {
    /// A signal to pass on, or SIGCHLD if a child has ended.
    Signal(i32),
    /// An output stream of a local node has ended.
    Drained,
    /// An agent reports that a node has ended.
    Ended(usize, Rank, Ending),
    /// The remote shell of a host has ended, perhaps with a reason to report.
    HostClosed(usize, Option<HostFailure>),
    /// A host does not take its messages, as the text says.
    HostSilent(usize, String),
    /// The PMI-1 server of a host has news.
    Pmi(PmiNews),
    /// A node has a request to the launcher.
    Notice(Notice),
    /// Answers of the nodes about their present activity, before the time limit ends them.
    Answers(Vec<(Rank, Option<String>)>),
    /// Answers of the nodes about their present activity, for the user.
    Report(Vec<(Rank, Option<String>)>),
    /// The launcher tells the PMI-1 server. Only an agent receives this event.
    PmiOrder(PmiOrder),
    /// The launcher has closed its end of the pipe. Only an agent receives this event.
    LauncherGone,
}

/// Reason why a host cannot take part.
pub(in crate::launcher) enum HostFailure {
    /// The pipe ended too early, or was not an agent's.
    Broken(String),
    /// No agent could be started there. The text has the remedy.
    NoAgent(String),
}
