//! A Wind flow and a kernel CUBIC TCP flow through one bottleneck: a veth pair between two namespaces, shaped by tbf. Needs root;
//! skipped otherwise. Which flow gets how much is the kernel's and the machine's business; that neither starves is ours.

mod support;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;
use support::*;

/// Of the shaped line, in bits a second.
const RATE: f64 = 200e6;
/// What this process is, when the test starts it again inside a namespace.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const SINK: &str = "10.97.0.2:5001";

fn sh(script: &str) -> bool {
    Command::new("/bin/sh").args(["-c", script]).status().is_ok_and(|status| status.success())
}

/// Two namespaces and the line between them; removed with the test.
struct Line {
    a: String,
    b: String,
}

impl Line {
    fn new() -> Line {
        let here = std::process::id();
        let line = Line { a: format!("oikt-{here}-a"), b: format!("oikt-{here}-b") };
        let Line { a, b } = &line;
        let made = sh(&format!(
            "set -e; ip netns add {a}; ip netns add {b}; ip -n {a} link add e type veth peer name e netns {b}
            for n in {a}:1 {b}:2; do
              ip -n ${{n%:*}} link set lo up; ip -n ${{n%:*}} address add 10.97.0.${{n#*:}}/24 dev e; ip -n ${{n%:*}} link set e up
              ip netns exec ${{n%:*}} tc qdisc add dev e root tbf rate 200mbit burst 64kb limit 1mb
            done"
        ));
        assert!(made, "no shaped line: is there a kernel with veth and tbf?");
        line
    }

    fn role(&self, namespace: &str, role: &str) -> Running {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(me).args(["--exact", "plays_its_role", "--nocapture"]);
        Running::start(command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::piped()))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        sh(&format!("ip netns del {}; ip netns del {}", self.a, self.b));
    }
}

/// Not a test by itself: the two ends of the TCP flow, each in its namespace.
#[test]
fn plays_its_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("sink") => {
            let listener = TcpListener::bind(SINK).unwrap();
            println!("\nlistening");
            let (mut stream, _) = listener.accept().unwrap();
            let (begun, mut bytes, mut buffer) = (Instant::now(), 0, vec![0; 1 << 16]);
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                bytes += count;
            }
            println!("received {}", bytes as f64 * 8.0 / begun.elapsed().as_secs_f64());
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
    let line = Line::new();
    let mut sink = line.role(&line.b, "sink");
    sink.line("listening");
    let mut source = line.role(&line.a, "source");
    source.line("sending");
    let shell = Shell::new("bottleneck", "host=$1; shift; exec ip netns exec $host \"$@\"");
    let hosts = format!("{},{}", line.a, line.b);
    let mut wind = Command::new("ip");
    wind.args(["netns", "exec", &line.a, OIKAZE, "run", "--hosts", &hosts, "--no-prefix", "--", OIKAZE, "perf", "put"]);
    wind.args(["--size", "1M", "--only", "throughput", "--volume", "50M", "--json"]).env("OIKAZE_RSH", shell.command());
    let (status, out, err) = finish(&mut wind);
    drop(source);
    let tcp: f64 = sink.line("received ").parse().unwrap();
    assert_eq!(status, Some(0), "{err}");
    let (_, rest) = out.split_once("\"bandwidth_gbs\":").expect("a figure");
    let wind = rest.split(',').next().and_then(|figure| figure.parse::<f64>().ok()).expect("a number") * 8e9;
    eprintln!("Wind {:.0} Mbit/s, TCP {:.0} Mbit/s of {:.0}", wind / 1e6, tcp / 1e6, RATE / 1e6);
    assert!(wind >= 0.15 * RATE && tcp >= 0.15 * RATE, "Wind {wind}, TCP {tcp} bit/s");
}
