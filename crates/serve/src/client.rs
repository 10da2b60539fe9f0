//! The server's end of one node: its rings, and the sockets that the server has opened for it.

use super::counters;
use super::record::{HEADING, POLLS_PER_CHECK, head_of, nonsense, rest_of, send_reason};
use arrayvec::ArrayVec;
use oikaze_os::features::DisabledFeatures;
use oikaze_os::net::{Arrival, Bind, Link, LinkStack, Outgoing, Ports, Sink, Statistics};
use oikaze_os::shm::{Pair, Part, Writer};
use oikaze_protocol::serve::{DATAGRAM_MAX, HEAD, OpenRequest, ToNode, ToServer};
use oikaze_protocol::wind::SendMode;
use oikaze_protocol::wire::Lane;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum number of datagrams that one call sends.
const BATCH: usize = 64;
/// Bytes that a node may send in a round (SERVE-4.1). A datagram has at most as many.
const QUANTUM: usize = DATAGRAM_MAX + HEAD;
/// Bytes that the node may leave unread before its server receives no more. Small datagrams wait
/// in the ring behind bulk that came before.
const UNREAD_MAX: usize = 32 << 10;
/// Time after which datagrams for which the link had no room are sent again.
const RETRY_TIME: Duration = Duration::from_micros(200);
/// Messages of the socket that are heard at once. The rest stays for the next time.
const HEARD_AT_ONCE: usize = 16;
/// Time after which changed counters are reported to the node, while it has work.
const REPORT_TIME: Duration = Duration::from_millis(10);

/// Returns what the sockets of such a request are.
///
/// # Errors
/// The text says what the server does not open (SERVE-2.4).
pub(super) fn ask_of(request: &OpenRequest, user: u32) -> Result<Bind, String> {
    let (first, last) = request.ports;
    let ports = Ports::range(first, last)
        .ok_or_else(|| format!("{first}-{last} is not a range of ports"))?;
    let low = [first, request.bulk_port].into_iter().find(|port| (1..1024).contains(port));
    if let Some(port) = low.filter(|_| user != 0) {
        return Err(format!("port {port} is not for user {user}; use ports from 1024 on"));
    }
    let without = DisabledFeatures::parse(&request.without).map_err(|why| why.to_string())?;
    Ok(Bind {
        addresses: request.addresses.clone(),
        ports,
        bulk_port: (request.bulk_port != 0).then_some(request.bulk_port),
        sharers: request.sharers.into(),
        without,
        checked_by_udp: request.is_checked_by_udp,
        buffer: request.buffer as usize,
    })
}

/// A datagram in `bytes` that waits to be sent.
#[derive(Debug)]
struct Queued {
    to: SocketAddr,
    lane: Lane,
    flow: u8,
    mode: SendMode,
    bytes: Range<usize>,
}

/// One node of a worker.
#[derive(Debug)]
pub(super) struct Client {
    pair: Pair,
    link: LinkStack,
    /// User and process of the node, for messages.
    pub(super) user: u32,
    /// Bytes of the datagrams in `queued`.
    bytes: Vec<u8>,
    queued: VecDeque<Queued>,
    /// Bytes that the node may still send in this round.
    deficit: usize,
    /// Records for which the ring to the node has had no room.
    waiting: VecDeque<Vec<u8>>,
    reported: Statistics,
    next_report: Instant,
    /// The node asks for its counters.
    is_asked: bool,
    /// The worker sleeps until something comes for the node, too.
    is_watched: bool,
    idle_turns: u32,
}

impl Client {
    pub(super) fn new(pair: Pair, link: LinkStack, user: u32, now: Instant) -> Client {
        Client {
            pair,
            link,
            user,
            bytes: Vec::new(),
            queued: VecDeque::new(),
            deficit: 0,
            waiting: VecDeque::new(),
            reported: Statistics::default(),
            next_report: now,
            is_asked: false,
            is_watched: false,
            idle_turns: 0,
        }
    }

