//! Joins a job: from the launcher's environment variables to a node that is connected to all
//! others.

use crate::collective::team::Team;
use crate::error::{Error, Result};
use crate::ffi::handles::HandleTable;
use crate::job::builder::JobBuilder;
use crate::job::handle::Job;
use crate::job::meeting::Meeting;
use crate::job::membership::Claim;
use crossbeam_queue::SegQueue;
use oikaze_engine::{Engine, KeyOptions, Setup, seal};
use oikaze_launch::addresses::{Candidate, networks};
use oikaze_launch::foreign::{Gather, join_gathering as find_gathering};
use oikaze_launch::{Bootstrap, MEET_TIME, Seal};
use oikaze_os::features::{DisabledFeatures, Feature};
use oikaze_os::memory::tracking::{PageSet, Tracker, choose};
use oikaze_os::net::{Bind, Fault, FaultSettings, FaultSyntax, Link, Ports, TapSettings, path_mtu};
use oikaze_os::secrets::key_log::{KEY_LOG_VARIABLE, KeyLog};
use oikaze_os::shm::Pair;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{CONNECT_TIME, FAILURE_TIME, GROUP_BODY_MIN};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Settings;
use oikaze_runtime::node::{
    NoLink, Node, RealEngine, WaitSettings, Waits, check_not_forked, note_joined,
};
use oikaze_runtime::observe::Publisher;
use oikaze_runtime::shm_setup::LocalPeerSetup;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Environment variable that switches multicast on, by the value `on`. The default is off, because
/// it was measured on few networks yet.
const MULTICAST_VARIABLE: &str = "OIKAZE_MULTICAST";

/// Joins the job that this process was started for: by `oikaze run`, by `mpirun`, `mpiexec`, `srun`
/// or `torchrun`, or as a pod of an indexed job of Kubernetes (LAUNCH-9). Without a launcher, the
/// process makes a job of one node. [`Job::builder`] joins with settings of the program's own.
///
/// # Errors
/// An environment variable makes no sense, a node or the store could not be reached, or this
/// machine does not grant something that joining needs.
#[track_caller]
pub fn join() -> Result<Job> {
    join_with(&JobBuilder::default())
}

/// Joins the job with these settings.
#[track_caller]
pub(crate) fn join_with(builder: &JobBuilder) -> Result<Job> {
    check_not_forked(|| "joining the job".into())?;
    let settings = builder.adjusted(JobBuilder::of_environment()?)?;
    // Jobs of one node without launcher may be many.
    let claim = oikaze_launch::is_launched()?.then(Claim::make).transpose()?;
    let job = join_at(oikaze_launch::find(settings)?, builder)?;
    if let Some(claim) = claim {
        claim.keep();
    }
    Ok(job)
}

/// Joins a job whose processes meet by `gather`, with these settings.
#[track_caller]
pub(crate) fn join_gathering(
    builder: &JobBuilder,
    (rank, size): (u32, u32),
    gather: &mut Gather<'_>,
) -> Result<Job> {
    check_not_forked(|| "joining the job".into())?;
    let settings = builder.adjusted(JobBuilder::of_environment()?)?;
    join_at(find_gathering(rank, size, settings, gather)?, builder)
}

/// Joins a job at the place that `bootstrap` gives, with its settings.
///
/// # Errors
/// As [`join`].
#[track_caller]
pub fn join_as(bootstrap: Box<dyn Bootstrap>) -> Result<Job> {
    join_at(bootstrap, &JobBuilder::default())
}

/// Joins a job as [`join_as`] does, without these features.
///
/// # Errors
/// As [`join`].
#[track_caller]
pub fn join_as_without(
    bootstrap: Box<dyn Bootstrap>,
    features: impl IntoIterator<Item = Feature>,
) -> Result<Job> {
    join_at(bootstrap, &JobBuilder::default().without(features))
}

/// Joins a job at the place that `bootstrap` gives. The builder says what the place's settings do
/// not say.
#[track_caller]
pub(crate) fn join_at(bootstrap: Box<dyn Bootstrap>, builder: &JobBuilder) -> Result<Job> {
    check_not_forked(|| "joining the job".into())?;
    let bootstrap: Arc<dyn Bootstrap> = Arc::from(bootstrap);
    note_joined(bootstrap.rank());
    let waits = Waits::new(Arc::clone(&bootstrap));
    let joined = join_explaining(bootstrap, builder, &waits);
    if joined.is_err() {
        waits.close();
    }
    joined
}

