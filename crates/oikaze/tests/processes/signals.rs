//! Threads of the library beside the program's signal handlers (COH-8.7), in real processes.

use crate::processes::run_two_nodes;
use oikaze_launch::Settings;
use std::path::Path;
use std::time::Duration;

/// Set in a process that is a node of the job.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);
/// Numbers of SIGALRM, SIGINT, SIGTERM, SIGCHLD and SIGUSR1, which become bits of a mask.
const ASYNCHRONOUS: [u64; 5] = [14, 2, 15, 17, 10];
/// Numbers of SIGSEGV, SIGBUS, SIGFPE and SIGILL.
const SYNCHRONOUS: [u64; 4] = [11, 7, 8, 4];

/// Runs a node of a job that the other test starts. Not a test by itself.
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
        // A thread that has ended meanwhile has no status. Threads of the test harness are left
        // out.
        let Some((name, mask)) =
            mask_of(&thread.path()).filter(|(name, _)| name.starts_with("oikaze"))
        else {
            continue;
        };
        let blocks = |signal: &u64| mask & (1 << (signal - 1)) != 0;
        assert!(ASYNCHRONOUS.iter().all(blocks), "thread {name} has the mask {mask:x}");
        assert!(!SYNCHRONOUS.iter().any(blocks), "thread {name} has the mask {mask:x}");
        of_library += 1;
    }
    assert_eq!(
        mask_of(Path::new("/proc/thread-self")).unwrap(),
        before,
        "the program's thread has another mask than before"
    );
    // These are the helper, and the thread that reads from the launcher.
    assert!(of_library >= 2, "{of_library}");
    assert_eq!(array.read(0..1).unwrap()[0], 0);
    job.leave().unwrap();
}

/// Returns name and blocked signals of a thread.
fn mask_of(thread: &Path) -> Option<(String, u64)> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let field = |name: &str| {
        Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim())
    };
    Some((field("Name")?.to_owned(), u64::from_str_radix(field("SigBlk")?, 16).ok()?))
}

/// COH-8.7.
#[test]
fn library_threads_block_signals_and_program_threads_keep_their_masks() {
    run("node", "");
    run("node", "segment");
    run("node", "segment,uffd");
}

/// Runs two nodes that play this role, without some mechanisms.
fn run(role: &str, without: &str) {
    let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
    run_two_nodes(
        "signals::plays_its_role",
        &settings,
        &[(ROLE, role), ("OIKAZE_WITHOUT", without)],
    );
}
