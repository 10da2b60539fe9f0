//! Whole turns, and turns that end with their news.

use super::*;

#[test]
fn turn_until_news_ends_with_them_and_the_answer_takes_the_acknowledgement_along() {
    let (mut a, mut b, mut now) = pair();
    for tag in 0..50 {
        now = step(now);
        let told = a.ask(message(1, Class::Ordered, tag));
        a.turn(now);
        let work = b.engine.turn_until_news(now, || None);
        assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(tag));
        if tag < 10 {
            // The node has not learned yet that answers follow (WIND-3.11), and does not delay
            // acknowledgements.
            b.turn(now);
        } else {
            assert_eq!((work.received, work.sent, work.more), (1, 0, false));
            // All queries report the rest of the turn as due.
            assert!(b.engine.has_more() && b.engine.has_due(now) && !b.engine.is_settled());
            assert_eq!(b.engine.next_timeout(), Some(now));
        }
        let _answer = b.ask(message(0, Class::Ordered, tag));
        assert_eq!(b.engine.turn(now).sent, 1);
        assert!(!b.engine.has_more());
        assert_eq!(a.engine.turn_until_news(now, || None).received, 1);
        a.turn(now);
        assert!(told.is_done(), "by the acknowledgement that came with the answer (WIND-3.11)");
    }
}

/// WIND-10.4
#[test]
fn another_poll_brings_what_has_come_since_and_is_followed_by_a_whole_turn() {
    let (mut a, mut b, mut now) = pair();
    for tag in 0..50 {
        now = step(now);
        b.turn(now);
        assert!(b.engine.turn_until_news(now, || None).is_idle());
        let class = if tag % 2 == 0 { Class::Ordered } else { Class::Sync };
        let mut told = None;
        let work = b.engine.turn_until_news(now, || {
            // The message arrives after the first poll.
            if told.is_some() {
                return None;
            }
            told = Some(a.ask(message(1, class, tag)));
            a.turn(now);
            Some(now)
        });
        let told = told.unwrap();
        assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(tag));
        assert_eq!(work.received, 1);
        assert_eq!(b.engine.has_more(), work.sent == 0, "what is left is for the next turn");
        // The next turn is a whole one, also if the caller asks for news only.
        b.engine.turn_until_news(now, || None);
        assert!(!b.engine.has_more());
        while !told.is_done() {
            now = step(now);
            b.turn(now);
            a.turn(now);
        }
    }
}

/// WIND-10.4
#[test]
fn turn_until_news_leaves_nothing_that_presses_and_is_followed_by_a_whole_one() {
    let (mut a, mut b, mut now) = pair();
    now = step(now);
    let told = a.ask(message(1, Class::Sync, 1));
    a.turn(now);
    assert_eq!(
        b.engine.turn_until_news(now, || None).sent,
        1,
        "the sender of a synchronous message waits for the acknowledgement"
    );
    a.turn(now);
    assert!(told.is_done());
    // Each turn receives something from the link. Still, every second turn must be a whole one.
    let mut whole = 0;
    for tag in 0..20 {
        let _told = a.ask(message(1, Class::Unordered, tag));
        a.turn(now);
        let before = b.engine.counters().turns;
        b.engine.turn_until_news(now, || None);
        b.engine.turn_until_news(now, || None);
        whole += b.engine.counters().turns - before;
        assert!(!b.engine.has_more());
    }
    assert!(whole >= 20, "{whole}");
    assert!(b.engine.turn_until_news(now, || None).is_idle(), "nothing came");
    // No answer follows, so the delayed acknowledgement goes when its timer expires.
    let told = a.ask(message(1, Class::Ordered, 99));
    a.turn(now);
    b.engine.turn_until_news(now, || None);
    while !told.is_done() {
        now = b.engine.next_timeout().unwrap().max(now + Duration::from_nanos(1));
        b.engine.turn_until_news(now, || None);
        a.turn(now);
    }
}

/// WIND-10.4: the datagram of a new submission does not wait for a poll right after another one.
#[test]
fn turn_with_new_submissions_polls_again_only_after_a_while() {
    let (mut a, mut b, mut now) = pair();
    let send = |a: &mut Node, now, tag| {
        let _told = a.ask(message(1, Class::Ordered, tag));
        a.turn(now);
    };
    now = step(now);
    b.turn(now);
    send(&mut a, now, 1);
    let _answer = b.ask(message(0, Class::Ordered, 1));
    let work = b.engine.turn(now);
    assert_eq!((work.received, work.sent), (0, 1), "the poll before this turn is recent");
    // Without submissions a turn always polls.
    assert!(b.engine.turn(now).received > 0);
    assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(1));
    send(&mut a, now, 2);
    let _answer = b.ask(message(0, Class::Ordered, 2));
    now += Duration::from_micros(6);
    let work = b.engine.turn(now);
    assert!(work.received > 0 && work.sent > 0, "{work:?}");
    assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(2));
}
