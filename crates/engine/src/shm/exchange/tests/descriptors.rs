//! Exchanges in a process that has no free descriptor. The process runs only this test, because the
//! limit holds for all threads.

use super::*;
use crate::Engine;
use rustix::fd::AsFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::process::Command;

/// Set in a process that takes all descriptors for itself.
const SHORT: &str = "OIKAZE_TEST_SHORT_OF_DESCRIPTORS";

/// Takes all descriptors that this process may have.
fn take_all() -> Vec<OwnedFd> {
    const DESCRIPTORS_LEFT: u64 = 200;
    setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(DESCRIPTORS_LEFT), ..getrlimit(Resource::Nofile) },
    )
    .unwrap();
    std::iter::from_fn(|| std::io::stderr().as_fd().try_clone_to_owned().ok()).collect()
}

/// Runs in a process that the other test starts. Not a test by itself.
#[test]
fn exchanges_where_no_descriptor_is_free() {
    if std::env::var_os(SHORT).is_none() {
        return;
    }
    let Some((mut two, here, there)) = two() else { return println!("exchanged") };
    let (here_too, there_too) =
        (Place::new(&mut two.a, 1).unwrap(), Place::new(&mut two.b, 2).unwrap());
    let given = two.b.engine.memory().insert(Region::shared(4096).unwrap(), Rights::ALL).unwrap();
    let asked = [(&here, &there), (&here_too, &there_too)]
        .map(|(here, there)| two.a.ask(here.swap_with(there, 1)));
    let map = two.a.ask(Request::Map { at: 1, key: given.key });
    two.a.turn(two.now);
    // A region's memory comes before what the exchanges need; so do calls.
    two.b.poll_local_peers(two.now);
    let Engine { shm, layers, .. } = &mut two.b.engine;
    let owner = shm.get_mut(0).unwrap();
    crate::shm::map::hand_over(owner, &layers.memory);
    (0..3).for_each(|_| owner.pair.line.wake());
    two.b.turn(two.now);
    let taken = take_all();
    for (asked, here, there) in [(&asked[0], &here, &there), (&asked[1], &here_too, &there_too)] {
        assert_eq!(two.outcome(asked), Ok(Value::Swapped(UNITS * here.unit)));
        assert_eq!((here.words(), there.words()), (TWOS, ONES));
    }
    assert_eq!(two.outcome(&map), Ok(Value::Done), "it is reached through the ring");
    // The node does not ask for pages that it cannot take.
    let asked = two.a.ask(here.swap_with(&there, 1));
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    assert_eq!((here.words(), there.words()), (TWOS, ONES));
    drop(taken);
    let asked = two.a.ask(here.swap_with(&there, 1));
    assert_eq!(two.outcome(&asked), Ok(Value::Swapped(UNITS * here.unit)));
    println!("exchanged");
}

/// MEM-20.3: a node that has given its pages away gets the other node's pages, even where no
/// descriptor is free for them.
#[test]
fn what_comes_back_finds_a_descriptor_free() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::exchanges_where_no_descriptor_is_free");
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", &test, "--nocapture"]);
    let output = process.env(SHORT, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("exchanged"), "{output:?}");
}
