//! Environment variables by which `oikaze run` gives a process its place, written and read in one
//! file.

use super::error::JobError;
use super::seal::Seal;
use oikaze_os::inherited;
use oikaze_os::net::Ports;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::limits::NODES_MAX;
use oikaze_protocol::wind::FlowCount;
use oikaze_protocol::wind::congestion::Algorithm;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Addresses of the store: `address:port`, several separated by commas.
pub const STORE: &str = "OIKAZE_STORE";
/// This node's rank.
pub const RANK: &str = "OIKAZE_RANK";
/// Number of nodes in the job.
pub const SIZE: &str = "OIKAZE_SIZE";
/// Rank among the nodes on this host.
pub const LOCAL_RANK: &str = "OIKAZE_LOCAL_RANK";
/// Nodes on this host.
pub const LOCAL_SIZE: &str = "OIKAZE_LOCAL_SIZE";
/// The job's secret, 64 hexadecimal digits.
pub const SECRET: &str = "OIKAZE_SECRET";
/// Number of the inherited descriptor with the job's secret ([`inherited`]). Unlike [`SECRET`], it
/// is of no use to the node's own child processes.
pub const SECRET_FD: &str = "OIKAZE_SECRET_FD";
/// Incarnation, which is greater in a process started later.
pub const INCARNATION: &str = "OIKAZE_INCARNATION";
/// UDP (and the store's TCP) ports: `A-B`.
pub const PORTS: &str = "OIKAZE_PORTS";
/// Milliseconds of silence after which a peer is dead.
pub const FAILURE_TIME: &str = "OIKAZE_FAILURE_TIME";
/// Time limit in milliseconds of a wait that the program gives no limit of its own.
pub const TIME_LIMIT: &str = "OIKAZE_TIMEOUT";
/// Milliseconds after which a wait is explained on stderr; 0 for never.
pub const EXPLAIN_AFTER: &str = "OIKAZE_EXPLAIN_AFTER";
/// Faults to inject into this job's links, e.g. `loss=0.05,duplicate=0.05,seed=7`.
pub const FAULT: &str = "OIKAZE_FAULT";
/// Protection of datagrams: `full`, `integrity`, `crc` or `header`.
pub const SEAL: &str = "OIKAZE_SEAL";
/// Congestion control algorithm: `delay` or `cubic`.
pub const CONGESTION: &str = "OIKAZE_CONGESTION";
/// Number of UDP source ports over which bulk to one peer is sprayed: `auto` or 1 to 16.
pub const FLOWS: &str = "OIKAZE_FLOWS";
/// Set to `1` if survivors go on after the death of a node (`oikaze run --keep-going`).
pub const KEEP_GOING: &str = "OIKAZE_KEEP_GOING";
/// Name of the machine that the node takes itself to be on, among nodes of one machine. Nodes of
/// different names share no memory, and collectives treat them as nodes of different machines.
pub const MACHINE: &str = "OIKAZE_MACHINE";
/// Launcher that has started this process, where several seem to have: `auto`, `oikaze`, `pmix`,
/// `pmi`, `torchrun`, `kubernetes` or `slurm` (LAUNCH-9.1).
pub const LAUNCHER: &str = "OIKAZE_LAUNCHER";
/// Number of nodes that a program becomes if no launcher has started it.
pub const LOCAL: &str = "OIKAZE_LOCAL";
/// Cores of the nodes of each host: `app=CORES,engine=CORES` or `auto` (`oikaze run --bind`). Read
/// by the launcher and its agents, not by nodes.
pub const BIND: &str = "OIKAZE_BIND";
/// Thread that runs the engine: `inline`, `thread`, `thread:CORES` or `process[:NAME][@CORES]`.
pub const ENGINE: &str = "OIKAZE_ENGINE";
/// Path of the command `oikaze` by which a node starts a server on demand (SERVE-5.3). The launcher
/// sets it for its nodes.
pub const COMMAND: &str = "OIKAZE_COMMAND";
/// Priority of the engine's thread: `fifo`, `fifo:N` or `nice:N` (`oikaze run --priority`).
pub const PRIORITY: &str = "OIKAZE_PRIORITY";
/// Set (to `1`) if each node publishes its traffic under [`traffic_key`] before it ends
/// (`oikaze run --stats`).
pub const REPORT_TRAFFIC: &str = "OIKAZE_REPORT_TRAFFIC";
/// Set (to `1`) if the launcher's standard error is a terminal. Rank 0 may then draw a progress bar
/// with carriage returns.
pub const TERMINAL: &str = "OIKAZE_TERMINAL";

