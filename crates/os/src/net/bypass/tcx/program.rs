//! BPF program that runs where packets come in.
//!
//! The program puts packets for the link's port into the ring. Everything else, and every doubtful
//! packet, takes its usual path:
//! - packets with options, fragments, and packets that are too long
//! - handshakes (WIND-10.5)
//! - packets of a VLAN, whose own interface has a program, too
//! - packets that the kernel has joined, where nothing but the UDP checksum covers the bytes: the
//!   checksum of some ways to join them is that of no datagram
//! - packets for other addresses
//! - packets for which the ring has no room

use crate::net::bypass::bpf::{Assembler, Condition, Instruction, Register, Width};
use rustix::fd::BorrowedFd;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a record before the frame: the length of the frame, the index of the interface, and the
/// size of each datagram if the kernel has joined several (otherwise 0).
pub(super) const RECORD_HEAD: usize = 12;
/// Sizes of records in bytes. A record has the first of these sizes that its frame fits in. The
/// last takes any frame of an MTU of 9000.
pub(super) const RECORDS: [u16; 3] = [256, 2048, 9216];

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: i16 = 14;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const UDP: u32 = 17;
/// Bytes before the datagram: IP without options or extensions, and UDP.
const V4_HEADERS: i16 = 20 + 8;
const V6_HEADERS: i16 = 40 + 8;
/// Bytes at the start of the datagram that name the connection; 0 in a handshake (WIRE-2.1,
/// WIND-10.5).
const CONNECTION: i16 = 8;
/// Mask of the More Fragments flag and the fragment offset (RFC 791, section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// Offsets of fields in `struct __sk_buff` (linux/bpf.h).
mod packet {
    pub(super) const LEN: i16 = 0;
    pub(super) const KIND: i16 = 4;
    pub(super) const TAGGED: i16 = 20;
    pub(super) const INTERFACE: i16 = 40;
    pub(super) const BYTES: i16 = 76;
    pub(super) const BYTES_END: i16 = 80;
    pub(super) const JOINED_SIZE: i16 = 176;
}

/// Numbers of the kernel's helpers (linux/bpf.h).
mod helper {
    pub(super) const LOAD_BYTES: i32 = 26;
    pub(super) const RING_RESERVE: i32 = 131;
    pub(super) const RING_SUBMIT: i32 = 132;
    pub(super) const RING_DISCARD: i32 = 133;
}
/// `BPF_RB_NO_WAKEUP`: the reader polls the ring for the record.
const NOBODY_SLEEPS: i32 = 1;
/// `TCX_NEXT`: the packet goes on as if the program had not seen it.
pub(super) const PASSED: i32 = -1;
/// `TC_ACT_SHOT`: the packet goes nowhere else.
pub(super) const TAKEN: i32 = 2;

/// Jump targets in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramLabel {
    Six,
    NotThis(usize),
    Ours,
    Reserve,
    NoRoom,
    Discard,
    Pass,
}

/// Builds the program for this port at these addresses. It takes `joined` packets if so asked.
/// `gate` is a word that says whether packets are taken, and the program shuts it when the ring is
/// full. Returns `None` if there are too many addresses.
pub(super) fn program(
    port: u16,
    addresses: &[IpAddr],
    joined: bool,
    ring: BorrowedFd<'_>,
    gate: BorrowedFd<'_>,
) -> Option<Vec<Instruction>> {
    let [result, first, second, third, fourth, scratch, context, record, length] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8].map(Register);
    let stack_word = -8;
    let mut p = Assembler::new();
    p.copy(context, first);
    // Only packets for this host (PACKET_HOST is 0), without a VLAN tag.
    p.load(Width::Four, scratch, context, packet::KIND);
    p.jump_if(scratch, Condition::NotEqual, 0, ProgramLabel::Pass);
    p.load(Width::Four, scratch, context, packet::TAGGED);
    p.jump_if(scratch, Condition::NotEqual, 0, ProgramLabel::Pass);
    if !joined {
        p.load(Width::Four, scratch, context, packet::JOINED_SIZE);
        p.jump_if(scratch, Condition::NotEqual, 0, ProgramLabel::Pass);
    }
    p.load(Width::Four, length, context, packet::LEN);
    p.load(Width::Four, second, context, packet::BYTES);
    p.load(Width::Four, third, context, packet::BYTES_END);
    p.copy(fourth, second);
    p.add(fourth, (ETHERNET + V4_HEADERS + CONNECTION).into());
    p.jump_if_above(fourth, third, ProgramLabel::Pass);
    p.load(Width::Two, scratch, second, 12);
    p.jump_if(scratch, Condition::Equal, on_wire(IPV6 as u16), ProgramLabel::Six);
    p.jump_if(scratch, Condition::NotEqual, on_wire(IPV4 as u16), ProgramLabel::Pass);
    ipv4(&mut p, port, addresses);
    p.place(ProgramLabel::Six);
    p.copy(fourth, second);
    p.add(fourth, (ETHERNET + V6_HEADERS + CONNECTION).into());
    p.jump_if_above(fourth, third, ProgramLabel::Pass);
    ipv6(&mut p, port, addresses);

    p.place(ProgramLabel::Ours);
    p.map_value(first, gate);
    p.load(Width::Four, scratch, first, 0);
    p.jump_if(scratch, Condition::Equal, 0, ProgramLabel::Pass);
    p.jump_if(length, Condition::Below, ETHERNET.cast_unsigned().into(), ProgramLabel::Pass);
    let [small, middle, large] = RECORDS;
    p.jump_if(length, Condition::Above, longest(large), ProgramLabel::Pass);
    p.set(second, large.into());
    p.jump_if(length, Condition::Above, longest(middle), ProgramLabel::Reserve);
    p.set(second, middle.into());
    p.jump_if(length, Condition::Above, longest(small), ProgramLabel::Reserve);
    p.set(second, small.into());

    p.place(ProgramLabel::Reserve);
    p.map(first, ring);
    p.set(third, 0);
    p.call(helper::RING_RESERVE);
    // Compares all 64 bits, because the verifier requires a proof that the pointer is not null.
    p.jump_if_null(result, ProgramLabel::NoRoom);
    p.copy(record, result);
    // This barrier is the program's half of Dekker's algorithm. Either a thread that shuts the gate
    // and then checks the ring sees this record, or the program sees here that the gate is shut.
    p.full_barrier(stack_word, scratch);
    p.map_value(first, gate);
    p.load(Width::Four, scratch, first, 0);
    p.jump_if(scratch, Condition::Equal, 0, ProgramLabel::Discard);
    p.store(Width::Four, record, 0, length);
    p.load(Width::Four, scratch, context, packet::INTERFACE);
    p.store(Width::Four, record, 4, scratch);
    p.load(Width::Four, scratch, context, packet::JOINED_SIZE);
    p.store(Width::Four, record, 8, scratch);
    p.copy(first, context);
    p.set(second, 0);
    p.copy(third, record);
    p.add(third, RECORD_HEAD as i32);
    p.copy(fourth, length);
    p.call(helper::LOAD_BYTES);
    p.jump_if(result, Condition::NotEqual, 0, ProgramLabel::Discard);
    p.copy(first, record);
    p.set(second, NOBODY_SLEEPS);
    p.call(helper::RING_SUBMIT);
    p.exit_with(TAKEN);

    // Packets that follow must not overtake those that go to the sockets now. The gate opens again
    // when ring and socket are empty.
    p.place(ProgramLabel::NoRoom);
    p.map_value(first, gate);
    p.set(scratch, 0);
    p.store(Width::Four, first, 0, scratch);
    p.exit_with(PASSED);

    p.place(ProgramLabel::Discard);
    p.copy(first, record);
    p.set(second, NOBODY_SLEEPS);
    p.call(helper::RING_DISCARD);
    p.place(ProgramLabel::Pass);
    p.exit_with(PASSED);
    p.finish()
}

