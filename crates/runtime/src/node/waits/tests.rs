//! The registry of a node that runs no engine.

use super::*;
use oikaze_launch::{Settings, SingleNode};

fn waits(explain_after: Duration) -> Arc<Waits> {
    let settings = Settings { explain_after: Some(explain_after), ..Settings::default() };
    Waits::new(Arc::new(SingleNode::new(settings).unwrap()))
}

/// MEM-21.3.
#[test]
fn waits_are_shown_while_they_last_and_no_longer() {
    let waits = waits(Duration::ZERO);
    assert_eq!(waits.board_text(), "");
    let begun = Instant::now();
    let subject = WaitSubject::Lock { number: 3, text: "lock 3".into() };
    let line = Location::caller();
    let place = Some(CallPlace::of_line(line));
    let first = waits.register(subject, begun, place);
    let message = WaitSubject::Message { from: Some(1), count: 1 };
    let second = waits.register(message, Instant::now(), None);
    let at = format!("{}:{}", line.file(), line.line());
    assert_eq!(
        waits.board_text(),
        format!("0 s for lock 3 at {at} | 0 s for a message from node 1")
    );
    assert_eq!(waits.answer("wanted"), "3 lock 3");
    let doing = waits.answer("doing");
    assert!(doing.starts_with(&format!("waits for lock 3 at {at} (0.")), "{doing}");
    assert!(doing.contains("; waits for a message from node 1 (0."), "{doing}");
    drop(first);
    assert!(!waits.answer("doing").contains("lock"));
    assert_eq!(waits.answer("wanted"), "no lock");
    drop(second);
    assert_eq!(waits.board_text().as_str(), "");
    assert_eq!(waits.answer("doing").as_str(), "is joining the job");
    waits.close();
    assert_eq!(waits.answer("doing"), "has left the job");
}

/// MEM-21.2.
#[test]
fn held_locks_are_told_with_thread_and_age() {
    let waits = waits(Duration::ZERO);
    assert_eq!(waits.answer("holds 3"), "not held");
    let taking = waits.took_lock(3);
    let held = waits.answer("holds 3");
    assert!(held.starts_with("for 0.0 s by thread \"") && held.ends_with('"'), "{held}");
    assert!(waits.answer("doing").ends_with("; holds lock 3"));
    waits.name_lock(3, "histogram");
    assert!(waits.answer("doing").ends_with("; holds lock \"histogram\""));
    waits.gave_lock_back(taking);
    assert_eq!(waits.answer("holds 3"), "not held");
    assert_eq!(waits.answer("lock x"), "does not understand the question");
    waits.close();
}
