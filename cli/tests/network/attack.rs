//! Attacks on jobs of real processes (SEAL-3, SEAL-5, WIND-10). The nodes are in network namespaces
//! and transfer data that they check. The attacker is on the bridge between them: it sees all
//! datagrams, sends any, and can hold them up. Each attack fails and is counted, and the job goes
//! on. Needs root; skipped otherwise. `cargo xtask bench attack` measures what an attack costs.

use crate::attacker::{Attacker, Datagram};
use crate::support::*;
use oikaze::Job;
use oikaze::collective::operator::Max;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_protocol::limits::{DATAGRAM_MIN, HEADER_LEN};
use oikaze_protocol::random::Random;
use oikaze_protocol::wire::{AckFields, Builder, CloseReason, SealKind};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::{ChildStdin, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Environment variable that marks a process as a node of such a job.
const MARK: &str = "ATTACK_TEST_NODE";
/// Text in all that the nodes transfer.
const TEXT: &[u8] = b"nobody else reads this text, nor the next";
/// Bytes of a put.
const LEN: usize = 64 << 10;
/// Elements of the array.
const ELEMENTS: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(50);
/// Datagrams that an attack sends in a second at most.
const RATE: u32 = 20_000;

/// Runs a node of a job that a test below started: transfers until rank 0 reads `end`.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(MARK).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    if std::env::var("OIKAZE_RANK").unwrap() == "0" {
        println!("\npresent");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let job = oikaze::join().unwrap();
    let shown = Mutex::new(json!({ "rounds": 0, "nodes": [] }));
    let over = AtomicBool::new(job.rank() != 0);
    let rounds = std::thread::scope(|scope| {
        if job.rank() == 0 {
            scope.spawn(|| answer_questions(&shown, &over));
        }
        transfers(&job, &shown, &over)
    });
    println!("\nright {rounds}");
    job.leave().unwrap();
}

/// Answers `look` by the latest statistics of both nodes, until `end`.
fn answer_questions(shown: &Mutex<Value>, over: &AtomicBool) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == "end" {
            break;
        }
        println!("\nlook {}", shown.lock().unwrap());
    }
    over.store(true, Ordering::SeqCst);
}

/// Puts, gets, sends, and writes shared memory in rounds, and checks all of it.
fn transfers(job: &Job, shown: &Mutex<Value>, over: &AtomicBool) -> u64 {
    let (me, other) = (job.rank(), 1 - job.rank());
    let _inbox = job.publish("inbox", Region::zeroed(LEN).unwrap(), Rights::ALL).unwrap();
    let array = job.array::<u64>("array", ELEMENTS).unwrap();
    let local = || job.register(Region::zeroed(LEN).unwrap()).unwrap();
    let (out, back) = (local(), local());
    let peer = job.peer(other).unwrap();
    let there = peer.region("inbox").unwrap();
    let half = |rank: u32| {
        let begin = rank as usize * ELEMENTS / 2;
        begin..begin + ELEMENTS / 2
    };
    for round in 1u64.. {
        let mut sent: Vec<u8> = TEXT.iter().copied().cycle().take(LEN).collect();
        sent[..8].copy_from_slice(&round.to_le_bytes());
        out.write(0, &sent).unwrap();
        there.put(0, out.all()).wait_for(PATIENCE).unwrap();
        there.get(0, back.all()).wait_for(PATIENCE).unwrap();
        let mut seen = vec![0; LEN];
        back.read(0, &mut seen).unwrap();
        assert!(sent == seen, "round {round} came back as something else");

        let mut statistics = serde_json::to_value(job.statistics()).unwrap();
        statistics["pid"] = std::process::id().into();
        let statistics = serde_json::to_vec(&statistics).unwrap();
        let body = [TEXT, &statistics].concat();
        let message = peer.send(Class::Ordered, round, &body);
        let arrived = job.receive_for(Some(other), PATIENCE).unwrap();
        assert_eq!((arrived.tag(), &arrived.bytes()[..TEXT.len()]), (round, TEXT));
        let theirs: Value = serde_json::from_slice(&arrived.bytes()[TEXT.len()..]).unwrap();
        message.wait_for(PATIENCE).unwrap();
        if me == 0 {
            let nodes = [serde_json::from_slice(&statistics).unwrap(), theirs];
            *shown.lock().unwrap() = json!({ "rounds": round, "nodes": nodes });
        }

        let mut mine = array.write(half(me)).unwrap();
        mine.fill(round);
        mine.release().unwrap();
        job.barrier().unwrap();
        let theirs = array.read(half(other)).unwrap();
        assert!(theirs.iter().all(|element| *element == round), "round {round} of the array");
        theirs.release().unwrap();
        let ends = me == 0 && over.load(Ordering::SeqCst);
        if job.barrier_reduce(u64::from(ends), Max).unwrap() > 0 {
            assert!(job.try_receive(None).is_none(), "a message that nobody sent");
            return round;
        }
    }
    unreachable!("a job has fewer than 2⁶⁴ rounds")
}

