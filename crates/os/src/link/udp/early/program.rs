//! The program that stands where packets come in.
//!
//! It takes what is for our port and puts it into the ring; all else, and whatever it is in doubt
//! of, goes its usual way: packets with options, handshakes (WIND-10.5), in fragments, of a VLAN
//! (whose own interface has a program, too), joined by the kernel, too long, for other addresses,
//! or for which the ring has no room.

use crate::bpf::{Assembler, Condition, Instruction, Register, Width};
use rustix::fd::BorrowedFd;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a record before the frame: how long that is, and the number of the interface.
pub(super) const RECORD_HEAD: usize = 8;
/// Bytes of the records there are; one is as long as the first of these that its frame fits in. The
/// last takes any frame of an MTU of 9000.
pub(super) const RECORDS: [u16; 3] = [256, 2048, 9216];

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: i16 = 14;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const UDP: u32 = 17;
/// Bytes before the datagram: of IP, without options or extensions, and of UDP.
const V4_HEADERS: i16 = 20 + 8;
const V6_HEADERS: i16 = 40 + 8;
/// And those with which it begins: whose it is, 0 in a handshake (WIRE-2.1, WIND-10.5).
const CONNECTION: i16 = 8;
/// More Fragments, and the offset (RFC 791, section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// Fields of `struct __sk_buff` (linux/bpf.h).
mod packet {
    pub(super) const LEN: i16 = 0;
    pub(super) const KIND: i16 = 4;
    pub(super) const TAGGED: i16 = 20;
    pub(super) const INTERFACE: i16 = 40;
    pub(super) const BYTES: i16 = 76;
    pub(super) const BYTES_END: i16 = 80;
    pub(super) const JOINED: i16 = 176;
}

/// Helpers of the kernel, by number (linux/bpf.h).
mod helper {
    pub(super) const LOAD_BYTES: i32 = 26;
    pub(super) const RING_RESERVE: i32 = 131;
    pub(super) const RING_SUBMIT: i32 = 132;
    pub(super) const RING_DISCARD: i32 = 133;
}
/// `BPF_RB_NO_WAKEUP`: who wants the record looks for it.
const NOBODY_SLEEPS: i32 = 1;
/// `TCX_NEXT`: the packet goes on as if nobody had looked.
pub(super) const PASSED: i32 = -1;
/// `TC_ACT_SHOT`: nobody else gets it.
pub(super) const TAKEN: i32 = 2;

/// Places in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Six,
    NotThis(usize),
    Ours,
    Reserve,
    NoRoom,
    Discard,
    Pass,
}

/// The program for this port at these addresses. `gate` is a word that says whether packets are
/// taken; it is shut when there is no room. `None`: too many addresses.
pub(super) fn program(
    port: u16,
    addresses: &[IpAddr],
    ring: BorrowedFd<'_>,
    gate: BorrowedFd<'_>,
) -> Option<Vec<Instruction>> {
    let [result, first, second, third, fourth, scratch, context, record, length] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8].map(Register);
    let stack_word = -8;
    let mut p = Assembler::new();
    p.copy(context, first);
    // Only what is for this host (PACKET_HOST is 0), as it came, and one by one.
    p.load(Width::Four, scratch, context, packet::KIND);
    p.jump_if(scratch, Condition::NotEqual, 0, At::Pass);
    p.load(Width::Four, scratch, context, packet::TAGGED);
    p.jump_if(scratch, Condition::NotEqual, 0, At::Pass);
    p.load(Width::Four, scratch, context, packet::JOINED);
    p.jump_if(scratch, Condition::NotEqual, 0, At::Pass);
    p.load(Width::Four, length, context, packet::LEN);
    p.load(Width::Four, second, context, packet::BYTES);
    p.load(Width::Four, third, context, packet::BYTES_END);
    p.copy(fourth, second);
    p.add(fourth, (ETHERNET + V4_HEADERS + CONNECTION).into());
    p.jump_if_above(fourth, third, At::Pass);
    p.load(Width::Two, scratch, second, 12);
    p.jump_if(scratch, Condition::Equal, on_wire(IPV6 as u16), At::Six);
    p.jump_if(scratch, Condition::NotEqual, on_wire(IPV4 as u16), At::Pass);
    ipv4(&mut p, port, addresses);
    p.place(At::Six);
    p.copy(fourth, second);
    p.add(fourth, (ETHERNET + V6_HEADERS + CONNECTION).into());
    p.jump_if_above(fourth, third, At::Pass);
    ipv6(&mut p, port, addresses);

    p.place(At::Ours);
    p.map_value(first, gate);
    p.load(Width::Four, scratch, first, 0);
    p.jump_if(scratch, Condition::Equal, 0, At::Pass);
    p.jump_if(length, Condition::Below, ETHERNET.cast_unsigned().into(), At::Pass);
    let [small, middle, large] = RECORDS;
    p.jump_if(length, Condition::Above, longest(large), At::Pass);
    p.set(second, large.into());
    p.jump_if(length, Condition::Above, longest(middle), At::Reserve);
    p.set(second, middle.into());
    p.jump_if(length, Condition::Above, longest(small), At::Reserve);
    p.set(second, small.into());

    p.place(At::Reserve);
    p.map(first, ring);
    p.set(third, 0);
    p.call(helper::RING_RESERVE);
    // All 64 bits: the kernel wants to know that it is no null.
    p.jump_if_null(result, At::NoRoom);
    p.copy(record, result);
    // Who shuts the gate and then finds the ring empty finds nothing later: either it sees this
    // record, or it is seen here that the gate is shut.
    p.full_barrier(stack_word, scratch);
    p.map_value(first, gate);
    p.load(Width::Four, scratch, first, 0);
    p.jump_if(scratch, Condition::Equal, 0, At::Discard);
    p.store(Width::Four, record, 0, length);
    p.load(Width::Four, scratch, context, packet::INTERFACE);
    p.store(Width::Four, record, 4, scratch);
    p.copy(first, context);
    p.set(second, 0);
    p.copy(third, record);
    p.add(third, RECORD_HEAD as i32);
    p.copy(fourth, length);
    p.call(helper::LOAD_BYTES);
    p.jump_if(result, Condition::NotEqual, 0, At::Discard);
    p.copy(first, record);
    p.set(second, NOBODY_SLEEPS);
    p.call(helper::RING_SUBMIT);
    p.exit_with(TAKEN);

    // What follows must not overtake what goes to the sockets now: the gate is open again when both
    // are empty.
    p.place(At::NoRoom);
    p.map_value(first, gate);
    p.set(scratch, 0);
    p.store(Width::Four, first, 0, scratch);
    p.exit_with(PASSED);

    p.place(At::Discard);
    p.copy(first, record);
    p.set(second, NOBODY_SLEEPS);
    p.call(helper::RING_DISCARD);
    p.place(At::Pass);
    p.exit_with(PASSED);
    p.finish()
}

