//! Runs the program on frames. Needs root; skipped otherwise.

use super::program::{PASSED, RECORD_HEAD, TAKEN};
use super::receiver::{RING_BYTES, ReceivedRoute, Record, RingBurst, TcxReceiver};
use crate::net::Arrival;
use crate::net::bypass::bpf::{Loaded, run_on};
use crate::net::ip::tests::packet;
use crate::testing::skip;
use proptest::prelude::*;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

const PORT: u16 = 7;
const OURS: [&str; 4] = ["10.1.2.3", "192.168.7.1", "fd00::1:2:3", "fd00::1:2:4"];

fn ours() -> Vec<IpAddr> {
    OURS.map(|ip| ip.parse().unwrap()).to_vec()
}

fn program_of(ips: &[IpAddr]) -> Option<(TcxReceiver, Loaded)> {
    match TcxReceiver::at_no_interface(PORT, ips, false) {
        Err(Errno::PERM | Errno::ACCESS) => {
            skip("programs in the kernel take CAP_BPF and CAP_NET_ADMIN");
            None
        }
        made => Some(made.unwrap()),
    }
}

/// Frame for this host, as from a virtual device without an address of its own.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0; 12], &kind[..], packet].concat()
}

/// Reference decision of whether the program takes a frame.
fn is_ours(frame: &[u8]) -> bool {
    if frame[..6] != [0; 6] || frame.len() > 9216 - RECORD_HEAD {
        return false;
    }
    let (kind, ip) = (&frame[12..14], &frame[14..]);
    let (header, to) = match (kind, ip.len()) {
        ([0x08, 0x00], 36..) if ip[0] == 0x45 && ip[9] == 17 && ip[6] & 0x3f == 0 && ip[7] == 0 => {
            (20, IpAddr::from(<[u8; 4]>::try_from(&ip[16..20]).unwrap()))
        }
        ([0x86, 0xdd], 56..) if ip[0] >> 4 == 6 && ip[6] == 17 => {
            (40, IpAddr::from(<[u8; 16]>::try_from(&ip[24..40]).unwrap()))
        }
        _ => return false,
    };
    let whose = &ip[header + 8..header + 16];
    ip[header + 2..header + 4] == PORT.to_be_bytes() && ours().contains(&to) && whose != [0; 8]
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let to = (prop::sample::select(ours()), prop_oneof![9 => Just(PORT), 1 => any::<u16>()]);
    let whose = prop_oneof![1 => Just(0_u8), 5 => any::<u8>()];
    let body = prop_oneof![4 => 0_usize..150, 2 => 150_usize..350, 1 => 1990_usize..2040, 1 => 2040_usize..3000];
    let change = prop_oneof![3 => Just(None), 1 => (0_usize..70, any::<u8>()).prop_map(Some)];
    let cut = prop_oneof![9 => Just(usize::MAX), 1 => 15_usize..70];
    (to, whose, body, change, cut).prop_map(|((ip, port), whose, len, change, cut)| {
        let from = if ip.is_ipv4() { "10.9.9.9:1" } else { "[fd00::9]:1" }.parse().unwrap();
        let body: Vec<u8> = (0..len).map(|at| if at < 8 { whose } else { at as u8 }).collect();
        let mut frame = frame(&packet(from, SocketAddr::new(ip, port), 0, &body));
        if let Some((at, byte)) = change {
            let at = at % frame.len();
            frame[at] = byte;
        }
        frame.truncate(cut);
        frame
    })
}

