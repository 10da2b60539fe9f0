//! Real children of fork. They cannot use the job, and their parent's job goes on whatever they do
//! (MEM-24).

use crate::processes::run_two_nodes;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze::{Error, Job};
use oikaze_launch::Settings;
use oikaze_os::process::in_child_of_fork;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Set for nodes: the action of the node's child.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 8192;

/// Runs a node of a job that the other tests start. Not a test by itself.
#[test]
fn plays_its_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("uses") => works_around(|job| {
            let failed = uses_everything(job);
            failed.iter().for_each(|what| eprintln!("child: {what}"));
            i32::from(!failed.is_empty())
        }),
        Ok("executes") => executes(),
        Ok("drops a guard") => drops_a_guard_in_a_child(),
        _ => {}
    }
}

/// Runs a job in which node 0 forks while its local peer goes on.
fn works_around(child: impl Fn(&Job) -> i32) {
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", LEN).unwrap();
    let inbox = job.publish("inbox", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
    for round in 1..4_u64 {
        array.write(array.home_range(job.rank())).unwrap().fill(round);
        job.barrier().unwrap();
        if job.rank() == 0 {
            assert_eq!(
                in_child_of_fork(|| child(&job)).unwrap(),
                0,
                "the child found something wrong"
            );
        }
        job.barrier().unwrap();
        assert!(
            array.read(0..LEN).unwrap().iter().all(|word| *word == round),
            "a child changed its parent's array"
        );
        assert_eq!(inbox.load_u64(0).unwrap(), 0, "a child's put arrived");
        assert!(job.try_receive(None).is_none(), "a child's message arrived");
        job.barrier().unwrap();
    }
    job.leave().unwrap();
}

/// MEM-24.1 and 24.2, in the child: returns the calls that succeeded, or failed with a wrong error.
fn uses_everything(job: &Job) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |what: &str, error: Option<Error>| match error.map(|error| error.to_string()) {
        Some(text) if text.contains("child of fork of node 0") && text.contains("exec") => {}
        other => wrong.push(format!("{what}: {other:?}")),
    };
    check("barrier", job.barrier().err());
    check("barrier_reduce", job.barrier_reduce(1_u64, oikaze::collective::operator::Sum).err());
    check("lock", job.lock(3).err());
    check("flush", job.flush().err());
    check("array", job.array::<u64>("another", 4).err());
    check("peer", job.peer(1).err());
    check("publish", job.publish("another", Region::zeroed(8).unwrap(), Rights::ALL).err());
    check("register", job.register(Region::zeroed(8).unwrap()).err());
    check("fifo", job.fifo("queue", 4, 8).err());
    check("receive", job.receive(None).err());
    check("completion queue", job.completion_queue().wait(1, &mut Vec::new()).err());
    check("counter", job.counter().wait(1).err());
    check("scope", job.scope(|_| job.barrier()).err());
    check("join", oikaze::join().err());
    assert!(job.try_receive(None).is_none() && job.receive_batch(1).is_empty());
    assert_eq!(job.statistics(), oikaze::job::NodeStatistics::default());
    job.fence();
    job.clear_descriptor();
    let _ = (job.descriptor(), job.progress());
    job.batch(|| check("barrier in a batch", job.barrier().err()));
    wrong
}

