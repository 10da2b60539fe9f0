//! The server of a machine (spec/serve.md), with real processes.

mod support;

use oikaze_os::net::{Arrival, Bind, Link, Outgoing, ReceiveEach};
use oikaze_os::serve::ServedLink;
use oikaze_protocol::random::Random;
use oikaze_protocol::wire::Lane;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Variable of a client process: the name of its server.
const CLIENT: &str = "SERVE_CLIENT";
/// Kills of a client in the test; the soak makes more.
const KILLS: usize = 40;
const KILLS_VARIABLE: &str = "OIKAZE_SERVE_KILLS";
/// Kills of a server in the test, and the variable by which the soak makes more.
const SERVER_KILLS: usize = 4;
const SERVER_KILLS_VARIABLE: &str = "OIKAZE_SERVER_KILLS";

/// A server under a name that no other test has.
struct Server {
    name: String,
    running: Running,
}

/// Returns how often a test repeats something.
fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// Returns `true` while a server of this name accepts clients.
fn is_served(name: &str) -> bool {
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    names.lines().any(|line| line.ends_with(&format!("@oikaze-serve-{name}")))
}

impl Server {
    fn start(name: &str, options: &[&str]) -> Server {
        let name = format!("{name}-{}", std::process::id());
        let mut command = oikaze(&[&["serve", &name], options].concat());
        let mut running = Running::start(command.stdin(Stdio::null()));
        running.line("serves nodes as");
        Server { name, running }
    }

    fn connect(&self) -> ServedLink {
        let ask = Bind { addresses: vec![HERE], ..Bind::default() };
        ServedLink::connect(&self.name, &ask).unwrap()
    }

