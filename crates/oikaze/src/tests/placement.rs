//! Messages that are placed as they arrive, begun and ended by hand (MEM-26.8).

use super::node::node_and_local_peer;
use crate::memory::LocalRegion;
use oikaze_engine::{Arrived, Completion, Failure, MessagePlacement, PostedMemory, Value};
use oikaze_os::memory::Region;
use oikaze_os::memory::scope as lend;
use oikaze_protocol::rma::{Pattern, Rights, RmaError};
use oikaze_protocol::wind::Class;
use oikaze_runtime::node::{Node, PostedReceive};
use std::sync::Arc;

const ANY: Pattern = Pattern { from: None, tag: 0, mask: 0 };
const LEN: usize = 64;

fn gone() -> Option<Result<Value, Failure>> {
    Some(Err(RmaError::DestinationGone.into()))
}

fn received(tag: u64, len: u64) -> Option<Result<Value, Failure>> {
    Some(Ok(Value::Received { from: 1, tag, len }))
}

fn registered(node: &Arc<Node>, memory: Region) -> LocalRegion {
    LocalRegion::new(node, memory, Rights::NONE, None, None).unwrap()
}

fn memory(node: &Arc<Node>) -> LocalRegion {
    registered(node, Region::zeroed(LEN).unwrap())
}

/// Posts a receive of any message.
fn post(node: &Node, into: &LocalRegion) -> Arc<Completion> {
    let completion = Completion::new();
    let receive =
        PostedReceive { into: into.all().receive_memory(), completion: Arc::clone(&completion) };
    node.mail.post_receive(node, ANY, receive);
    completion
}

fn begin(node: &Node, tag: u64) -> Option<Box<dyn MessagePlacement>> {
    node.mail.posted().begin(1, tag, LEN as u64)
}

fn deposit(node: &Node, messages: &[(u64, usize)]) {
    let mut messages = messages.iter().map(|&(tag, len)| {
        let body = vec![tag as u8; len].into();
        Arrived { from: 1, class: Class::Ordered, tag, body }
    });
    node.mail.mailbox.deposit(|| messages.next());
}

/// MEM-26.5, MEM-26.8: a cancel waits for the end of the message that is being placed. If the
/// message is withdrawn, the receive is cancelled, and the next message is not its own.
#[test]
fn receive_cancelled_during_a_placement_is_not_posted_again() {
    let (node, _local_peer) = node_and_local_peer();
    let page = memory(&node);
    let (cancelled, kept) = (post(&node, &page), post(&node, &page));
    let placement = begin(&node, 1).unwrap();
    node.mail.cancel_receive(&node, &cancelled);
    assert!(!cancelled.is_done(), "the message may still be whole");
    placement.abort();
    assert_eq!(cancelled.outcome(), Some(Err(Failure::Cancelled)));
    deposit(&node, &[(2, 4)]);
    assert_eq!((kept.outcome(), node.mail.mailbox.len()), (received(2, 4), 0));
}

/// MEM-26.5: a receive is either cancelled or complete.
#[test]
fn receive_cancelled_during_a_placement_completes_with_a_whole_message() {
    let (node, _local_peer) = node_and_local_peer();
    let page = memory(&node);
    let receive = post(&node, &page);
    let mut placement = begin(&node, 1).unwrap();
    node.mail.cancel_receive(&node, &receive);
    placement.write(0, &[7; LEN]);
    assert!(placement.finish());
    assert!(!receive.is_done(), "the entries of its turn come first (MEM-25.5)");
    deposit(&node, &[]);
    assert_eq!(receive.outcome(), received(1, LEN as u64));
    assert!(!node.mail.mailbox.is_placing());
}

/// MEM-26.5, MEM-26.7: neither the withdrawal nor the rest of a message brings a receive of
/// deregistered memory back.
#[test]
fn memory_deregistered_during_a_placement_ends_the_receive() {
    for is_whole in [false, true] {
        let (node, _local_peer) = node_and_local_peer();
        let page = memory(&node);
        let receive = post(&node, &page);
        let mut placement = begin(&node, 1).unwrap();
        placement.write(0, &[7; LEN]);
        let memory = page.deregister().unwrap();
        memory.fill(0, LEN as u64, 5).unwrap();
        if is_whole {
            assert!(!placement.finish(), "the message is refused");
            deposit(&node, &[]);
        } else {
            placement.abort();
        }
        assert_eq!(receive.outcome(), gone());
        deposit(&node, &[(2, 4)]);
        let mut bytes = [0; LEN];
        memory.read(0, &mut bytes).unwrap();
        assert_eq!((bytes, node.mail.mailbox.len()), ([5; LEN], 1));
    }
}

