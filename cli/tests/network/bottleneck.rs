//! Sends a Wind flow and a kernel CUBIC TCP flow through one bottleneck: a router between two
//! hosts, shaped by tbf. The kernel and the machine decide the share of each flow. The test checks
//! that neither starves. Needs root; skipped otherwise.

use crate::support::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// MiB that Wind sends, which is enough for CUBIC to find its share within seconds.
const VOLUME: u32 = 100;
/// Environment variable for the role of this process, when the test starts it again inside a
/// namespace.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const SINK: &str = "10.97.1.2:5001";

/// Two hosts and a router between them with narrow lines. Dropping the value removes them.
///
/// The bottleneck is not at a host's own device, as it is with slow network cards. There TCP keeps
/// only a millisecond or two of data in the queue of its own host (small queues:
/// tcp_limit_output_bytes). Beside any other sender that fills this queue, TCP would get only the
/// rest.
struct Narrow {
    hosts: Cable,
    router: String,
}

impl Narrow {
    fn new() -> Narrow {
        let name = |of: &str| format!("oikt-{}-narrow-{of}", std::process::id());
        let narrow = Narrow { hosts: Cable(["a", "b"].map(name)), router: name("r") };
        let router = narrow.router.as_str();
        add_namespace(router);
        for (host, (net, side)) in narrow.hosts.0.iter().zip([("10.97.0", "ea"), ("10.97.1", "eb")])
        {
            add_namespace(host);
            ip(host, &["link", "add", "e", "type", "veth", "peer", "name", side, "netns", router]);
            begin_to_use(host, "e", "1500", &format!("{net}.2/24"));
            begin_to_use(router, side, "1500", &format!("{net}.1/24"));
            ip(host, &["route", "add", "default", "via", &format!("{net}.1")]);
            narrow.at_router(&format!(
                "tc qdisc add dev {side} root tbf rate 200mbit burst 64kb limit 1mb"
            ));
        }
        narrow.at_router("echo 1 > /proc/sys/net/ipv4/ip_forward");
        narrow
    }

    fn at_router(&self, script: &str) {
        let mut command = Command::new("ip");
        let status = command
            .args(["netns", "exec", &self.router, "/bin/sh", "-c", script])
            .status()
            .unwrap();
        assert!(status.success(), "no narrow line: is there a kernel with tbf? {script}");
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.router]).status();
    }
}

fn role(namespace: &str, role: &str) -> Running {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(me).args([
        "--exact",
        "bottleneck::plays_its_role",
        "--nocapture",
    ]);
    Running::start(command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::piped()))
}

/// Returns microseconds of a clock that all processes of the test have in common.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// Runs one of the two ends of the TCP flow, each in its namespace. Not a test by itself.
#[test]
fn plays_its_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("sink") => {
            let listener = TcpListener::bind(SINK).unwrap();
            println!("\nlistening");
            let (mut stream, _) = listener.accept().unwrap();
            let (mut bytes, mut buffer, mut seen) = (0, vec![0; 1 << 20], vec![(now(), 0)]);
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                bytes += count;
                seen.push((now(), bytes));
            }
            seen.iter().for_each(|(at, bytes)| println!("received {at} {bytes}"));
        }
        Ok("source") => {
            let mut stream = TcpStream::connect(SINK).unwrap();
            rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").unwrap();
            println!("\nsending");
            while stream.write_all(&[7; 1 << 16]).is_ok() {}
        }
        _ => {}
    }
}

/// WIND-9.4
#[test]
fn beside_cubic_tcp_neither_starves() {
    let Some(_turn) = namespaces() else { return };
    let narrow = Narrow::new();
    let cable = &narrow.hosts;
    let mut sink = role(&cable.0[1], "sink");
    sink.line("listening");
    let mut source = role(&cable.0[0], "source");
    source.line("sending");
    let shell = Shell::enter("bottleneck");
    let mut wind = cable.run(&shell, &["--no-prefix"]);
    let line = format!("perf put --size 1M --only throughput --volume {VOLUME}M --json");
    wind.args(["--", OIKAZE]).args(line.split(' '));
    let (status, out, err) = finish(&mut wind);
    let end = now();
    drop(source);
    assert_eq!(status, Some(0), "{err}");
    let (_, rest) = out.split_once("\"bandwidth_gbs\":").expect("a figure");
    let wind =
        rest.split(',').next().and_then(|figure| figure.parse::<f64>().ok()).expect("a number")
            * 8e9;
    // Wind has just sent its volume. TCP's bytes before and after that time say nothing about
    // shares.
    let span = f64::from(VOLUME) * 8.0 * 1048576.0 / wind * 1e6;
    let (_, told) = sink.finish();
    let seen = told.lines().filter_map(|line| line.strip_prefix("received ")?.split_once(' '));
    let seen: Vec<(u128, f64)> =
        seen.map(|(at, bytes)| (at.parse().unwrap(), bytes.parse().unwrap())).collect();
    let until = |at: u128| {
        seen.iter().take_while(|(then, _)| *then <= at).last().map_or(0.0, |(_, bytes)| *bytes)
    };
    let tcp = (until(end) - until(end - span as u128)) * 8e6 / span;
    let share = wind / (wind + tcp);
    eprintln!(
        "Wind {:.0} Mbit/s, TCP {:.0} Mbit/s: {:.0} % are Wind's",
        wind / 1e6,
        tcp / 1e6,
        share * 100.0
    );
    // Each flow must get at least a fifth of a fair share.
    assert!((0.1..=0.9).contains(&share), "Wind {wind}, TCP {tcp} bit/s");
}
