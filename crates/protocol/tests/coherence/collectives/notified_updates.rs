//! Notifications that bring updates (COH-15.6 to 15.10). One behaviour a test.

use crate::cluster::{Cluster, NOTIFY, Node};
use crate::questions;
use crate::updates::{
    UPDATE, all_at, barrier, fill, guarded, hold_back, holds, pages, post, read, statistics,
    subscribe, write,
};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{CoherenceError, Homes, Ownership, Value};
use oikaze_protocol::limits::{PAGE, VAIN_QUESTIONS_MAX};
use oikaze_protocol::random::Random;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Refusal, Token};

/// Notifies one node by another one, and lets the notification come.
fn release(cluster: &mut Cluster, from: Rank, to: Rank) {
    cluster.succeeds(from, |c, token, m| c.notify(to, token, m));
}

fn acquire(cluster: &mut Cluster, from: Rank, to: Rank) -> Token {
    cluster.call(to, |c, token, m| c.wait_notify(from, true, token, m))
}

fn notify(cluster: &mut Cluster, from: Rank, to: Rank) {
    release(cluster, from, to);
    let token = acquire(cluster, from, to);
    cluster.run_until_quiet();
    assert_eq!(cluster.take(to, token), Some(Ok(Value::None)), "seed {}", cluster.seed);
}

/// Writes a page and pushes it.
fn push(cluster: &mut Cluster, from: Rank, page: u64, value: u64, to: &[Rank]) {
    fill(cluster, from, pages(page..page + 1), value, Ownership::Owned, to);
    cluster.collect(from);
}

/// COH-15.6, COH-15.8: nodes of a ring read what was pushed, without a fetch and without a
/// barrier.
#[test]
fn pushed_pages_stay_valid_at_notifications() {
    for seed in 0..20 {
        let nodes = 3 + (seed % 3) as Rank;
        // Two pages for each node, written in turn.
        let mut cluster = guarded(nodes, 2 * u64::from(nodes), Homes::Block, seed);
        for step in 1..20 {
            let page = |rank: Rank| 2 * u64::from(rank) + step % 2;
            let sides = |rank: Rank| [(rank + 1) % nodes, (rank + nodes - 1) % nodes];
            for rank in 0..nodes {
                push(&mut cluster, rank, page(rank), step, &sides(rank));
            }
            for (rank, to) in (0..nodes).flat_map(|rank| sides(rank).map(|to| (rank, to))) {
                notify(&mut cluster, rank, to);
            }
            for (rank, of) in (0..nodes).flat_map(|rank| sides(rank).map(|of| (rank, of))) {
                assert_eq!(read(&mut cluster, rank, page(of) * PAGE as u64), step, "seed {seed}");
            }
        }
        let fetches: u64 = (0..nodes).map(|rank| statistics(&cluster, rank).fetches).sum();
        assert_eq!(fetches, 0, "seed {seed}");
        barrier(&mut cluster);
        assert!((0..nodes).all(|rank| holds(
            &cluster,
            rank,
            2 * u64::from(rank)..2 * u64::from(rank) + 2
        )));
    }
}

/// COH-15.6: what was written goes to subscribers, also if it is short or found by a twin.
#[test]
fn subscribed_pages_stay_valid_at_notifications() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(2, seed);
        let array = cluster.declare("p", 2, all_at(0, 2));
        if seed % 2 == 0 {
            cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
        }
        subscribe(&mut cluster, 1, pages(0..2));
        write(&mut cluster, 0, 8..24, 1);
        notify(&mut cluster, 0, 1);
        read(&mut cluster, 1, 8);
        let before = statistics(&cluster, 1).fetches;
        for step in 2..20 {
            write(&mut cluster, 0, 8..24, step);
            notify(&mut cluster, 0, 1);
            assert_eq!(read(&mut cluster, 1, 16), step, "seed {seed}");
        }
        assert_eq!(statistics(&cluster, 1).fetches, before, "seed {seed}");
    }
}

/// COH-15.7: an update that is late holds the notification up, and one of a later interval does not
/// count in its place.
#[test]
fn a_notification_waits_for_the_updates_that_it_counts() {
    for seed in 0..20 {
        let mut cluster = guarded(2, 4, all_at(0, 4), seed);
        assert_eq!(read(&mut cluster, 1, 0), 0);
        fill(&mut cluster, 0, pages(0..1), 1, Ownership::Owned, &[1]);
        let late = hold_back(&mut cluster, 0, UPDATE);
        release(&mut cluster, 0, 1);
        push(&mut cluster, 0, 1, 2, &[1]);
        release(&mut cluster, 0, 1);
        let tokens = [(); 2].map(|()| acquire(&mut cluster, 0, 1));
        cluster.run_until_quiet();
        assert_eq!(tokens.map(|token| cluster.take(1, token)), [None, None], "seed {seed}");
        post(&mut cluster, 0, late);
        cluster.run_until_quiet();
        cluster.all_succeeded(tokens.map(|token| (1, token)));
        assert!(holds(&cluster, 1, 0..2), "seed {seed}");
        assert_eq!([0, PAGE as u64].map(|at| read(&mut cluster, 1, at)), [1, 2], "seed {seed}");
    }
}

