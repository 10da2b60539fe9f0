//! Flows of bulk (WIND-14), which are source ports of the sender: each takes another way through
//! the network, with faults of its own.

use crate::random::Random;
use oikaze_protocol::limits::FLOWS_MAX;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Port of every simulated node.
pub(super) const PORT: u16 = 7000;
/// Port of every node for bulk, and the source port of its first flow.
pub(super) const BULK_PORT: u16 = PORT + 1;
/// Number of flows that a link may have.
pub(super) const FLOWS: usize = FLOWS_MAX as usize;
/// Time for which datagrams may wait for the cap of their flow. Later ones are lost.
const QUEUE_TIME: Duration = Duration::from_millis(10);

/// Returns the source port of a flow. Ports of further flows follow that of the first.
pub(super) fn port_of(flow: u8) -> u16 {
    BULK_PORT + u16::from(flow)
}

/// Returns the flow of a datagram from one port to another, if it is one of bulk. Bulk to the first
/// port (WIND-8.9) takes the way of all other datagrams.
pub(super) fn flow_of((from, to): (u16, u16)) -> Option<usize> {
    let flow = from.checked_sub(BULK_PORT).map(usize::from);
    flow.filter(|flow| *flow < FLOWS && to == BULK_PORT)
}

/// Way of one flow.
#[derive(Clone, Copy, Debug)]
struct FlowWay {
    /// Time beyond the latency of other datagrams.
    delay: Duration,
    /// Time on the wire for each byte, in nanoseconds.
    nanos_per_byte: u64,
    loss: f64,
}

/// Faults of flows, the same between all nodes.
#[derive(Clone, Debug)]
pub struct FlowWeather {
    ways: [FlowWay; FLOWS],
    /// Flow that carries nothing, from and until these times.
    cut: (usize, Time, Time),
}

impl FlowWeather {
    /// Draws delays, caps and loss of each flow, and which of the first `count` is cut, and when.
    #[must_use]
    pub fn any(random: &mut Random, count: u8) -> FlowWeather {
        let slowest = random.spread(1_000, 5_000_000);
        let (is_capped, is_lossy) = (random.chance(0.6), random.chance(0.3));
        let ways = [(); FLOWS].map(|()| FlowWay {
            delay: Duration::from_nanos(if random.chance(0.5) { random.below(slowest) } else { 0 }),
            nanos_per_byte: if is_capped { random.between(1, 40) } else { 0 },
            loss: if is_lossy && random.chance(0.3) { 0.1 } else { 0.0 },
        });
        let from = Time(random.below(200_000_000));
        let until = match random.below(3) {
            0 => Time(u64::MAX),
            1 => from + Duration::from_nanos(random.spread(1_000_000, 800_000_000)),
            _ => from,
        };
        FlowWeather { ways, cut: (random.index(usize::from(count.max(1))), from, until) }
    }
}

/// Wires of the flows between two nodes: the time at which the last datagram of each has left.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowWires([Time; FLOWS]);

impl FlowWires {
    /// Returns when a datagram of `len` bytes of this flow that comes at `at` has passed, or `None`
    /// if it is lost.
    pub(super) fn pass(
        &mut self,
        weather: Option<&FlowWeather>,
        (flow, len): (Option<usize>, usize),
        at: Time,
        random: &mut Random,
    ) -> Option<Time> {
        let Some((weather, flow)) = weather.zip(flow) else { return Some(at) };
        let (cut, from, until) = weather.cut;
        let (Some(way), Some(wire)) = (weather.ways.get(flow), self.0.get_mut(flow)) else {
            return Some(at);
        };
        let begin = at.max(*wire);
        let is_cut = flow == cut && (from..until).contains(&at);
        if is_cut || random.chance(way.loss) || begin - at > QUEUE_TIME {
            return None;
        }
        *wire = begin + Duration::from_nanos(len as u64 * way.nanos_per_byte);
        Some(*wire + way.delay)
    }
}
