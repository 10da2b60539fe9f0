//! State of the PMI-1 server for the nodes of one host (LAUNCH-10).

use super::line::{LineError, PmiLine};
use super::{OWN_SPACE, Pair, PmiNews, PmiOrder};
use crate::store::protocol::clip_to;
use oikaze_protocol::Rank;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;

/// Longest key, in bytes.
pub const KEY_MAX: usize = 64;
/// Longest value, in bytes.
pub const VALUE_MAX: usize = 1024;
/// Longest name of a key space, as the server tells it. The names here are shorter.
const SPACE_MAX: usize = 256;
/// Maximum number of bytes of a node's new values in the message in which they travel.
const NEW_MAX: usize = 512 << 10;
/// Maximum number of bytes of all values.
const BYTES_MAX: usize = 64 << 20;
/// Longest reason of an abort that is kept, in bytes.
const REASON_MAX: usize = 1024;
/// Key under which MPICH finds out which nodes are on one host (LAUNCH-10.3).
const MAPPING: &str = "PMI_process_mapping";

/// Reaction of the server to a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// News for the launcher, which learns of it before the node has the answer.
    pub news: Option<PmiNews>,
    /// Line for the node, with its newline.
    pub answer: Option<String>,
    /// Set if the node's connection is closed.
    pub closes: bool,
}

/// Server for the nodes of one host.
pub struct HostServer {
    space: String,
    size: u32,
    nodes: BTreeMap<Rank, NodeValues>,
    values: HashMap<String, String>,
    bytes: usize,
    is_broken: bool,
}

#[derive(Default)]
struct NodeValues {
    /// Values that the others get at the next barrier.
    new: Vec<Pair>,
    new_bytes: usize,
    waits: bool,
    /// Part of a request for further processes whose lines are being left out.
    spawn: Option<SpawnPart>,
}

/// One part of a request for further processes, as `MPI_Comm_spawn_multiple` sends them. Only the
/// last part has an answer.
#[derive(Default)]
struct SpawnPart {
    /// Number of parts.
    parts: u32,
    /// Number of this part, from 1.
    part: u32,
}

impl SpawnPart {
    /// Takes a line of this part. Returns `true` if it is the last line.
    fn take(&mut self, line: &PmiLine) -> bool {
        let number = |key| line.only_value(key).and_then(|text| text.parse().ok());
        self.parts = number("totspawns").unwrap_or(self.parts);
        self.part = number("spawnssofar").unwrap_or(self.part);
        line.is("endcmd")
    }

    fn is_last(&self) -> bool {
        self.part >= self.parts
    }
}

impl HostServer {
    /// Makes a server for the nodes of these ranks, of a job of `size` nodes. `job` tells the job
    /// from others.
    #[must_use]
    pub fn new(ranks: Range<Rank>, size: u32, job: u64, mapping: &str) -> HostServer {
        let mut values = HashMap::new();
        // Without it, MPICH compares the names of hosts.
        if mapping.len() <= VALUE_MAX {
            values.insert(MAPPING.to_owned(), mapping.to_owned());
        }
        let nodes = ranks.map(|rank| (rank, NodeValues::default())).collect();
        let space = format!("{OWN_SPACE}{job:x}");
        HostServer { space, size, nodes, values, bytes: 0, is_broken: false }
    }

