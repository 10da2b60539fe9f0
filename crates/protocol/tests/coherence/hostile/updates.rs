//! Updates and subscriptions that no honest peer would send (COH-9.1, COH-10).

use crate::updates::{
    ARRIVE, UPDATE, barrier, first_field, guarded, head, pages, read, statistics, write,
};
use oikaze_protocol::coherence::Homes;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::{Admission, Refusal};

const SUBSCRIBE: u8 = 14;
const SUBSCRIBERS: u8 = 15;

/// COH-9.1, COH-10.3 and COH-10.4: updates that no sound node sends are refused, and nothing has
/// changed.
#[test]
fn updates_that_make_no_sense_are_refused() {
    let mut cluster = guarded(3, 9, Homes::Block, 11);
    barrier(&mut cluster);
    let node = &mut cluster.nodes[1];
    let mut tell = |fields, body: &[u8]| {
        let head = head(UPDATE, fields);
        let taken = node.coherence.receive(0, &head, body, &mut node.machine);
        if let Err(refusal) = taken {
            // The first fragment of a longer one is refused as well, unless its body tells.
            let admission = node.coherence.admit(0, 1, &head, body.len() as u64);
            let is_refused = matches!(admission, Admission::Refuse(_));
            assert!(is_refused || fields[0] >> 32 & 1 == 1, "{fields:?}");
            return Err(refusal);
        }
        Ok(())
    };
    // Two collectives have passed: the declaration and a barrier.
    let now = first_field(2, 0);
    let changes = first_field(2, 1);
    let word = [1; 8];
    for (fields, body, refusal) in [
        // Epochs that are over, or that no node can have reached.
        ([first_field(1, 0), 0, 1], &word[..], Refusal::Malformed),
        ([first_field(0, 0), 0, 1], &word, Refusal::Malformed),
        ([first_field(4, 0), 0, 1], &word, Refusal::Malformed),
        ([first_field(0x8001, 0), 0, 1], &word, Refusal::Malformed),
        // Another array, pages homed here, pages beyond the end, no byte.
        ([now | 3, 0, 1], &word, Refusal::UnknownObject),
        ([now, 3 * PAGE as u64 - 4, 1], &word, Refusal::NotPermitted),
        ([now, 9 * PAGE as u64 - 4, 1], &word, Refusal::OutOfBounds),
        ([now, u64::MAX - 3, 1], &word, Refusal::OutOfBounds),
        ([now, 0, 1], &[], Refusal::OutOfBounds),
        // No interval, unknown flags, flags that exclude each other, changes with an offset.
        ([now, 0, 0], &word, Refusal::Malformed),
        ([first_field(2, 16), 0, 1], &word, Refusal::Malformed),
        ([first_field(2, 12), 0, 1], &word, Refusal::Malformed),
        ([first_field(2, 9), 0, 1], &word, Refusal::Malformed),
        ([changes, 8, 1], &[0, 0, 1, 0, 1, 7], Refusal::Malformed),
        // Changes of pages homed here and beyond the end, and changes that are cut off.
        ([changes, 0, 1], &[3, 0, 1, 0, 1, 7], Refusal::NotPermitted),
        ([changes, 0, 1], &[9, 0, 1, 0, 1, 7], Refusal::OutOfBounds),
        ([changes, 0, 1], &[0, 0, 1, 0, 9, 7], Refusal::Malformed),
        ([changes, 0, 1], &[0, 0, 1, 0, 1, 7, 3, 0, 1, 0, 1, 7], Refusal::NotPermitted),
    ] {
        assert_eq!(tell(fields, body), Err(refusal), "{fields:x?} {body:?}");
    }
    assert_eq!(tell([now, 0, 1], &word), Ok(()));
    assert_eq!(tell([first_field(3, 0), 0, 1], &word), Ok(()), "the next epoch");
    assert!(node.machine.alias(0).iter().all(|byte| *byte == 0), "nothing was written");
    assert_eq!(node.coherence.statistics().updates_received, 2);
}

/// COH-10.11: a receiver finds memory for a whole range when its first bytes come, so no range may
/// be longer than those of honest peers.
#[test]
fn a_range_longer_than_an_honest_one_is_refused() {
    const RANGE_MAX: usize = 1 << 20;
    let mut cluster = guarded(3, 900, Homes::Block, 13);
    barrier(&mut cluster);
    let node = &mut cluster.nodes[1];
    // Pages of node 2, pushed to this node.
    let head = head(UPDATE, [first_field(2, 2), 600 * PAGE as u64, 1]);
    let mut tell = |len| node.coherence.receive(0, &head, &vec![7; len], &mut node.machine);
    assert_eq!(tell(RANGE_MAX + 1), Err(Refusal::Malformed));
    assert_eq!(tell(RANGE_MAX), Ok(()));
    let admission = node.coherence.admit(0, 1, &head, RANGE_MAX as u64 + 1);
    assert!(matches!(admission, Admission::Refuse(_)), "{admission:?}");
}