/// WIND-10.5: the program leaves handshakes, like other foreign frames, to the sockets.
#[test]
fn what_is_for_the_port_is_taken_whole_and_all_else_passes() {
    let Some((mut receiver, program)) = program_of(&ours()) else { return };
    let mut taken = [0, 0];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 4000,
        ..ProptestConfig::default()
    });
    let receiver = std::cell::RefCell::new(&mut receiver);
    let counts = std::cell::RefCell::new(&mut taken);
    runner
        .run(&frames(), |frame| {
            let mine = is_ours(&frame);
            let result = match run_on(&program, &frame) {
                // The kernel does not run the program on frames without a whole IP header.
                Err(Errno::INVAL) if frame.len() < 14 + 40 => return Ok(()),
                result => result.unwrap(),
            };
            counts.borrow_mut()[usize::from(mine)] += 1;
            prop_assert_eq!(result, if mine { TAKEN } else { PASSED });
            let mut records = Vec::new();
            receiver.borrow_mut().ring.take(9, &mut |record| {
                records.push(record.to_vec());
                1
            });
            let frames: Vec<Vec<u8>> = records
                .iter()
                .map(|record| Record::parse(record).unwrap().frame.to_vec())
                .collect();
            prop_assert_eq!(frames, if mine { vec![frame] } else { Vec::new() });
            Ok(())
        })
        .unwrap();
    assert!(taken.iter().all(|count| *count > 400), "{taken:?}");
}

#[test]
fn what_is_too_much_for_the_ring_passes_and_nothing_is_overwritten() {
    let Some((mut receiver, program)) = program_of(&ours()) else { return };
    for round in 0..3 {
        let (mut taken, mut next) = (0_u32, 0_u32);
        let mut send = || {
            let mut body = [taken.to_le_bytes(), [1; 4]].concat();
            body.resize(100 + taken as usize * 37 % 2500, round);
            let it = frame(&packet(
                "10.9.9.9:1".parse().unwrap(),
                "10.1.2.3:7".parse().unwrap(),
                0,
                &body,
            ));
            let took = run_on(&program, &it).unwrap() == TAKEN;
            taken += u32::from(took);
            took
        };
        while send() {}
        assert!(!receiver.is_open() && !send(), "what follows would overtake it");
        assert!(taken > RING_BYTES / 2500 / 2);
        let mut check = |arrival: Arrival<'_>, _: &ReceivedRoute| {
            assert_eq!(arrival.bytes[..4], next.to_le_bytes());
            assert!(arrival.bytes[8..].iter().all(|byte| *byte == round));
            next += 1;
        };
        assert_eq!(receiver.take(1, &mut check).datagrams, 1);
        while receiver.take(16, &mut check).datagrams > 0 {}
        assert_eq!(next, taken);
        receiver.settle();
        receiver.open_gate();
    }
}

/// While the gate is shut for a sleeping thread, all datagrams go to the sockets, and earlier
/// records make the ring's descriptor readable.
#[test]
fn a_shut_gate_lets_pass_and_what_is_left_makes_the_descriptor_readable() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some((mut receiver, program)) = program_of(&ours()) else { return };
    let readable = |fd: BorrowedFd<'_>| {
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    };
    let it = frame(&packet(
        "[fd00::9]:1".parse().unwrap(),
        "[fd00::1:2:4]:7".parse().unwrap(),
        0,
        b"some body",
    ));
    for _ in 0..1000 {
        assert_eq!(run_on(&program, &it).unwrap(), TAKEN);
        assert!(readable(receiver.shut_gate()));
        assert_eq!(run_on(&program, &it).unwrap(), PASSED);
        assert_eq!(receiver.take(9, &mut |_, _| ()).datagrams, 1);
        receiver.settle();
        assert!(!readable(receiver.fd()), "all was taken");
        receiver.open_gate();
    }
}

#[test]
fn a_record_that_is_no_datagram_is_counted() {
    let Some((mut receiver, program)) = program_of(&ours()) else { return };
    let mut it = frame(&packet(
        "10.9.9.9:1".parse().unwrap(),
        "10.1.2.3:7".parse().unwrap(),
        0,
        b"some body",
    ));
    // Breaks the header's checksum.
    it[14 + 10] ^= 1;
    assert_eq!(run_on(&program, &it).unwrap(), TAKEN);
    let burst = receiver.take(9, &mut |_, _| panic!("altered"));
    assert_eq!(burst, RingBurst { malformed: 1, ..RingBurst::default() });
    assert!(receiver.is_empty());
}
