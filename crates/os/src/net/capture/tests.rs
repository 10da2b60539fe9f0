use super::*;
use crate::net::conformance::take;
use crate::net::{Bind, Link, Outgoing, ReceiveEach, UdpLink};
use oikaze_protocol::wire::Lane;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet as [`read`] finds it.
#[derive(Debug, PartialEq)]
struct Read {
    at: u64,
    sent: bool,
    from: SocketAddr,
    to: SocketAddr,
    congested: bool,
    bytes: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Reads all packets of a capture, and checks its structure block by block.
fn read(mut file: &[u8]) -> Vec<Read> {
    let mut kinds = Vec::new();
    let mut packets = Vec::new();
    while !file.is_empty() {
        let (kind, len) = (word(file, 0), word(file, 4) as usize);
        assert_eq!(len % 4, 0, "the length stands at both ends");
        assert_eq!(word(file, len - 4) as usize, len, "the length stands at both ends");
        let body = &file[8..len - 4];
        match kind {
            0x0a0d_0d0a => {
                assert_eq!((word(body, 0), &body[4..8]), (0x1a2b_3c4d, &[1, 0, 0, 0][..]))
            }
            1 => assert_eq!((word(body, 0), word(body, 4)), (101, 0)),
            6 => packets.push(packet(body)),
            other => panic!("block {other}"),
        }
        kinds.push(kind);
        file = &file[len..];
    }
    assert_eq!(kinds[..2], [0x0a0d_0d0a, 1]);
    packets
}

fn packet(body: &[u8]) -> Read {
    let len = word(body, 12) as usize;
    assert_eq!((word(body, 0), word(body, 16) as usize), (0, len));
    let options = &body[20 + len.next_multiple_of(4)..];
    assert_eq!((&options[..4], &options[8..]), (&[2, 0, 4, 0][..], &[0; 4][..]));
    let at = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
    let ip = &body[20..20 + len];
    let big = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (header, from, to, class): (usize, IpAddr, IpAddr, u8) = if ip[0] >> 4 == 4 {
        assert_eq!((ip[0], usize::from(big(2)), ip[9], sum(&ip[..20])), (0x45, len, 17, 0xffff));
        let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
        (20, address(12), address(16), ip[1])
    } else {
        assert_eq!((ip[0] >> 4, usize::from(big(4)) + 40, ip[6]), (6, len, 17));
        let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
        (40, address(8), address(24), ip[1] >> 4)
    };
    let udp = &ip[header..];
    assert_eq!(usize::from(big(header + 4)), udp.len());
    // RFC 768: the sum over addresses, protocol, length and the whole datagram is all ones.
    let addresses = if header == 20 { &ip[12..20] } else { &ip[8..40] };
    let pseudo = [addresses, &[0, 17], &(udp.len() as u16).to_be_bytes(), udp].concat();
    assert_eq!(sum(&pseudo), 0xffff);
    let socket = |ip, at| SocketAddr::new(ip, big(at));
    let (from, to) = (socket(from, header), socket(to, header + 2));
    let sent = word(options, 4) == 2;
    Read { at, sent, from, to, congested: class & 3 == 3, bytes: udp[8..].to_vec() }
}

/// One's complement sum of 16-bit words, computed differently than in the code.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u16;
    for pair in bytes.chunks(2) {
        let (next, carry) =
            sum.overflowing_add(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        sum = next + u16::from(carry);
    }
    sum
}

fn udp() -> UdpLink {
    UdpLink::bind(&Bind { addresses: vec![V4], ..Bind::default() }).unwrap()
}

fn recorded(limit: u64) -> (Tap<UdpLink>, Shared) {
    let (mut tap, file) = (Tap::new(udp()), Shared::default());
    tap.record("the record".into(), Box::new(Pcapng::new("test")), Box::new(file.clone()), limit)
        .unwrap();
    (tap, file)
}

fn address(link: &impl Link) -> SocketAddr {
    link.local_addresses().unwrap()[0].address
}

fn send(from: &mut Tap<UdpLink>, to: SocketAddr, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        let (head, tag) = datagram.split_at(datagram.len() / 2);
        assert_eq!(
            from.send(&[Outgoing { tag, ..Outgoing::new(&to, Lane::Small, head) }]).unwrap(),
            1
        );
    }
}