/// MEM-24.1 and 24.2: objects from before the fork are refused as well, and dropping them changes
/// nothing.
fn uses_what_it_inherited() {
    let job = oikaze::join().unwrap();
    let (me, other) = (job.rank(), 1 - job.rank());
    let array = job.array::<u64>("array", LEN).unwrap();
    let inbox = job.publish("inbox", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
    let queue = job.fifo("queue", 4, 8).unwrap();
    let peer = job.peer(other).unwrap();
    let (there, push) = (peer.region("inbox").unwrap(), peer.fifo("queue").unwrap());
    let kept = job.keep(there.put_copy(8, &[0; 8]).unwrap().into_bits()).unwrap();
    job.barrier().unwrap();
    let held = job.lock(u64::from(me)).unwrap();
    let released = job.lock(u64::from(me) + 10).unwrap();
    let mut parts = Some((array, inbox, queue, peer, there, push, (held, released), job));
    let status = in_child_of_fork(|| {
        let Some((array, inbox, queue, peer, there, push, (held, released), job)) = parts.take()
        else {
            return 9;
        };
        let outcomes = [
            ("read", array.read(0..1).err()),
            ("read_lazily", array.read_lazily(0..1).err()),
            ("write", array.write(0..1).err()),
            ("write_lazily", array.write_lazily(0..1).err()),
            ("put", there.put_copy(0, &[7; 8]).and_then(|put| put.wait()).err()),
            ("get", there.get(0, inbox.slice(0..8).unwrap()).wait().err()),
            ("word", there.fetch_add(0, 1).wait().err()),
            ("message", peer.send(Class::Ordered, 5, b"child").wait().err()),
            ("push", push.try_push(b"child").err()),
            ("pop", queue.try_pop(&mut Vec::new()).err()),
            ("name", peer.region("inbox").err()),
            ("wait", inbox.wait_until(0, |_| true).err()),
            ("rights", inbox.set_rights(Rights::NONE).err()),
            ("kept", job.kept::<oikaze::completion::Operation<u64>>(kept).err()),
            ("deregister", inbox.deregister().err()),
            ("release", released.release().err()),
        ];
        let is_wrong = |error: &Option<Error>| {
            !error.as_ref().is_some_and(|error| error.to_string().contains("child of fork"))
        };
        let wrong: Vec<_> = outcomes.iter().filter(|(_, error)| is_wrong(error)).collect();
        wrong.iter().for_each(|wrong| eprintln!("child: {wrong:?}"));
        drop((array, queue, peer, there, push, held));
        let left = job.leave().is_err();
        i32::from(!wrong.is_empty() || !left)
    });
    assert_eq!(status.unwrap(), 0, "the child found something wrong");
    let Some((array, inbox, queue, _, _, _, (held, released), job)) = parts else {
        panic!("the child took its copy only")
    };
    std::thread::scope(|scope| {
        for lock in [u64::from(me), u64::from(me) + 10] {
            let job = &job;
            let try_it = move || job.lock_for(lock, Duration::from_millis(20)).map(drop);
            let tried = scope.spawn(try_it);
            assert!(tried.join().unwrap().unwrap_err().is_timeout(), "the child gave {lock} back");
        }
    });
    held.release().unwrap();
    released.release().unwrap();
    job.barrier().unwrap();
    assert!(array.read(0..LEN).unwrap().iter().all(|word| *word == 0));
    assert_eq!((inbox.load_u64(0).unwrap(), inbox.rights()), (0, Rights::ALL));
    assert!(!queue.try_pop(&mut Vec::new()).unwrap() && job.try_receive(None).is_none());
    job.lock(u64::from(other)).unwrap().release().unwrap();
    job.leave().unwrap();
}

/// Runs a node of a job that the other tests start. Not a test by itself.
#[test]
fn plays_its_other_role() {
    if std::env::var(ROLE).as_deref() == Ok("inherits") {
        uses_what_it_inherited();
    }
}

/// Checks that a child which calls exec has none of the job's descriptors, and that the job goes
/// on.
fn executes() {
    // The tests' parent may have left some descriptors open.
    let before = open_after_exec();
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", LEN).unwrap();
    let _inbox = job.publish("inbox", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
    job.barrier().unwrap();
    assert_eq!(open_after_exec(), before);
    job.barrier().unwrap();
    assert_eq!(array.read(0..1).unwrap()[0], 0);
    job.leave().unwrap();
}

/// COH-16.11: a child of fork drops a guard, which stays in the way of the other node until the
/// parent ends it.
fn drops_a_guard_in_a_child() {
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", LEN).unwrap();
    assert_eq!(array.why_not_shared(), None);
    let peer = job.peer(1 - job.rank()).unwrap();
    let tell = |tag| peer.send(Class::Ordered, tag, &[]).wait().unwrap();
    let hear = |tag| assert_eq!(job.receive(Some(peer.rank())).unwrap().tag(), tag);
    if job.rank() == 0 {
        let mut guard = Some(array.write(0..8).unwrap());
        let dropped = in_child_of_fork(|| {
            drop(guard.take());
            0
        });
        assert_eq!(dropped.unwrap(), 0);
        tell(1);
        hear(2);
        guard.unwrap().fill(7);
        tell(3);
    } else {
        hear(1);
        let refused = array.write(0..8).map(drop).unwrap_err().to_string();
        assert!(refused.contains("a guard of node 0 that writes bytes 0..64"), "{refused}");
        tell(2);
        hear(3);
        array.write(8..9).unwrap()[0] = 7;
    }
    job.barrier().unwrap();
    assert!(array.read(0..9).unwrap().iter().all(|word| *word == 7));
    job.leave().unwrap();
}

/// Returns the descriptors that are open in a child after exec.
fn open_after_exec() -> String {
    let listed = Command::new("ls").arg("/proc/self/fd").stderr(Stdio::inherit()).output().unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

const WITHOUT: [&str; 4] = ["", "segment", "shm", "segment,uffd"];

/// MEM-24.1.
#[test]
fn call_in_child_of_fork_fails_and_parent_goes_on() {
    WITHOUT.iter().for_each(|without| run("fork::plays_its_role", "uses", without));
}

/// MEM-24.1 and 24.2.
#[test]
fn inherited_object_in_child_of_fork_is_refused_and_dropped_without_effect() {
    WITHOUT.iter().for_each(|without| run("fork::plays_its_other_role", "inherits", without));
}

#[test]
fn child_after_exec_has_no_descriptor_of_the_job() {
    WITHOUT.iter().for_each(|without| run("fork::plays_its_role", "executes", without));
}

/// COH-16.11
#[test]
fn guard_that_a_child_of_fork_drops_stays_until_the_parent_ends_it() {
    run("fork::plays_its_role", "drops a guard", "");
}

/// Runs two nodes that play this role, without some mechanisms.
fn run(test: &str, role: &str, without: &str) {
    let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
    run_two_nodes(test, &settings, &[(ROLE, role), ("OIKAZE_WITHOUT", without)]);
}