/// Counters of both nodes at one moment.
struct Look(Value);

impl Look {
    fn rounds(&self) -> u64 {
        self.0["rounds"].as_u64().unwrap()
    }

    /// Returns the number of bytes of memory that both nodes use.
    fn memory(&self) -> u64 {
        let of = |node: &Value| {
            let pages = std::fs::read_to_string(format!("/proc/{}/statm", node["pid"])).unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        self.0["nodes"].as_array().unwrap().iter().map(of).sum()
    }

    /// Returns the sum of a counter over both nodes.
    fn count(&self, name: &str) -> u64 {
        let of = |node: &Value| node[name].as_u64().unwrap_or_else(|| panic!("no {name}: {node}"));
        self.0["nodes"].as_array().unwrap().iter().map(of).sum()
    }
}

/// A running job of two nodes, and the attacker on the bridge between them.
struct Scene {
    job: Running,
    orders: ChildStdin,
    attacker: Attacker,
    bridge: String,
}

impl Scene {
    /// Starts the job. The attacker listens before the nodes begin to.
    fn start(options: &[&str]) -> Scene {
        let mut command =
            oikaze(&["run", "-n", "2", "--netns", "--failure-time", "5000", "--timeout", "100"]);
        // Without segmentation offload each datagram is a packet of its own on the bridge.
        command.args(["--env", "OIKAZE_WITHOUT=gso"]).args(options);
        of_test_nodes(&mut command, module_path!(), MARK);
        let mut job = Running::start(&mut command);
        job.line("[0] present");
        let orders = job.child.stdin.take().unwrap();
        let bridge = format!("oik-{}-bridge", job.child.id());
        let attacker = Attacker::in_namespace(&bridge);
        Scene { job, orders, attacker, bridge }
    }

    /// Starts the job, and lets the nodes join it.
    fn running(options: &[&str]) -> Scene {
        let mut scene = Scene::start(options);
        scene.order("join");
        scene
    }

