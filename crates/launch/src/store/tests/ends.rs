//! News of ended processes, and questions, over real sockets.

use super::connections::join_by_relay;
use super::*;
use crate::NodeEnd;
use crate::store::Notice;
use crate::store::client::answering::NO_ANSWER;
use crate::store::protocol::QUESTION_MAX;
use std::sync::mpsc::{Receiver, channel};

fn killed(rank: u32) -> NodeEnd {
    NodeEnd { rank, how: "was killed by signal 9 (SIGKILL)".into(), success: false }
}

/// Returns a channel that gets each call after news.
fn hear(node: &Client) -> Receiver<()> {
    let (called, calls) = channel();
    node.on_news(Box::new(move || _ = called.send(())));
    calls
}

fn wait_for_end(node: &Client, calls: &Receiver<()>, end: &NodeEnd) {
    while !node.ended().contains(end) {
        calls.recv_timeout(LONG).unwrap();
    }
}

/// LAUNCH-1.1: each connected node learns of an end at once, and a node that connects later learns
/// of all earlier ones.
#[test]
fn end_of_a_process_is_pushed_to_early_and_late_nodes() {
    let server = serve(3);
    let early = join(&server, 0, 3).unwrap();
    let calls = hear(&early);
    assert!(early.ended().is_empty());
    server.ended(killed(2));
    wait_for_end(&early, &calls, &killed(2));
    let fine = NodeEnd { rank: 2, how: "ended with status 0".into(), success: true };
    server.ended(fine);
    let late = join(&server, 1, 3).unwrap();
    let calls = hear(&late);
    wait_for_end(&late, &calls, &killed(2));
    assert_eq!(early.ended(), vec![killed(2)], "a process ends once");
    assert_eq!(late.ended(), vec![killed(2)], "a process ends once");
    assert_eq!(early.aborted(), None, "the end of a node alone ends no job");
    assert_eq!(late.aborted(), None, "the end of a node alone ends no job");
}

/// LAUNCH-1.2: waits that need the ended node fail and name it; others go on.
#[test]
fn waits_that_need_an_ended_node_fail_and_others_go_on() {
    let server = serve(4);
    let nodes: Vec<_> = (0..3).map(|rank| join(&server, rank, 4).unwrap()).collect();
    let named = |said: Result<(), JobError>| {
        let said = said.unwrap_err();
        let text = said.to_string();
        assert!(matches!(said, JobError::NodeEnded { rank: 3, .. }), "{text}");
        assert!(text.contains("node 3 was killed by signal 9 (SIGKILL)"), "{text}");
    };
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| nodes[0].fence("all", LONG)),
            scope.spawn(|| nodes[1].get("place/3", LONG).map(drop)),
            scope.spawn(|| nodes[1].get("step/3/begun", LONG).map(drop)),
        ];
        let unharmed = scope.spawn(|| nodes[2].get("place/1", LONG));
        server.ended(killed(3));
        waits.into_iter().for_each(|wait| named(wait.join().unwrap()));
        nodes[1].put("place/1", b"here").unwrap();
        assert_eq!(unharmed.join().unwrap().unwrap(), b"here");
    });
    named(nodes[0].fence("another", LONG));
    named(nodes[0].get("place/3", LONG).map(drop));
    nodes[0].put("anything", b"1").unwrap();
    assert_eq!(nodes[1].get("anything", LONG).unwrap(), b"1");
}

/// LAUNCH-1.3, LAUNCH-3.4: the launcher learns who joins, leaves and aborts, and all nodes learn of
/// an abort.
#[test]
fn abort_by_a_node_reaches_the_launcher_and_all_nodes() {
    let (told, notices) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start_with(
        listener,
        2,
        secret(),
        Box::new(move |notice| told.send(notice).unwrap()),
    )
    .unwrap();
    let nodes: Vec<_> = (0..2).map(|rank| join(&server, rank, 2).unwrap()).collect();
    let calls = hear(&nodes[0]);
    nodes[0].keep_going();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), Notice::KeepGoing);
    nodes[0].report_joined();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), Notice::Joined(0));
    nodes[0].report_left();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), Notice::Left(0));
    nodes[1].abort("no more work");
    nodes[1].abort("a second reason");
    assert_eq!(notices.recv_timeout(LONG).unwrap(), Notice::Aborted(1, "no more work".into()));
    calls.recv_timeout(LONG).unwrap();
    assert_eq!(nodes[0].aborted().as_deref(), Some("node 1 aborted the job: no more work"));
    drop((nodes, server));
    assert!(notices.recv_timeout(LONG).is_err(), "only the first abort is told");
}