    fn pid(&self) -> u32 {
        self.running.child.id()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    fn resident_pages(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// Sends a datagram from one link to another, and waits until it has come.
fn carry(from: &mut ServedLink, to: &mut ServedLink, number: u64) {
    let at = SocketAddr::new(HERE, to.properties().port);
    let body = number.to_le_bytes();
    assert_eq!(from.send(&[Outgoing::new(&at, Lane::Small, &body)]).unwrap(), 1);
    let mut came = false;
    until("the datagram comes", || {
        to.receive(&mut |arrival: Arrival<'_>| came |= arrival.bytes == body).unwrap();
        came
    });
}

/// Runs a client that sends as fast as it can, until it is killed. Not a test.
#[test]
#[ignore = "a client of the other tests"]
fn client() {
    let Ok(name) = std::env::var(CLIENT) else { return };
    let ask = Bind { addresses: vec![HERE], ..Bind::default() };
    let mut link = ServedLink::connect(&name, &ask).unwrap();
    let at = SocketAddr::new(HERE, link.properties().port);
    println!("\nconnected");
    let body = vec![1; 3000];
    let batch: Vec<Outgoing<'_>> = (0..8).map(|_| Outgoing::new(&at, Lane::Bulk, &body)).collect();
    while link.send(&batch).is_ok() && link.receive(&mut |_| {}).is_ok() {}
}

/// Runs a node that talks with the others until its server has ended. Not a test.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    if std::env::var_os("SERVE_NODE").is_none() {
        return;
    }
    let code = oikaze::run(|job| {
        job.barrier()?;
        if job.rank() == 0 {
            (1..job.size()).try_for_each(|_| job.receive(None).map(drop))?;
            println!("\nall have met");
        } else {
            // The server may end before the acknowledgement comes.
            drop(job.peer(0)?.send(oikaze::message::Class::Ordered, 0, b"met").wait());
        }
        let next = job.peer((job.rank() + 1) % job.size())?;
        let body = vec![1; 3000];
        let failed = loop {
            let sent = next.send(oikaze::message::Class::Ordered, 1, &body);
            if let Err(failed) = job.receive(None).and_then(|_| sent.wait()) {
                break failed;
            }
        };
        println!("\nfailed: {}", failed.to_string().replace('\n', " "));
        Ok(())
    });
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

fn client_of(server: &Server) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "client", "--ignored", "--nocapture"]);
    command.env(CLIENT, &server.name).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// SERVE-5.1: clients that are killed at random points leave nothing, and others go on.
#[test]
fn killed_clients_leave_nothing_and_disturb_nobody() {
    let kills = times(KILLS_VARIABLE, KILLS);
    let server = Server::start("kills", &[]);
    let (mut one, mut two) = (server.connect(), server.connect());
    carry(&mut one, &mut two, 0);
    let before = server.descriptors();
    let mut random = Random::new(33);
    let mut pages = 0;
    for number in 0..kills as u64 {
        let mut client = Running::start(client_of(&server).stdout(Stdio::piped()));
        // Half of the clients die while they connect, the others at work.
        if random.below(2) == 0 {
            client.line("connected");
        }
        let begun = Instant::now();
        let pause = Duration::from_micros(random.below(8000) as u64);
        while begun.elapsed() < pause {
            carry(&mut one, &mut two, number);
        }
        client.signal(9);
        client.finish();
        carry(&mut one, &mut two, number);
        if number == kills as u64 / 4 {
            pages = server.resident_pages();
        }
    }
    // The server opens some sockets more for the most active peers of the two.
    until("the server has closed all", || server.descriptors() <= before + 8);
    // A client that leaks would leave its rings, of 130 pages, and its buffers.
    let more = server.resident_pages().saturating_sub(pages);
    assert!(more < 130 * kills / 8, "{more} pages more");
}

/// SERVE-5.2: each node of a server that is killed fails at once, and names it.
#[test]
fn nodes_of_a_killed_server_fail_and_name_it() {
    let server = Server::start("killed", &[]);
    let engine = format!("OIKAZE_ENGINE=process:{}", server.name);
    let mut command = oikaze(&[
        "run",
        "-n",
        "2",
        "--fault",
        "seed=1",
        "--failure-time",
        "20000",
        "--env",
        &engine,
    ]);
    of_test_nodes(&mut command, "SERVE_NODE");
    let mut job = Running::start(command.stdin(Stdio::null()));
    job.line("[0] all have met");
    let begun = Instant::now();
    server.running.signal(9);
    let (_, out) = job.finish();
    assert!(begun.elapsed() < Duration::from_secs(10), "the failure time is 20 s: {out}");
    for rank in 0..2 {
        let told = out.lines().find(|line| line.starts_with(&format!("[{rank}] failed")));
        let told = told.unwrap_or_else(|| panic!("node {rank} says nothing: {out}"));
        assert!(told.contains(&server.name) && told.contains("has ended"), "{told}");
    }
}

/// SERVE-5.2: nodes end, whenever their server is killed: while they join, and at work. The next
/// server of the name finds nothing of the killed one.
#[test]
fn nodes_end_whenever_their_server_is_killed() {
    let mut random = Random::new(34);
    for number in 0..times(SERVER_KILLS_VARIABLE, SERVER_KILLS) {
        let server = Server::start("anytime", &[]);
        let engine = format!("OIKAZE_ENGINE=process:{}", server.name);
        let mut command = oikaze(&["run", "-n", "2", "--fault", "seed=1", "--env", &engine]);
        // No node may start another server.
        command.args(["--env", "SERVE_NODE=1", "--", "env", "OIKAZE_COMMAND=/does/not/exist"]);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", "node"]);
        command.args(["--ignored", "--nocapture", "--test-threads=1"]);
        let mut job = Running::start(command.stdin(Stdio::null()));
        let works = random.below(2) == 0;
        if works {
            job.line("[0] all have met");
        }
        std::thread::sleep(Duration::from_micros(random.below(50_000) as u64));
        server.running.signal(9);
        let (status, out) = job.finish();
        if works {
            assert!(out.contains("has ended"), "kill {number}: {out}");
        } else {
            assert_ne!(status, 0, "kill {number}: {out}");
        }
        let name = server.name.clone();
        server.running.finish();
        until("nobody has the server's name", || !is_served(&name));
    }
}

/// SERVE-1.1, SERVE-1.2: a second server of the name, a client of another user, a core that does
/// not exist, a name that is none.
#[test]
fn what_the_server_refuses_has_a_reason() {
    let server = Server::start("refuses", &[]);
    let (status, out, err) = finish(&mut oikaze(&["serve", &server.name]));
    assert_eq!((status, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("runs already") && err.contains("another name"), "{err}");
    let (status, _, err) = finish(&mut oikaze(&["serve", "x", "--cores", "100000"]));
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("no core 100000"), "{err}");
    let (status, _, err) = finish(&mut oikaze(&["serve", "no name"]));
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("names no server"), "{err}");
    if !is_root() {
        return skipped("another user is tried by root only");
    }
    let engine = format!("process:{}", server.name);
    let mut hello = Command::new("setpriv");
    hello.args(["--reuid=65534", "--clear-groups", OIKAZE, "hello"]);
    let (status, out, err) = finish(hello.env("OIKAZE_ENGINE", engine).current_dir("/"));
    assert_eq!(status, Some(1), "{out}\n{err}");
    assert!(err.contains("it serves user 0, not user 65534"), "{err}");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// SERVE-5.3: a server is started by the first node that needs it, once, and ends after the last.
#[test]
fn missing_server_is_started_and_ends_after_its_nodes() {
    let name = format!("demand-{}", std::process::id());
    let engine = format!("OIKAZE_ENGINE=process:{name}");
    let script = "exec $OIKAZE_COMMAND hello";
    for _ in 0..3 {
        let (status, out, err) =
            finish(&mut run_script(&["-n", "3", "--fault", "seed=1", "--env", &engine], script));
        assert_eq!(status, Some(0), "{out}\n{err}");
        assert!(out.contains("reaches node"), "{out}");
    }
    until("the server has ended", || !is_served(&name));
    // A command that does not exist cannot start it.
    let mut hello = oikaze(&["hello"]);
    hello.env("OIKAZE_ENGINE", format!("process:{name}")).env("OIKAZE_COMMAND", "/does/not/exist");
    let (status, _, err) = finish(&mut hello);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains(&format!("start a server (oikaze serve {name})")), "{err}");
}