/// From here to [`At::Ours`] or [`At::Pass`]: the packet is at register 2, with the datagram's
/// beginning. Without options (an IHL of 5), not a fragment.
fn ipv4(p: &mut Assembler<At>, port: u16, addresses: &[IpAddr]) {
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET);
    p.jump_if(scratch, Condition::NotEqual, 0x45, At::Pass);
    p.load(Width::Two, scratch, bytes, ETHERNET + 6);
    p.and(scratch, on_wire(FRAGMENT) as i32);
    p.jump_if(scratch, Condition::NotEqual, 0, At::Pass);
    datagram(p, port, 9, V4_HEADERS);
    p.load(Width::Four, scratch, bytes, ETHERNET + 16);
    for address in addresses.iter().filter_map(v4) {
        p.jump_if(scratch, Condition::Equal, u32::from_ne_bytes(address.octets()), At::Ours);
    }
    p.jump(At::Pass);
}

/// Likewise, without extension headers.
fn ipv6(p: &mut Assembler<At>, port: u16, addresses: &[IpAddr]) {
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET);
    p.and(scratch, 0xf0);
    p.jump_if(scratch, Condition::NotEqual, 0x60, At::Pass);
    datagram(p, port, 6, V6_HEADERS);
    for (number, address) in addresses.iter().filter_map(v6).enumerate() {
        for (word, at) in
            address.octets().as_chunks::<4>().0.iter().zip((ETHERNET + 24..).step_by(4))
        {
            p.load(Width::Four, scratch, bytes, at);
            p.jump_if(scratch, Condition::NotEqual, u32::from_ne_bytes(*word), At::NotThis(number));
        }
        p.jump(At::Ours);
        p.place(At::NotThis(number));
    }
    p.jump(At::Pass);
}

/// Go on only with what is UDP, for this port, and of a connection. Its protocol stands so far into
/// the IP header, and the datagram behind so many bytes of headers.
fn datagram(p: &mut Assembler<At>, port: u16, protocol: i16, headers: i16) {
    const UDP_HEADER: i16 = 8;
    let (bytes, scratch) = (Register(2), Register(5));
    p.load(Width::One, scratch, bytes, ETHERNET + protocol);
    p.jump_if(scratch, Condition::NotEqual, UDP, At::Pass);
    p.load(Width::Two, scratch, bytes, ETHERNET + headers - UDP_HEADER + 2);
    p.jump_if(scratch, Condition::NotEqual, on_wire(port), At::Pass);
    p.load(Width::Eight, scratch, bytes, ETHERNET + headers);
    p.jump_if_null(scratch, At::Pass);
}

/// Bytes of the longest frame in a record of this length.
fn longest(record: u16) -> u32 {
    u32::from(record).saturating_sub(RECORD_HEAD as u32)
}

/// Two bytes as they lie in a packet, loaded by this machine.
const fn on_wire(value: u16) -> u32 {
    value.to_be() as u32
}

fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(v4) = address { Some(*v4) } else { None }
}

fn v6(address: &IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(v6) = address { Some(*v6) } else { None }
}
