//! Messages of shared arrays and notifications from a peer gone mad, to a node of three that has
//! declared an array and waits for a lock and for a notification (COH-9.1).
#![no_main]

#[path = "../../crates/protocol/tests/coherence/cluster/mod.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::Cluster;
use libfuzzer_sys::fuzz_target;
use oikaze_protocol::coherence::{Homes, KIND};
use oikaze_protocol::wind::{Admission, Token};

/// `from and form u8 | code u8 | three fields u16 | len u8 | body`: one message, and what is left.
fn message(input: &[u8]) -> Option<(u8, Vec<u8>, &[u8], &[u8])> {
    let ([form, code, fields @ ..], rest) = input.split_first_chunk::<8>()?;
    let ([len], rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(usize::from(*len).min(rest.len()))?;
    let mut head = vec![KIND, *code];
    for field in fields.chunks(2) {
        // Small, or so large that sums overflow.
        let field = u64::from(field[0]) | u64::from(field[1] & 0x7f) << 32;
        head.extend(if form & 0x40 != 0 { field.wrapping_neg() } else { field }.to_le_bytes());
    }
    Some((*form, head, body, rest))
}

fuzz_target!(|input: &[u8]| {
    let mut cluster = Cluster::new(3, 9);
    cluster.declare("p", 9, Homes::Block);
    let node = &mut cluster.nodes[1];
    node.coherence.lock(1, Token(9), &mut node.machine);
    node.coherence.wait_notify(0, true, Token(10), &mut node.machine);
    let (mut input, mut number) = (input, 70);
    while let Some((form, head, body, rest)) = message(input) {
        (input, number) = (rest, number + 1);
        let from = u32::from(form % 4);
        if form & 0x20 != 0 {
            node.coherence.acquire_from_team(&[body.to_vec()], Token(number), &mut node.machine);
        } else if form & 0x80 == 0 {
            let _ = node.coherence.receive(from, &head, body, &mut node.machine);
            let _ = node.coherence.receive(from, body, body, &mut node.machine);
        } else if node.coherence.admit(from, number, &head, 4096) == Admission::Place {
            node.coherence.place(from, number, u64::from(form), body, &mut node.machine);
            let _ = node.coherence.arrived(from, number, &head, &mut node.machine);
        }
        while node.coherence.poll_message().is_some() {}
        while node.coherence.poll_event().is_some() {}
    }
});
