//! Nodes of one machine that cannot map one memory for an array. All nodes go the same way: each
//! keeps pages of its own, or the declaration fails with cause and remedy. The job goes on
//! afterwards (COH-16.1, COH-16.4).

use crate::nodes::{PART, run_nodes, say};
use oikaze::prelude::*;
use oikaze::shared::SharedArray;
use oikaze_launch::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Time limit of each wait of a node.
const LIMIT: Duration = Duration::from_secs(30);
const NODES: u32 = 3;
/// Number of bytes of the arrays.
const LEN: usize = 4 << 20;

/// Plays the part of a node that another test starts. Not a test by itself.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let (name, limited) = part.split_once(' ').unwrap();
    let job = oikaze::join().unwrap();
    let is_limited = limited.parse() == Ok(job.rank());
    match name {
        "why" => say(&job_without_a_limit(&job)),
        "files" => under_limits(&job, 0..6, |room| is_limited.then(|| limit_of_files(room))),
        "mappings" => under_limits(&job, 0..8, |room| is_limited.then(|| mappings::take(room))),
        "space" => {
            under_limits(&job, 1..4, |room| is_limited.then(|| limit_of_space(room << 20)));
        }
        "length" => under_limits(&job, 0..1, |_| is_limited.then(limit_of_length)),
        other => panic!("no part {other}"),
    }
    job.leave().unwrap();
}

/// Puts an old limit back when it is dropped.
struct Limited(Resource, Rlimit);

impl Limited {
    fn to(resource: Resource, limit: u64) -> Box<Limited> {
        let old = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(limit), ..old }).unwrap();
        Box::new(Limited(resource, old))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

/// A limit that holds until it is dropped.
trait Limit {}
impl Limit for Limited {}

/// Files that take what a limit permits.
struct TakenFiles {
    _files: Vec<File>,
    _limit: Box<Limited>,
}
impl Limit for TakenFiles {}

/// Leaves room for so many further open files.
fn limit_of_files(room: usize) -> Box<dyn Limit> {
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let limit = Limited::to(Resource::Nofile, u64::try_from(next).unwrap() + 32);
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - room);
    Box::new(TakenFiles { _files: files, _limit: limit })
}

/// Leaves room for so many further bytes of address space.
fn limit_of_space(room: usize) -> Box<dyn Limit> {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().next().unwrap().parse().unwrap();
    Limited::to(Resource::As, (pages * rustix::param::page_size() + room) as u64)
}

/// Makes files shorter than the arrays.
fn limit_of_length() -> Box<dyn Limit> {
    Limited::to(Resource::Fsize, LEN as u64 / 2)
}

/// Mappings of a process, of which there may be `vm.max_map_count`.
mod mappings {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    use std::ffi::c_void;

    const PAGE: usize = 4096;

    /// Pages that are mappings each, except for some that were unmapped among the first ones.
    struct Taken {
        first: *mut c_void,
        pages: usize,
        unmapped: usize,
    }

    impl super::Limit for Taken {}

    impl Taken {
        fn page(&self, index: usize) -> *mut c_void {
            self.first.wrapping_byte_add(index * PAGE)
        }
    }

    /// Takes all mappings that this process may yet have, except for so many.
    #[allow(unsafe_code)]
    pub fn take(room: usize) -> Box<dyn super::Limit> {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let pages = most.trim().parse::<usize>().unwrap() + 2;
        let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses a place where nothing is.
        let first = unsafe { mmap_anonymous(std::ptr::null_mut(), pages * PAGE, none, flags) };
        let taken = Taken { first: first.unwrap(), pages, unmapped: room };
        // Adjacent pages of another protection are other mappings.
        let mut next = 1;
        // SAFETY: a page of the mapping above, which nothing uses.
        while unsafe { mprotect(taken.page(next), PAGE, MprotectFlags::READ) }.is_ok() {
            next += 2;
            assert!(next < pages, "there is no limit");
        }
        for index in 0..room {
            // SAFETY: as above. The page is a mapping by itself.
            unsafe { munmap(taken.page(2 * index + 1), PAGE) }.unwrap();
        }
        Box::new(taken)
    }