/// COH-15.7: a barrier has counted the updates of its epoch, so a notification from before it waits
/// for none.
#[test]
fn a_notification_that_is_taken_after_a_barrier_waits_for_nothing() {
    let mut cluster = guarded(2, 4, all_at(0, 4), 1);
    push(&mut cluster, 0, 0, 1, &[1]);
    release(&mut cluster, 0, 1);
    barrier(&mut cluster);
    push(&mut cluster, 0, 1, 2, &[1]);
    let token = acquire(&mut cluster, 0, 1);
    assert_eq!(cluster.take(1, token), Some(Ok(Value::None)));
    notify(&mut cluster, 0, 1);
    assert_eq!([0, PAGE as u64].map(|at| read(&mut cluster, 1, at)), [1, 2]);
    assert_eq!(statistics(&cluster, 1).fetches, 0);
}

/// COH-15.8: what another node wrote, and the notifier passes on, is fetched.
#[test]
fn a_page_of_two_writers_is_fetched_again() {
    for seed in 0..20 {
        let mut cluster = guarded(3, 4, all_at(0, 4), seed);
        push(&mut cluster, 0, 0, 1, &[1, 2]);
        notify(&mut cluster, 0, 1);
        fill(&mut cluster, 1, 8..16, 2, Ownership::Owned, &[2]);
        cluster.collect(1);
        notify(&mut cluster, 1, 2);
        assert!(!holds(&cluster, 2, 0..1), "seed {seed}");
        assert_eq!([0, 8].map(|at| read(&mut cluster, 2, at)), [1, 2], "seed {seed}");
    }
}

/// COH-15.9: a node that is pushed to for long, and hears nothing, keeps a bounded number of
/// intervals. Later it learns some of those that were joined.
#[test]
fn updates_of_many_unknown_intervals_are_joined() {
    let mut cluster = guarded(3, 4, all_at(0, 4), 1);
    assert_eq!(read(&mut cluster, 2, 0), 0);
    for step in 1..1000 {
        push(&mut cluster, 0, 0, step, &[2]);
        if step == 100 {
            release(&mut cluster, 0, 2);
        }
        notify(&mut cluster, 0, 1);
    }
    let token = acquire(&mut cluster, 0, 2);
    cluster.run_until_quiet();
    assert_eq!(cluster.take(2, token), Some(Ok(Value::None)));
    assert!(!holds(&cluster, 2, 0..1), "nobody knows which updates have come");
    notify(&mut cluster, 0, 2);
    assert_eq!(read(&mut cluster, 2, 0), 999);
    barrier(&mut cluster);
    assert_eq!(read(&mut cluster, 2, 0), 999);
}

/// COH-15.10: updates of the same bytes travel in order only until the receiver has told that it
/// knows the earlier one.
#[test]
fn updates_that_the_receiver_knows_need_no_order() {
    use oikaze_protocol::wind::Class;
    let mut cluster = guarded(2, 2, all_at(0, 2), 1);
    let mut classes = Vec::new();
    for step in 0..3 {
        fill(&mut cluster, 0, pages(0..1), step, Ownership::Owned, &[1]);
        let held = hold_back(&mut cluster, 0, UPDATE);
        classes.extend(held.iter().map(|(_, message)| message.class));
        post(&mut cluster, 0, held);
        notify(&mut cluster, 0, 1);
        if step == 1 {
            notify(&mut cluster, 1, 0);
        }
    }
    assert_eq!(classes, [Class::Unordered, Class::Sync, Class::Unordered]);
}

/// COH-13, COH-15.7: an update that was acknowledged and never came is found by questions.
#[test]
fn a_notification_whose_update_is_lost_fails() {
    let mut cluster = guarded(2, 2, all_at(0, 2), 1);
    cluster.forged = Some(UPDATE);
    push(&mut cluster, 0, 0, 1, &[1]);
    release(&mut cluster, 0, 1);
    let token = acquire(&mut cluster, 0, 1);
    cluster.run_until_quiet();
    let mut clock = Time::default();
    questions::ask(&mut cluster, &mut clock, VAIN_QUESTIONS_MAX + 4);
    assert_eq!(cluster.take(1, token), None, "it waits");
    assert!(questions::part(&mut cluster) > 0, "the question is answered by no");
    let outcome = cluster.take(1, token);
    assert!(matches!(outcome, Some(Err(CoherenceError::NodeDead { rank: 0, .. }))), "{outcome:?}");
}