/// Returns the key in the store under which a node publishes its traffic.
#[must_use]
pub fn traffic_key(rank: u32) -> String {
    format!("traffic/{rank}")
}

/// Settings that the user gave to the launcher and that every node should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Ports to bind; any if absent.
    pub ports: Option<Ports>,
    /// Time of silence after which a peer is dead; `limits::FAILURE_TIME` if absent.
    pub failure_time: Option<Duration>,
    /// Time limit of a wait that is given none of its own; no limit if absent.
    pub time_limit: Option<Duration>,
    /// Faults to inject, in the words of `oikaze_os::net`.
    pub fault: Option<String>,
    /// Protection of datagrams; [`Seal::Full`] if absent.
    pub seal: Option<Seal>,
    /// Congestion control algorithm; [`Algorithm::Delay`] if absent.
    pub congestion: Option<Algorithm>,
    /// Number of source ports of bulk to one peer; 1 if absent.
    pub flows: Option<FlowCount>,
    /// Time that a wait lasts before one line on stderr explains it. Zero: no wait is explained. 5
    /// s if absent (MEM-21.1).
    pub explain_after: Option<Duration>,
    /// Survivors go on after the death of a node.
    pub keep_going: bool,
    /// Name of the machine that the node takes itself to be on, among nodes of one machine.
    pub machine: Option<String>,
}

/// Place of a node, as the launcher gave it.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// Addresses of the store.
    pub store: String,
    /// Rank, 0 to size − 1.
    pub rank: u32,
    /// Number of nodes.
    pub size: u32,
    /// Rank on this host.
    pub local_rank: u32,
    /// Nodes on this host.
    pub local_size: u32,
    /// The job's secret.
    pub secret: Secret,
    /// Incarnation, which is greater in a later process.
    pub incarnation: u64,
}

/// Returns an incarnation that grows from one start of a process at a rank to the next:
/// microseconds since 1970.
#[must_use]
pub fn new_incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Returns the variables of a hand-made set-up. `oikaze run` replaces [`SECRET`] by [`SECRET_FD`].
#[must_use]
pub fn to_variables(place: &NodePlace, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        (STORE, place.store.clone()),
        (RANK, place.rank.to_string()),
        (SIZE, place.size.to_string()),
        (LOCAL_RANK, place.local_rank.to_string()),
        (LOCAL_SIZE, place.local_size.to_string()),
        (SECRET, place.secret.to_hex()),
        (INCARNATION, place.incarnation.to_string()),
    ];
    variables.extend(settings.ports.map(|ports| (PORTS, ports.to_string())));
    variables
        .extend(settings.failure_time.map(|time| (FAILURE_TIME, time.as_millis().to_string())));
    variables.extend(settings.time_limit.map(|time| (TIME_LIMIT, time.as_millis().to_string())));
    variables
        .extend(settings.explain_after.map(|time| (EXPLAIN_AFTER, time.as_millis().to_string())));
    variables.extend(settings.fault.clone().map(|fault| (FAULT, fault)));
    variables.extend(settings.seal.map(|seal| (SEAL, seal.to_string())));
    variables.extend(settings.congestion.map(|algorithm| (CONGESTION, algorithm.to_string())));
    variables.extend(settings.flows.map(|flows| (FLOWS, flows.to_string())));
    variables.extend(settings.machine.clone().map(|machine| (MACHINE, machine)));
    variables.extend(settings.keep_going.then(|| (KEEP_GOING, "1".to_owned())));
    variables
}