    impl Drop for Taken {
        #[allow(unsafe_code)]
        fn drop(&mut self) {
            let rest = 2 * self.unmapped;
            // SAFETY: this value has mapped the range, which nothing uses.
            unsafe { munmap(self.page(rest), (self.pages - rest) * PAGE) }.unwrap();
            for index in (0..rest).step_by(2) {
                // SAFETY: as above. The page behind was unmapped, and may be in use again.
                unsafe { munmap(self.page(index), PAGE) }.unwrap();
            }
        }
    }
}

/// Way that a declaration went, which is the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Segment,
    Pages,
    Error,
}

/// Declares an array under each limit, and then without one. `limit` returns the limit of this node
/// with so much room.
fn under_limits(
    job: &Job,
    rooms: std::ops::Range<usize>,
    limit: impl Fn(usize) -> Option<Box<dyn Limit>>,
) {
    for room in rooms {
        let limited = limit(room);
        // Otherwise the memory of node 0 might come before the limit.
        job.barrier().unwrap();
        let declared = job.array::<u8>("limited", LEN);
        drop(limited);
        let (way, why) = match &declared {
            Ok(array) => match array.why_not_shared() {
                None => (Way::Segment, String::new()),
                Some(why) => (Way::Pages, why.to_owned()),
            },
            Err(error) => (Way::Error, error.to_string()),
        };
        let ways = (job.all_reduce(way as u32, Min), job.all_reduce(way as u32, Max));
        assert_eq!((ways.0.unwrap(), ways.1.unwrap()), (way as u32, way as u32), "{room}: {why}");
        say(&format!("{room} {way:?} {why}"));
        if let Ok(array) = declared {
            shows_all_bytes(job, &array);
            array.free().unwrap();
        }
        let array = job.array::<u8>("unlimited", LEN).unwrap();
        assert_eq!(array.why_not_shared(), None);
        shows_all_bytes(job, &array);
        array.free().unwrap();
    }
}

fn job_without_a_limit(job: &Job) -> String {
    let array = job.array::<u8>("array", LEN).unwrap();
    shows_all_bytes(job, &array);
    array.why_not_shared().unwrap_or("shared").to_owned()
}

/// Writes all bytes, each at its home, and reads those of all nodes.
fn shows_all_bytes(job: &Job, array: &SharedArray<u8>) {
    let byte = |rank: u32| u8::try_from(rank).unwrap() + 1;
    array.write(array.home_range(job.rank())).unwrap().fill(byte(job.rank()));
    job.barrier().unwrap();
    for rank in 0..job.size() {
        let range = array.home_range(rank);
        assert!(array.read(range).unwrap().iter().all(|found| *found == byte(rank)));
    }
    job.barrier().unwrap();
}

/// Runs a part in which one node has a limit, for the node that makes the memory and for another
/// one. Checks how it went with the least room and with the most, and the remedy in the errors.
fn check(part: &str, remedy: &str, expected: impl Fn(u32) -> (Way, Way)) {
    let settings = Settings { time_limit: Some(LIMIT), ..Settings::default() };
    for limited in [0, 1] {
        let part = format!("{part} {limited}");
        let ends = run_nodes(NODES, ("unshared::plays_its_part", &part), &settings, |_| Vec::new());
        let (least, most) = expected(limited);
        for (rank, end) in ends.iter().enumerate() {
            assert!(end.status.success(), "{part}: {ends:#?}");
            let ways: Vec<&str> = end.lines.iter().map(String::as_str).collect();
            let begins = |line: &str, way: Way| {
                line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(&format!("{way:?}")))
            };
            let (first, last) = (ways[0], ways[ways.len() - 1]);
            assert!(begins(first, least) && begins(last, most), "{part}, node {rank}: {ways:#?}");
            for error in ways.iter().filter(|line| begins(line, Way::Error)) {
                let words = [remedy, "array \"limited\"", &format!("node {limited} cannot go on")];
                // The limited node names itself to others only.
                let words = &words[..if rank as u32 == limited { 2 } else { 3 }];
                assert!(words.iter().all(|word| error.contains(word)), "{part}: {error}");
                assert!(!error.contains("same calls"), "another remedy: {error}");
            }
        }
    }
}