/// SERVE-5.3, SERVE-5.4: a server that a bound node starts runs on all permitted cores, and with
/// all descriptors that it may have.
#[test]
fn server_on_demand_has_the_cores_and_descriptors_of_the_machine() {
    let permitted = oikaze_os::cpu::permitted_cpus().unwrap();
    let name = format!("bound-{}", std::process::id());
    // An end of 20 s: it is to live until it was looked at.
    let script = format!(
        "ulimit -Sn 200 && exec taskset -c {} {OIKAZE} serve {name} --on-demand --idle-time 20000",
        permitted[0]
    );
    let (status, out, err) = finish(Command::new("sh").args(["-c", &script]));
    assert_eq!(status, Some(0), "{out}\n{err}");
    let command = format!("serve\0{name}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let its = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("cmdline")).is_ok_and(|text| text.contains(&command))
    };
    let server = processes.into_iter().find(its).expect("the server lives");
    let read = |file: &str| std::fs::read_to_string(server.join(file)).unwrap();
    let (threads, limits) = (std::fs::read_dir(server.join("task")).unwrap(), read("limits"));
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let cores = format!("Cpus_allowed_list:\t{}\n", oikaze_os::cpu::cpulist(&permitted));
        assert!(status.contains(&cores), "{status}");
    }
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    kill(server.file_name().unwrap().to_str().unwrap().parse().unwrap(), 15);
}

/// SERVE-1.1: the manager of services passes the socket.
#[test]
fn socket_of_a_service_manager_is_used() {
    let name = format!("activated-{}", std::process::id());
    let place = format!("@oikaze-serve-{name}");
    let script = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0" + sys.argv[1][1:])
s.listen(8)
s.fileno() == 3 or os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_FDS"] = "1"
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], [sys.argv[2], "serve", "activated"])
"#;
    let mut python = Command::new("python3");
    python.args(["-c", script, &place, OIKAZE]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut python);
    running.line("serves nodes as");
    let mut hello = oikaze(&["run", "-n", "2", "--fault", "seed=1", "--env"]);
    hello.args([&format!("OIKAZE_ENGINE=process:{name}"), "--", OIKAZE, "hello"]);
    let (status, out, err) = finish(&mut hello);
    assert_eq!(status, Some(0), "{out}\n{err}");
    running.signal(9);
    running.finish();
}