/// COH-9.1: counts of updates, and what messages say of subscriptions.
#[test]
fn counts_and_subscriptions_that_make_no_sense_are_refused() {
    let mut cluster = guarded(3, 9, Homes::Block, 12);
    read(&mut cluster, 1, 0);
    let node = &mut cluster.nodes[0];
    let mut tell = |from, code, fields: [u64; 3], body: &[u8]| {
        node.coherence.receive(from, &head(code, fields), body, &mut node.machine)
    };
    // A barrier of node 1, no intervals, then counts: sender, receiver, number.
    let mut arrive =
        |counts: &[u8]| tell(1, ARRIVE, [1, 0, 0], &[&[1, 0, 1, 1, 1, 0], counts].concat());
    for wrong in [
        // Of another sender, to itself, to nobody, none, two alike, and out of order.
        &[1, 2, 0, 1][..],
        &[1, 1, 1, 1],
        &[1, 1, 3, 1],
        &[1, 1, 0, 0],
        &[2, 1, 0, 1, 1, 0, 2],
        &[2, 1, 2, 1, 1, 0, 1],
        // Cut off.
        &[1, 1, 0],
        &[200, 1, 1, 0, 1],
    ] {
        assert_eq!(arrive(wrong), Err(Refusal::Malformed), "{wrong:?}");
    }
    let range = |begins: u64| begins << 32;
    for (fields, refusal) in [
        ([range(1) | 4, 0, 1], Refusal::UnknownObject),
        ([range(1), 3, 1], Refusal::NotPermitted),
        ([range(1), 8, 2], Refusal::OutOfBounds),
        ([range(1), 0, 0], Refusal::OutOfBounds),
        ([range(1), u64::MAX, 1], Refusal::Malformed),
        ([range(2), 0, 1], Refusal::Malformed),
    ] {
        assert_eq!(tell(1, SUBSCRIBE, fields, &[]), Err(refusal), "{fields:x?}");
    }
    assert_eq!(tell(1, SUBSCRIBE, [range(1), 0, 1], &[7]), Err(Refusal::Malformed));
    for (body, refusal) in [
        // A page of node 0, pages beyond the end, an unknown node, more nodes than there are.
        (&[1, 0, 1, 1, 2][..], Refusal::NotPermitted),
        (&[1, 8, 2, 1, 2], Refusal::OutOfBounds),
        (&[1, 3, 1, 1, 3], Refusal::Malformed),
        (&[1, 3, 1, 4, 0, 1, 2, 0], Refusal::Malformed),
        (&[2, 3, 1, 1, 2], Refusal::Malformed),
        // A page twice, and pages out of order.
        (&[2, 3, 2, 1, 2, 4, 1, 1, 0], Refusal::OutOfBounds),
        (&[2, 4, 1, 1, 2, 3, 1, 1, 0], Refusal::OutOfBounds),
    ] {
        assert_eq!(tell(1, SUBSCRIBERS, [0, 0, 0], body), Err(refusal), "{body:?}");
    }
    assert_eq!(tell(1, SUBSCRIBERS, [4, 0, 0], &[0]), Err(Refusal::UnknownObject));
    assert_eq!(tell(1, SUBSCRIBERS, [0, 0, 0], &[1, 3, 1, 1, 2]), Ok(()));
    assert_eq!(tell(1, SUBSCRIBE, [range(1), 0, 1], &[]), Ok(()));
    // Node 1 has asked for updates of page 0, and node 2 for updates of a page of node 1.
    write(&mut cluster, 0, 0..8, 1);
    write(&mut cluster, 0, pages(3..4).start..pages(3..4).start + 8, 1);
    barrier(&mut cluster);
    assert_eq!(statistics(&cluster, 0).updates_sent, 2);
}

/// COH-9.2, COH-9.1: ranges that guards own, and groups of nodes that got pages, as intervals tell
/// them.
#[test]
fn intervals_with_wrong_groups_or_ranges_are_refused() {
    let mut cluster = guarded(3, 9, Homes::Block, 13);
    let node = &mut cluster.nodes[0];
    let mut arrive = |interval: &[u8]| {
        let body = [&[1, 0, 1, 1, 1, 1][..], interval, &[0; 4]].concat();
        node.coherence.receive(1, &head(ARRIVE, [1, 0, 0]), &body, &mut node.machine)
    };
    // Writer 1, number 1, no more, flags, one run of page 3, then groups, and owned ranges if the
    // flags say so.
    for (wrong, refusal) in [
        // Flags that do not exist; a group without a node, with an unknown one, out of order.
        (&[1, 1, 0, 8, 1, 0, 3, 1, 0, 0][..], Refusal::Malformed),
        (&[1, 1, 0, 0, 1, 0, 3, 1, 1, 0, 1, 0, 3, 1, 0], Refusal::Malformed),
        (&[1, 1, 0, 0, 1, 0, 3, 1, 1, 1, 3, 1, 0, 3, 1, 0], Refusal::Malformed),
        (&[1, 1, 0, 0, 1, 0, 3, 1, 1, 2, 2, 0, 1, 0, 3, 1, 0], Refusal::Malformed),
        // Pages of a group, or owned bytes, beyond the end of the array, and an empty range.
        (&[1, 1, 0, 0, 1, 0, 3, 1, 1, 1, 2, 1, 0, 9, 1, 0], Refusal::OutOfBounds),
        (&[1, 1, 0, 4, 1, 0, 3, 1, 0, 1, 0, 0xff, 0xff, 0x7f, 9], Refusal::OutOfBounds),
        (&[1, 1, 0, 4, 1, 0, 3, 1, 0, 1, 0, 0, 0], Refusal::OutOfBounds),
        (&[1, 1, 0, 4, 1, 0, 3, 1, 0, 1, 7, 0, 8], Refusal::UnknownObject),
    ] {
        assert_eq!(arrive(wrong), Err(refusal), "{wrong:?}");
    }
    assert_eq!(arrive(&[1, 1, 0, 4, 1, 0, 3, 1, 1, 1, 2, 1, 0, 3, 1, 1, 0, 0, 8]), Ok(()));
}
