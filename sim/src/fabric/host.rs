//! A host: one node's engine, and the loads that begin there.

use super::Plan;
use super::load::Source;
use super::load::{Load, Result};
use crate::net::{Departure, SharedMailbox, SimLink, address_of, open};
use crate::pages::SimPages;
use crate::program::SimEngine;
use crate::random::{Random, bytes_of};
use crossbeam_queue::SegQueue;
use oikaze_engine::{Engine, KeyOptions, Setup, Submission};
use oikaze_os::memory::Region;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of turns in a row before other hosts have theirs.
const TURNS_IN_A_ROW: usize = 16;
/// Time between two turns of an engine that has more to do.
const BREATH: Duration = Duration::from_micros(2);

/// A simulated host.
pub struct Host {
    /// Rank of the host.
    pub rank: Rank,
    /// Key of the host's region for puts.
    pub key: u64,
    /// Time of the next turn, if one is planned.
    pub turn_at: Option<Time>,
    engine: SimEngine,
    slot: u32,
    mailbox: SharedMailbox,
    room: usize,
    submissions: Arc<SegQueue<Submission>>,
    sources: Vec<Source>,
    nodes: u32,
}

impl Host {
    /// Makes a host that begins to connect to the others.
    pub(super) fn new(plan: &Plan, rank: Rank) -> std::result::Result<Host, String> {
        let settings = plan
            .others
            .iter()
            .find(|(other, _)| *other == rank)
            .map_or(plan.settings, |(_, settings)| *settings);
        let room = settings.receive_buffer as usize;
        let mut random = Random::stream(plan.seed, 0x686f_7374 << 16 | u64::from(rank));
        let link = SimLink::new(
            address_of(rank),
            usize::from(settings.datagram_max),
            room,
            0.0,
            random.clone(),
        );
        let mailbox = link.mailbox();
        let submissions = Arc::new(SegQueue::new());
        let mut secret = [0; 32];
        secret.copy_from_slice(&bytes_of(plan.seed, 32));
        let setup = Setup {
            me: rank,
            nodes: plan.hosts,
            incarnation: 1,
            addresses: (0..plan.hosts)
                .map(|peer| if peer == rank { Vec::new() } else { vec![address_of(peer)] })
                .collect(),
            datagram_max: Vec::new(),
            connections: (0..plan.hosts).map(|_| random.word().max(1)).collect(),
            settings,
            secret: Secret::from_bytes(secret),
            keys: KeyOptions::default(),
            local_peers: Vec::new(),
        };
        let pages = SimPages::new(random.clone());
        let mut engine = Engine::new(setup, link, pages, Arc::clone(&submissions), Time(1))
            .map_err(|failure| failure.to_string())?;
        let size = plan.loads.iter().map(|load| load.size).max().unwrap_or(0);
        let region = Region::private(size as usize * plan.hosts as usize)
            .map_err(|error| format!("a host's memory: {error}"))?;
        let registered = engine
            .memory()
            .insert(region, Rights::READ | Rights::WRITE)
            .map_err(|error| format!("a host's memory: {error}"))?;
        engine.connect(Time(1));
        let (slot, key) = (registered.slot, registered.key);
        Ok(Host {
            rank,
            key,
            turn_at: None,
            engine,
            slot,
            mailbox,
            room,
            submissions,
            sources: Vec::new(),
            nodes: plan.hosts,
        })
    }

    /// Returns `true` if the host is connected to all nodes.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        (0..self.nodes).all(|rank| self.engine.peers().is_connected(rank))
    }

    pub(super) fn begin(&mut self, number: usize, load: Load, key: u64, at: Time) {
        self.sources.push(Source::new(number, load, key, self.slot, at));
    }

    pub(super) fn results(&self) -> impl Iterator<Item = Result> + '_ {
        self.sources.iter().map(Source::result)
    }

    pub(super) fn deliver(&mut self, from: Rank, bytes: Vec<u8>, marked: bool) {
        // A datagram that does not fit is lost, as in a socket.
        let _ = open(&self.mailbox).deliver(address_of(from), bytes, marked, self.room);
    }

    /// Runs turns until there is nothing to do now. Returns the sent datagrams, and the time of the
    /// next turn.
    pub(super) fn turn(&mut self, now: Time) -> (Vec<Departure>, Option<Time>) {
        let Self { engine, submissions, sources, mailbox, .. } = self;
        let mut sent = Vec::new();
        for _ in 0..TURNS_IN_A_ROW {
            let work = engine.turn(now);
            sent.append(&mut open(mailbox).outbox);
            let acted = sources
                .iter_mut()
                .fold(false, |acted, source| source.poll(now, submissions) | acted);
            let waiting = !open(mailbox).inbox.is_empty() || !submissions.is_empty();
            if !acted && !work.more && !waiting {
                let next =
                    engine.next_timeout().map(|next| next.max(now + Duration::from_nanos(1)));
                return (sent, next);
            }
        }
        (sent, Some(now + BREATH))
    }
}