#[track_caller]
fn join_explaining(
    bootstrap: Arc<dyn Bootstrap>,
    builder: &JobBuilder,
    waits: &Arc<Waits>,
) -> Result<Job> {
    let (without, wait_settings) = (builder.disabled_features()?, builder.wait_settings()?);
    let limit = bootstrap.settings().time_limit;
    let failure_time = bootstrap.settings().failure_time.unwrap_or(FAILURE_TIME);
    let (publisher, unseen) =
        Publisher::of(bootstrap.as_ref()).map_err(|why| Error::invalid("joining the job", why))?;
    // Found out now, while there is but one thread.
    let _ = oikaze_os::sync::makes_fences();
    waits.report_on_quit();
    let choice = choose(&without)?;
    let tracking = choice.to_string();
    publisher.paths().tracks_by(choice.tracker.kind());
    let tracker: Arc<dyn Tracker> = choice.tracker;

    let (link, port) = open_link(bootstrap.as_ref(), without, &wait_settings)?;
    let link = tap(link, bootstrap.rank())?;
    #[cfg(all(test, not(loom)))]
    let link = crate::tests::engine_thread::noting_callers(link);
    let local_peer_setup = LocalPeerSetup::open(bootstrap.as_ref(), &without);
    let meeting = Meeting::hold(
        bootstrap.as_ref(),
        port,
        !without.ipv6,
        local_peer_setup.callable(),
        wait_settings.engine_cores(),
        waits,
    )?;
    let wait_policy =
        wait_settings.policy(|threads| meeting.leaves_room_for(threads, bootstrap.local_size()));
    let crowding = wait_policy.crowding(bootstrap.local_size(), &meeting.cores());
    if let Some(warning) = crowding.filter(|_| bootstrap.local_rank() == 0) {
        oikaze_os::signals::print_line(&format!("oikaze: node {}: {warning}", bootstrap.rank()));
    }
    let limit_to_meet = limit.unwrap_or(MEET_TIME);
    let local_peers =
        local_peer_setup.meet(bootstrap.as_ref(), &meeting.mine, &meeting.others, limit_to_meet)?;
    publisher
        .paths()
        .unshared(local_peers.unshared, || local_peers.notices.last().cloned().unwrap_or_default());
    // SEAL-1.3, SEAL-1.4: local peers share memory, which needs no seal.
    let seal = bootstrap.settings().seal.unwrap_or_default();
    let has_remote_peers = local_peers.pairs.len() + 1 < bootstrap.size() as usize;
    if let Some(weakness) = seal.weakness().filter(|_| bootstrap.rank() == 0 && has_remote_peers) {
        eprintln!("oikaze: this job is not fully sealed (OIKAZE_SEAL={seal}): {weakness}");
    }
    let submissions = Arc::new(SegQueue::new());
    let keys = key_options(bootstrap.as_ref(), &without)?;
    let setup = setup(bootstrap.as_ref(), &meeting, local_peers.pairs, failure_time, keys)?;
    let mut engine: RealEngine =
        Engine::new(setup, link, PageSet::new(), Arc::clone(&submissions), Time(0))
            .map_err(|failure| Error::failed("starting the engine", failure))?;
    if !without.multicast && std::env::var_os(MULTICAST_VARIABLE).is_some_and(|on| on == "on") {
        engine.use_multicast(GROUP_BODY_MIN);
    }
    for (rank, candidates) in (0..).zip(&meeting.candidates) {
        engine.use_networks(rank, networks(&meeting.mine, candidates));
    }
    engine.connect(Time(0));
    unseen.into_iter().chain(local_peers.notices).for_each(|why| engine.inbox().note(why));
    let node = Node::start(
        engine,
        submissions,
        Some(Arc::clone(&tracker)),
        (wait_policy, Arc::clone(waits)),
        Arc::clone(&bootstrap),
        publisher,
        local_peers.arena,
    )?;
    if without.segment {
        node.coherence.segments.switch_off();
    }
    if let Some(why) = local_peers.why_no_arena {
        node.coherence.set_why_no_arena(why);
    }
    let machines = meeting.machines();
    if let Err(error) = meeting.connect(bootstrap.as_ref(), &node, waits) {
        node.stop();
        bootstrap.abort(&error.to_string());
        return Err(error);
    }
    if bootstrap.settings().keep_going {
        node.departures.keep_going();
    }
    if builder.lets_survivors_go_on() {
        bootstrap.keep_going();
    }
    let told = Arc::downgrade(&node);
    bootstrap.on_news(Box::new(move || {
        if let Some(node) = told.upgrade() {
            node.departures.take_launcher_news(&node);
        }
    }));
    bootstrap.report_joined();
    let world = Team::world(&node, bootstrap.rank(), machines, limit);
    Ok(Job {
        world,
        node,
        bootstrap,
        tracker,
        limit,
        failure_time,
        tracking,
        left: AtomicBool::new(false),
        handles: HandleTable::new(),
    })
}