/// Function that returns the value of a variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the user's settings. Each variable may be absent.
///
/// # Errors
/// A variable that makes no sense.
pub fn read_settings(lookup: Lookup<'_>) -> Result<Settings, JobError> {
    let ports =
        optional(lookup, PORTS, "a range of ports such as 40000-40100", |text| text.parse().ok())?;
    let milliseconds =
        |text: &str| text.parse().ok().filter(|&ms| ms > 0).map(Duration::from_millis);
    let needed = "a number of milliseconds greater than 0";
    let failure_time = optional(lookup, FAILURE_TIME, needed, milliseconds)?;
    let time_limit = optional(lookup, TIME_LIMIT, needed, milliseconds)?;
    let fault = lookup(FAULT).filter(|text| !text.is_empty());
    let machine = lookup(MACHINE).filter(|text| !text.is_empty());
    let seal = optional(lookup, SEAL, "full, integrity, crc or header", |text| text.parse().ok())?;
    let congestion = optional(lookup, CONGESTION, "delay or cubic", |text| text.parse().ok())?;
    let flows = optional(lookup, FLOWS, "auto or a number from 1 to 16", |text| text.parse().ok())?;
    let explain_after = optional(lookup, EXPLAIN_AFTER, "milliseconds, 0 for never", |text| {
        text.parse().ok().map(Duration::from_millis)
    })?;
    let yes_or_no = |text: &str| match text {
        "1" => Some(true),
        "0" | "" => Some(false),
        _ => None,
    };
    let keep_going = optional(lookup, KEEP_GOING, "1 or 0", yes_or_no)?.unwrap_or(false);
    Ok(Settings {
        ports,
        failure_time,
        time_limit,
        fault,
        seal,
        congestion,
        flows,
        keep_going,
        explain_after,
        machine,
    })
}

/// Reads the launcher's place for this process. Returns `None` if no launcher of Oikaze started it.
///
/// # Errors
/// A variable that is missing or makes no sense.
pub fn read_place(lookup: Lookup<'_>) -> Result<Option<NodePlace>, JobError> {
    let Some(store) = lookup(STORE) else {
        // A partial place is a mistake (variables lost by sudo or ssh, a job of another launcher),
        // and not a job of one node.
        return match [RANK, SIZE].iter().find(|&&name| lookup(name).is_some()) {
            Some(set) => Err(JobError::Environment {
                name: STORE,
                found: format!("not set, while {set} is"),
                needed: "the store's address",
            }),
            None => Ok(None),
        };
    };
    let size =
        required(lookup, SIZE, "a number of nodes, 1 to 4096", |text| number(text, 1, NODES_MAX))?;
    let rank =
        required(lookup, RANK, "a rank below OIKAZE_SIZE", |text| number(text, 0, size - 1))?;
    let local_size =
        optional(lookup, LOCAL_SIZE, "1 to OIKAZE_SIZE", |text| number(text, 1, size))?
            .unwrap_or(1);
    let local_rank = optional(lookup, LOCAL_RANK, "a rank below OIKAZE_LOCAL_SIZE", |text| {
        number(text, 0, local_size - 1)
    })?
    .unwrap_or(0);
    let secret = read_secret(lookup)?;
    let incarnation = optional(lookup, INCARNATION, "a number", |text| text.parse().ok())?
        .unwrap_or_else(new_incarnation);
    Ok(Some(NodePlace { store, rank, size, local_rank, local_size, secret, incarnation }))
}

/// Secret that this process has taken from an inherited descriptor. The descriptor is closed since,
/// and joining may be tried again.
static TAKEN: Mutex<Option<(i32, Secret)>> = Mutex::new(None);

/// Reads the secret from [`SECRET`], as a hand-made set-up gives it, or from [`SECRET_FD`]
/// (LAUNCH-6.3).
fn read_secret(lookup: Lookup<'_>) -> Result<Secret, JobError> {
    let wrong =
        |name, found: &str, needed| JobError::Environment { name, found: found.to_owned(), needed };
    if let Some(text) = lookup(SECRET) {
        // The error must not show the value, which may be a secret.
        return Secret::from_hex(&text)
            .ok_or_else(|| wrong(SECRET, "not usable", "64 hexadecimal digits"));
    }
    let needed = "the number of a descriptor that `oikaze run` opened";
    let Some(text) = lookup(SECRET_FD) else {
        return Err(wrong(SECRET_FD, "not set, nor is OIKAZE_SECRET", needed));
    };
    let number: i32 =
        text.trim().parse().map_err(|_| wrong(SECRET_FD, &format!("{text:?}"), needed))?;
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, secret)) = taken.as_ref().filter(|(of, _)| *of == number) {
        return Ok(secret.clone());
    }
    let closed = || {
        let found = format!(
            "{number}, which holds no secret here (a program that started this one has joined, or closed it)"
        );
        wrong(
            SECRET_FD,
            &found,
            "inherited from `oikaze run`: where sudo or Python close it, use --secret-in-environment",
        )
    };
    let bytes = inherited::take(number).map_err(|_| closed())?;
    let secret = Secret::from_bytes(bytes.try_into().map_err(|_| closed())?);
    *taken = Some((number, secret.clone()));
    Ok(secret)
}