    /// Handles what a node has sent: a line (LAUNCH-10.2), or bytes that are none (LAUNCH-10.6).
    pub fn take(&mut self, rank: Rank, line: Result<&PmiLine, LineError>) -> Reaction {
        let Some(node) = self.nodes.get_mut(&rank) else { return Reaction::default() };
        let line = match line {
            Ok(line) => line,
            Err(why) => return refused_for_good(rank, &why.to_string()),
        };
        if let Some(spawn) = &mut node.spawn {
            if !spawn.take(line) {
                return Reaction::default();
            }
            let is_last = spawn.is_last();
            node.spawn = None;
            return match is_last {
                true => Reaction::answer("cmd=spawn_result rc=-1 msg=not_supported"),
                false => Reaction::default(),
            };
        }
        if line.value("mcmd").is_some() {
            node.spawn = Some(SpawnPart::default());
            let why = "MPI_Comm_spawn: a job of `oikaze run` has the nodes that it began with";
            return Reaction {
                news: Some(PmiNews::Refused(rank, why.into())),
                ..Reaction::default()
            };
        }
        match line.value("cmd") {
            Some("init") => self.begin(rank, line),
            Some("get_maxes") => Reaction::answer(&format!(
                "cmd=maxes rc=0 kvsname_max={SPACE_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX}"
            )),
            Some("get_appnum") => Reaction::answer("cmd=appnum rc=0 appnum=0"),
            Some("get_universe_size") => {
                Reaction::answer(&format!("cmd=universe_size rc=0 size={}", self.size))
            }
            Some("get_my_kvsname") => {
                Reaction::answer(&format!("cmd=my_kvsname rc=0 kvsname={}", self.space))
            }
            Some("put") => {
                let result = self.put(rank, line).err();
                Reaction::answer(&result_line("put_result", result))
            }
            Some("get") => match self.get(line) {
                Ok(value) => Reaction::answer(&format!("cmd=get_result rc=0 value={value}")),
                Err(why) => Reaction::answer(&result_line("get_result", Some(why))),
            },
            Some("barrier_in") => self.arrive(rank, line),
            Some("finalize") => Reaction {
                news: Some(PmiNews::Finished(rank)),
                ..Reaction::answer("cmd=finalize_ack rc=0")
            },
            Some("abort") => {
                let told = line.value("exitcode").and_then(|text| text.parse::<i32>().ok());
                let told = told.unwrap_or(1);
                let mut why = format!("MPI_Abort with status {told}");
                // As a shell sees it, and never success.
                let [status, ..] = told.to_le_bytes();
                let status = if status == 0 { 1 } else { status };
                if let Some(message) = line.rest("message") {
                    let _ = write!(why, ": {message}");
                }
                let why = clip_to(&why, REASON_MAX).to_owned();
                Reaction { news: Some(PmiNews::Aborted(rank, status, why)), ..Reaction::default() }
            }
            Some(command @ ("publish_name" | "unpublish_name" | "lookup_name")) => {
                let what = command.trim_end_matches("_name");
                let answer = format!("cmd={what}_result rc=-1 msg=not_supported");
                let why = format!("{command}: `oikaze run` keeps no names of MPI services");
                Reaction { news: Some(PmiNews::Refused(rank, why)), ..Reaction::answer(&answer) }
            }
            // Without its arguments, so that each kind of request is printed once.
            _ => refused_for_good(rank, &format!("{:?}", line.command())),
        }
    }

    /// Refuses a process that begins while another one uses the connection. They have these names
    /// (LAUNCH-10.8).
    pub fn refuse_second(&mut self, rank: Rank, [first, second]: &[String; 2]) -> Reaction {
        let why = format!(
            "{second:?} begins MPI on the connection of {first:?}, whose child it may be: run one program of MPI after another, or start {second:?} without the variables PMI_FD, PMI_RANK and PMI_SIZE"
        );
        let news = Some(PmiNews::Refused(rank, why));
        // Either of them may read an answer. The first one expects none, unless it waits.
        match self.nodes.get(&rank).is_some_and(|node| node.waits) {
            true => Reaction { news, closes: true, ..Reaction::default() },
            false => Reaction {
                news,
                ..Reaction::answer(
                    "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1 msg=another_process_uses_this_connection",
                )
            },
        }
    }

    /// Handles an order of the launcher. Returns what is sent to which nodes.
    pub fn order(&mut self, order: PmiOrder) -> Vec<(Rank, Reaction)> {
        match order {
            PmiOrder::Passed(values) => {
                for pair in values {
                    self.bytes += bytes(&pair);
                    let (key, value) = pair;
                    let len = key.len();
                    // A node that begins again puts its keys again.
                    let before = self.values.insert(key, value);
                    self.bytes -= before.map_or(0, |value| len + value.len());
                }
            }
            PmiOrder::Broken => self.is_broken = true,
        }
        let is_broken = self.is_broken;
        let waiting = self.nodes.iter_mut().filter(|(_, node)| node.waits);
        waiting
            .map(|(rank, node)| {
                node.waits = false;
                let reaction = match is_broken {
                    true => Reaction { closes: true, ..Reaction::default() },
                    false => Reaction::answer("cmd=barrier_out rc=0"),
                };
                (*rank, reaction)
            })
            .collect()
    }

