//! The store over real sockets, and its decisions against a simple oracle.

mod connections;
mod ends;

use super::places::Claim;
use super::protocol::{Greeting, NONCE_LEN, Proof, Reply, Request, VERSION, Verdict};
use super::seal::{self, FrameSeal, FrameWriter};
use super::table::Table;
use super::*;
use crate::environment::NodePlace;
use crate::{Bootstrap, JobError, NodeEnd, Secret, Settings};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Long enough for any machine. A test waits for so long only if it fails.
const LONG: Duration = Duration::from_secs(60);

fn secret() -> Secret {
    Secret::from_bytes([5; 32])
}

fn serve(size: u32) -> Server {
    Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), size, secret()).unwrap()
}

fn place(server: &Server, rank: u32, size: u32) -> NodePlace {
    let store = format!("127.0.0.1:{}", server.port());
    NodePlace { store, rank, size, local_rank: 0, local_size: 1, secret: secret(), incarnation: 1 }
}

fn join(server: &Server, rank: u32, size: u32) -> Result<Client, JobError> {
    Client::connect(place(server, rank, size), Settings::default())
}

#[test]
fn nodes_meet() {
    let server = serve(3);
    let nodes: Vec<_> = (0..3).map(|rank| join(&server, rank, 3).unwrap()).collect();
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || {
                let big = vec![node.rank() as u8; crate::VALUE_MAX];
                node.put(&format!("big/{}", node.rank()), &big).unwrap();
                for peer in 0..3u8 {
                    assert_eq!(
                        node.get(&format!("big/{peer}"), LONG).unwrap(),
                        vec![peer; crate::VALUE_MAX]
                    );
                }
                for _ in 0..20 {
                    node.fence("same name", LONG).unwrap();
                }
            });
        }
    });
}

#[test]
fn several_threads_of_a_node_wait_at_once() {
    let server = serve(1);
    let node = join(&server, 0, 1).unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..8)
            .map(|at| {
                scope.spawn({
                    let node = &node;
                    move || node.get(&format!("key {at}"), LONG)
                })
            })
            .collect();
        for at in (0..8u8).rev() {
            node.put(&format!("key {at}"), &[at]).unwrap();
        }
        for (at, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.join().unwrap().unwrap(), [at as u8]);
        }
    });
}

