//! A wrapper that records what passes a link.

use super::recorder::{CapturedDatagram, Recorder};
use crate::net::datagram::{Arrival, Outgoing};
use crate::net::link::{Link, ReceiveEach};
use crate::net::sink::Sink;
use oikaze_protocol::wire::{Lane, View};
use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes that are buffered before they are written, unless the link is idle.
const BUFFER: usize = 256 << 10;

/// Destination of records.
struct Store {
    /// Name for messages to the user.
    name: String,
    recorder: Box<dyn Recorder>,
    /// Output file; `None` once the recording has ended.
    out: Option<BufWriter<Box<dyn Write + Send>>>,
    /// Bytes that may still be written.
    left: u64,
    datagrams: u64,
    record: Vec<u8>,
}

impl Store {
    /// Records one datagram. Returns the reason if that ended the recording.
    fn take(&mut self, datagram: &CapturedDatagram<'_>) -> Option<String> {
        let out = self.out.as_mut()?;
        self.record.clear();
        self.recorder.record(datagram, &mut self.record);
        let Some(left) = self.left.checked_sub(self.record.len() as u64) else {
            return self
                .end("it is as large as it may become; OIKAZE_PCAP_LIMIT sets how large that is");
        };
        if let Err(why) = out.write_all(&self.record) {
            return self.end(&why.to_string());
        }
        self.left = left;
        self.datagrams += 1;
        None
    }

    fn flush(&mut self) -> Option<String> {
        let why = self.out.as_mut().filter(|out| !out.buffer().is_empty())?.flush().err()?;
        self.end(&why.to_string())
    }

    fn end(&mut self, why: &str) -> Option<String> {
        // Dropping the writer still writes the buffered bytes, if that is possible.
        self.out = None;
        Some(format!("{} ends after {} datagrams: {why}", self.name, self.datagrams))
    }
}

/// Wraps a link and records what is sent and received.
pub struct Tap<L> {
    inner: L,
    stores: Vec<Store>,
    /// Local addresses of the link. The link does not report from which of them it sent a datagram.
    here: Vec<SocketAddr>,
    bulk_port: Option<u16>,
    notices: VecDeque<String>,
}

impl<L: Link> Tap<L> {
    /// Wraps a link, without a recording yet.
    pub fn new(inner: L) -> Self {
        let here =
            inner.local_addresses().unwrap_or_default().iter().map(|local| local.address).collect();
        let bulk_port = inner.properties().bulk_port;
        Self { inner, stores: Vec::new(), here, bulk_port, notices: VecDeque::new() }
    }

    /// Records from here on in this format, at most `limit` bytes. `name` appears in messages to
    /// the user.
    ///
    /// # Errors
    /// The beginning could not be written.
    pub fn record(
        &mut self,
        name: String,
        mut recorder: Box<dyn Recorder>,
        out: Box<dyn Write + Send>,
        limit: u64,
    ) -> io::Result<()> {
        let (mut out, mut begin) = (BufWriter::with_capacity(BUFFER, out), Vec::new());
        recorder.begin(&mut begin);
        out.write_all(&begin)?;
        out.flush()?;
        let left = limit.saturating_sub(begin.len() as u64);
        self.stores.push(Store {
            name,
            recorder,
            out: Some(out),
            left,
            datagrams: 0,
            record: Vec::new(),
        });
        Ok(())
    }

    fn is_recording(&self) -> bool {
        self.stores.iter().any(|store| store.out.is_some())
    }

    fn flush(&mut self) {
        self.notices.extend(self.stores.iter_mut().filter_map(Store::flush));
    }
}

/// Returns the time since 1970, by the realtime clock, which captures of other machines use too.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the local address that a peer most likely sees in this lane. In the bulk lane, the
/// address has the port of that lane if there is one.
fn seen_by(here: &[SocketAddr], bulk: Option<u16>, peer: SocketAddr, lane: Lane) -> SocketAddr {
    let alike = |mine: &&SocketAddr| mine.is_ipv4() == peer.is_ipv4();
    let near =
        |mine: &&SocketAddr| alike(mine) && mine.ip().is_loopback() == peer.ip().is_loopback();
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut mine =
        here.iter().find(near).or_else(|| here.iter().find(alike)).copied().unwrap_or(unknown);
    if let (Lane::Bulk, Some(port)) = (lane, bulk) {
        mine.set_port(port);
    }
    mine
}

impl<L: Link> Link for Tap<L> {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let sent = self.inner.send(batch)?;
        if self.is_recording() {
            let at = now();
            for outgoing in batch.iter().take(sent) {
                // The name of a group may be a mapped address.
                let to = SocketAddr::new(outgoing.to.ip().to_canonical(), outgoing.to.port());
                let from = seen_by(&self.here, self.bulk_port, to, outgoing.lane);
                outgoing.payload.with_bytes(|payload| {
                    let parts = [outgoing.head, payload, outgoing.tag];
                    let datagram =
                        CapturedDatagram { at, sent: true, from, to, parts, congested: false };
                    self.notices
                        .extend(self.stores.iter_mut().filter_map(|store| store.take(&datagram)));
                });
            }
        }
        Ok(sent)
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        if !self.is_recording() {
            return self.inner.receive_into(sink);
        }
        let Self { inner, stores, here, bulk_port, notices } = self;
        let mut at = None;
        let received = inner.receive(&mut |arrival| {
            let Arrival { from, bytes, congested, .. } = arrival;
            let at = *at.get_or_insert_with(now);
            let lane = View::parse(bytes).map_or(Lane::Small, |view| view.header().lane());
            let to = seen_by(here, *bulk_port, from, lane);
            let datagram =
                CapturedDatagram { at, sent: false, from, to, parts: [bytes, &[], &[]], congested };
            notices.extend(stores.iter_mut().filter_map(|store| store.take(&datagram)));
            sink.take(arrival);
        })?;
        if received == 0 {
            // Write the buffer while the link is idle, so that a process that is killed then leaves
            // a complete capture.
            self.flush();
        }
        Ok(received)
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.pop_front().or_else(|| self.inner.notice())
    }

    forward_link!(self => (self.inner): stall local_addresses properties prefers watch next_wakeup
        poll_too_big report_silence join_group leave_group route_group statistics);
}
