//! Strangers flood the nodes of a job with garbage over loopback (WIND-10). The nodes drop the
//! garbage and keep no state for it, and the job goes on.
//!
//! This test also measures the goodput that is left: `cargo test --release -p oikaze --test flood
//! -- --nocapture` prints it for some rates. It is not asserted, because on a machine with few
//! cores the strangers take processor time from the nodes as well.

mod support;

use oikaze::Job;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_launch::Settings;
use oikaze_os::counting::Counting;
use oikaze_protocol::limits::{DATAGRAM_MIN, HANDSHAKE_BURST, HANDSHAKE_TOKEN_INTERVAL};
use oikaze_protocol::seal::KeyStep;
use oikaze_protocol::wind::Introduction;
use oikaze_protocol::wire::{Builder, Hello, SealKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: Counting = Counting::new();

const LEN: usize = 1 << 20;

/// Returns one datagram of each kind that a stranger can make.
fn garbage() -> Vec<Vec<u8>> {
    let noise = |len: usize| (0..len).map(|at| (at * 131 + len) as u8).collect::<Vec<u8>>();
    let mut kinds = vec![noise(1), noise(23), noise(700), noise(8000)];
    // A valid header of an unknown connection. Its lengths fit, and its tag does not.
    let mut wrong = Vec::new();
    let mut builder =
        Builder::new(&mut wrong, 0x0123_4567_89ab_cdef, 1, SealKind::EndToEnd, DATAGRAM_MIN);
    builder.ping();
    builder.finish(None);
    wrong.extend_from_slice(&[0; 4]);
    kinds.push(wrong);
    // A valid handshake without the secret: as node 0, as node 1, and as a rank that does not
    // exist.
    for rank in [0, 1, 77] {
        let mine = Introduction::here(rank, 2, 1, 99);
        let mut hello = Vec::new();
        let mut builder = Builder::new(&mut hello, 0, 1, SealKind::Handshake, DATAGRAM_MIN);
        builder.hello(&Hello {
            mine,
            to: Some(1 - rank.min(1)),
            path: 0,
            yours: None,
            answer_wanted: true,
            key: KeyStep::Nothing,
            cookie: None,
        });
        builder.finish(None);
        hello.extend_from_slice(&[0x55; 16]);
        kinds.push(hello);
    }
    kinds
}

/// Orders to the strangers, and the number of datagrams that they have sent.
#[derive(Default)]
struct Flood {
    targets: Mutex<Vec<SocketAddr>>,
    /// Datagrams per second; 0 for none.
    rate: AtomicU64,
    sent: AtomicU64,
    over: AtomicBool,
}

impl Flood {
    fn run(&self) {
        // Nodes may meet by IPv6 where the machine has an address of that kind.
        let four = UdpSocket::bind("0.0.0.0:0").unwrap();
        let six = UdpSocket::bind("[::]:0").ok();
        let send = |kind: &[u8], target: &SocketAddr| {
            let socket = if target.is_ipv4() { Some(&four) } else { six.as_ref() };
            socket.is_some_and(|socket| socket.send_to(kind, target).is_ok())
        };
        let kinds = garbage();
        let mut at = 0;
        let mut begun = (Instant::now(), 0, 0);
        while !self.over.load(Ordering::SeqCst) {
            let rate = self.rate.load(Ordering::SeqCst);
            if rate != begun.1 {
                begun = (Instant::now(), rate, 0);
            }
            if begun.2 >= u64::try_from(begun.0.elapsed().as_micros()).unwrap() * rate / 1_000_000 {
                // The strangers should take the nodes' time by their datagrams, and not by waiting.
                std::thread::sleep(Duration::from_micros(500));
                continue;
            }
            begun.2 += 1;
            for target in self.targets.lock().unwrap().iter() {
                // A datagram that the system refuses does not count.
                self.sent
                    .fetch_add(u64::from(send(&kinds[at % kinds.len()], target)), Ordering::SeqCst);
            }
            at += 1;
        }
    }

    /// Waits until `more` further datagrams have been sent.
    fn wait_for(&self, more: u64) {
        let enough = self.sent.load(Ordering::SeqCst) + more;
        while self.sent.load(Ordering::SeqCst) < enough {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes node 0 put a mebibyte into node 1 `count` times, with messages in between. Returns bytes
/// per second.
fn transfers(job: &Job, turn: u8, count: usize) -> f64 {
    let peer = job.peer(1).unwrap();
    let there = peer.region("inbox").unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|at| (at as u8).wrapping_add(turn)).collect();
    let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
    source.write(0, &bytes).unwrap();
    let begun = Instant::now();
    for round in 0..count {
        there.put(0, source.all()).wait().unwrap();
        peer.send(Class::Ordered, round as u64, &[turn; 100]).wait().unwrap();
    }
    (LEN * count) as f64 / begun.elapsed().as_secs_f64()
}

#[test]
fn a_job_goes_on_while_strangers_flood_its_nodes() {
    let flood = Flood::default();
    let met = Barrier::new(2);
    let rates: &[u64] =
        if cfg!(debug_assertions) { &[0, 5_000] } else { &[0, 5_000, 20_000, 50_000, 0] };
    let count = if cfg!(debug_assertions) { 20 } else { 1_000 };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let _over = support::Until(&flood.over);
        scope.spawn(|| flood.run());
        support::cluster(2, &Settings::default(), |job| {
            let inbox = job.publish("inbox", Region::zeroed(LEN).unwrap(), Rights::WRITE).unwrap();
            job.barrier().unwrap();
            let other = job.peer(1 - job.rank()).unwrap();
            flood.targets.lock().unwrap().push(other.address().unwrap());
            met.wait();
            for (turn, &rate) in (1..).zip(rates) {
                let heap = HEAP.live();
                if job.rank() == 0 {
                    flood.rate.store(rate, Ordering::SeqCst);
                    let goodput = transfers(&job, turn, count);
                    flood.wait_for(if rate > 0 { 500 } else { 0 });
                    println!(
                        "{rate} datagrams a second of garbage to each node: {:.2} GB/s",
                        goodput / 1e9
                    );
                } else {
                    for round in 0..count {
                        let message = job.receive_for(Some(0), Duration::from_secs(60)).unwrap();
                        assert_eq!(message.tag(), round as u64);
                        assert_eq!(message.bytes(), &[turn; 100][..]);
                    }
                    let mut bytes = vec![0; LEN];
                    inbox.read(0, &mut bytes).unwrap();
                    assert!(
                        bytes
                            .iter()
                            .enumerate()
                            .all(|(at, byte)| *byte == (at as u8).wrapping_add(turn))
                    );
                }
                job.barrier().unwrap();
                let grown = HEAP.live().saturating_sub(heap);
                assert!(grown < 8 << 20, "{grown} bytes more on the heap");
            }
            // A busy machine may not have read its socket yet.
            flood.rate.store(5_000, Ordering::SeqCst);
            let mut seen = job.statistics();
            while seen.unknown_connection <= 100 && begun.elapsed() < Duration::from_secs(120) {
                let nothing = job.receive_for(Some(other.rank()), Duration::from_millis(1));
                assert!(nothing.is_err());
                seen = job.statistics();
            }
            job.barrier().unwrap();
            flood.rate.store(0, Ordering::SeqCst);
            // Bound for both kinds of WIND-10.3 together.
            let most = 2
                * (u128::from(HANDSHAKE_BURST)
                    + begun.elapsed().as_nanos() / HANDSHAKE_TOKEN_INTERVAL.as_nanos()
                    + 1);
            assert!(seen.unknown_connection > 100 && u128::from(seen.bad_mac) <= most, "{seen:?}");
            assert_eq!(seen.corrupt, 0);
            job.leave().unwrap();
        });
    });
}