/// COH-15.7: a wait that takes no notification ends only when one that takes it would end at once,
/// so not while an update is missing. A wait that ends early takes none.
#[test]
fn no_wait_ends_while_an_update_is_missing() {
    let mut cluster = guarded(2, 2, all_at(0, 2), 1);
    fill(&mut cluster, 0, pages(0..1), 1, Ownership::Owned, &[1]);
    let late = hold_back(&mut cluster, 0, UPDATE);
    release(&mut cluster, 0, 1);
    let tokens = [false, true].map(|takes| {
        let token = cluster.call(1, |c, token, m| c.wait_notify(0, takes, token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(1, token), None);
        token
    });
    cluster.call(1, |c, _, m| tokens.iter().for_each(|token| c.cancel(*token, m)));
    post(&mut cluster, 0, late);
    cluster.run_until_quiet();
    assert_eq!(tokens.map(|token| cluster.take(1, token)), [None, None]);
    for takes in [false, true] {
        cluster.succeeds(1, |c, token, m| c.wait_notify(0, takes, token, m));
    }
}

/// COH-10.19: an array whose loads are not seen is probed at notifications, too.
#[test]
fn subscription_without_loads_ends_without_a_barrier() {
    let mut cluster = Cluster::new(2, 1);
    cluster.declare("p", 1, all_at(0, 1));
    for round in 1..4 {
        write(&mut cluster, 0, 0..8, round);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 1, 0), round);
        barrier(&mut cluster);
    }
    let before = statistics(&cluster, 0).updates_sent;
    for step in 4..204 {
        write(&mut cluster, 0, 0..8, step);
        notify(&mut cluster, 0, 1);
    }
    let sent = statistics(&cluster, 0).updates_sent - before;
    assert!((60..70).contains(&sent), "{sent}");
    assert_eq!(read(&mut cluster, 1, 0), 203);
}

/// COH-15.7: a dead notifier sends no more updates.
#[test]
fn a_notification_of_a_node_that_dies_before_its_updates_fails() {
    let mut cluster = guarded(2, 2, all_at(0, 2), 1);
    fill(&mut cluster, 0, pages(0..1), 1, Ownership::Owned, &[1]);
    let _lost = hold_back(&mut cluster, 0, UPDATE);
    release(&mut cluster, 0, 1);
    let token = acquire(&mut cluster, 0, 1);
    cluster.kill(0);
    cluster.run_until_quiet();
    let outcome = cluster.take(1, token);
    assert!(matches!(outcome, Some(Err(CoherenceError::NodeDead { rank: 0, .. }))), "{outcome:?}");
}

/// COH-15.7: a notification comes from another process. Whatever it says, it ends, waits for
/// updates, or is refused.
#[test]
fn notifications_that_make_no_sense_are_refused() {
    let mut cluster = guarded(3, 4, Homes::Block, 1);
    push(&mut cluster, 0, 0, 1, &[1]);
    cluster.run_until_quiet();
    let Node { coherence, machine, .. } = &mut cluster.nodes[0];
    coherence.notify(1, Token::NONE, machine);
    let held = hold_back(&mut cluster, 0, NOTIFY);
    let sound = held.first().map(|(_, message)| message.clone()).expect("a notification");
    let (head, body) = (sound.head.as_slice(), sound.body.bytes());
    let take = |cluster: &mut Cluster, from, to: usize, head: &[u8], body: &[u8]| {
        let Node { coherence, machine, .. } = &mut cluster.nodes[to];
        let taken = coherence.receive(from, head, body, machine);
        cluster.collect(to as Rank);
        taken
    };
    let (short, longer) = (&body[..body.len() - 1], [body, &[0]].concat());
    for body in [&[][..], &[0xff; 40], short, &longer] {
        assert!(take(&mut cluster, 0, 1, head, body).is_err());
    }
    // The epoch is at most that of the receiver, which is in no collective. The epoch of the
    // counted updates follows it by at most one.
    for late in [2, 10] {
        let mut head = head.to_vec();
        head[late] = 7;
        assert_eq!(take(&mut cluster, 0, 1, &head, body), Err(Refusal::Malformed));
    }
    for from in [1, 3, Rank::MAX] {
        assert_eq!(take(&mut cluster, from, 1, head, body), Err(Refusal::Malformed));
    }
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let mut changed = [head, body].concat();
        let at = random.below(changed.len());
        changed[at] = random.next_u64() as u8;
        let (head, body) = changed.split_at(head.len());
        let _ = take(&mut cluster, 0, 2, head, body);
        acquire(&mut cluster, 0, 2);
        cluster.run_until_quiet();
    }
    post(&mut cluster, 0, held);
    cluster.run_until_quiet();
    let token = acquire(&mut cluster, 0, 1);
    cluster.all_succeeded([(1, token)]);
    assert!(holds(&cluster, 1, 0..1));
}
