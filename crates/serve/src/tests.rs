//! A server and its nodes in one process.

use super::name::socket_name;
use super::{ConnectError, ServeError, ServeOptions, ServedLink, Server};
use oikaze_os::net::{
    Arrival, Bind, Link, LinkProperties, LocalAddress, Outgoing, ReceiveEach, Sink, Statistics,
    TooBig,
};
use oikaze_os::shm::{Listener, shared_memory};
use oikaze_protocol::serve::{OpenAnswer, OpenRequest, VERSION};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEADLINE: Duration = Duration::from_secs(20);

/// A server on a thread, which ends with this value.
struct Running {
    name: String,
    stop: Arc<oikaze_os::cpu::Event>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Running {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServeOptions)) -> Running {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let mut options = ServeOptions::named(&name);
        change(&mut options);
        let mut server = Server::start(options).unwrap();
        let stop = server.stop_event();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { name, stop, thread: Some(thread) }
    }

    fn connect(&self) -> Result<ServedLink, ConnectError> {
        ServedLink::connect(&self.name, &ask(HERE))
    }

    fn end(&mut self) {
        self.stop.signal();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

fn ask(ip: IpAddr) -> Bind {
    Bind { addresses: vec![ip], ..Bind::default() }
}

/// A link that returns when its server has done what was asked, for the checks that every link must
/// pass.
struct Flushed {
    link: RefCell<ServedLink>,
    /// Datagrams that came meanwhile.
    came: RefCell<Vec<(SocketAddr, Vec<u8>, bool)>>,
    properties: (u16, Option<u16>, u8, usize, usize, usize),
    fd: std::os::fd::OwnedFd,
    /// Ends after the link.
    _server: Running,
}

impl Flushed {
    fn connect(ip: IpAddr) -> Flushed {
        let server = Running::start();
        let link = ServedLink::connect(&server.name, &ask(ip)).unwrap();
        let of = link.properties();
        let fd = of.fd.unwrap().try_clone_to_owned().unwrap();
        let (ports, buffer) = ((of.port, of.bulk_port), (of.receive_buffer, of.receive_overhead));
        let properties = (ports.0, ports.1, of.flows, of.datagram_max, buffer.0, buffer.1);
        let came = RefCell::default();
        Flushed { link: RefCell::new(link), came, properties, fd, _server: server }
    }

    fn flush(&self) {
        let mut came = self.came.borrow_mut();
        let mut keep = |arrival: Arrival<'_>| {
            came.push((arrival.from, arrival.bytes.to_vec(), arrival.congested));
        };
        self.link.borrow_mut().flush(&mut keep);
    }
}

impl Link for Flushed {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let sent = self.link.get_mut().send(batch)?;
        self.flush();
        Ok(sent)
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let came = std::mem::take(self.came.get_mut());
        for (from, bytes, congested) in &came {
            sink.take(Arrival { congested: *congested, ..Arrival::new(*from, bytes) });
        }
        Ok(came.len() + self.link.get_mut().receive_into(sink)?)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        self.link.borrow().local_addresses()
    }

    fn properties(&self) -> LinkProperties<'_> {
        let (port, bulk_port, flows, datagram_max, receive_buffer, receive_overhead) =
            self.properties;
        let fd = Some(std::os::fd::AsFd::as_fd(&self.fd));
        LinkProperties {
            port,
            bulk_port,
            flows,
            datagram_max,
            receive_buffer,
            receive_overhead,
            fd,
        }
    }

    fn watch(&mut self, yes: bool) -> io::Result<()> {
        self.link.get_mut().watch(yes)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.link.borrow().next_wakeup()
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        self.flush();
        self.link.get_mut().poll_too_big()
    }

    fn report_silence(&mut self, peer: SocketAddr) {
        self.link.get_mut().report_silence(peer);
    }

    fn notice(&mut self) -> Option<String> {
        self.link.get_mut().notice()
    }

    fn statistics(&self) -> Statistics {
        self.flush();
        self.link.borrow().statistics()
    }
}

oikaze_os::test_links! {
    served: |ip| Box::new(Flushed::connect(ip)) as Box<dyn Link>;
}

/// Sends one datagram from one link to another, and waits until it has come.
fn carry(from: &mut ServedLink, to: &mut ServedLink, body: &[u8]) {
    let at = SocketAddr::new(HERE, to.properties().port);
    let sent = from.send(&[Outgoing::new(&at, oikaze_protocol::wire::Lane::Small, body)]).unwrap();
    assert_eq!(sent, 1);
    assert_eq!(next(to).unwrap(), body);
}

