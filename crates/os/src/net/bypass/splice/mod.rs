//! A link that sends bulk without a copy where that pays, and leaves the rest to the link that it
//! wraps.
//!
//! Bench cases: `put_bw` and `cpu` of 1 MiB at MTU 9000 (`bench wind`).

mod pipe;
#[cfg(test)]
pub(in crate::net) mod tests;

use super::socket_link::SocketLink;
use super::tcx::receiver::ReceivedRoute;
use crate::net::datagram::Outgoing;
use crate::net::link::{Link, PayloadForm};
use crate::net::statistics::{Offload, Statistics};
use crate::net::udp::Bind;
use crate::net::udp::UdpLink;
use crate::net::udp::send::{Sent, run_length};
use core::ops::ControlFlow;
use oikaze_protocol::wire::Lane;
use pipe::{SplicePipe, Spliced, is_whole_pages, spliceable};
use std::io;
use std::net::SocketAddr;

/// Wraps a link. Whole pages for peers with a connected socket are spliced.
#[derive(Debug)]
pub(crate) struct Splice<L> {
    inner: L,
    /// `None` if splicing is switched off or does not work here.
    pipe: Option<SplicePipe>,
    /// State of splicing without a pipe.
    state: Offload,
}

/// Outcome for the first datagrams of a batch.
enum BatchStep {
    /// This number of datagrams is done.
    Done(usize),
    /// There is no room now.
    NoRoom,
    /// They have to be copied.
    Copy,
}

impl<L: SocketLink> Splice<L> {
    /// Returns the pipe, if it is in use.
    #[cfg(test)]
    fn pipe(&self) -> Option<&SplicePipe> {
        self.pipe.as_ref()
    }

    /// Wraps `inner`. Nothing is spliced without `UDP_SEGMENT` and connected sockets.
    pub(crate) fn open(inner: L, ask: &Bind) -> Splice<L> {
        let off = ask.without.splice || ask.without.gso || ask.without.connect;
        let pipe = if off { None } else { SplicePipe::open().ok() };
        let state = Offload::of(off, pipe.is_some());
        Splice { inner, pipe, state }
    }

    fn state(&self) -> Offload {
        self.pipe.as_ref().map_or(self.state, SplicePipe::state)
    }

    /// Splices the first datagrams of a run, if they are suitable.
    fn splice(&mut self, run: &[Outgoing<'_>]) -> io::Result<BatchStep> {
        let Splice { inner, pipe: Some(pipe), .. } = self else { return Ok(BatchStep::Copy) };
        let (Some(first), Some(run)) = (run.first(), spliceable(run)) else {
            return Ok(BatchStep::Copy);
        };
        let udp = inner.udp();
        // Connected sockets are of the first flow.
        if first.flow > 0 || !udp.is_cut_for(*first.to) {
            return Ok(BatchStep::Copy);
        }
        let Some(peer) = udp.sockets.of_peer(*first.to, first.lane) else {
            return Ok(BatchStep::Copy);
        };
        let copied = match pipe.send(peer.socket, run) {
            Spliced::Unfit => return Ok(BatchStep::Copy),
            Spliced::Refused => run,
            // Either the path or the network's limit of pieces. The first datagram alone tells
            // which.
            Spliced::Sent(Sent::TooBig) => run.get(..1).unwrap_or_default(),
            Spliced::Sent(sent) => {
                peer.count_call();
                return Ok(match udp.settle(run, sent)? {
                    ControlFlow::Continue(done) => BatchStep::Done(done),
                    ControlFlow::Break(()) => BatchStep::NoRoom,
                });
            }
        };
        let before = udp.statistics.datagrams_out;
        let done = inner.send(copied)?;
        let udp = inner.udp();
        let accepted = udp.statistics.datagrams_out - before == copied.len() as u64;
        if accepted && udp.is_cut_for(*first.to) {
            // The datagrams were not the cause of the refusal.
            pipe.refused();
        }
        Ok(if done == 0 { BatchStep::NoRoom } else { BatchStep::Done(done) })
    }

    /// Number of first datagrams that are copied whatever their payloads are: whole runs, up to one
    /// that begins with whole pages.
    fn copied_len(batch: &[Outgoing<'_>]) -> usize {
        if !batch.iter().any(is_whole_pages) {
            return batch.len();
        }
        let mut len = 0;
        while let Some(rest) = batch.get(len..)
            && let Some(first) = rest.first()
            && !is_whole_pages(first)
        {
            len += run_length(rest, true);
        }
        len
    }
}

impl<L: SocketLink> Link for Splice<L> {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let is_bulk = batch.first().is_some_and(|first| first.lane == Lane::Bulk);
        if !is_bulk || self.state() != Offload::On {
            return self.inner.send(batch);
        }
        let mut done = 0;
        while let Some(rest) = batch.get(done..).filter(|rest| !rest.is_empty()) {
            let mut copied = Self::copied_len(rest);
            if copied == 0 {
                let run = rest.get(..run_length(rest, true)).unwrap_or_default();
                match self.splice(run)? {
                    BatchStep::Done(more) => {
                        done += more;
                        continue;
                    }
                    BatchStep::NoRoom => break,
                    BatchStep::Copy => copied = run.len(),
                }
            }
            let sent = self.inner.send(rest.get(..copied).unwrap_or_default())?;
            done += sent;
            if sent < copied {
                break;
            }
        }
        Ok(done)
    }

    /// Whole pages are preferred if the peer has a connected socket, or may get one.
    fn prefers(&mut self, to: SocketAddr, form: PayloadForm) -> bool {
        match form {
            PayloadForm::WholePages => {
                self.state() == Offload::On
                    && self.inner.udp().sockets.connected.bulk.may_have(to.ip())
            }
            PayloadForm::Contiguous(_) => self.inner.prefers(to, form),
        }
    }

    fn statistics(&self) -> Statistics {
        let spliced = self.pipe.as_ref().map_or(0, SplicePipe::sent);
        Statistics { spliced, splice: self.state(), ..self.inner.statistics() }
    }

    forward_link!(self => (self.inner): receive_into receive_again local_addresses properties watch
        next_wakeup poll_too_big report_silence join_group leave_group route_group notice);
}

impl<L: SocketLink> SocketLink for Splice<L> {
    fn udp(&mut self) -> &mut UdpLink {
        self.inner.udp()
    }

    fn heard_by_route(&mut self, peer: SocketAddr, route: &ReceivedRoute) {
        self.inner.heard_by_route(peer, route);
    }
}