#[test]
fn both_ends_write_down_what_went_between_them() {
    let ((mut one, one_file), (mut two, two_file)) = (recorded(1 << 20), recorded(1 << 20));
    let datagrams: Vec<Vec<u8>> =
        (0..20u8).map(|number| vec![number; usize::from(number) * 7]).collect();
    let (here, there) = (address(&one), address(&two));
    send(&mut one, there, &datagrams);
    take(&mut two, datagrams.len());
    send(&mut two, here, &datagrams[..3]);
    take(&mut one, 3);
    // The link is idle, so the recorded packets are in the file, without waiting for the end.
    assert_eq!(one.receive(&mut |_| {}).unwrap() + two.receive(&mut |_| {}).unwrap(), 0);
    for (file, is_one) in [(one_file, true), (two_file, false)] {
        let packets = read(&file.bytes());
        assert!(packets.is_sorted_by_key(|packet| packet.at));
        assert!(packets[0].at > 1_700_000_000 * 1_000_000_000);
        let (out, back): (Vec<_>, Vec<_>) =
            packets.into_iter().partition(|packet| packet.sent == is_one);
        assert!(out.iter().map(|packet| &packet.bytes).eq(&datagrams));
        assert!(back.iter().map(|packet| &packet.bytes).eq(&datagrams[..3]));
        assert!(
            out.iter()
                .all(|packet| (packet.from, packet.to, packet.congested) == (here, there, false))
        );
        assert!(back.iter().all(|packet| (packet.from, packet.to) == (there, here)));
    }
}

/// WIRE-2.7: each datagram appears at the port of its lane, at either end.
#[test]
fn bulk_is_written_down_at_its_own_port() {
    use oikaze_protocol::wire::{Builder, Flags, Fragment, SealKind};
    let ((mut one, one_file), (mut two, two_file)) = (recorded(1 << 20), recorded(1 << 20));
    let ports =
        [&one, &two].map(|link| (link.properties().bulk_port.unwrap(), address(link).port()));
    let mut head = Vec::new();
    let mut builder = Builder::new(&mut head, 0xabc, 9, SealKind::EndToEnd, 1400);
    builder.flag(Flags::BULK_LANE);
    builder.fragment(Fragment { message_low: 3, offset: 100 }, 50);
    builder.finish(Some(&[7; 50]));
    head.extend([0; 4]);
    let to = SocketAddr::new(V4, ports[1].0);
    let bulk = Outgoing::new(&to, Lane::Bulk, &head);
    assert_eq!(one.send(&[bulk]).unwrap(), 1);
    take(&mut two, 1);
    send(&mut one, SocketAddr::new(V4, ports[1].1), &[b"garbage, or small".to_vec()]);
    take(&mut two, 1);
    assert_eq!(one.receive(&mut |_| {}).unwrap() + two.receive(&mut |_| {}).unwrap(), 0);
    for file in [one_file, two_file] {
        let written: Vec<_> = read(&file.bytes())
            .iter()
            .map(|packet| (packet.from.port(), packet.to.port()))
            .collect();
        assert_eq!(written, [(ports[0].0, ports[1].0), (ports[0].1, ports[1].1)]);
    }
}

#[test]
fn both_families_and_marks() {
    let (v4, v6) = (SocketAddr::new(V4, 7), SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 8));
    let mut file = Vec::new();
    let mut recorder = Pcapng::new("x");
    recorder.begin(&mut file);
    for (address, len, congested) in
        [(v4, 0, true), (v6, 9, true), (v4, 65_507, false), (v6, 1, false)]
    {
        let bytes = vec![0xff; len];
        let parts = [&bytes[..len / 3], &bytes[len / 3..len / 2], &bytes[len / 2..]];
        recorder.record(
            &CapturedDatagram {
                at: Duration::from_nanos(5),
                sent: true,
                from: address,
                to: address,
                parts,
                congested,
            },
            &mut file,
        );
    }
    let packets = read(&file);
    let found: Vec<_> =
        packets.iter().map(|packet| (packet.to, packet.bytes.len(), packet.congested)).collect();
    assert_eq!(found, [(v4, 0, true), (v6, 9, true), (v4, 65_507, false), (v6, 1, false)]);
}

