//! Memory handed over in the socket while this process has no free descriptor. The kernel then
//! delivers the bytes alone.

use super::*;
use oikaze_protocol::limits::GRANTS;

fn grant(key: u64, line: u32) -> Vec<u8> {
    let mut message = b"give".to_vec();
    message.extend([key, 4096].into_iter().flat_map(u64::to_le_bytes));
    message.extend(line.to_le_bytes());
    message.extend([Rights::ALL.0, 0]);
    message
}

/// Returns a question without the descriptor that belongs to it.
fn question(number: u64) -> Vec<u8> {
    let mut message = b"swap".to_vec();
    message.extend([number, 5, 0, 0, 4096].into_iter().flat_map(u64::to_le_bytes));
    message
}

fn tell(pair: &mut Pair, heading: Heading, word: u64) {
    put(pair, heading, &[Part::Bytes(&word.to_le_bytes())]);
}

/// Takes the records that have arrived at the test's side. Returns each with its word.
fn take_all(pair: &mut Pair) -> Vec<(Heading, u64)> {
    let mut taken = Vec::new();
    while let Ok(Some(heading)) = pair.inward.peek() {
        let mut word = [0; 8];
        pair.inward.read(0, &mut word);
        let end = pair.inward.pass(heading);
        pair.inward.settle(end);
        taken.push((heading, u64::from_le_bytes(word)));
    }
    taken
}

fn has_its_local_peer(node: &Node) -> bool {
    node.engine.shm.get(1).is_some()
}

/// MEM-18.1: the region is reached through the ring, and its owner may use the line for another
/// region.
#[test]
fn a_region_that_came_without_its_descriptor_is_done_without() {
    let (mut node, mut other) = facing_a_hostile_one();
    let given = Region::shared(4096).unwrap();
    // More regions than there are lines.
    for key in 0..3 * GRANTS as u64 {
        let asked = node.ask(Request::Map { at: 1, key });
        node.turn(Time(1));
        let line = other.grants.give(1, &given).expect("a line is free");
        other.line.say(&grant(key, line as u32), None).unwrap();
        tell(&mut other, Heading { flag: true, ..Heading::plain(RecordKind::Given, 0) }, key);
        node.turn(Time(1));
        assert_eq!(asked.outcome(), Some(Ok(Value::Done)));
        take_all(&mut other);
    }
    assert!(has_its_local_peer(&node));
}

/// MEM-20.3: no pages are exchanged, and the asking peer learns it.
#[test]
fn an_exchange_whose_pages_came_without_their_descriptor_is_declined() {
    let (mut node, mut other) = facing_a_hostile_one();
    for number in 1..100 {
        other.line.say(&question(number), None).unwrap();
        tell(&mut other, Heading::plain(RecordKind::Swap, 0), number);
        node.turn(Time(1));
        assert!(take_all(&mut other).contains(&(Heading::plain(RecordKind::Swapped, 8), number)));
    }
    assert!(has_its_local_peer(&node));
}

/// MEM-20.5: a node that has given its pages away and got none for them cannot know the peer's
/// pages, and no longer trusts the peer.
#[test]
fn what_nobody_says_ends_a_local_peer() {
    for message in [
        [b"took", &question(1)[4..]].concat(),
        question(1)[..20].to_vec(),
        grant(1, 1)[..20].to_vec(),
        b"what".to_vec(),
    ] {
        let (mut node, mut other) = facing_a_hostile_one();
        other.line.say(&message, None).unwrap();
        tell(&mut other, Heading::plain(RecordKind::Swap, 0), 1);
        (1..3).for_each(|at| node.turn(Time(at)));
        assert!(!has_its_local_peer(&node), "{message:?}");
    }
}