/// LAUNCH-2.1: a question reaches the node asked, and the answer its asker. A node that gives no
/// function still answers.
#[test]
fn questions_are_answered_by_the_node_asked() {
    let server = serve(3);
    let nodes: Vec<_> = (0..3).map(|rank| join(&server, rank, 3).unwrap()).collect();
    nodes[1].on_question(Box::new(|question| format!("one hears {question}")));
    assert_eq!(nodes[0].ask_node(1, "doing", LONG).as_deref(), Some("one hears doing"));
    assert_eq!(nodes[1].ask_node(1, "self", LONG).as_deref(), Some("one hears self"));
    assert_eq!(nodes[1].ask_node(2, "doing", LONG).as_deref(), Some(NO_ANSWER));
    let long = "é".repeat(QUESTION_MAX);
    let answer = nodes[0].ask_node(1, &long, LONG).unwrap();
    assert!(answer.len() <= QUESTION_MAX, "cut at the limit, between characters");
    assert!(answer.ends_with('é'), "cut at the limit, between characters");
    assert_eq!(nodes[0].ask_node(7, "nobody", LONG), None);
}

/// LAUNCH-2.2: the result is `None` without an answer within the limit, from a node that has left,
/// or from one that has ended. The asker does not wait longer.
#[test]
fn questions_without_answer_are_none() {
    let server = serve(3);
    let mut nodes: Vec<_> = (0..3).map(|rank| join(&server, rank, 3).unwrap()).collect();
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    nodes[1].on_question(Box::new(move |_| {
        let _ = released.lock().unwrap().recv();
        "late".into()
    }));
    assert_eq!(nodes[0].ask_node(1, "blocks", Duration::from_millis(1)), None);
    assert_eq!(
        nodes[1].get("x", Duration::ZERO).ok(),
        None,
        "a blocked answer blocks nothing else"
    );
    nodes.truncate(2);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| nodes[0].ask_node(1, "dies", LONG));
        server.ended(killed(1));
        assert_eq!(asked.join().unwrap(), None);
    });
    drop(release);
}

/// LAUNCH-2.3: the launcher asks all nodes at once.
#[test]
fn launcher_asks_all_and_hears_who_answers() {
    let server = serve(3);
    let nodes: Vec<_> = (0..2).map(|rank| join(&server, rank, 3).unwrap()).collect();
    nodes[0].on_question(Box::new(|question| format!("{question}: counting")));
    let answers = server.asking_all("doing", LONG)();
    let expected =
        [(0, Some("doing: counting".to_owned())), (1, Some(NO_ANSWER.to_owned())), (2, None)];
    assert_eq!(answers, expected);
}

/// LAUNCH-1.4: an end that comes while a node has no connection reaches it over the next one, and
/// none counts twice.
#[test]
fn node_that_connects_again_hears_each_end_once() {
    let server = serve(4);
    let (node, step, relay) = join_by_relay(&server, 4);
    let calls = hear(&node);
    server.ended(killed(1));
    wait_for_end(&node, &calls, &killed(1));
    step.send(()).unwrap();
    server.ended(killed(2));
    step.send(()).unwrap();
    relay.join().unwrap();
    wait_for_end(&node, &calls, &killed(2));
    server.ended(killed(3));
    wait_for_end(&node, &calls, &killed(3));
    assert_eq!(node.ended(), [killed(1), killed(2), killed(3)]);
}

/// LAUNCH-2.1, WIND-11.3: the answer leaves by the connection that the node has now.
#[test]
fn question_after_a_lost_connection_is_answered_over_the_next_one() {
    let server = serve(2);
    let (node, step, relay) = join_by_relay(&server, 2);
    node.on_question(Box::new(|question| format!("heard {question}")));
    let asker = join(&server, 1, 2).unwrap();
    assert_eq!(asker.ask_node(0, "one", LONG).as_deref(), Some("heard one"));
    step.send(()).unwrap();
    step.send(()).unwrap();
    relay.join().unwrap();
    node.put("again", b"").unwrap();
    assert_eq!(asker.ask_node(0, "two", LONG).as_deref(), Some("heard two"));
}

/// LAUNCH-2.4, without sockets: the answer to the first connection was lost.
#[test]
fn open_question_reaches_a_newer_connection_and_is_answered_once() {
    let claim = |attempt| Claim { process: [7; 16], attempt };
    let mut table = Table::new(2);
    table.connect(0, 2, claim(1)).unwrap();
    table.connect(1, 2, Claim { process: [8; 16], attempt: 1 }).unwrap();
    table.request(Duration::ZERO, 1, 5, Request::Ask(0, 1000, "what?".into()));
    let Some((0, number, Reply::Question(_))) = table.poll_reply() else { panic!("no question") };
    table.connect(0, 2, claim(2)).unwrap();
    assert_eq!(table.poll_reply(), Some((0, number, Reply::Question("what?".into()))));
    table.request(Duration::ZERO, 0, 0, Request::Answer(number, "this".into()));
    table.request(Duration::ZERO, 0, 0, Request::Answer(number, "this".into()));
    assert_eq!(table.poll_reply(), Some((1, 5, Reply::Done(b"this".to_vec()))));
    assert_eq!(table.poll_reply(), None);
    // A node that has left answers nothing any more.
    table.request(Duration::ZERO, 1, 6, Request::Ask(0, 1000, "what?".into()));
    table.disconnect(0);
    assert!(matches!(table.poll_reply(), Some((1, 6, Reply::TimedOut(_)))));
}