/// WIND-14.1, SERVE-3.1: the server sends each flow of bulk from a port of its own.
#[test]
fn flows_of_bulk_leave_from_ports_of_their_own() {
    let server = Running::start();
    let (mut from, mut to) = (server.connect().unwrap(), server.connect().unwrap());
    assert_eq!(from.properties().flows, oikaze_protocol::limits::FLOWS_MAX);
    let at = SocketAddr::new(HERE, to.properties().bulk_port.unwrap());
    let lane = oikaze_protocol::wire::Lane::Bulk;
    let mut ports = std::collections::BTreeSet::new();
    for flow in [0, 1, 2, 3, 0, 1, 2, 3] {
        let one = Outgoing { flow, ..Outgoing::new(&at, lane, b"bulk") };
        assert_eq!(from.send(&[one]).unwrap(), 1);
        let mut came = None;
        until("a datagram comes", || {
            let _ = to.receive(&mut |arrival: Arrival<'_>| came = Some(arrival.from.port()));
            came.is_some()
        });
        ports.extend(came);
        let is_own = came == from.properties().bulk_port;
        assert_eq!(is_own, flow == 0, "flow {flow} from port {came:?}");
    }
    assert_eq!(ports.len(), 4, "{ports:?}");
}

/// Returns the next datagram.
fn next(link: &mut ServedLink) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + DEADLINE;
    let mut came = None;
    while came.is_none() {
        assert!(Instant::now() < deadline, "nothing came");
        link.receive(&mut |arrival: Arrival<'_>| came = Some(arrival.bytes.to_vec()))?;
    }
    Ok(came.unwrap_or_default())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never held");
        std::thread::yield_now();
    }
}

/// SERVE-5.2.
#[test]
fn end_of_the_server_is_an_error_that_names_it() {
    let mut server = Running::start();
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    carry(&mut one, &mut two, b"before");
    server.end();
    let why = next(&mut two).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::BrokenPipe);
    assert!(why.to_string().contains(&server.name), "{why}");
    // A thread that sleeps is woken up.
    one.watch(true).unwrap();
    let fd = one.properties().fd.unwrap();
    let mut asked = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut asked, Some(&limit)), Ok(1));
}

/// SERVE-5.1: the sockets of a node that has gone are free, and other nodes go on.
#[test]
fn node_that_goes_leaves_nothing_and_disturbs_nobody() {
    let server = Running::start();
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    for _ in 0..20 {
        let gone = server.connect().unwrap();
        let ports = [gone.properties().port, gone.properties().bulk_port.unwrap()];
        drop(gone);
        until("the ports are free", || {
            ports.iter().all(|port| std::net::UdpSocket::bind((HERE, *port)).is_ok())
        });
        carry(&mut one, &mut two, b"between");
    }
}

/// SERVE-1.1, SERVE-1.3.
#[test]
fn names_are_unique_and_a_missing_server_is_named() {
    let server = Running::start();
    let why = Server::start(ServeOptions::named(&server.name)).unwrap_err();
    assert!(matches!(why, ServeError::Taken { .. }) && why.to_string().contains("another name"));
    let why = ServedLink::connect("none-of-this-name", &Bind::default()).unwrap_err();
    assert!(why.to_string().contains("oikaze serve none-of-this-name"), "{why}");
    for name in ["", "a b", "ä", &"x".repeat(65)] {
        assert!(matches!(Server::start(ServeOptions::named(name)), Err(ServeError::Name(_))));
        let why = ServedLink::connect(name, &Bind::default()).unwrap_err();
        assert!(matches!(why, ConnectError::Name(_)), "{why}");
    }
    let mut options = ServeOptions::named("of-no-core");
    options.cores = vec![100_000];
    let why = Server::start(options).unwrap_err().to_string();
    assert!(why.contains("no core 100000; its cores are 0"), "{why}");
}