    fn order(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    /// Returns the counters as of the latest round, once there is one.
    fn look(&mut self) -> Look {
        let begun = Instant::now();
        loop {
            self.order("look");
            let look = Look(serde_json::from_str(&self.job.line("[0] look ")).unwrap());
            if look.rounds() > 0 {
                return look;
            }
            assert!(begun.elapsed() < DEADLINE, "no transfers");
        }
    }

    /// Attacks until these counters have grown by as much together.
    fn attack(&mut self, counters: &[&str], count: u64, mut attack: impl FnMut(&mut Attacker)) {
        let sum = |look: &Look| counters.iter().map(|name| look.count(name)).sum::<u64>();
        let (begun, before) = (Instant::now(), self.look());
        loop {
            attack(&mut self.attacker);
            let now = self.look();
            if sum(&now) - sum(&before) >= count {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "{counters:?} do not count: {}", now.0);
        }
    }

    /// Lets the job go on for some rounds, and ends it. All that its nodes checked was right.
    fn end(mut self) {
        let rounds = self.look().rounds() + 3;
        let begun = Instant::now();
        while self.look().rounds() < rounds {
            assert!(begun.elapsed() < DEADLINE, "the job does not go on");
        }
        self.order("end");
        let (status, out) = self.job.finish();
        assert_eq!(status, 0, "{out}");
        let right =
            |rank: u32| out.lines().any(|line| line.starts_with(&format!("[{rank}] right ")));
        assert!(right(0) && right(1), "{out}");
    }
}

fn has_text(datagram: &Datagram) -> bool {
    datagram.bytes.windows(TEXT.len()).any(|window| window == TEXT)
}

/// Captures datagrams with this wish of the connection from node 1 to node 0.
fn to_node_0(
    attacker: &mut Attacker,
    count: usize,
    wanted: impl Fn(&Datagram) -> bool,
) -> Vec<Datagram> {
    attacker
        .capture(count, DEADLINE, |datagram| datagram.to.ip().octets()[3] == 1 && wanted(datagram))
}

fn is_data(datagram: &Datagram) -> bool {
    !datagram.is_handshake()
}

/// SEAL-1.1, SEAL-3.1: whoever sees all datagrams of a job finds none of its data. The same search
/// finds them where only changes are prevented.
#[test]
fn traffic_is_read_by_others_only_without_encryption() {
    let Some(_turn) = namespaces() else { return };
    for (seal, shows) in [("full", false), ("integrity", true)] {
        let mut scene = Scene::running(&["--seal", seal]);
        let is_long = |datagram: &Datagram| datagram.bytes.len() > 1000 && is_data(datagram);
        let long = scene.attacker.capture(200, DEADLINE, is_long);
        let rest = scene.attacker.capture(200, DEADLINE, |_| true);
        let found = long.iter().chain(&rest).filter(|datagram| has_text(datagram)).count();
        assert_eq!(found > 0, shows, "{found} datagrams with the text, sealed {seal}");
        scene.end();
    }
}

/// Returns datagrams like this one that somebody can make who lacks the keys.
fn forgeries(genuine: &Datagram) -> Vec<Datagram> {
    let bytes = &genuine.bytes;
    let mut forged = Vec::new();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        forged.push(changed);
    }
    forged.extend((1..bytes.len()).map(|len| bytes[..len].to_vec()));
    forged.push([&bytes[..], &[0]].concat());
    let mut random = Random::new(7);
    for len in [1, 16, HEADER_LEN, 100, 1400] {
        forged.push((0..len).map(|_| random.below(256) as u8).collect());
    }
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let (connection, number) = (word(0), word(8));
    for kind in [SealKind::Encrypted, SealKind::Authenticated, SealKind::EndToEnd] {
        let mut forge = |number: u64, write: &dyn Fn(&mut Builder<'_>)| {
            let mut text = Vec::new();
            let mut builder = Builder::new(&mut text, connection, number, kind, DATAGRAM_MIN);
            write(&mut builder);
            builder.finish(None);
            text.extend((0..kind.tag_len()).map(|_| random.below(256) as u8));
            forged.push(text);
        };
        for ahead in 1..50 {
            forge(number + ahead, &|builder| builder.close(CloseReason::Goodbye));
            forge(number + ahead, &|builder| {
                builder.acknowledge([1..=number].into_iter(), AckFields::default(), &[]);
            });
            // A probe of the size that the path carries.
            forge(number + ahead, &|builder| {
                builder.ping();
                builder.pad();
            });
        }
    }
    forged.into_iter().map(|bytes| genuine.with(bytes)).collect()
}

/// SEAL-3.4, WIND-7.3, WIND-8.2: datagrams with the peer's address and the right connection id, of
/// which each bit or the length was changed, and goodbyes, acknowledgements and probes that
/// somebody else wrote.
#[test]
fn forged_datagrams_are_counted_and_have_no_effect() {
    let Some(_turn) = namespaces() else { return };
    for seal in ["full", "integrity"] {
        let mut scene = Scene::running(&["--seal", seal]);
        let small = to_node_0(&mut scene.attacker, 1, |datagram| {
            is_data(datagram) && !datagram.is_bulk() && datagram.bytes.len() < 200
        });
        let forged = forgeries(&small[0]);
        assert!(forged.len() > 1000, "{} forgeries", forged.len());
        let counters = ["corrupt", "unknown_connection", "stale_handshakes"];
        scene.attack(&counters, forged.len() as u64, |attacker| {
            attacker.send_at(RATE, forged.iter().cloned());
        });
        scene.end();
    }
}

/// SEAL-5.1, SEAL-3.3, SEAL-2.5: what was seen is sent again, as it was, in the other lane, under
/// the id of another connection, and in the next job of the same secret file.
#[test]
fn replayed_datagrams_are_counted_and_have_no_effect() {
    let Some(_turn) = namespaces() else { return };
    let secret = SecretFile::new("replay");
    let options = ["--secret-file", secret.0.to_str().unwrap()];
    let mut scene = Scene::start(&options);
    scene.order("join");
    let hellos = to_node_0(&mut scene.attacker, 1, Datagram::is_handshake);
    let data = to_node_0(&mut scene.attacker, 200, is_data);
    let back = scene
        .attacker
        .capture(1, DEADLINE, |datagram| datagram.to.ip().octets()[3] == 2 && is_data(datagram));
    let count = data.len() as u64;
    scene.attack(&["duplicates"], count, |attacker| attacker.send_at(RATE, data.iter().cloned()));
    scene.attack(&["corrupt"], count, |attacker| {
        let other_lane = |datagram: &Datagram| {
            let mut bytes = datagram.bytes.clone();
            bytes[16] ^= 4;
            datagram.with(bytes)
        };
        attacker.send_at(RATE, data.iter().map(other_lane));
    });
    // To their sender, under the id by which it is called.
    scene.attack(&["corrupt"], count, |attacker| {
        let returned = |datagram: &Datagram| Datagram {
            from: back[0].from,
            to: back[0].to,
            bytes: [&back[0].bytes[..8], &datagram.bytes[8..]].concat(),
        };
        attacker.send_at(RATE, data.iter().map(returned));
    });
    scene.attack(&["stale_handshakes"], 10, |attacker| {
        attacker.send_at(RATE, hellos.iter().cycle().take(20).cloned());
    });
    scene.end();

    let mut next = Scene::running(&options);
    let now = to_node_0(&mut next.attacker, 1, is_data).remove(0);
    let readdressed = |old: &Datagram| Datagram { from: now.from, to: now.to, ..old.clone() };
    next.attack(&["unknown_connection"], count, |attacker| {
        attacker.send_at(RATE, data.iter().map(readdressed));
    });
    next.attack(&["corrupt"], count, |attacker| {
        let under_its_id = |old: &Datagram| {
            let bytes = [&now.bytes[..8], &old.bytes[8..]].concat();
            readdressed(&old.with(bytes))
        };
        attacker.send_at(RATE, data.iter().map(under_its_id));
    });
    next.attack(&["stale_handshakes", "bad_mac", "rate_limited"], 10, |attacker| {
        attacker.send_at(RATE, hellos.iter().cycle().take(20).map(readdressed));
    });
    next.end();
}

/// WIND-1.9, WIND-10.3: handshakes that were seen are sent again and changed, from the peer's
/// address and from thousands of others. Nodes send at most three bytes for each byte from an
/// address that is not proven, and nothing to those who lack the secret.
#[test]
fn injected_handshakes_are_counted_and_not_answered() {
    let Some(_turn) = namespaces() else { return };
    let mut scene = Scene::running(&[]);
    let hellos = to_node_0(&mut scene.attacker, 2, Datagram::is_handshake);
    let last = hellos[1].clone();
    let own: SocketAddrV4 = "10.77.255.254:4000".parse().unwrap();
    let mut random = Random::new(3);
    // Incarnation, connection, step and tag, in the order of WIRE-4.8 behind header and prefix.
    let mut forge = |from: SocketAddrV4| {
        let mut bytes = last.bytes.clone();
        bytes[8..16].copy_from_slice(&(1 << 40 | random.next_u64() >> 30).to_le_bytes());
        let at = HEADER_LEN + 4 + 20 + random.below(16);
        bytes[at] = bytes[at].wrapping_add(1 + random.below(255) as u8);
        Datagram { from, to: last.to, bytes }
    };
    let mut forged: Vec<Datagram> = (0..2000).map(|_| forge(last.from)).collect();
    forged.extend((0..2000).map(|_| forge(own)));
    forged.extend((0..4000u16).map(|at| {
        let ip = [10, 77, 9, 1 + (at % 250) as u8];
        forge(SocketAddrV4::new(ip.into(), 1024 + at))
    }));
    let again =
        hellos.iter().flat_map(|hello| [hello.clone(), Datagram { from: own, ..hello.clone() }]);
    forged.extend(again.cycle().take(1000));
    let to_own = |seen: Vec<Datagram>| -> usize {
        seen.iter().filter(|datagram| datagram.to == own).map(|datagram| datagram.bytes.len()).sum()
    };
    let from_own: usize =
        forged.iter().filter(|sent| sent.from == own).map(|sent| sent.bytes.len()).sum();
    let (mut bytes_in, mut bytes_out) = (0, 0);
    let counters = ["stale_handshakes", "bad_mac", "rate_limited", "unknown_connection"];
    let before = scene.look();
    scene.attack(&counters, forged.len() as u64, |attacker| {
        bytes_out += to_own(attacker.drain());
        attacker.send_at(RATE, forged.iter().cloned());
        bytes_in += from_own;
    });
    bytes_out += to_own(scene.attacker.drain());
    let after = scene.look();
    assert!(bytes_out <= 3 * bytes_in, "{bytes_out} bytes for {bytes_in}");
    for counter in ["stale_handshakes", "bad_mac", "rate_limited"] {
        assert!(after.count(counter) > before.count(counter), "{counter}: {}", after.0);
    }
    let grown = after.memory().saturating_sub(before.memory());
    assert!(grown < 32 << 20, "{grown} bytes more of memory");
    scene.end();
}

/// WIND-1.9, SEAL-2.3: an attacker on the path takes all handshakes out of the traffic, and sends
/// them on from its own address, several times. The attacker gets no connection and few bytes, and
/// the nodes meet when handshakes pass again.
#[test]
fn handshakes_sent_on_from_another_address_gain_nothing() {
    let Some(_turn) = namespaces() else { return };
    let mut scene = Scene::start(&[]);
    if !hold_up(&scene.bridge, 100) {
        return skip("it needs nft (package nftables) and its numgen in the kernel");
    }
    scene.order("join");
    let own =
        |to: &SocketAddrV4| SocketAddrV4::new([10, 77, 255, 254].into(), 4000 + to.port() % 99);
    let is_own = |address: &SocketAddrV4| address.ip().octets()[2] == 255;
    let held =
        scene.attacker.capture(20, DEADLINE, |seen| seen.is_handshake() && !is_own(&seen.to));
    let sent_on: Vec<&Datagram> = held.iter().flat_map(|held| [held; 10]).collect();
    for datagram in &sent_on {
        scene.attacker.send(&Datagram { from: own(&datagram.to), ..(*datagram).clone() });
    }
    // The nodes go on to call each other, which shows that time passes.
    let (begun, mut calls, mut bytes_out) = (Instant::now(), 0, 0);
    while calls < 20 {
        assert!(begun.elapsed() < DEADLINE, "the nodes no longer call each other");
        let Some(seen) = scene.attacker.next() else { continue };
        calls += usize::from(!is_own(&seen.to));
        bytes_out += if is_own(&seen.to) { seen.bytes.len() } else { 0 };
    }
    let bytes_in: usize = sent_on.iter().map(|datagram| datagram.bytes.len()).sum();
    assert!(bytes_out > 0, "the handshakes were new, and nobody has answered");
    assert!(bytes_out <= 3 * bytes_in, "{bytes_out} bytes for {bytes_in}");
    let mut nft = Command::new("ip");
    let flushed = nft.args(["netns", "exec", &scene.bridge, "nft", "flush", "ruleset"]).status();
    assert!(flushed.unwrap().success());
    scene.end();
}

/// Returns the process of this rank that a launcher has started, once it runs this test's program.
fn node_of(launcher: u32, rank: u32) -> u32 {
    let mut found = None;
    until("the node runs", || {
        let processes = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        found = processes.into_iter().find(|pid| {
            let read =
                |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let stat = text(&read("stat"));
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            let variable = format!("OIKAZE_RANK={rank}");
            parent == Some(&launcher.to_string())
                && read("environ").split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
        });
        found.is_some()
    });
    found.unwrap()
}

/// Returns the names of the Unix sockets at which a process listens, abstract ones with `@`.
fn local_sockets(pid: u32) -> Vec<String> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<String> = links
        .filter_map(|entry| {
            std::fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned)
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
    let listening = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path, where flag 0x10000 means listening.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, "00010000", _, _, inode, path] = words.as_slice() else { return None };
        open.contains(&format!("socket:[{inode}]")).then(|| (*path).to_owned())
    };
    table.lines().filter_map(listening).collect()
}