pub(crate) fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    text.parse().ok().filter(|value| (least..=most).contains(value))
}

pub(crate) fn optional<T>(
    lookup: Lookup<'_>,
    name: &'static str,
    needed: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, JobError> {
    let Some(text) = lookup(name) else { return Ok(None) };
    match parse(text.trim()) {
        Some(value) => Ok(Some(value)),
        None => Err(JobError::Environment { name, found: format!("{text:?}"), needed }),
    }
}

pub(crate) fn required<T>(
    lookup: Lookup<'_>,
    name: &'static str,
    needed: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, JobError> {
    optional(lookup, name, needed, parse)?.ok_or(JobError::Environment {
        name,
        found: "not set".into(),
        needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn place() -> NodePlace {
        NodePlace {
            store: "127.0.0.1:4000".into(),
            rank: 2,
            size: 4,
            local_rank: 1,
            local_size: 2,
            secret: Secret::from_bytes([7; 32]),
            incarnation: 9,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let settings = Settings {
            ports: Ports::range(10, 20),
            failure_time: Some(Duration::from_millis(500)),
            time_limit: Some(Duration::from_secs(60)),
            fault: Some("loss=0.05".into()),
            seal: Some(Seal::Integrity),
            congestion: Some(Algorithm::Cubic),
            flows: Some(FlowCount::Auto),
            explain_after: Some(Duration::ZERO),
            keep_going: true,
            machine: Some("a".into()),
        };
        let map: HashMap<_, _> = to_variables(&place(), &settings).into_iter().collect();
        let lookup = |name: &str| map.get(name).cloned();
        assert_eq!(read_settings(&lookup).unwrap(), settings);
        let read = read_place(&lookup).unwrap().unwrap();
        assert_eq!(
            (read.store.as_str(), read.rank, read.size, read.local_rank),
            ("127.0.0.1:4000", 2, 4, 1)
        );
        assert_eq!((read.local_size, read.incarnation, &read.secret), (2, 9, &place().secret));
        assert!(read_place(&|_| None).unwrap().is_none());
        let half =
            read_place(&|name| (name == RANK).then(|| "0".to_owned())).unwrap_err().to_string();
        assert!(half.contains("OIKAZE_STORE is not set, while OIKAZE_RANK is"), "{half}");
    }

    #[test]
    fn nonsense_is_named_and_secrets_are_not_shown() {
        let good: HashMap<_, _> =
            to_variables(&place(), &Settings::default()).into_iter().collect();
        let cases = [
            (SIZE, "0"),
            (SIZE, "4097"),
            (SIZE, "-1"),
            (RANK, "4"),
            (RANK, ""),
            (LOCAL_RANK, "2"),
            (LOCAL_SIZE, "5"),
            (SECRET, "hunter2"),
        ];
        for number in ["x", "1", "99999"] {
            let lookup = |wanted: &str| match wanted {
                SECRET => None,
                SECRET_FD => Some(number.to_owned()),
                other => good.get(other).cloned(),
            };
            assert!(read_place(&lookup).unwrap_err().to_string().contains(SECRET_FD));
        }
        for (name, value) in cases {
            let lookup = |wanted: &str| {
                if wanted == name { Some(value.to_owned()) } else { good.get(wanted).cloned() }
            };
            let message = read_place(&lookup).unwrap_err().to_string();
            assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
        }
        for (name, value) in [
            (PORTS, "9-8"),
            (PORTS, "0-4"),
            (PORTS, "x"),
            (FAILURE_TIME, "0"),
            (FAILURE_TIME, "5s"),
            (TIME_LIMIT, "-1"),
            (SEAL, "none"),
            (CONGESTION, "reno"),
            (FLOWS, "0"),
            (FLOWS, "17"),
            (FLOWS, "auto4"),
            (EXPLAIN_AFTER, "-1"),
            (EXPLAIN_AFTER, "5s"),
            (KEEP_GOING, "maybe"),
        ] {
            let message = read_settings(&|wanted| (wanted == name).then(|| value.to_owned()))
                .unwrap_err()
                .to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