fn open_link(
    bootstrap: &dyn Bootstrap,
    without: DisabledFeatures,
    wait_settings: &WaitSettings,
) -> Result<(Box<dyn Link>, u16)> {
    let ports = bootstrap.settings().ports.unwrap_or(Ports::ANY);
    let checked_by_udp = bootstrap.settings().seal == Some(Seal::Header);
    let ask = Bind {
        ports,
        sharers: bootstrap.local_size() as usize,
        without,
        checked_by_udp,
        ..Bind::default()
    };
    let udp = wait_settings
        .mode()
        .drive()
        .open_link(&ask, bootstrap.rank(), wait_settings.priority())
        .map_err(|NoLink { operation, why }| Error::invalid(operation, why))?;
    let port = udp.properties().port;
    Ok(match &bootstrap.settings().fault {
        None => (udp, port),
        Some(text) => {
            let settings: FaultSettings = text
                .parse()
                .map_err(|why: FaultSyntax| Error::invalid("joining the job", why.to_string()))?;
            // Nodes must not share one sequence of faults, or both ends of a pair lose the same
            // datagrams.
            let seed = settings
                .seed
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(u64::from(bootstrap.rank()));
            let fault = Fault::new(udp, FaultSettings { seed, ..settings });
            match seal::Checksum::of(bootstrap.settings().seal.unwrap_or_default().kind()) {
                Some(checksum) => (Box::new(fault.resealing(Box::new(checksum))), port),
                None => (Box::new(fault), port),
            }
        }
    })
}

/// Wraps the link so that its traffic is written down, if the user wants that. If a file cannot be
/// written, the node says so and joins all the same.
fn tap(link: Box<dyn Link>, rank: u32) -> Result<Box<dyn Link>> {
    let settings = TapSettings::from_env()
        .map_err(|why| Error::invalid("joining the job", why.to_string()))?;
    let Some(settings) = settings else { return Ok(link) };
    let (tap, failed) = settings.attach(link, rank);
    failed.iter().for_each(|why| eprintln!("oikaze: node {rank}: {why}"));
    Ok(Box::new(tap))
}

/// Returns this node's cipher, and the log of keys if the user wants one (SEAL-2.6, SEAL-6). A log
/// is never silent, because who reads it can read the job's traffic.
fn key_options(bootstrap: &dyn Bootstrap, without: &DisabledFeatures) -> Result<KeyOptions> {
    let log = KeyLog::from_env().map_err(|why| {
        Error::invalid(
            "joining the job",
            format!("opening the log of keys ({KEY_LOG_VARIABLE}): {why}"),
        )
    })?;
    if let Some(log) = &log {
        eprintln!(
            "oikaze: node {} writes its keys to {} ({KEY_LOG_VARIABLE}): who has them can read its traffic",
            bootstrap.rank(),
            log.path().display()
        );
    }
    Ok(KeyOptions { cipher: without.cipher(), log })
}

fn setup(
    bootstrap: &dyn Bootstrap,
    meeting: &Meeting,
    local_peers: Vec<(Rank, Pair)>,
    failure_time: Duration,
    keys: KeyOptions,
) -> Result<Setup> {
    let nodes = bootstrap.size();
    // 0 means "handshake" as a connection's id, and as a seed that nothing is skipped.
    let random = || {
        getrandom::u64()
            .map(|word| word.max(1))
            .map_err(|error| Error::invalid("drawing connection ids", error.to_string()))
    };
    let connections = (0..nodes).map(|_| random()).collect::<Result<_>>()?;
    let seal = bootstrap.settings().seal.unwrap_or_default().kind();
    let congestion = bootstrap.settings().congestion.unwrap_or_default();
    // Another node may come late, as long as it is waited for in `Meeting::connect`.
    let connect_time = CONNECT_TIME + bootstrap.settings().time_limit.unwrap_or(MEET_TIME);
    let settings = Settings {
        connect_time,
        failure_time,
        datagram_max: u16::MAX,
        congestion,
        flows: bootstrap.settings().flows.unwrap_or_default(),
        seal,
        private_seed: random()?,
        ..Settings::default()
    };
    Ok(Setup {
        me: bootstrap.rank(),
        nodes,
        incarnation: bootstrap.incarnation(),
        addresses: meeting
            .candidates
            .iter()
            .map(|of_peer| of_peer.iter().map(|candidate| candidate.to).collect())
            .collect(),
        datagram_max: meeting.candidates.iter().map(|of_peer| datagram_max(of_peer)).collect(),
        connections,
        settings,
        secret: bootstrap.secret().clone(),
        keys,
        local_peers,
    })
}

/// Returns the size of the largest datagram that every path to a peer carries, as far as this
/// node's routes tell. Jumbo frames are used. Larger frames are not.
fn datagram_max(candidates: &[Candidate]) -> u16 {
    const JUMBO: usize = 9000;
    let mtus = candidates.iter().filter_map(|candidate| path_mtu(candidate.to).ok());
    let mtu = mtus.min().unwrap_or(JUMBO).clamp(1280, JUMBO);
    // IPv6 and UDP headers; an IPv4 path has 20 bytes to spare.
    u16::try_from(mtu - 48).unwrap_or(u16::MAX)
}