#[test]
fn strangers_are_told_why() {
    let server = serve(2);
    let _first = join(&server, 0, 2).unwrap();
    let refusal = |result: Result<Client, JobError>| {
        result.err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert!(refusal(join(&server, 0, 2)).contains("node 0 has joined already"));
    assert!(refusal(join(&server, 2, 2)).contains("rank 2 is out of range"));
    assert!(refusal(join(&server, 1, 3)).contains("3 nodes, but it has 2"));
    let wrong = NodePlace { secret: Secret::from_bytes([6; 32]), ..place(&server, 1, 2) };
    let said = refusal(Client::connect(wrong, Settings::default()));
    assert!(said.contains("does not know this job's secret"), "{said}");
    assert!(join(&server, 1, 2).is_ok(), "the right one still gets in");
}

#[test]
fn a_place_can_be_taken_again_after_leaving() {
    let server = serve(1);
    for _ in 0..3 {
        let deadline = std::time::Instant::now() + LONG;
        // The store notices a closed connection in its next poll. Until then the place is taken.
        while let Err(why) = join(&server, 0, 1) {
            assert!(std::time::Instant::now() < deadline, "{why}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn nobody_listens() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = serve(1);
    let nowhere = NodePlace {
        store: format!("127.0.0.1:{free},no.such.host.invalid:1"),
        ..place(&server, 0, 1)
    };
    let said = Client::connect(nowhere, Settings::default()).err().unwrap().to_string();
    assert!(said.contains(&format!("127.0.0.1:{free}: ")), "{said}");
    assert!(said.contains("no.such.host.invalid"), "{said}");
    // A store of a name alone has a remedy, too.
    let nameless = NodePlace { store: "no.such.host.invalid:1".into(), ..place(&server, 0, 1) };
    let said = Client::connect(nameless, Settings::default()).err().unwrap().to_string();
    assert!(said.contains("What to do: correct the name in OIKAZE_STORE"), "{said}");
    assert!(said.contains("`getent hosts no.such.host.invalid`"), "{said}");
    // One good address among bad ones is enough.
    let mixed = NodePlace {
        store: format!("127.0.0.1:{free},127.0.0.1:{}", server.port()),
        ..place(&server, 0, 1)
    };
    Client::connect(mixed, Settings::default()).unwrap();
}

#[test]
fn deaths_and_time_limits_are_told() {
    let server = serve(3);
    let nodes: Vec<_> = (0..3).map(|rank| join(&server, rank, 3).unwrap()).collect();
    let said = nodes[0].fence("early", Duration::from_millis(1)).unwrap_err().to_string();
    assert!(said.contains("nodes 1, 2 did not come"), "{said}");
    assert!(matches!(nodes[1].get("nothing", Duration::ZERO), Err(JobError::TimedOut { .. })));
    std::thread::scope(|scope| {
        let fence = scope.spawn(|| nodes[0].fence("late", LONG));
        let get = scope.spawn(|| nodes[1].get("late", LONG));
        server.abort("node 2 was killed by signal 9");
        for said in [fence.join().unwrap().unwrap_err(), get.join().unwrap().unwrap_err()] {
            assert!(
                matches!(&said, JobError::Aborted { why } if why == "node 2 was killed by signal 9"),
                "{said}"
            );
        }
    });
    assert!(matches!(nodes[2].put("x", b""), Err(JobError::Aborted { .. })));
    drop(server);
    assert_eq!(nodes[0].aborted().as_deref(), Some("node 2 was killed by signal 9"));
}

#[test]
fn a_store_that_ends_is_noticed() {
    let server = serve(2);
    let node = join(&server, 0, 2).unwrap();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| node.get("never", LONG));
        drop(server);
        assert!(matches!(wait.join().unwrap(), Err(JobError::StoreLost { .. })));
    });
}

#[test]
fn another_version_is_named_by_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    let newer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let greeting = Greeting { version: VERSION + 1, nonce: [0; NONCE_LEN] };
        stream.write_all(&seal::plain(&greeting.encode())).unwrap();
        let _ = stream.read(&mut [0; 16]);
    });
    let server = serve(1);
    let said = Client::connect(NodePlace { store, ..place(&server, 0, 1) }, Settings::default())
        .err()
        .unwrap()
        .to_string();
    newer.join().unwrap();
    assert!(said.contains(&format!("store speaks version {}", VERSION + 1)), "{said}");

    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut older = Proof {
        version: VERSION,
        rank: 0,
        size: 1,
        incarnation: 1,
        process: [0; 16],
        attempt: 1,
        nonce: [0; NONCE_LEN],
        mac: [0; 32],
    }
    .encode();
    older[8] = 0;
    stream.write_all(&seal::plain(&older)).unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("version 0") {
        let mut chunk = [0; 256];
        let len = stream.read(&mut chunk).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&said));
        said.extend(&chunk[..len]);
    }
}

#[test]
fn an_impostor_is_not_believed() {
    // Accepts every connection, but cannot prove the secret.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(&seal::plain(&Greeting { version: VERSION, nonce: [1; NONCE_LEN] }.encode()))
            .unwrap();
        stream.write_all(&seal::plain(&Verdict::Welcome([0; 32]).encode())).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = serve(1);
    let said = Client::connect(NodePlace { store, ..place(&server, 0, 1) }, Settings::default())
        .err()
        .unwrap();
    impostor.join().unwrap();
    assert!(matches!(said, JobError::NotOurStore { .. }), "{said}");
}

#[test]
fn idle_strangers_keep_nobody_out() {
    let server = serve(1);
    let mut idle: Vec<_> =
        (0..80).map(|_| TcpStream::connect(("127.0.0.1", server.port())).unwrap()).collect();
    for stream in idle.iter_mut().take(64) {
        stream.read_exact(&mut [0; 4]).unwrap();
    }
    assert_eq!(join(&server, 0, 1).map(|node| node.rank()).map_err(|why| why.to_string()), Ok(0));
}

