//! A neighbour that is stopped in the middle of a put into a mapped region, given up by the others, and goes on later: MEM-18.6. Real processes.

use oikaze::job::environment::{Place, new_incarnation, to_variables};
use oikaze::job::store::Server;
use oikaze::job::{Secret, Settings};
use oikaze::{Class, Error, Job, LocalRegion, Region, Rights};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set in a process that is a node of the job.
const ROLE: &str = "OIKAZE_TEST_ROLE";
/// Long enough to be found in the middle of a put.
const LEN: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test by itself: a node of the job that the other one starts.
#[test]
fn plays_its_role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut job = oikaze::join().unwrap();
    job.set_time_limit(Some(PATIENCE));
    match job.rank() {
        0 => gives_memory_and_has_it_back(&job),
        _ => puts_and_is_stopped(&job),
    }
    // The other one is lost: there is nobody to leave together with.
    std::process::exit(0);
}

fn puts_and_is_stopped(job: &Job) {
    let owner = job.peer(0).unwrap();
    owner.send(Class::Ordered, u64::from(std::process::id()), &[]).wait().unwrap();
    let there = owner.region("memory").unwrap();
    let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
    let outcome = (1..u64::MAX).find_map(|number| {
        source.fill(0, LEN as u64, number as u8).unwrap();
        there.put(0, source.all()).wait().err()
    });
    assert_eq!(outcome.as_ref().and_then(Error::lost_peer), Some(0), "{outcome:?}");
}

fn gives_memory_and_has_it_back(job: &Job) {
    let memory = job.publish("memory", Region::shared(LEN).unwrap(), Rights::ALL).unwrap();
    let at = memory.view_ptr();
    let other = job.receive(Some(1), Some(PATIENCE)).unwrap().tag;
    let stopped = Stopped::in_the_middle_of_a_put(Pid::from_raw(other as i32).unwrap(), &memory);
    // Nothing is heard of it any more.
    let lost = job.receive(Some(1), Some(PATIENCE)).unwrap_err();
    assert_eq!(lost.lost_peer(), Some(1), "{lost}");
    let kept = memory.deregister().unwrap();
    assert_eq!(kept.view_ptr(), at);
    let before = bytes(&kept);
    assert!(is_half_done(&kept), "what has come of the put is there");
    // It goes on, finishes its put, finds that it was given up, and ends.
    stopped.goes_on_to_its_end();
    assert!(bytes(&kept) == before, "written after deregister had returned");
    // The memory is as good as any.
    let again = job.publish("memory", kept, Rights::ALL).unwrap();
    again.fill(0, LEN as u64, 7).unwrap();
    let copy = job.register(Region::zeroed(LEN).unwrap()).unwrap();
    job.peer(0).unwrap().region("memory").unwrap().get(0, copy.all()).wait().unwrap();
    assert!(bytes(&copy).iter().all(|byte| *byte == 7));
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// Is a put there that has begun and is not whole? (A copy may keep its very ends for last.)
fn is_half_done(memory: &Region) -> bool {
    let words: Vec<u64> = (1..64).map(|part| memory.load_u64(part * LEN as u64 / 64).unwrap()).collect();
    words.iter().any(|word| *word != words[0])
}

/// A process that was stopped. It is not left so.
struct Stopped(Pid);

impl Stopped {
    fn in_the_middle_of_a_put(process: Pid, memory: &LocalRegion) -> Self {
        loop {
            while !is_half_done(memory) {
                std::hint::spin_loop();
            }
            kill_process(process, Signal::STOP).unwrap();
            let stopped = Self(process);
            while stopped.state() != Some('T') {
                std::thread::yield_now();
            }
            if is_half_done(memory) {
                return stopped;
            }
        }
    }

    /// As the kernel shows it; none if there is no such process.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }

    fn goes_on_to_its_end(self) {
        kill_process(self.0, Signal::CONT).unwrap();
        while !matches!(self.state(), None | Some('Z')) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn who_was_stopped_in_a_put_writes_nothing_after_deregister_has_returned() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let secret = Secret::random().unwrap();
    let server = Server::start(listener, 2, secret.clone()).unwrap();
    let nodes: Vec<Child> = (0..2)
        .map(|rank| {
            let store = format!("127.0.0.1:{}", server.port());
            let (secret, incarnation) = (secret.clone(), new_incarnation());
            let place = Place { store, rank, size: 2, local_rank: rank, local_size: 2, secret, incarnation };
            let settings = Settings { failure_time: Some(Duration::from_millis(500)), ..Settings::default() };
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "plays_its_role", "--nocapture"]).envs(to_variables(&place, &settings)).env(ROLE, "node");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (rank, node) in nodes.into_iter().enumerate() {
        let ended = node.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "node {rank}: {}\n{said}", ended.status);
    }
}
