//! Protocol of a launcher and its agent on another host, over ssh's standard input and output.
//!
//! From the agent: a magic line, then frames `kind u8 | rank u32 | length u32 | bytes`,
//! little-endian. Lines before the magic line are a login shell's chatter, or those of the script
//! that finds the agent.
//!
//! From the launcher, after the magic line: one JSON line with the order, then the contents of the
//! order's files, one after the other, then one JSON line for each signal or question. The secret
//! travels in the order, never in argv.

use crate::launcher::ending::Ending;
use crate::launcher::output::{Busy, Sink, Stream};
use crate::launcher::word::Word;
use crate::pmi::{PmiNews, PmiOrder};
use crate::{Ports, Seal, Secret, Settings};
use oikaze_protocol::Rank;
use oikaze_protocol::wind::FlowCount;
use oikaze_protocol::wind::congestion::Algorithm;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Protocol version, which must be the same at both ends.
pub const VERSION: u16 = 5;
/// First line of an agent that understands this version.
pub const MAGIC: &str = "OIKAZE-AGENT 5";
/// Beginning of the first line of an agent of any version.
pub const MAGIC_OF_ANY: &str = "OIKAZE-AGENT ";
/// Maximum length of one frame in bytes.
const FRAME_MAX: usize = 1 << 20;

/// Order of the launcher to an agent. It holds the secret and so has no `Debug`.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// Protocol version, [`VERSION`].
    pub version: u16,
    secret: String,
    /// Name of this host as the user gave it, for texts.
    #[serde(default)]
    pub host: String,
    /// Addresses of the store.
    pub store: String,
    /// Number of nodes in the job.
    pub size: u32,
    /// First rank on this host.
    pub first: Rank,
    /// Number of nodes on this host.
    pub count: u32,
    /// Incarnation of this start.
    pub incarnation: u64,
    /// Which nodes are on one host ([`crate::pmi::mapping`]).
    pub mapping: String,
    ports: Option<String>,
    failure_time_ms: Option<u64>,
    time_limit_ms: Option<u64>,
    fault: Option<String>,
    seal: Option<String>,
    congestion: Option<String>,
    flows: Option<String>,
    explain_after_ms: Option<u64>,
    keep_going: bool,
    /// Set if the secret goes into the nodes' environment.
    pub secret_in_environment: bool,
    /// Program and arguments.
    pub program: Vec<Word>,
    /// Directory to run in, if it exists there.
    pub directory: Word,
    /// Further environment variables.
    pub environment: Vec<(Word, Word)>,
    /// Files whose contents follow this order.
    pub files: Vec<FileHeader>,
    /// Words of the program's command line that name such a file, with its path in the directory
    /// of the job.
    pub renamed: Vec<(Word, Word)>,
}

/// File of a job, without its contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileHeader {
    /// Path in the directory of the job.
    pub path: Word,
    /// Length in bytes.
    pub size: u64,
    /// Rights, as `st_mode` has them.
    pub mode: u32,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Order {
    /// Makes an order with the parts that need translation. The caller fills in the others.
    #[must_use]
    pub fn new(secret: &Secret, settings: &Settings) -> Order {
        Order {
            version: VERSION,
            secret: secret.to_hex(),
            host: String::new(),
            store: String::new(),
            size: 0,
            first: 0,
            count: 0,
            incarnation: 0,
            mapping: String::new(),
            ports: settings.ports.map(|ports| ports.to_string()),
            failure_time_ms: settings.failure_time.map(milliseconds),
            time_limit_ms: settings.time_limit.map(milliseconds),
            fault: settings.fault.clone(),
            seal: settings.seal.map(|seal| seal.to_string()),
            congestion: settings.congestion.map(|algorithm| algorithm.to_string()),
            flows: settings.flows.map(|flows| flows.to_string()),
            explain_after_ms: settings.explain_after.map(milliseconds),
            keep_going: settings.keep_going,
            secret_in_environment: false,
            program: Vec::new(),
            directory: Word::default(),
            environment: Vec::new(),
            files: Vec::new(),
            renamed: Vec::new(),
        }
    }

    /// Returns the secret and the settings, or `None` if they make no sense.
    #[must_use]
    pub fn secret_and_settings(&self) -> Option<(Secret, Settings)> {
        let ports = self.ports.as_deref().map(str::parse::<Ports>).transpose().ok()?;
        let seal = self.seal.as_deref().map(str::parse::<Seal>).transpose().ok()?;
        let congestion =
            self.congestion.as_deref().map(str::parse::<Algorithm>).transpose().ok()?;
        let flows = self.flows.as_deref().map(str::parse::<FlowCount>).transpose().ok()?;
        let failure_time = self.failure_time_ms.map(Duration::from_millis);
        let time_limit = self.time_limit_ms.map(Duration::from_millis);
        let fault = self.fault.clone();
        let explain_after = self.explain_after_ms.map(Duration::from_millis);
        let keep_going = self.keep_going;
        let settings = Settings {
            ports,
            failure_time,
            time_limit,
            fault,
            seal,
            congestion,
            flows,
            keep_going,
            explain_after,
            // Concerns single nodes, and comes with their environment.
            machine: None,
        };
        Some((Secret::from_hex(&self.secret)?, settings))
    }
}