    /// Descriptors that are readable when there is something to do: those of the node, and that of
    /// its link, if the node reads what comes.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let link = self.link.properties().fd.filter(|_| self.is_watched);
        std::iter::once(self.pair.as_fd()).chain(self.pair.line.process()).chain(link)
    }

    /// Returns the time at which the link wants to be called again.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        // Datagrams that wait are sent soon, whatever the link says.
        let retry = (!self.queued.is_empty()).then(|| Instant::now() + RETRY_TIME);
        self.link.next_wakeup().filter(|_| self.is_watched).into_iter().chain(retry).min()
    }

    /// Tells the node why it is served no more.
    pub(super) fn refuse(&self, why: &str) {
        send_reason(&self.pair.line, why);
    }

    /// Serves the node once. Returns `true` if there was something to do.
    ///
    /// # Errors
    /// The node has ended (`UnexpectedEof`), or is of no use any more.
    pub(super) fn turn(&mut self) -> io::Result<bool> {
        // A link whose buffer was full says after `send` when to try again.
        let received = self.receive()?;
        let sent = self.send()?;
        let mut busy = sent || received;
        if self.is_asked || (busy && Instant::now() >= self.next_report) {
            busy |= self.report();
        }
        if busy {
            self.pair.wake();
            self.idle_turns = 0;
        } else {
            self.idle_turns += 1;
            if self.idle_turns >= POLLS_PER_CHECK {
                self.read_control()?;
            }
        }
        Ok(busy)
    }

    /// Takes wakeups from the socket, and finds out whether the node still lives (SERVE-5.1).
    ///
    /// # Errors
    /// The node has ended (`UnexpectedEof`).
    pub(super) fn read_control(&mut self) -> io::Result<()> {
        self.idle_turns = 0;
        // A child of fork may hold the socket of a node that has ended.
        if self.pair.line.process_has_ended() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for _ in 0..HEARD_AT_ONCE {
            if self.pair.line.hear()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Announces that the worker is about to sleep. The caller then makes fences, and checks
    /// [`Client::has_news`].
    pub(super) fn fall_asleep(&mut self) -> io::Result<()> {
        self.report();
        self.pair.wake();
        // Datagrams for a node that does not read stay in the kernel, and must wake nobody. The
        // node wakes the server when it has read.
        self.is_watched = self.keeps_up()?;
        if self.is_watched {
            self.link.watch(true)?;
        }
        self.pair.inward.fall_asleep();
        Ok(())
    }

    /// Returns `true` if the node has written or read something that the server can go on with.
    /// Called after fences, before a sleep.
    pub(super) fn has_news(&mut self) -> bool {
        let can_take = self.queued.is_empty() && self.pair.inward.has_record();
        // An error is found by the next turn.
        can_take || !self.is_watched && self.can_deliver()
    }

    /// Returns `true` if a node that has not kept up has made room since.
    fn can_deliver(&mut self) -> bool {
        match self.waiting.front() {
            Some(record) => self.pair.outward.has_room(record.len()),
            None => self.keeps_up().unwrap_or(true),
        }
    }

    /// Takes back the announcement of sleep.
    pub(super) fn wake_up(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_watched) { self.link.watch(false) } else { Ok(()) }
    }

    /// Sends what the node may send in this round (SERVE-4.1).
    fn send(&mut self) -> io::Result<bool> {
        let mut taken_over = false;
        if self.queued.is_empty() {
            self.bytes.clear();
            self.deficit = (self.deficit + QUANTUM).min(2 * QUANTUM);
            taken_over = self.take_records()?;
        }
        if self.queued.is_empty() {
            self.deficit = 0;
            return Ok(taken_over);
        }
        let bytes = &self.bytes;
        let batch: ArrayVec<Outgoing<'_>, BATCH> = self
            .queued
            .iter()
            .take(BATCH)
            .map(|queued| Outgoing {
                flow: queued.flow,
                mode: queued.mode,
                ..Outgoing::new(
                    &queued.to,
                    queued.lane,
                    bytes.get(queued.bytes.clone()).unwrap_or_default(),
                )
            })
            .collect();
        let taken = self.link.send(&batch)?;
        drop(batch);
        self.queued.drain(..taken.min(self.queued.len()));
        Ok(taken_over || taken > 0)
    }

    /// Copies records from the ring, as many as fit into a batch and into the deficit (SERVE-3.2).
    /// Returns `true` if there was any.
    fn take_records(&mut self) -> io::Result<bool> {
        let before = self.pair.inward.position();
        while self.queued.len() < BATCH {
            let Some(heading) = self.pair.inward.peek().map_err(|_| nonsense())? else { break };
            let rest = rest_of(&heading)?;
            if rest > DATAGRAM_MAX {
                return Err(nonsense());
            }
            // Records without bytes cost something, too, or they could follow without end.
            if HEAD + rest > self.deficit {
                break;
            }
            self.deficit -= HEAD + rest;
            let head = ToServer::decode(&head_of(&self.pair.inward)).map_err(|_| nonsense())?;
            match head {
                ToServer::Datagram { to, lane, flow, mode } => {
                    let from = self.bytes.len();
                    self.pair.inward.append(HEAD, rest, &mut self.bytes);
                    let bytes = from..self.bytes.len();
                    self.queued.push_back(Queued { to, lane, flow, mode, bytes });
                }
                ToServer::PeerSilent(peer) => self.link.report_silence(peer),
                ToServer::Count => self.is_asked = true,
            }
            let position = self.pair.inward.pass(heading);
            self.pair.inward.settle(position);
        }
        Ok(self.pair.inward.position() != before)
    }

    /// Returns `true` if the node has read enough of what came for it.
    fn keeps_up(&mut self) -> io::Result<bool> {
        let unread = self.pair.outward.unread().map_err(|_| nonsense())?;
        Ok(self.waiting.is_empty() && unread <= UNREAD_MAX)
    }

    /// Receives a burst for the node, if the node keeps up (SERVE-3.3).
    fn receive(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while let Some(record) = self.waiting.front() {
            if self.pair.outward.put(HEADING, &[Part::Bytes(record)]).is_err() {
                return Ok(moved);
            }
            self.waiting.pop_front();
            moved = true;
        }
        if !self.keeps_up()? {
            return Ok(moved);
        }
        let mut sink = Deliver { ring: &mut self.pair.outward, waiting: &mut self.waiting };
        let count = self.link.receive_into(&mut sink)?;
        Ok(moved || count > 0)
    }

    /// Reports what the link has to say: datagrams that were too big, notices, changed counters.
    /// Returns `true` if there was anything.
    fn report(&mut self) -> bool {
        if !self.waiting.is_empty() {
            // A node that does not read gets no reports, which would fill the server's memory.
            return false;
        }
        let mut sink = Deliver { ring: &mut self.pair.outward, waiting: &mut self.waiting };
        let mut any = false;
        while let Some(report) = self.link.poll_too_big() {
            let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
            let (tried, fits) = (length(report.tried), length(report.fits));
            sink.deliver(&ToNode::TooBig { to: report.to, tried, fits }, &[]);
            any = true;
        }
        while let Some(notice) = self.link.notice() {
            sink.deliver(&ToNode::Notice, notice.as_bytes());
            any = true;
        }
        let now = self.link.statistics();
        // All datagrams of the node that came before its question have been sent.
        let answers = self.is_asked && self.queued.is_empty();
        if answers || now != self.reported {
            sink.deliver(&ToNode::Counters { is_answer: answers }, &counters::encode(&now));
            self.reported = now;
            self.is_asked &= !answers;
            any = true;
        }
        self.next_report = Instant::now() + REPORT_TIME;
        any
    }
}

/// Hands datagrams to the node.
struct Deliver<'c> {
    ring: &'c mut Writer,
    waiting: &'c mut VecDeque<Vec<u8>>,
}

impl Deliver<'_> {
    fn deliver(&mut self, head: &ToNode, bytes: &[u8]) {
        let head = head.encode();
        let parts = [Part::Bytes(&head), Part::Bytes(bytes)];
        if !self.waiting.is_empty() || self.ring.put(HEADING, &parts).is_err() {
            self.waiting.push_back([&head, bytes].concat());
        }
    }
}

impl Sink for Deliver<'_> {
    fn take(&mut self, arrival: Arrival<'_>) {
        let head = ToNode::Datagram { from: arrival.from, is_congested: arrival.congested };
        self.deliver(&head, arrival.bytes);
    }
}
