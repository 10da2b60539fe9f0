//! A wire in memory between two engines.

use super::*;
use oikaze_os::memory::Region;
use oikaze_os::net::{
    Arrival, LinkProperties, LocalAddress, Outgoing, PayloadForm, Predicted, Scattered, Sink,
    Statistics,
};
use oikaze_protocol::limits::DATAGRAM_ETHERNET;
use oikaze_protocol::wind::Lane;
use oikaze_protocol::wire::View;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

pub(crate) type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// One end of a wire between two engines.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    pub(crate) to: Queue,
    pub(crate) from: Queue,
    pub(crate) full: bool,
    /// Set if the wire takes no bulk.
    pub(crate) full_of_bulk: bool,
    /// Set if the wire receives as sockets do: equal datagrams in one buffer, scattered if the
    /// engine predicts them.
    pub(crate) scatters: bool,
    /// Number of datagrams that were received directly into their place.
    pub(crate) in_place: usize,
    /// Number of datagrams whose address counts as a peer's.
    pub(crate) of_peers: usize,
    /// Number of bulk datagrams that took the short way, or `None` if there is none.
    pub(crate) short_way: Option<usize>,
    /// Rank from whose address everything seems to come.
    pub(crate) source: Rank,
    /// Set if datagrams arrive marked CE.
    pub(crate) marks: bool,
    /// Region whose first byte changes whenever a datagram is sent.
    pub(crate) changing: Option<Region>,
}

/// Size of a socket buffer in bytes.
const BUFFER: usize = 64 << 10;

impl Wire {
    /// Returns one end of a wire.
    pub(crate) fn between(to: &Queue, from: &Queue) -> Wire {
        Wire { to: Arc::clone(to), from: Arc::clone(from), ..Wire::default() }
    }

    /// Delivers one run of equal datagrams, as the kernel joins them, with the first payloads in
    /// their predicted places.
    fn run(&mut self, sink: &mut dyn Sink, run: &[Vec<u8>]) {
        let from = address(self.source);
        let arrivals = |sink: &mut dyn Sink, some: &[Vec<u8>]| {
            some.iter().for_each(|bytes| sink.take(Arrival::new(from, bytes)));
        };
        let Some(Predicted { head, payload, tag, mut place }) = sink.predict() else {
            return arrivals(sink, run);
        };
        let Some(stride) = run.first().map(Vec::len).filter(|len| *len == head + payload + tag)
        else {
            // Overwrite the predicted place, because a socket may write anything there.
            (0..place.len() / payload)
                .for_each(|slot| place.fill(slot * payload, &vec![0x33; payload]));
            return arrivals(sink, run);
        };
        let slots = (place.len() / payload).min(run.len());
        run[..slots]
            .iter()
            .enumerate()
            .for_each(|(at, bytes)| place.fill(at * payload, &bytes[head..head + payload]));
        let one = |at: usize| Scattered {
            from,
            head: &run[at][..head],
            payload: place.part(at * payload, payload).unwrap(),
            tag: &run[at][stride - tag..],
            congested: false,
        };
        let placed = (0..slots).take_while(|at| sink.confirm(*at, &one(*at))).count();
        let copies: Vec<Vec<u8>> =
            (placed..slots).map(one).map(|one| [one.head, one.payload, one.tag].concat()).collect();
        (0..placed).for_each(|at| sink.take_scattered(one(at)));
        self.in_place += placed;
        arrivals(sink, &copies);
        arrivals(sink, &run[slots..]);
    }
}

/// Returns `true` for a datagram whose header names the bulk lane.
fn is_bulk(datagram: &[u8]) -> bool {
    View::parse(datagram).is_ok_and(|view| view.header().lane() == Lane::Bulk)
}

pub(crate) fn open<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap()
}

pub(super) fn address(rank: Rank) -> SocketAddr {
    ([127, 0, 0, 1], 1000 + rank as u16).into()
}

impl Link for Wire {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        if self.full {
            return Ok(0);
        }
        if let Some(region) = &self.changing {
            let mut first = [0];
            region.read(0, &mut first).unwrap();
            region.fill(0, 1, first[0].wrapping_add(1)).unwrap();
        }
        let taken = batch
            .iter()
            .take_while(|datagram| !(self.full_of_bulk && datagram.lane == Lane::Bulk))
            .count();
        for datagram in &batch[..taken] {
            if let Some(short) = self
                .short_way
                .as_mut()
                .filter(|_| datagram.lane == Lane::Small && is_bulk(datagram.head))
            {
                assert!(datagram.payload.is_empty(), "it is not in one piece");
                *short += 1;
            }
            let mut bytes = datagram.head.to_vec();
            datagram.payload.append_to(&mut bytes);
            bytes.extend_from_slice(datagram.tag);
            open(&self.to).push_back(bytes);
        }
        Ok(taken)
    }
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let burst: Vec<Vec<u8>> = open(&self.from).drain(..).collect();
        if !self.scatters {
            for bytes in &burst {
                // The other one of the two nodes has sent the datagram. Its address tells nothing
                // else.
                let arrival = Arrival::new(address(self.source), bytes);
                sink.take(Arrival { congested: self.marks, ..arrival });
                self.of_peers += usize::from(sink.was_a_peers());
            }
            return Ok(burst.len());
        }
        let mut rest = &burst[..];
        while let Some(first) = rest.first() {
            let alike = rest
                .iter()
                .take(BUFFER / first.len().max(1))
                .take_while(|bytes| bytes.len() == first.len())
                .count();
            let (run, later) = rest.split_at(alike.max(1));
            self.run(sink, run);
            rest = later;
        }
        Ok(burst.len())
    }
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        Ok(Vec::new())
    }
    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties::within_process(usize::from(DATAGRAM_ETHERNET), 1 << 20)
    }
    fn prefers(&mut self, _: SocketAddr, form: PayloadForm) -> bool {
        matches!(form, PayloadForm::Contiguous(_)) && self.short_way.is_some()
    }
    fn next_wakeup(&self) -> Option<Instant> {
        (self.full || self.full_of_bulk).then(Instant::now)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}
