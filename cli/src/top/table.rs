//! Formats one sample as a table.

use super::sample::{Peer, Sample};
use oikaze::job::Seal;
use oikaze::observe::page::{FlowGauges, FlowPage, PeerPage, State};
use oikaze::observe::{Unreadable, slow_paths};
use oikaze_protocol::wind::Histogram;
use rustix::termios::Winsize;
use std::fmt::Write as _;
use std::time::Duration;

/// Age of a node's statistics above which the table shows the node as stopped. A node publishes its
/// statistics ten times a second.
const STOPPED: Duration = Duration::from_secs(2);

const HEAD: &str = "node peer state    seal         out/s   MB/s   in/s   MB/s  rtt p50    p99  settle    p99  resent =order+late+silent  vain  \
                    flight/window  queue (wait+credit)";

/// Formats all nodes, job by job. With `rows`, limits the text to this many lines, for the busiest
/// peers.
pub fn text(samples: &[Sample<'_>], unreadable: &[Unreadable], rows: Option<usize>) -> String {
    let mut text = String::new();
    let jobs: Vec<&[Sample<'_>]> =
        samples.chunk_by(|one, other| one.view.node.job == other.view.node.job).collect();
    // Counts the lines that are always there. Each job has a title, a heading, the count of hidden
    // peers and an empty line. Each node, each slow path and each flow has a line.
    let slow: usize =
        samples.iter().map(|sample| slow_paths(&sample.view.node, &sample.view.peers).len()).sum();
    let flows: usize = samples.iter().map(|sample| sample.view.flows.flows.len()).sum();
    let fixed = slow + flows + samples.len() + jobs.len() * 4 + unreadable.len() + 1;
    let least =
        rows.map_or(0, |rows| traffic_of_the_busiest(samples, rows.saturating_sub(fixed).max(1)));
    for job in jobs {
        title(job, &mut text);
        let mut hidden = 0;
        for sample in job {
            let (shown, idle): (Vec<_>, Vec<_>) = sample
                .peers
                .iter()
                .partition(|peer| peer.traffic() >= least || peer.page.state.is_lost());
            hidden += idle.len();
            for peer in shown {
                row(sample, peer, &mut text);
                let flows = sample.view.flows.flows.iter();
                flows.filter(|flow| flow.peer == peer.rank).for_each(|of| flow(of, &mut text));
            }
        }
        if hidden > 0 {
            let _ = writeln!(text, "      … and {hidden} less busy: oikaze top --once shows all");
        }
        job.iter().for_each(|sample| node(sample, &mut text));
        text.push('\n');
    }
    for process in unreadable {
        let _ = writeln!(text, "process {} looks like a node, but {}", process.pid, process.why);
    }
    text
}

/// Returns the minimum traffic of the `most` busiest peers.
fn traffic_of_the_busiest(samples: &[Sample<'_>], most: usize) -> u64 {
    let mut all: Vec<u64> =
        samples.iter().flat_map(|sample| sample.peers.iter().map(Peer::traffic)).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    if all.len() <= most { 0 } else { all.get(most.saturating_sub(1)).copied().unwrap_or(0).max(1) }
}

fn title(job: &[Sample<'_>], text: &mut String) {
    let Some(first) = job.first() else { return };
    let (node, span) = (&first.view.node, first.span.as_secs_f64());
    let (name, here, nodes) = (first.view.job(), job.len(), node.nodes);
    let _ = writeln!(
        text,
        "job {name}  {}  {here} of {nodes} nodes here, over {span:.1} s",
        node.program
    );
    let _ = writeln!(text, "{HEAD}");
}

fn row(sample: &Sample<'_>, peer: &Peer<'_>, text: &mut String) {
    let (counted, gauges) = (&peer.counted, &peer.page.gauges);
    let rate = |count| short(peer.rate(count));
    let megabytes = |bytes| format!("{:.1}", peer.rate(bytes) / 1e6);
    let [order, late, silent] = peer.resent();
    let resent = format!("{:6} ={order}+{late}+{silent}", order + late + silent);
    let flight = format!(
        "{}/{}{}",
        short(gauges.in_flight as f64),
        short(gauges.window.min(gauges.share) as f64),
        if gauges.flows > 1 { format!(" x{}", gauges.flows) } else { String::new() }
    );
    let queue = format!(
        "{} ({}+{})",
        gauges.unsettled,
        gauges.queued_small + gauges.queued_bulk,
        gauges.blocked
    );
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "{:4} {:4} {:8.8} {:9} {:>6} {:>6} {:>6} {:>6}  {:>7} {:>6}  {:>6} {:>6}  {resent:25} {:5}  {flight:>13}  {queue}",
        sample.view.node.rank,
        peer.rank,
        standing(peer.page),
        sample.seal_of(peer).map_or("none", Seal::name),
        rate(counted.messages_posted),
        megabytes(counted.bytes_sent),
        rate(counted.messages_delivered),
        megabytes(counted.bytes_received),
        at(&peer.round_trip, 5000),
        at(&peer.round_trip, 9900),
        at(&peer.settle, 5000),
        at(&peer.settle, 9900),
        counted.spurious_losses,
    );
}

/// Writes the line of one of several flows to a peer.
fn flow(flow: &FlowPage, text: &mut String) {
    let FlowGauges { flow: number, window, in_flight, datagrams_sent, datagrams_lost, .. } =
        flow.gauges;
    let number_of = |count: u64| short(count as f64);
    let _ = write!(text, "          flow {number}");
    if let Some(address) = flow.address {
        let _ = write!(text, " to {address}");
    }
    let _ = write!(
        text,
        ": flight {}/{}, rtt {}, {} datagrams, {} lost",
        number_of(in_flight),
        number_of(window),
        span(Duration::from_nanos(flow.gauges.round_trip_ns)),
        number_of(datagrams_sent),
        number_of(datagrams_lost),
    );
    if flow.gauges.cut_ns > 0 {
        let left = span(Duration::from_nanos(flow.gauges.cut_ns));
        let _ = write!(text, "; nothing gets through, tried again in {left}");
    }
    text.push('\n');
}

/// Returns the peer's state as a word. The word also says if messages go through shared memory.
fn standing(page: &PeerPage) -> &'static str {
    if page.state == State::Established && page.gauges.rings == 1 {
        "up, shm"
    } else {
        page.state.name()
    }
}

/// Writes the lines of a node that belong to none of its peers.
fn node(sample: &Sample<'_>, text: &mut String) {
    let node = &sample.view.node;
    let (engine, link) = (&node.engine, &node.link);
    let _ = write!(
        text,
        "{:4}  pid {}, {} operations, {} messages unread",
        node.rank, sample.view.pid, node.operations, node.mail
    );
    let odd = [
        ("of no connection", engine.unknown_connection),
        ("corrupt", engine.bad_seal),
        ("of another job", engine.bad_mac + engine.rate_limited),
        ("stale handshakes", engine.stale_handshakes),
        ("without a cookie", engine.no_cookie),
        ("overflowed", link.overflowed),
        ("unreachable", link.unreachable),
        ("too big", link.too_big),
    ];
    for (what, count) in odd.into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, ", {} {what}", short(count as f64));
    }
    if node.groups.group_streams_opened > 0 || node.groups.group_datagrams_received > 0 {
        let groups = &node.groups;
        let counts =
            [groups.group_datagrams_sent, groups.group_members, groups.group_datagrams_received];
        let [sent, members, received] = counts.map(|count| short(count as f64));
        let _ = write!(text, "; multicast: {sent} sent to {members} members, {received} received");
    }
    if !node.waits.is_empty() {
        let _ = write!(text, "; waits {}", node.waits);
    }
    if sample.view.flows.left_out > 0 {
        let _ = write!(text, "; {} more flows", sample.view.flows.left_out);
    }
    let age = sample.view.age();
    if age > STOPPED {
        let _ = write!(text, "; has not moved for {:.0} s", age.as_secs_f64());
    }
    text.push('\n');
    for slow in slow_paths(node, &sample.view.peers) {
        let _ =
            writeln!(text, "      slow: {}: {}; remedy: {}", slow.path, slow.cause, slow.remedy);
    }
}