/// Connects to a Unix socket as this thread's user, sends some bytes, and returns what comes back,
/// or `None` if there is no connection.
fn call(name: &str) -> Option<Vec<u8>> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        recv, send, socket_with,
    };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(),
        None => SocketAddrUnix::new(name).unwrap(),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket, &address).ok()?;
    let _ = send(&socket, &[7; 100], SendFlags::NOSIGNAL);
    let mut back = vec![0; 1000];
    let len = recv(&socket, back.as_mut_slice(), RecvFlags::empty()).map_or(0, |(len, _)| len);
    back.truncate(len);
    Some(back)
}

/// Runs `attempt` as the user and group `nobody`.
fn as_nobody<T: Send>(attempt: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    const NOBODY: u32 = 65534;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // These change this thread only.
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_gid(Gid::from_raw(NOBODY)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
            attempt()
        });
        thread.join().unwrap()
    })
}

/// SEAL-1.3, LAUNCH-6.3: another user of the machine gets neither the memory of a node nor its
/// secret, and no place in the job by a node's local sockets.
#[test]
fn other_users_of_the_machine_gain_nothing() {
    if !rustix::process::getuid().is_root() {
        return skip("it needs root, to become another user");
    }
    let mut command = oikaze(&["run", "-n", "2", "--failure-time", "5000", "--timeout", "100"]);
    of_test_nodes(&mut command, module_path!(), MARK);
    let mut job = Running::start(&mut command);
    job.line("[0] present");
    let mut orders = job.child.stdin.take().unwrap();
    let launcher = job.child.id();
    let [first, waits] = [0, 1].map(|rank| node_of(launcher, rank));
    // Node 1 waits for node 0, and can be called.
    let mut sockets = Vec::new();
    until("node 1 listens", || {
        sockets = local_sockets(waits);
        !sockets.is_empty()
    });
    let callers: Vec<_> = sockets
        .iter()
        .map(|name| {
            let name = name.clone();
            std::thread::spawn(move || as_nobody(|| call(&name)))
        })
        .collect();
    as_nobody(|| {
        for pid in [launcher, first, waits] {
            for file in ["mem", "environ", "maps"] {
                let path = format!("/proc/{pid}/{file}");
                let mut byte = [0];
                let read = std::fs::File::open(&path)
                    .and_then(|mut file| std::io::Read::read(&mut file, &mut byte));
                assert!(read.is_err(), "{path} can be read");
            }
            assert!(std::fs::read_dir(format!("/proc/{pid}/fd")).is_err());
            for descriptor in 0..64 {
                let path = format!("/proc/{pid}/fd/{descriptor}");
                assert!(std::fs::File::open(&path).is_err(), "{path} can be opened");
            }
        }
    });
    orders.write_all(b"join\nlook\n").unwrap();
    for caller in callers {
        // Node 1 closes the connection when it sees whose it is.
        let answer = caller.join().unwrap();
        assert!(answer.as_ref().is_none_or(Vec::is_empty), "an answer: {answer:?}");
    }
    orders.write_all(b"end\n").unwrap();
    let (status, out) = job.finish();
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("[0] right ") && out.contains("[1] right "), "{out}");
}

