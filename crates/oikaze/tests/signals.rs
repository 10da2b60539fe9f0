//! Threads of the library beside the program's signal handlers (COH-8.7). Real processes.

use oikaze::job::environment::{Place, new_incarnation, to_variables};
use oikaze::job::store::Server;
use oikaze::job::{Secret, Settings};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set in a process that is a node of the job.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);
/// SIGALRM, SIGINT, SIGTERM, SIGCHLD, SIGUSR1 as bits of a mask.
const ASYNCHRONOUS: [u64; 5] = [14, 2, 15, 17, 10];
/// SIGSEGV, SIGBUS, SIGFPE, SIGILL.
const SYNCHRONOUS: [u64; 4] = [11, 7, 8, 4];

/// Not a test by itself: a node of the job that the other one starts.
#[test]
fn plays_its_role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let before = mask_of(Path::new("/proc/thread-self")).unwrap();
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("array", 4096).unwrap();
    job.barrier().unwrap();
    let mut of_library = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        // One that has ended meanwhile has no status. Those of the test harness are no business of ours.
        let Some((name, mask)) = mask_of(&thread.path()).filter(|(name, _)| name.starts_with("oikaze")) else { continue };
        let blocks = |signal: &u64| mask & (1 << (signal - 1)) != 0;
        assert!(ASYNCHRONOUS.iter().all(blocks) && !SYNCHRONOUS.iter().any(blocks), "thread {name} has the mask {mask:x}");
        of_library += 1;
    }
    assert_eq!(mask_of(Path::new("/proc/thread-self")).unwrap(), before, "the program's thread has another mask than before");
    // The helper, and the one that reads what the launcher says.
    assert!(of_library >= 2, "{of_library}");
    assert_eq!(array.read(0..1).unwrap()[0], 0);
    job.leave().unwrap();
}

/// Name and blocked signals of a thread.
fn mask_of(thread: &Path) -> Option<(String, u64)> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim());
    Some((field("Name")?.to_owned(), u64::from_str_radix(field("SigBlk")?, 16).ok()?))
}

/// COH-8.7.
#[test]
fn library_threads_block_signals_and_program_threads_keep_their_masks() {
    run("node", "");
    run("node", "uffd");
}

/// The job's processes, which end with the test.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Two nodes that play this role, without some mechanisms.
fn run(role: &str, without: &str) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let secret = Secret::random().unwrap();
    let server = Server::start(listener, 2, secret.clone()).unwrap();
    let nodes = (0..2).map(|rank| {
        let store = format!("127.0.0.1:{}", server.port());
        let (secret, incarnation) = (secret.clone(), new_incarnation());
        let place = Place { store, rank, size: 2, local_rank: rank, local_size: 2, secret, incarnation };
        let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "plays_its_role", "--nocapture"]).envs(to_variables(&place, &settings));
        command.env(ROLE, role).env("OIKAZE_WITHOUT", without);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let mut nodes = Nodes(nodes.collect());
    for (rank, node) in nodes.0.iter_mut().enumerate() {
        let mut said = String::new();
        node.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = node.wait().unwrap();
        assert!(status.success(), "node {rank} without '{without}': {status}\n{said}");
    }
}