/// Messages of the launcher that follow the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Pass on this signal.
    Signal(i32),
    /// Answer by [`AgentMessage::Drained`] when all output of this node so far has been sent.
    Drain(Rank),
    /// Tell the PMI-1 server there.
    Pmi(PmiOrder),
}

/// Messages of an agent to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentMessage {
    /// Output of a node.
    Output(Rank, Stream, Vec<u8>),
    /// An output stream of a node has ended.
    OutputEnd(Rank, Stream),
    /// A node has ended.
    Ended(Rank, Ending),
    /// A message for the user.
    Note(String),
    /// Answer to the oldest unanswered [`Control::Drain`].
    Drained,
    /// The PMI-1 server there has news.
    Pmi(PmiNews),
}

impl AgentMessage {
    fn encode(&self) -> Vec<u8> {
        let number = |stream: Stream| stream as u8;
        let (kind, rank, bytes) = match self {
            AgentMessage::Output(rank, stream, bytes) => (number(*stream), *rank, bytes.clone()),
            AgentMessage::OutputEnd(rank, stream) => (2 + number(*stream), *rank, Vec::new()),
            AgentMessage::Ended(rank, Ending::Status(status)) => (5, *rank, vec![*status]),
            AgentMessage::Ended(rank, Ending::Signal(signal)) => {
                (6, *rank, signal.to_le_bytes().to_vec())
            }
            AgentMessage::Ended(rank, Ending::Lost(why, status)) => {
                (7, *rank, [&[*status][..], why.as_bytes()].concat())
            }
            AgentMessage::Note(text) => (8, 0, text.clone().into_bytes()),
            AgentMessage::Drained => (9, 0, Vec::new()),
            // It has texts and numbers only, which are always JSON.
            AgentMessage::Pmi(news) => (10, 0, serde_json::to_vec(news).unwrap_or_default()),
        };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        [&[kind][..], &rank.to_le_bytes(), &length.to_le_bytes(), &bytes].concat()
    }

    fn decode(kind: u8, rank: Rank, bytes: Vec<u8>) -> Option<AgentMessage> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match (kind, &bytes[..]) {
            (1, _) => AgentMessage::Output(rank, Stream::Out, bytes),
            (2, _) => AgentMessage::Output(rank, Stream::Err, bytes),
            (3, []) => AgentMessage::OutputEnd(rank, Stream::Out),
            (4, []) => AgentMessage::OutputEnd(rank, Stream::Err),
            (5, [status]) => AgentMessage::Ended(rank, Ending::Status(*status)),
            (6, signal) => AgentMessage::Ended(
                rank,
                Ending::Signal(i32::from_le_bytes(signal.try_into().ok()?)),
            ),
            (7, [status, why @ ..]) => AgentMessage::Ended(rank, Ending::Lost(text(why), *status)),
            (8, why) => AgentMessage::Note(text(why)),
            (9, []) => AgentMessage::Drained,
            (10, news) => AgentMessage::Pmi(serde_json::from_slice(news).ok()?),
            _ => return None,
        })
    }

    /// Returns the next news of an agent, or `None` at its end.
    ///
    /// # Errors
    /// The stream is cut off inside a frame, or is not an agent's.
    pub fn read(from: &mut impl Read) -> io::Result<Option<AgentMessage>> {
        let mut kind = [0];
        if from.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let (mut rank, mut length) = ([0; 4], [0; 4]);
        from.read_exact(&mut rank)?;
        from.read_exact(&mut length)?;
        let foreign = || {
            io::Error::new(io::ErrorKind::InvalidData, "not the words of an agent of this release")
        };
        let length = usize::try_from(u32::from_le_bytes(length))
            .ok()
            .filter(|&length| length <= FRAME_MAX)
            .ok_or_else(foreign)?;
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        let [kind] = kind;
        AgentMessage::decode(kind, u32::from_le_bytes(rank), bytes).map(Some).ok_or_else(foreign)
    }
}