#[test]
fn node_without_open_files_makes_all_nodes_fail_alike() {
    check("files", "ulimit -n", |_| (Way::Error, Way::Segment));
}

#[test]
fn node_without_mappings_makes_all_nodes_fail_alike() {
    check("mappings", "vm.max_map_count", |_| (Way::Error, Way::Segment));
}

#[test]
fn node_without_address_space_makes_all_nodes_fail_alike() {
    check("space", "ulimit -v", |_| (Way::Error, Way::Error));
}

/// Only the node that makes the memory makes a file.
#[test]
fn node_of_short_files_makes_all_nodes_fail_alike_if_it_makes_the_memory() {
    check("length", "ulimit -f", |limited| match limited {
        0 => (Way::Error, Way::Error),
        _ => (Way::Segment, Way::Segment),
    });
}

/// Runs nodes with the variables of each rank. Returns why an array is not shared, by rank.
fn whys(variables: impl Fn(u32) -> Vec<(&'static str, String)>) -> Vec<String> {
    let settings = Settings { time_limit: Some(LIMIT), ..Settings::default() };
    let ends = run_nodes(NODES, ("unshared::plays_its_part", "why -"), &settings, variables);
    assert!(ends.iter().all(|end| end.status.success()), "{ends:#?}");
    ends.into_iter().map(|mut end| end.lines.pop().unwrap()).collect()
}

/// MEM-16.8, COH-16.1: each node names the reason, or the node that has it.
#[test]
fn nodes_say_why_they_do_not_share_an_array() {
    let only_of_one = |name: &'static str, value: &'static str| {
        whys(move |rank| if rank == 1 { vec![(name, value.to_owned())] } else { Vec::new() })
    };
    assert_eq!(whys(|_| Vec::new()), ["shared"; 3]);
    let divided = whys(|rank| vec![("OIKAZE_MACHINE", (rank % 2).to_string())]);
    assert_eq!(divided, ["not all nodes of the job are on one machine"; 3]);
    for (name, value, of_node, of_others) in [
        ("OIKAZE_FAULT", "delay=0.01:1ms,seed=1", "OIKAZE_FAULT", "faults"),
        ("OIKAZE_WITHOUT", "shm", "OIKAZE_WITHOUT=shm", "OIKAZE_WITHOUT=shm"),
        ("OIKAZE_WITHOUT", "arena", "OIKAZE_WITHOUT=arena", "node 1"),
        ("OIKAZE_WITHOUT", "segment", "OIKAZE_WITHOUT=segment", "node 1"),
    ] {
        let told = only_of_one(name, value);
        for (rank, why) in told.iter().enumerate() {
            let word = if rank == 1 { of_node } else { of_others };
            assert!(why.contains(word), "{name}={value}: {told:#?}");
        }
    }
}

/// A capture holds what nodes send, so they send it.
#[test]
fn nodes_that_record_datagrams_do_not_share_an_array() {
    let folder = std::env::temp_dir().join(format!("oikaze-unshared-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("of.pcapng").to_string_lossy().into_owned();
    let told = whys(|_| vec![("OIKAZE_PCAP", file.clone())]);
    let files = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(told.iter().all(|why| why.contains("OIKAZE_PCAP")), "{told:#?}");
    assert!(files > 0);
}
