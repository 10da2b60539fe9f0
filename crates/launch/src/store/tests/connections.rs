//! Connections to the store that fail, are lost, or are of strangers.

use super::*;
use std::net::Shutdown;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Path to a store that breaks once.
pub(super) struct Relay {
    /// Address of the relay.
    pub store: String,
    /// The first message cuts the connection, the second one lets another one through.
    pub step: Sender<()>,
    /// Ends once the second connection is through.
    pub relay: JoinHandle<()>,
}

/// Starts a relay to a store.
pub(super) fn relay(port: u16) -> Relay {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = proxy.local_addr().unwrap().to_string();
    let (step, steps) = channel();
    let pass = move || {
        for round in 0..2 {
            let (near, _) = proxy.accept().unwrap();
            let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let copies = [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ];
            for (mut from, mut to) in copies {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            if round == 0 {
                steps.recv().unwrap();
                near.shutdown(Shutdown::Both).unwrap();
                far.shutdown(Shutdown::Both).unwrap();
                steps.recv().unwrap();
            }
        }
    };
    Relay { store, step, relay: std::thread::spawn(pass) }
}

/// WIND-11.5.
#[test]
fn silent_and_trickling_strangers_delay_nobody() {
    let server = serve(1);
    let mut strangers = Vec::new();
    for at in 0..1000 {
        // The test's own limit of descriptors may be lower.
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", server.port())) else { break };
        if at % 2 == 0 {
            let _ = stream.write_all(&[1]);
        }
        strangers.push(stream);
    }
    assert!(strangers.len() > 400, "{}", strangers.len());
    let begun = std::time::Instant::now();
    join(&server, 0, 1).unwrap().put("in", b"").unwrap();
    assert!(begun.elapsed() < LONG);
    drop(strangers);
}

/// WIND-11.1: the first connections are closed without a word, as if the path had lost them.
#[test]
fn store_that_answers_the_third_connection_is_joined() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        drop(listener.accept().unwrap());
        drop(listener.accept().unwrap());
        Server::start(listener, 1, secret()).unwrap()
    });
    let place = NodePlace {
        store,
        rank: 0,
        size: 1,
        local_rank: 0,
        local_size: 1,
        secret: secret(),
        incarnation: 1,
    };
    let node = Client::connect(place, Settings::default()).unwrap();
    node.put("a", b"1").unwrap();
    drop(server.join().unwrap());
}

/// WIND-11.3, 11.4: a proxy between node and store cuts the connection while a request waits.
#[test]
fn request_is_answered_over_a_later_connection() {
    let server = serve(2);
    let Relay { store, step, relay } = relay(server.port());
    let first =
        Client::connect(NodePlace { store, ..place(&server, 0, 2) }, Settings::default()).unwrap();
    let second = join(&server, 1, 2).unwrap();
    first.put("first", b"1").unwrap();
    std::thread::scope(|scope| {
        let get = scope.spawn(|| first.get("second", LONG));
        let fence = scope.spawn(|| first.fence("both", LONG));
        step.send(()).unwrap();
        step.send(()).unwrap();
        relay.join().unwrap();
        second.put("second", b"2").unwrap();
        assert_eq!(get.join().unwrap().unwrap(), b"2");
        second.fence("both", LONG).unwrap();
        fence.join().unwrap().unwrap();
    });
    assert_eq!(second.get("first", LONG).unwrap(), b"1");
}