    fn begin(&mut self, rank: Rank, line: &PmiLine) -> Reaction {
        if line.value("pmi_version") != Some("1") {
            return Reaction::answer(
                "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1 msg=version_1_only",
            );
        }
        if let Some(node) = self.nodes.get_mut(&rank) {
            // A process before this one may have ended anywhere.
            *node = NodeValues::default();
        }
        Reaction {
            news: Some(PmiNews::Began(rank)),
            ..Reaction::answer("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1")
        }
    }

    fn arrive(&mut self, rank: Rank, line: &PmiLine) -> Reaction {
        if line.value("group").is_some() {
            return Reaction::answer("cmd=barrier_out rc=-1 msg=no_barriers_of_groups");
        }
        let Some(node) = self.nodes.get_mut(&rank) else { return Reaction::default() };
        if self.is_broken {
            return Reaction { closes: true, ..Reaction::default() };
        }
        if std::mem::replace(&mut node.waits, true) {
            return refused_for_good(rank, "a barrier while it waits at one");
        }
        node.new_bytes = 0;
        let values = std::mem::take(&mut node.new);
        Reaction { news: Some(PmiNews::Arrived(rank, values)), ..Reaction::default() }
    }

    /// Checks the key space. It may be left out.
    fn check_space(&self, line: &PmiLine) -> Result<(), &'static str> {
        match line.value("kvsname") {
            Some(name) if name != self.space => Err("unknown_kvsname"),
            _ => Ok(()),
        }
    }

    fn put(&mut self, rank: Rank, line: &PmiLine) -> Result<(), &'static str> {
        self.check_space(line)?;
        let key = line.value("key").filter(|key| !key.is_empty()).ok_or("no_key")?;
        let value = line.value("value").ok_or("no_value")?;
        if key.len() > KEY_MAX {
            return Err("key_too_long");
        }
        if value.len() > VALUE_MAX {
            return Err("value_too_long");
        }
        let node = self.nodes.get_mut(&rank).ok_or("unknown_rank")?;
        let pair = (key.to_owned(), value.to_owned());
        let more = bytes_sent(&pair);
        if node.new_bytes + more > NEW_MAX || self.bytes + more > BYTES_MAX {
            return Err("no_room");
        }
        node.new_bytes += more;
        node.new.push(pair);
        Ok(())
    }

    fn get(&self, line: &PmiLine) -> Result<&str, &'static str> {
        self.check_space(line)?;
        let key = line.value("key").ok_or("no_key")?;
        self.values.get(key).map(String::as_str).ok_or("key_not_found")
    }
}

impl Reaction {
    fn answer(line: &str) -> Reaction {
        Reaction { answer: Some(format!("{line}\n")), ..Reaction::default() }
    }
}

fn bytes((key, value): &Pair) -> usize {
    key.len() + value.len()
}

/// Bytes of a pair in a message to the launcher, with its quotes and commas.
fn bytes_sent(pair: &Pair) -> usize {
    // A quote or a backslash is two bytes there.
    2 * bytes(pair) + 8
}

fn result_line(command: &str, why_not: Option<&str>) -> String {
    match why_not {
        None => format!("cmd={command} rc=0 msg=success"),
        Some(why) => format!("cmd={command} rc=-1 msg={why}"),
    }
}

/// Refuses a line that this server cannot answer, because nobody knows what the node waits for.
fn refused_for_good(rank: Rank, what: &str) -> Reaction {
    let why = format!("the PMI-1 server does not know {what}, and closes the connection");
    Reaction { news: Some(PmiNews::Refused(rank, why)), answer: None, closes: true }
}

#[cfg(test)]
mod tests {
    use super::super::line::LineReader;
    use super::*;

    fn server() -> HostServer {
        HostServer::new(0..2, 4, 0xab, "(vector,(0,2,2))")
    }

    fn send(server: &mut HostServer, rank: Rank, text: &str) -> Reaction {
        let mut reader = LineReader::default();
        let line = format!("{text}\n").bytes().try_fold(None, |_, byte| reader.take(byte));
        server.take(rank, line.as_ref().map(|line| line.as_ref().unwrap()).map_err(|why| *why))
    }