/// File with a secret. Dropping the value removes it.
struct SecretFile(PathBuf);

impl SecretFile {
    fn new(test: &str) -> SecretFile {
        use std::os::unix::fs::OpenOptionsExt;
        let name = format!("oikaze-attack-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file =
            std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all("7a".repeat(32).as_bytes()).unwrap();
        SecretFile(path)
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes the bridge drop `percent` % of the UDP packets that come from each node, after the
/// attacker has seen them. Returns `false` if nft is missing or refuses the rule.
fn hold_up(bridge: &str, percent: u32) -> bool {
    // nft refuses a condition that is always true.
    let some =
        if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
    let chain = |device: &str| {
        format!(
            "chain {device} {{ type filter hook ingress device {device} priority 0; \
             meta l4proto udp {some} drop; }};"
        )
    };
    let rules = format!("table netdev attack {{ {} {} }}", chain("n0"), chain("n1"));
    set_nft_rules(bridge, &rules)
}

/// SEAL-5, WIND-3.2: an attacker on the path takes datagrams out of the traffic, and lets all of it
/// go on later, in another order and with what was not taken out a second time.
#[test]
fn datagrams_held_up_and_reordered_have_no_effect() {
    let Some(_turn) = namespaces() else { return };
    let mut scene = Scene::start(&[]);
    if !hold_up(&scene.bridge, 20) {
        return skip("it needs nft (package nftables) and its numgen in the kernel");
    }
    scene.order("join");
    let mut old: Vec<Datagram> = Vec::new();
    // The nodes cannot answer before the attacker lets handshakes through.
    let mut held = Vec::new();
    for _ in 0..200 {
        held.extend(scene.attacker.next());
        if held.len() >= 16 {
            old.extend(held.iter().take(1).cloned());
            held.drain(..).rev().for_each(|datagram| scene.attacker.send(&datagram));
        }
    }
    scene.attack(&["duplicates"], 1000, |attacker| {
        for _ in 0..500 {
            held.extend(attacker.next());
            if held.len() >= 32 {
                old.extend(held.iter().take(1).cloned());
                held.drain(..).rev().for_each(|datagram| attacker.send(&datagram));
            }
        }
    });
    // The oldest datagrams come last.
    old.iter().for_each(|datagram| scene.attacker.send(datagram));
    scene.end();
}