#[test]
fn hostile_bytes_close_only_their_own_connection() {
    let server = serve(1);
    for bytes in [&[0xff; 4096][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &seal::plain(&[7; 40])] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    join(&server, 0, 1).unwrap().put("alive", b"yes").unwrap();
}

fn request() -> impl Strategy<Value = Request> {
    let key = || "[a-c]{0,2}";
    prop_oneof![
        (key(), proptest::collection::vec(any::<u8>(), 0..3))
            .prop_map(|(key, value)| Request::Put(key, value)),
        (key(), 0u64..20).prop_map(|(key, limit)| Request::Get(key, limit)),
        (key(), 0u64..20).prop_map(|(key, limit)| Request::Fence(key, limit)),
        "[a-z ]{0,9}".prop_map(Request::Abort),
        Just(Request::KeepGoing),
        Just(Request::Joined),
        Just(Request::Left),
        (0u32..4, 0u64..20, "[a-z ]{0,9}")
            .prop_map(|(rank, limit, text)| Request::Ask(rank, limit, text)),
    ]
}

proptest! {
    #[test]
    fn requests_both_ways(id in any::<u32>(), request in request()) {
        prop_assert_eq!(Request::decode(&request.encode(id)), Ok((id, request)));
    }

    #[test]
    fn answers_both_ways(id in any::<u32>(), number in any::<u32>(), text in ".{0,20}", success in any::<bool>()) {
        let request = Request::Answer(number, text.clone());
        prop_assert_eq!(Request::decode(&request.encode(id)), Ok((id, request)));
        let end = NodeEnd { rank: number, how: text.clone(), success };
        for reply in [Reply::Question(text), Reply::Gone(end.clone()), Reply::Ended(end)] {
            prop_assert_eq!(Reply::decode(&reply.encode(id)), Ok((id, reply)));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_understood(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Greeting::decode(&bytes), Proof::decode(&bytes), Verdict::decode(&bytes), Reply::decode(&bytes));
        // Reasons are for people, and may be cleaned of bytes that are not text. All else comes
        // back as it was.
        if let Ok((id, request)) = Request::decode(&bytes)
            && !matches!(request, Request::Abort(_) | Request::Ask(..) | Request::Answer(..))
        {
            prop_assert_eq!(request.encode(id), bytes.clone());
        }
        for sealed in [false, true] {
            let mut read = bytes.clone();
            while let Ok(Some(content)) = seal::cut(&mut read, sealed) {
                prop_assert!(content.len() < bytes.len());
            }
        }
    }

    /// LAUNCH-6.5.
    #[test]
    fn a_seal_notices_every_change(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut sender = FrameSeal::new(&secret(), FrameWriter::Node);
        let mut receiver = FrameSeal::new(&secret(), FrameWriter::Node);
        let mut last = Vec::new();
        for body in &bodies {
            let frame = sender.frame(body);
            let content = &frame[4..];
            let mut changed = content.to_vec();
            let at = at.index(changed.len());
            changed[at] ^= 1 << bit;
            prop_assert!(receiver.open(&changed).is_err());
            prop_assert!(FrameSeal::new(&secret(), FrameWriter::Store).open(content).is_err());
            prop_assert!(last.is_empty() || receiver.open(&last).is_err(), "repeated");
            prop_assert!(body.len() < 8 || !content.windows(body.len()).any(|part| part == body), "readable");
            prop_assert_eq!(&receiver.open(content).unwrap(), body);
            last = content.to_vec();
        }
    }

    /// Every request is answered exactly once by the time all limits have passed, as a map would
    /// answer it.
    #[test]
    fn the_table_answers_everything_once(steps in proptest::collection::vec((0u32..3, request(), 0u64..8), 0..60)) {
        let mut table = Table::new(3);
        for rank in 0..3 {
            table.connect(rank, 3, Claim { process: [rank as u8; 16], attempt: 1 }).unwrap();
        }
        let mut values: HashMap<String, Vec<u8>> = HashMap::new();
        let mut asked = HashSet::new();
        let mut now = Duration::ZERO;
        let mut aborted = false;
        let mut gets = HashMap::new();
        for (id, (rank, request, pause)) in steps.into_iter().enumerate() {
            let id = id as u32 + 1;
            asked.insert((rank, id));
            match &request {
                Request::Put(key, value) if !aborted => { values.entry(key.clone()).or_insert_with(|| value.clone()); }
                Request::Get(key, _) => { gets.insert(id, key.clone()); }
                Request::Abort(_) => aborted = true,
                _ => {}
            }
            table.request(now, rank, id, request);
            now += Duration::from_millis(pause);
            table.timeout(now);
            while let Some((rank, id, reply)) = table.poll_reply() {
                // The number in front of a question is not that of a request.
                if id != 0 && !matches!(reply, Reply::Question(_)) {
                    prop_assert!(asked.remove(&(rank, id)), "answered twice");
                }
                if let (Reply::Done(value), Some(key)) = (&reply, gets.get(&id)) {
                    prop_assert_eq!(Some(value), values.get(key));
                }
            }
        }
        table.timeout(now + Duration::from_secs(1));
        while let Some((rank, id, reply)) = table.poll_reply() {
            prop_assert!(id == 0 || matches!(reply, Reply::Question(_)) || asked.remove(&(rank, id)));
        }
        prop_assert!(asked.is_empty() && table.next_timeout().is_none());
    }
}