/// SERVE-2.1, SERVE-2.4: the reasons of refusals.
#[test]
fn refusals_have_reasons() {
    let server = Running::with(|options| options.nodes_per_user_max = 1);
    let elsewhere = Bind { addresses: vec![[203, 0, 113, 1].into()], ..Bind::default() };
    let why = ServedLink::connect(&server.name, &elsewhere).unwrap_err().to_string();
    assert!(why.contains("no interface of this machine has that address"), "{why}");
    let first = server.connect().unwrap();
    let why = server.connect().unwrap_err().to_string();
    assert!(why.contains("the limit (--nodes-per-user)"), "{why}");
    drop(first);
    until("there is room again", || server.connect().is_ok());
    let request = OpenRequest {
        ports: (80, 81),
        bulk_port: 0,
        sharers: 1,
        buffer: 1 << 20,
        is_checked_by_udp: false,
        addresses: Vec::new(),
        without: String::new(),
    };
    let why = super::client::ask_of(&request, 1000).unwrap_err();
    assert!(why.contains("port 80 is not for user 1000"), "{why}");
    assert!(super::client::ask_of(&request, 0).is_ok());
    let unknown = OpenRequest { without: "magic".into(), ports: (0, 0), ..request };
    assert!(super::client::ask_of(&unknown, 0).unwrap_err().contains("unknown feature"));
}

/// SERVE-2.4: connections of a user that have not yet asked for a link count as its nodes.
#[test]
fn connections_of_one_user_are_limited() {
    let server = Running::with(|options| options.nodes_per_user_max = 3);
    let call = || {
        Listener::call_name(&socket_name(rustix::process::geteuid().as_raw(), &server.name))
            .unwrap()
    };
    let node = server.connect().unwrap();
    let mut silent = vec![call(), call()];
    // The server hears a connection only after those that came before it.
    let why = server.connect().unwrap_err().to_string();
    let told = "has 1 nodes here, and 2 that have not yet asked for a link, which is the limit";
    assert!(why.contains(told), "{why}");
    silent.pop();
    until("there is room again", || server.connect().is_ok());
    drop((node, silent));
}

/// SERVE-2.2, SERVE-2.1: a request that the server cannot read, or without memory, is refused.
#[test]
fn requests_that_make_no_sense_are_refused() {
    let server = Running::start();
    let ask = |bytes: &[u8], with_memory: bool| {
        let line =
            Listener::call_name(&socket_name(rustix::process::geteuid().as_raw(), &server.name))
                .unwrap();
        let memory = shared_memory().unwrap();
        let memory = with_memory.then(|| std::os::fd::AsFd::as_fd(&memory));
        line.say(bytes, memory).unwrap();
        let mut answer = None;
        until("an answer", || {
            answer = line.hear().unwrap();
            answer.is_some()
        });
        match OpenAnswer::decode(answer.unwrap().bytes()).unwrap() {
            OpenAnswer::Refused(why) => why,
            opened => panic!("{opened:?}"),
        }
    };
    assert!(ask(&[VERSION + 1], true).contains("install one version"));
    assert!(ask(&[VERSION, 1, 2], true).contains("makes no sense"));
    let request = OpenRequest {
        ports: (0, 0),
        bulk_port: 0,
        sharers: 1,
        buffer: 1 << 20,
        is_checked_by_udp: false,
        addresses: vec![HERE],
        without: String::new(),
    };
    assert!(ask(&request.encode(), false).contains("without memory"));
    // The server still serves.
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    carry(&mut one, &mut two, b"afterwards");
}

/// SERVE-3.4: a node that scribbles over its ring is served no more, and others are.
#[test]
fn node_that_writes_nonsense_is_cut_off() {
    let server = Running::start();
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    let mut bad = server.connect().unwrap();
    bad.put_nonsense();
    let why = next(&mut bad).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::BrokenPipe, "{why}");
    assert!(why.to_string().contains("makes no sense"), "{why}");
    carry(&mut one, &mut two, b"afterwards");
}

/// SERVE-3.3: what comes for a node that does not read waits in the kernel and in a bounded part of
/// the server, which goes on for others. When the node reads again, it gets what is there.
#[test]
fn node_that_does_not_read_costs_nothing_and_goes_on_later() {
    let server = Running::with(|options| options.spin_time = Duration::ZERO);
    let (mut one, mut lazy) = (server.connect().unwrap(), server.connect().unwrap());
    let mut other = server.connect().unwrap();
    let at = SocketAddr::new(HERE, lazy.properties().port);
    let body = vec![5; 8000];
    let (mut sent, deadline) = (0, Instant::now() + DEADLINE);
    // More than the ring holds, and less than the kernel's buffer.
    while sent < 80 {
        assert!(Instant::now() < deadline, "{sent} were sent");
        let datagram = Outgoing::new(&at, oikaze_protocol::wire::Lane::Small, &body);
        sent += one.send(&[datagram]).unwrap();
        // Its questions do not fill the server's memory either.
        let _ = lazy.ask();
    }
    carry(&mut one, &mut other, b"meanwhile");
    let mut came = 0;
    until("all have come", || {
        lazy.receive(&mut |arrival| came += usize::from(arrival.bytes == body)).unwrap();
        came == sent
    });
    carry(&mut one, &mut lazy, b"afterwards");
}