fn at(histogram: &Histogram, hundredths: u32) -> String {
    histogram.percentile(hundredths).map_or_else(|| "-".to_owned(), span)
}

/// Formats a time with three digits and a unit.
fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (value, unit) = match seconds {
        ..1e-3 => (seconds * 1e6, "µs"),
        ..1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    format!("{value:.*}{unit}", decimals(value))
}

/// Formats a number with three digits and a letter for thousands, millions, …
fn short(value: f64) -> String {
    let (value, unit) = match value {
        ..1e4 => return format!("{value:.0}"),
        ..1e6 => (value / 1e3, "k"),
        ..1e9 => (value / 1e6, "M"),
        ..1e12 => (value / 1e9, "G"),
        _ => (value / 1e12, "T"),
    };
    format!("{value:.*}{unit}", decimals(value))
}

fn decimals(value: f64) -> usize {
    match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    }
}

/// Returns `true` if the size is known. A terminal whose size was never set reports no rows and no
/// columns.
pub fn is_size(size: &Winsize) -> bool {
    size.ws_row > 0 && size.ws_col > 0
}

/// Returns the part of a line for which the terminal has room.
pub fn cut(line: &str, size: Option<Winsize>) -> String {
    line.chars().take(size.map_or(usize::MAX, |size| usize::from(size.ws_col))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_size_is_one_of_unknown_size() {
        let size =
            |ws_row, ws_col| is_size(&Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
        assert!(size(24, 80) && !size(0, 0) && !size(24, 0) && !size(0, 80));
    }

    #[test]
    fn flow_that_is_cut_says_for_how_long() {
        let gauges =
            FlowGauges { flow: 3, window: 9000, cut_ns: 8_000_000_000, ..FlowGauges::default() };
        let address = Some(([10, 0, 0, 1], 7).into());
        let mut text = String::new();
        flow(&FlowPage { peer: 1, address, gauges }, &mut text);
        let line = "flow 3 to 10.0.0.1:7: flight 0/9000, rtt 0.00µs, 0 datagrams, 0 lost; \
                    nothing gets through, tried again in 8.00s\n";
        assert_eq!(text.trim_start(), line);
    }

    #[test]
    fn three_digits_are_enough() {
        let spans = [
            (0, "0.00µs"),
            (1_500, "1.50µs"),
            (98_700, "98.7µs"),
            (1_234_567, "1.23ms"),
            (2_000_000_000, "2.00s"),
        ];
        for (nanos, text) in spans {
            assert_eq!(span(Duration::from_nanos(nanos)), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (5e6, "5.00M"),
            (7e12, "7.00T"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