/// Matches IPv4 from here to [`ProgramLabel::Ours`] or [`ProgramLabel::Pass`]. Register 2 leads to
/// the packet, including the beginning of the datagram. The header has no options (an IHL of 5),
/// and the packet is not a fragment.
fn ipv4(p: &mut Assembler<ProgramLabel>, port: u16, addresses: &[IpAddr]) {
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET);
    p.jump_if(scratch, Condition::NotEqual, 0x45, ProgramLabel::Pass);
    p.load(Width::Two, scratch, bytes, ETHERNET + 6);
    p.and(scratch, on_wire(FRAGMENT) as i32);
    p.jump_if(scratch, Condition::NotEqual, 0, ProgramLabel::Pass);
    datagram(p, port, 9, V4_HEADERS);
    p.load(Width::Four, scratch, bytes, ETHERNET + 16);
    for address in addresses.iter().filter_map(v4) {
        p.jump_if(
            scratch,
            Condition::Equal,
            u32::from_ne_bytes(address.octets()),
            ProgramLabel::Ours,
        );
    }
    p.jump(ProgramLabel::Pass);
}

/// Matches IPv6 likewise, without extension headers.
fn ipv6(p: &mut Assembler<ProgramLabel>, port: u16, addresses: &[IpAddr]) {
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET);
    p.and(scratch, 0xf0);
    p.jump_if(scratch, Condition::NotEqual, 0x60, ProgramLabel::Pass);
    datagram(p, port, 6, V6_HEADERS);
    for (number, address) in addresses.iter().filter_map(v6).enumerate() {
        for (word, at) in
            address.octets().as_chunks::<4>().0.iter().zip((ETHERNET + 24..).step_by(4))
        {
            p.load(Width::Four, scratch, bytes, at);
            p.jump_if(
                scratch,
                Condition::NotEqual,
                u32::from_ne_bytes(*word),
                ProgramLabel::NotThis(number),
            );
        }
        p.jump(ProgramLabel::Ours);
        p.place(ProgramLabel::NotThis(number));
    }
    p.jump(ProgramLabel::Pass);
}

/// Continues only with UDP datagrams of a connection for this port. `protocol` is the offset of the
/// protocol in the IP header, and `headers` the number of bytes before the datagram.
fn datagram(p: &mut Assembler<ProgramLabel>, port: u16, protocol: i16, headers: i16) {
    const UDP_HEADER: i16 = 8;
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET + protocol);
    p.jump_if(scratch, Condition::NotEqual, UDP, ProgramLabel::Pass);
    p.load(Width::Two, scratch, bytes, ETHERNET + headers - UDP_HEADER + 2);
    p.jump_if(scratch, Condition::NotEqual, on_wire(port), ProgramLabel::Pass);
    p.load(Width::Eight, scratch, bytes, ETHERNET + headers);
    p.jump_if_null(scratch, ProgramLabel::Pass);
}

/// Maximum bytes of a frame in a record of this length.
fn longest(record: u16) -> u32 {
    u32::from(record).saturating_sub(RECORD_HEAD as u32)
}

/// Value of two bytes in network order, as this machine loads them.
const fn on_wire(value: u16) -> u32 {
    value.to_be() as u32
}

fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(v4) = address { Some(*v4) } else { None }
}

fn v6(address: &IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(v6) = address { Some(*v6) } else { None }
}