/// MEM-26.6: a loss that was noticed during the placement, or before it began, ends the receive.
#[test]
fn receive_that_is_put_back_fails_if_no_message_will_come() {
    let (node, _local_peer) = node_and_local_peer();
    let page = memory(&node);
    let receive = post(&node, &page);
    let placement = begin(&node, 1).unwrap();
    node.mail.mailbox.fail_posted(|_| Some(Failure::Left));
    placement.abort();
    assert_eq!(receive.outcome(), Some(Err(Failure::Left)));
    let receive = post(&node, &page);
    let placement = begin(&node, 2).unwrap();
    node.departures.note_left();
    placement.abort();
    assert!(!receive.is_done());
    node.try_turn(node.now()).unwrap();
    assert_eq!(receive.outcome(), Some(Err(Failure::Left)));
}

/// MEM-26.2, MEM-26.4: a message that waits and has no room for it in a receive that is put back
/// stays before the later messages of its sender.
#[test]
fn message_too_long_for_a_receive_that_is_put_back_keeps_its_place() {
    let (node, _local_peer) = node_and_local_peer();
    let page = memory(&node);
    let receive = post(&node, &page);
    let placement = begin(&node, 1).unwrap();
    deposit(&node, &[(2, LEN + 1), (3, 1), (4, 1)]);
    placement.abort();
    let no_room =
        Failure::NoRoomForMessage { from: 1, tag: 2, len: LEN as u64 + 1, room: LEN as u64 };
    assert_eq!(receive.outcome(), Some(Err(no_room)));
    let tags = std::iter::from_fn(|| node.mail.take(&node, None)).map(|arrived| arrived.tag);
    assert!(tags.eq([2, 3, 4]));
}

/// MEM-26.2: a message that waits fills the receive that is put back, and leaves the mailbox.
#[test]
fn message_that_waits_fills_a_receive_that_is_put_back() {
    let (node, _local_peer) = node_and_local_peer();
    let page = memory(&node);
    let receive = post(&node, &page);
    let placement = begin(&node, 1).unwrap();
    deposit(&node, &[(2, 8), (3, 1)]);
    placement.abort();
    assert_eq!((receive.outcome(), node.mail.mailbox.len()), (received(2, 8), 1));
}

/// MEM-26.5: memory that cannot be written gets no receive, and takes no message.
#[test]
fn memory_that_cannot_be_written_fails_its_receive_and_keeps_the_message() {
    let (node, _local_peer) = node_and_local_peer();
    let bytes = [0; LEN];
    lend(|lender| {
        let page = registered(&node, lender.borrow(&bytes));
        assert_eq!(post(&node, &page).outcome(), gone());
    });
    let mut bytes = [0; LEN];
    let (page, receive) = lend(|lender| {
        let page = registered(&node, lender.borrow_mut(&mut bytes));
        let receive = post(&node, &page);
        (page, receive)
    });
    assert!(!receive.is_done());
    assert!(begin(&node, 1).is_none(), "the loan is over");
    deposit(&node, &[(1, LEN)]);
    assert_eq!((receive.outcome(), node.mail.mailbox.len()), (gone(), 1));
    assert_eq!(post(&node, &page).outcome(), gone());
    let page = memory(&node);
    let clone = page.clone();
    page.deregister().unwrap();
    assert_eq!((post(&node, &clone).outcome(), node.mail.mailbox.len()), (gone(), 1));
}

/// MEM-26.1
#[test]
fn receive_of_a_node_that_the_job_does_not_have_fails_at_once() {
    let (node, _local_peer) = node_and_local_peer();
    let nodes = node.bootstrap.size();
    let page = memory(&node);
    let completion = Completion::new();
    let receive =
        PostedReceive { into: page.all().receive_memory(), completion: Arc::clone(&completion) };
    node.mail.post_receive(&node, Pattern { from: Some(nodes), ..ANY }, receive);
    assert_eq!(completion.outcome(), Some(Err(Failure::NoSuchNode { rank: nodes, nodes })));
}