/// Agent's end of the pipe. It takes news from several threads, and writes each whole.
pub struct PipeToLauncher<W> {
    to: Mutex<W>,
    busy: Busy,
}

impl<W: Write + Send> PipeToLauncher<W> {
    /// Begins with the magic line, on a line of its own whatever a login shell has printed before.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn open(mut to: W) -> io::Result<PipeToLauncher<W>> {
        to.write_all(format!("\n{MAGIC}\n").as_bytes())?;
        to.flush()?;
        Ok(PipeToLauncher { to: Mutex::new(to), busy: Busy::default() })
    }

    /// Sends a message to the launcher. Returns `false` if the launcher is gone.
    pub fn send(&self, news: &AgentMessage) -> bool {
        self.busy.during(|| {
            let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            to.write_all(&news.encode()).and_then(|()| to.flush()).is_ok()
        })
    }
}

impl<W: Write + Send> Sink for PipeToLauncher<W> {
    fn write(&self, rank: Rank, stream: Stream, bytes: &[u8]) -> bool {
        self.send(&AgentMessage::Output(rank, stream, bytes.to_vec()))
    }
    fn end(&self, rank: Rank, stream: Stream) {
        self.send(&AgentMessage::OutputEnd(rank, stream));
    }
    fn is_busy(&self) -> bool {
        self.busy.is_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn news() -> impl Strategy<Value = AgentMessage> {
        let stream = || prop_oneof![Just(Stream::Out), Just(Stream::Err)];
        prop_oneof![
            (any::<u32>(), stream(), proptest::collection::vec(any::<u8>(), 0..50))
                .prop_map(|(r, s, b)| AgentMessage::Output(r, s, b)),
            (any::<u32>(), stream()).prop_map(|(r, s)| AgentMessage::OutputEnd(r, s)),
            (any::<u32>(), any::<u8>())
                .prop_map(|(r, s)| AgentMessage::Ended(r, Ending::Status(s))),
            (any::<u32>(), any::<i32>())
                .prop_map(|(r, s)| AgentMessage::Ended(r, Ending::Signal(s))),
            (any::<u32>(), any::<u8>(), ".{0,20}")
                .prop_map(|(r, s, t)| AgentMessage::Ended(r, Ending::Lost(t, s))),
            ".{0,20}".prop_map(AgentMessage::Note),
            Just(AgentMessage::Drained),
            (any::<u32>(), ".{0,20}", ".{0,20}")
                .prop_map(|(r, k, v)| AgentMessage::Pmi(PmiNews::Arrived(r, vec![(k, v)]))),
        ]
    }

    proptest! {
        /// LAUNCH-6.2: words of any bytes pass.
        #[test]
        fn words_of_any_bytes_pass_as_json(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let word = Word(OsString::from_vec(bytes));
            prop_assert_eq!(serde_json::from_str::<Word>(&serde_json::to_string(&word).unwrap()).unwrap(), word);
        }

        #[test]
        fn both_ways(list in proptest::collection::vec(news(), 0..10)) {
            let bytes: Vec<u8> = list.iter().flat_map(AgentMessage::encode).collect();
            let mut from = &bytes[..];
            for news in list {
                prop_assert_eq!(AgentMessage::read(&mut from).unwrap(), Some(news));
            }
            prop_assert_eq!(AgentMessage::read(&mut from).unwrap(), None);
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut from = &bytes[..];
            while let Ok(Some(_)) = AgentMessage::read(&mut from) {}
        }
    }
}
