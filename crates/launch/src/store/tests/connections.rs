//! Connections to the store that fail, are lost, or are of strangers.

use super::*;
use std::net::Shutdown;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Starts a relay to a store, which breaks once: the first message cuts the connection, the second
/// one lets another one through. Returns its address, where it takes messages, and its thread. The
/// thread ends once the second connection is through.
fn relay(port: u16) -> (String, Sender<()>, JoinHandle<()>) {
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
    (store, step, std::thread::spawn(pass))
}

/// Joins rank 0 over a [`relay`]. Returns the node, where the relay takes messages, and its thread.
pub(super) fn join_by_relay(server: &Server, size: u32) -> (Client, Sender<()>, JoinHandle<()>) {
    let (store, step, relay) = relay(server.port());
    let place = NodePlace { store, ..place(server, 0, size) };
    (Client::connect(place, Settings::default()).unwrap(), step, relay)
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
    let (first, step, relay) = join_by_relay(&server, 2);
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