    #[track_caller]
    fn ask(server: &mut HostServer, rank: Rank, text: &str) -> String {
        let reaction = send(server, rank, text);
        assert!(!reaction.closes && reaction.news.is_none(), "{reaction:?}");
        reaction.answer.unwrap().trim_end().to_owned()
    }

    /// LAUNCH-10.2.
    #[test]
    fn place_and_limits_are_told() {
        let mut server = server();
        let began = send(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(began.news, Some(PmiNews::Began(1)));
        assert!(began.answer.unwrap().starts_with("cmd=response_to_init rc=0 pmi_version=1 "));
        assert!(ask(&mut server, 0, "cmd=init pmi_version=2").contains("rc=-1"));
        let maxes = ask(&mut server, 1, "cmd=get_maxes");
        assert_eq!(maxes, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
        assert_eq!(ask(&mut server, 1, "cmd=get_universe_size"), "cmd=universe_size rc=0 size=4");
        assert_eq!(ask(&mut server, 1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
        let space = ask(&mut server, 1, "cmd=get_my_kvsname");
        assert_eq!(space, "cmd=my_kvsname rc=0 kvsname=oikaze-ab");
        let mapping = ask(&mut server, 1, "cmd=get kvsname=oikaze-ab key=PMI_process_mapping");
        assert_eq!(mapping, "cmd=get_result rc=0 value=(vector,(0,2,2))");
        let ended = send(&mut server, 1, "cmd=finalize");
        assert_eq!(ended.news, Some(PmiNews::Finished(1)));
        assert_eq!(ended.answer.as_deref(), Some("cmd=finalize_ack rc=0\n"));
    }

    /// LAUNCH-10.4.
    #[test]
    fn values_are_seen_after_the_barrier() {
        let mut server = server();
        let get = "cmd=get kvsname=oikaze-ab key=a";
        let not_found = "cmd=get_result rc=-1 msg=key_not_found";
        assert_eq!(
            ask(&mut server, 0, "cmd=put kvsname=oikaze-ab key=a value=1"),
            "cmd=put_result rc=0 msg=success"
        );
        assert_eq!(ask(&mut server, 0, get), not_found);
        let arrived = send(&mut server, 0, "cmd=barrier_in");
        let pair = ("a".to_owned(), "1".to_owned());
        assert_eq!(arrived.news, Some(PmiNews::Arrived(0, vec![pair.clone()])));
        assert!(arrived.answer.is_none() && !arrived.closes);
        let passed = server.order(PmiOrder::Passed(vec![pair]));
        let out = Some("cmd=barrier_out rc=0\n".to_owned());
        assert_eq!(passed, [(0, Reaction { answer: out, ..Reaction::default() })]);
        assert_eq!(ask(&mut server, 1, get), "cmd=get_result rc=0 value=1");
        let again = send(&mut server, 0, "cmd=barrier_in");
        assert_eq!(again.news, Some(PmiNews::Arrived(0, Vec::new())));
    }

    /// LAUNCH-10.5.
    #[test]
    fn broken_barrier_closes_the_connections_of_those_who_wait() {
        let mut server = server();
        send(&mut server, 1, "cmd=barrier_in");
        let closes = Reaction { closes: true, ..Reaction::default() };
        assert_eq!(server.order(PmiOrder::Broken), [(1, closes)]);
        assert!(send(&mut server, 0, "cmd=barrier_in").closes);
    }

    /// LAUNCH-10.6.
    #[test]
    fn bad_requests_are_refused() {
        let mut server = server();
        let key = "k".repeat(KEY_MAX + 1);
        let value = "v".repeat(VALUE_MAX + 1);
        for (line, why) in [
            (format!("cmd=put key={key} value=1"), "key_too_long"),
            (format!("cmd=put key=a value={value}"), "value_too_long"),
            ("cmd=put key=a".into(), "no_value"),
            ("cmd=put key= value=1".into(), "no_key"),
            ("cmd=put kvsname=kvs_1 key=a value=1".into(), "unknown_kvsname"),
            ("cmd=get kvsname=kvs_1 key=a".into(), "unknown_kvsname"),
            ("cmd=get".into(), "no_key"),
            ("cmd=barrier_in group=NODE".into(), "groups"),
        ] {
            let answer = ask(&mut server, 0, &line);
            assert!(answer.contains("rc=-1") && answer.contains(why), "{line}: {answer}");
        }
        for line in ["", "nonsense", "cmd=", "cmd=get_ranks2hosts", "CMD=init"] {
            let reaction = send(&mut server, 0, line);
            let Some(PmiNews::Refused(0, why)) = &reaction.news else { panic!("{reaction:?}") };
            assert!(reaction.closes && why.contains(&format!("{line:?}")), "{why}");
        }
        assert!(server.take(0, Err(LineError::NotText)).closes);
        assert_eq!(send(&mut server, 2, "cmd=get_maxes"), Reaction::default(), "of another host");
        send(&mut server, 1, "cmd=barrier_in");
        assert!(send(&mut server, 1, "cmd=barrier_in").closes);
    }

    #[test]
    fn values_have_a_bound() {
        let mut server = server();
        let value = "v".repeat(VALUE_MAX);
        let full = (0..300).find(|at| {
            ask(&mut server, 0, &format!("cmd=put key=k{at} value={value}")).contains("no_room")
        });
        assert!(full.is_some_and(|at| at > 250), "{full:?}");
        send(&mut server, 0, "cmd=barrier_in");
        assert!(ask(&mut server, 0, "cmd=put key=a value=1").contains("rc=0"));
        // Values that replace others take no more room.
        for _ in 0..2 {
            server.order(PmiOrder::Passed(vec![("k".into(), value.clone())]));
        }
        assert_eq!(server.bytes, 1 + VALUE_MAX);
    }

    /// LAUNCH-10.2.
    #[test]
    fn process_that_begins_again_waits_nowhere() {
        let mut server = server();
        send(&mut server, 0, "cmd=put key=a value=1");
        send(&mut server, 0, "cmd=barrier_in");
        send(&mut server, 0, "cmd=init pmi_version=1");
        assert!(!send(&mut server, 0, "cmd=barrier_in").closes);
    }

    /// LAUNCH-10.6.
    #[test]
    fn spawning_is_refused_after_all_its_lines() {
        let mut server = server();
        let spawn = send(&mut server, 0, "mcmd=spawn");
        assert!(matches!(spawn.news, Some(PmiNews::Refused(0, _))) && spawn.answer.is_none());
        assert_eq!(send(&mut server, 0, "nprocs=2"), Reaction::default());
        let answer = ask(&mut server, 0, "endcmd");
        assert_eq!(answer, "cmd=spawn_result rc=-1 msg=not_supported");
        // MPI_Comm_spawn_multiple. Arguments of programs do not count.
        for part in 1..=3 {
            send(&mut server, 0, "mcmd=spawn");
            let number = format!("spawnssofar={part}");
            for line in ["totspawns=3", &*number, "arg1=x totspawns=1", "arg2=spawnssofar=9"] {
                assert_eq!(send(&mut server, 0, line), Reaction::default());
            }
            let answer = send(&mut server, 0, "endcmd").answer;
            assert_eq!(answer.is_some(), part == 3, "part {part}");
        }
        let names = send(&mut server, 0, "cmd=lookup_name service=x");
        assert!(names.answer.unwrap().starts_with("cmd=lookup_result rc=-1"));
    }

    #[test]
    fn abort_tells_status_and_reason() {
        let mut server = server();
        let abort = |server: &mut HostServer, line: &str| match send(server, 1, line).news {
            Some(PmiNews::Aborted(1, status, why)) => (status, why),
            other => panic!("{other:?}"),
        };
        let (status, why) = abort(&mut server, "cmd=abort exitcode=3 message=no more memory");
        assert_eq!((status, &*why), (3, "MPI_Abort with status 3: no more memory"));
        for (line, status) in
            [("", 1), (" exitcode=0", 1), (" exitcode=256", 1), (" exitcode=-1", 255)]
        {
            assert_eq!(abort(&mut server, &format!("cmd=abort{line}")).0, status, "{line}");
        }
    }
}