#[test]
fn a_full_record_ends_and_the_link_goes_on() {
    let (mut one, file) = recorded(4096);
    let mut two = udp();
    send(&mut one, address(&two), &vec![vec![1; 1000]; 10]);
    assert_eq!(take(&mut two, 10).len(), 10);
    let notice = one.notice().unwrap();
    assert!(notice.contains("the record ends after 3 datagrams"), "{notice}");
    assert!(notice.contains("OIKAZE_PCAP_LIMIT"), "{notice}");
    assert_eq!(one.notice(), None, "told once");
    let bytes = file.bytes();
    assert!(bytes.len() <= 4096);
    assert_eq!(read(&bytes).len(), 3, "no packet is cut");
}

#[test]
fn a_file_that_cannot_be_written_to_ends_the_record_only() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The beginning of the file fits, nothing else does.
            if bytes.len() < 200 {
                Ok(bytes.len())
            } else {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut one = Tap::new(udp());
    one.record("the record".into(), Box::new(Pcapng::new("test")), Box::new(Full), u64::MAX)
        .unwrap();
    let mut two = udp();
    send(&mut one, address(&two), &vec![vec![1; 1000]; 4]);
    assert_eq!(take(&mut two, 4).len(), 4);
    assert_eq!(one.receive(&mut |_| {}).unwrap(), 0);
    assert!(one.notice().unwrap().starts_with("the record ends after 4 datagrams"));
    send(&mut one, address(&two), &[vec![1; 1000]]);
    assert_eq!((take(&mut two, 1).len(), one.notice()), (1, None));
}

#[test]
fn text_says_what_datagrams_say() {
    use oikaze_protocol::wind::Class;
    use oikaze_protocol::wire::{Builder, Fragment, Open, SealKind, SmallMessage};
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 0xabc, 9, SealKind::EndToEnd, 1400);
    builder.fragment(Fragment { message_low: 3, offset: 100 }, 50);
    builder.open(&Open {
        number: 3,
        class: Class::Unordered,
        credited: false,
        head: &[1; 8],
        len: 4000,
    });
    builder.message(&SmallMessage {
        number: 4,
        class: Class::Sync,
        credited: true,
        head: &[2; 5],
        body: &[3; 6],
    });
    builder.ping();
    builder.finish(Some(&[7; 50]));
    let address = SocketAddr::new(V4, 77);
    let mut passing = CapturedDatagram {
        at: Duration::from_micros(10),
        sent: true,
        from: address,
        to: address,
        parts: [&bytes, &[1, 2, 3, 4], &[]],
        congested: false,
    };
    let (mut trace, mut text) = (Trace::default(), Vec::new());
    trace.record(&passing, &mut text);
    passing = CapturedDatagram {
        at: Duration::from_micros(1510),
        sent: false,
        parts: [b"garbage", b"", b""],
        congested: true,
        ..passing
    };
    trace.record(&passing, &mut text);
    let expected = "0.000000 > 127.0.0.1:77 0000000000000abc #9 FRAGMENT 3 100..150 OPEN 3 Unordered 8+4000 MESSAGE 4 Sync 5+6 PING\n\
                    0.001500 < 127.0.0.1:77 7 bytes: datagram is truncated congested\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn files_are_named_by_rank_and_for_their_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = std::env::temp_dir().join(format!("oikaze-tap-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let settings = TapSettings {
        pcap: Some(directory.join("x.pcapng")),
        trace: Some(directory.join("none/y")),
        limit: 1 << 20,
    };
    let path = directory.join("x.3.pcapng");
    std::fs::write(&path, b"of long ago").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (tap, failed) = settings.attach(udp(), 3);
    assert!(failed.len() == 1 && failed[0].contains("none/y.3"), "{failed:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(tap);
    assert_eq!(read(&std::fs::read(&path).unwrap()), []);
    std::fs::remove_dir_all(&directory).unwrap();
}
