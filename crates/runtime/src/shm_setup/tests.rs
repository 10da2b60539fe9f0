//! Meetings of a few nodes, each on its own thread, in a store in memory. Their patience is an
//! hour, so that a wait in vain would be noticed.

use super::meeting::{LocalMeeting, Outcomes, Step, WayTo};
use oikaze_launch::bootstrap::SingleNode;
use oikaze_launch::{Bootstrap, JobError, Secret, Settings};
use oikaze_os::shm::Listener;
use oikaze_protocol::Rank;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// A place in a job whose store is in this process.
struct Place<'a> {
    rank: Rank,
    store: &'a SingleNode,
}

impl Bootstrap for Place<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        3
    }
    fn local_rank(&self) -> u32 {
        self.rank
    }
    fn local_size(&self) -> u32 {
        3
    }
    fn secret(&self) -> &Secret {
        self.store.secret()
    }
    fn incarnation(&self) -> u64 {
        1
    }
    fn settings(&self) -> &Settings {
        self.store.settings()
    }
    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        self.store.put(key, value)
    }
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        self.store.get(key, timeout)
    }
    fn fence(&self, name: &str, timeout: Duration) -> Result<(), JobError> {
        self.store.fence(name, timeout)
    }
    fn abort(&self, why: &str) {
        self.store.abort(why);
    }
    fn aborted(&self) -> Option<String> {
        self.store.aborted()
    }
}

fn store() -> SingleNode {
    SingleNode::new(Settings::default()).unwrap()
}

/// Returns a listener of its own, and its name.
fn listener() -> (Listener, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name =
        format!("oikaze-meeting-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    (Listener::open(&name).unwrap(), name)
}

fn patient<'a>(job: &'a Place<'_>, listener: &'a Listener) -> LocalMeeting<'a> {
    LocalMeeting::with_patience(job, listener, LIMIT / 4, LIMIT)
}

fn why(outcomes: &Outcomes, rank: Rank) -> &str {
    outcomes[&rank].as_ref().map(drop).unwrap_err()
}

#[track_caller]
fn says(outcomes: &Outcomes, rank: Rank, begin: &str) {
    let why = why(outcomes, rank);
    assert!(why.starts_with(begin), "{why}");
}

/// Lets every node meet every other one, each in its thread. `strangers` gets the names first.
fn all_meet(strangers: impl FnOnce(&[String])) -> Vec<Outcomes> {
    let store = store();
    let (listeners, names): (Vec<Listener>, Vec<String>) = (0..3).map(|_| listener()).unzip();
    strangers(&names);
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..3)
            .zip(&listeners)
            .map(|(rank, listener)| {
                let (names, store) = (&names, &store);
                scope.spawn(move || {
                    let others = (0..3).zip(names).filter(|(other, _)| *other != rank);
                    let ways =
                        others.map(|(other, name)| (other, WayTo::Name(name.clone()))).collect();
                    patient(&Place { rank, store }, listener).hold(ways).unwrap()
                })
            })
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    })
}

/// MEM-16.8.
#[test]
fn all_nodes_of_a_machine_meet() {
    for outcomes in all_meet(|_| ()) {
        assert_eq!(outcomes.len(), 2);
        assert!(outcomes.values().all(Result::is_ok));
    }
}

#[test]
fn a_caller_that_says_nothing_or_nonsense_holds_up_nobody() {
    let mut lines = Vec::new();
    let outcomes = all_meet(|names| {
        for name in names {
            lines.push(Listener::call_name(name).unwrap());
            let babbling = Listener::call_name(name).unwrap();
            babbling.say(&[7; 200], None).unwrap();
            lines.push(babbling);
        }
    });
    assert!(
        outcomes.iter().all(|outcomes| outcomes.len() == 2 && outcomes.values().all(Result::is_ok))
    );
}

/// As with two containers of one machine, each with its own directory of that name.
#[test]
fn who_cannot_be_called_does_not_wait_for_a_call() {
    let store = store();
    let listeners = [listener().0, listener().0];
    let hold = |rank: Rank| {
        let way = WayTo::File(Path::new("/nowhere/oikaze").into());
        patient(&Place { rank, store: &store }, &listeners[rank as usize])
            .hold(vec![(1 - rank, way)])
            .unwrap()
    };
    let [called, caller] = std::thread::scope(|scope| {
        [0, 1].map(|rank| scope.spawn(move || hold(rank))).map(|one| one.join().unwrap())
    });
    says(&caller, 0, "it could not be called: No such file");
    says(&called, 1, "it says: it could not be called: No such file");
}

#[test]
fn a_node_without_descriptors_says_so_and_goes_on() {
    let store = store();
    let (job, (listener, _)) = (Place { rank: 0, store: &store }, listener());
    let mut asked = 0;
    let outcomes = patient(&job, &listener).be_called(&[1, 2], || {
        asked += 1;
        Some(Err(io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error())))
    });
    assert_eq!(asked, 1);
    assert!(
        [1, 2].iter().all(|rank| why(&outcomes, *rank).ends_with("raise ulimit -n")),
        "{}",
        why(&outcomes, 1)
    );
}

#[test]
fn strangers_without_end_are_not_heard_without_end() {
    let store = store();
    let (job, (listener, _)) = (Place { rank: 0, store: &store }, listener());
    let outcomes = patient(&job, &listener)
        .be_called(&[1], || Some(Err(io::ErrorKind::PermissionDenied.into())));
    assert!(why(&outcomes, 1).starts_with("its call has not come"));
}

/// The node above is stopped. Here it has no patience, so that the test needs none.
#[test]
fn a_node_that_is_late_is_talked_to_over_the_network() {
    let store = store();
    let (job, (listener, name)) = (Place { rank: 1, store: &store }, listener());
    let mut meeting = LocalMeeting::with_patience(&job, &listener, Duration::ZERO, LIMIT);
    let outcomes =
        meeting.hold(vec![(0, WayTo::Name(name.clone())), (2, WayTo::Name(name))]).unwrap();
    says(&outcomes, 2, "it took too long to say whom it has called");
    says(&outcomes, 0, "it took too long to say whom it has answered");
}

/// MEM-16.8: there is no pair of which one node uses the rings and the other does not.
#[test]
fn the_caller_has_the_last_word() {
    let store = store();
    let (above, below) = (Place { rank: 1, store: &store }, Place { rank: 0, store: &store });
    let ((listener, name), (other, _)) = (listener(), listener());
    let caller = patient(&above, &other);
    let call = caller.call(0, &WayTo::Name(name)).unwrap();
    caller.publish_outcomes(Step::Called, &BTreeMap::from([(0, Ok(()))])).unwrap();
    caller
        .publish_outcomes(
            Step::Used,
            &BTreeMap::from([(0, Err::<(), _>("no room to map it".to_owned()))]),
        )
        .unwrap();
    let outcomes =
        patient(&below, &listener).hold(vec![(1, WayTo::Name("unused".into()))]).unwrap();
    assert_eq!(why(&outcomes, 1), "it says: no room to map it");
    drop(call);
}