/// SERVE-4.1: records without bytes do not hold a worker.
#[test]
fn node_that_asks_without_end_holds_nobody() {
    let server = Running::start();
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    let mut asks = server.connect().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = asks.ask();
            }
        });
        (0..50).for_each(|_| carry(&mut one, &mut two, b"meanwhile"));
        stop.store(true, Ordering::Relaxed);
    });
}

/// SERVE-2.3: a caller that says nothing delays nobody.
#[test]
fn silent_caller_delays_nobody() {
    let server = Running::start();
    let _silent =
        Listener::call_name(&socket_name(rustix::process::geteuid().as_raw(), &server.name))
            .unwrap();
    let begun = Instant::now();
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    carry(&mut one, &mut two, b"meanwhile");
    assert!(begun.elapsed() < super::record::OPEN_TIME);
}

/// SERVE-4.1: a node that always has bulk to send does not starve another one of its worker.
#[test]
fn nodes_share_a_worker() {
    let server = Running::start();
    let mut links: Vec<ServedLink> = (0..3).map(|_| server.connect().unwrap()).collect();
    let mut target = server.connect().unwrap();
    let at = SocketAddr::new(HERE, target.properties().port);
    let nowhere = SocketAddr::new(HERE, 9);
    let body = vec![1; 8000];
    let (mut sent, deadline) = ([0_usize; 2], Instant::now() + DEADLINE);
    // Two nodes write as fast as they can, until each has sent much.
    while sent.iter().any(|bytes| *bytes < 20 << 20) {
        assert!(Instant::now() < deadline, "{sent:?}");
        for (link, sent) in links.iter_mut().zip(&mut sent) {
            let batch: Vec<Outgoing<'_>> = (0..16)
                .map(|_| Outgoing::new(&nowhere, oikaze_protocol::wire::Lane::Bulk, &body))
                .collect();
            *sent += link.send(&batch).unwrap() * body.len();
        }
        if sent[0] % (1 << 20) < 16 * body.len() {
            // The third has room, and its datagrams arrive.
            let small = Outgoing::new(&at, oikaze_protocol::wire::Lane::Small, b"small");
            assert_eq!(links[2].send(&[small]).unwrap(), 1);
            assert_eq!(next(&mut target).unwrap(), b"small");
        }
    }
    // Each round lets both send as much, so neither is far ahead of the other.
    let [less, more] = if sent[0] < sent[1] { sent } else { [sent[1], sent[0]] };
    assert!(more < 4 * less, "{sent:?}");
}

/// SERVE-5.3.
#[test]
fn idle_server_ends() {
    let mut server = Running::with(|options| options.idle_time = Some(Duration::from_millis(50)));
    // Nobody stops it.
    server.thread.take().unwrap().join().unwrap();
    assert!(matches!(server.connect(), Err(ConnectError::Missing { .. })));
}

/// SERVE-4.2: a node wakes a server that sleeps, and the server a node.
#[test]
fn sleepers_are_woken() {
    let server = Running::with(|options| options.spin_time = Duration::ZERO);
    let (mut one, mut two) = (server.connect().unwrap(), server.connect().unwrap());
    let at = SocketAddr::new(HERE, two.properties().port);
    two.watch(true).unwrap();
    for number in 0..200_u32 {
        let body = number.to_le_bytes();
        one.send(&[Outgoing::new(&at, oikaze_protocol::wire::Lane::Small, &body)]).unwrap();
        let mut came = false;
        while !came {
            let fd = two.properties().fd.unwrap().try_clone_to_owned().unwrap();
            let mut asked = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut asked, Some(&limit)), Ok(1), "number {number}");
            while two.receive(&mut |arrival| came |= arrival.bytes == body).unwrap() > 0 {}
        }
    }
    two.watch(false).unwrap();
}
