//! Errors between a process and its job.

use crate::addresses::unreachable::Unreachable;
use oikaze_protocol::wind::HandshakeRefusal;
use std::time::Duration;

/// Error of finding, joining or asking a job.
#[derive(thiserror::Error)]
pub enum JobError {
    /// A variable that the launcher sets is missing or makes no sense.
    #[error(
        "{name} is {found}, but must be {needed}; unset it if you set it yourself. In a job `oikaze run` sets what is needed; \
         without any OIKAZE_* variable a program runs as a job of one node"
    )]
    Environment {
        /// Name of the variable.
        name: &'static str,
        /// Value of the variable.
        found: String,
        /// Values that the variable may have.
        needed: &'static str,
    },
    /// A launcher has started this process as a node, but its variables are lost (LAUNCH-6.7).
    #[error(
        "finding the job: `oikaze run` has started this process as a node, but the variables of the job (OIKAZE_STORE and \
         others) are not set: {remedy}"
    )]
    LostVariables {
        /// Remedy for what has cleared the environment.
        remedy: &'static str,
    },
    /// No port for the job's store is free.
    #[error(
        "no TCP port for the job's store is free in {range} ({last}): give `--ports` (OIKAZE_PORTS) another or a wider range, \
         or see with `ss -ltnp` who holds them"
    )]
    PortsInUse {
        /// Range of the ports that were tried.
        range: String,
        /// Last error that the system returned.
        last: String,
    },
    /// The server of another launcher, or the exchange that the program supplies, does not do its
    /// part.
    #[error(
        "joining the job: meeting the other processes by {server}: {why}. If no launcher has started this process, \
         OIKAZE_LAUNCHER=oikaze makes it a job of one node"
    )]
    Exchange {
        /// Name of the server.
        server: &'static str,
        /// Cause in the server's words.
        why: String,
    },
    /// None of the launcher's addresses could be reached.
    #[error("joining the job: the launcher was not reached in {:.1} s (tried {tried}). What to do: {remedy}", waited.as_secs_f64())]
    StoreUnreachable {
        /// `address: cause` for each.
        tried: String,
        /// Remedies of these causes.
        remedy: String,
        /// Time of all attempts together.
        waited: Duration,
    },
    /// The other end of the connection is not the store of this job.
    #[error(
        "{address} does not prove that it knows this job's secret: OIKAZE_SECRET or OIKAZE_STORE is of another job"
    )]
    NotOurStore {
        /// Address of that end.
        address: String,
    },
    /// The store speaks another version.
    #[error(
        "the launcher's store speaks version {theirs}, this program version {ours}: build both from the same release of Oikaze"
    )]
    StoreVersion {
        /// Protocol version of this program.
        ours: u16,
        /// Protocol version of the store.
        theirs: u16,
    },
    /// The store refused this process.
    #[error("the job's store refused this process: {why}")]
    Refused {
        /// Reason in the store's words.
        why: String,
    },
    /// The connection to the store ended.
    #[error(
        "the connection to the job's store was lost ({why}): the launcher has ended or was killed"
    )]
    StoreLost {
        /// Error that the system returned.
        why: String,
    },
    /// The job is over for everyone.
    #[error("the job was ended: {why}")]
    Aborted {
        /// The first cause, e.g. `node 2 was killed by signal 9`.
        why: String,
    },
    /// A node that is needed has ended.
    #[error("{what} failed: node {rank} {how}")]
    NodeEnded {
        /// Rank of the node that ended.
        rank: u32,
        /// End of the node, as in [`NodeEnd::how`](crate::NodeEnd::how).
        how: String,
        /// Event that the caller waited for.
        what: String,
    },
    /// A wait took too long.
    #[error("{what} did not happen within {limit:?}: {missing}")]
    TimedOut {
        /// Event that the caller waited for.
        what: String,
        /// Time limit of the wait.
        limit: Duration,
        /// Nodes or values that are missing.
        missing: String,
    },
    /// A node that was started has not joined.
    #[error(
        "node {rank} has not joined the job within {limit:?}: it runs, but has not come to `oikaze::join()` yet, or its program does \
         not call it. Is it an Oikaze program, with the right arguments? OIKAZE_TIMEOUT (milliseconds) allows for a longer start"
    )]
    NotJoined {
        /// Rank of the node that is missing.
        rank: u32,
        /// Time for which the store waited for the node.
        limit: Duration,
    },
    /// A node that began to join does not go on.
    #[error(
        "joining the job: node {rank} began to join, but did not go on within {limit:?}. It is stopped, or the path between it \
         and the launcher loses many packets: `ping` shows the loss, OIKAZE_TIMEOUT (milliseconds) allows for more time"
    )]
    Stalled {
        /// Rank of that node.
        rank: u32,
        /// Time that it was given.
        limit: Duration,
    },
    /// A node that cannot be in one job with this one.
    #[error("node {rank} on {there:?} and this one on {here:?} cannot be in one job: {why}")]
    Misfit {
        /// Rank of that node.
        rank: u32,
        /// Name of the host of that node.
        there: String,
        /// Name of the host of this node.
        here: String,
        /// Difference between the nodes, and the remedy.
        why: HandshakeRefusal,
    },
    /// A key or value outside its limits.
    #[error("{what} has {len} bytes, but at most {max} are allowed")]
    TooLong {
        /// Kind of the text that is too long.
        what: &'static str,
        /// Length of the text.
        len: usize,
        /// Maximum length of the text.
        max: usize,
    },
    /// The record that a node published cannot be understood.
    #[error(
        "joining the job: what node {rank} says of {what} cannot be understood ({why}): run the same release on all nodes"
    )]
    Malformed {
        /// Rank of that node.
        rank: u32,
        /// Subject of the record.
        what: &'static str,
        /// Place in the text that differs from what was expected.
        why: String,
    },
    /// No pair of addresses works.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The system refused something.
    #[error("{doing}: {source}{}", oikaze_os::error_text::remedy_of(source))]
    System {
        /// Operation that failed.
        doing: String,
        /// Error that the system returned.
        source: std::io::Error,
    },
}

/// Prints the message, as `Display` does: `fn main() -> Result` prints errors by `Debug`.
impl std::fmt::Debug for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        oikaze_os::error_text::write_message(self, f)
    }
}

impl JobError {
    /// Adds the failed operation to a system's error.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> JobError {
        let doing = doing.into();
        move |source| JobError::System { doing, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::wind::Misfit;

    /// WIRE-6.5: the user sees which release is on which host.
    #[test]
    fn refusal_by_version_names_both_hosts_and_ranges() {
        let why = HandshakeRefusal {
            misfit: Misfit::Version,
            mine: 11,
            theirs: 13 << 16 | 12,
            by_peer: false,
        };
        let error = JobError::Misfit { rank: 3, there: "new".into(), here: "old".into(), why };
        let text = error.to_string();
        assert!(text.starts_with("node 3 on \"new\" and this one on \"old\""), "{text}");
        assert!(text.contains("wire format 11 here, 12 to 13 at the peer"), "{text}");
    }
}
