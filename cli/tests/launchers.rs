//! Jobs that launchers of other projects start (LAUNCH-9). `cargo xtask test-all` runs the tests
//! that need their programs.

mod support;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use support::*;

/// Set in processes that run [`node`], to what they do.
const NODE: &str = "OIKAZE_TEST_LAUNCHERS";
/// Secret of the jobs whose launcher tells none.
const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Node of these jobs. It adds up an array of all nodes. In `dies` the last one ends meanwhile.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    let Ok(what) = std::env::var(NODE) else { return };
    let job = oikaze::join().unwrap();
    let array = job.array::<u64>("sums", 64).unwrap();
    let process = job.array::<u32>("process", 1).unwrap();
    if job.rank() == 0 {
        array.write(0..64).unwrap().fill(1);
        process.write(0..1).unwrap()[0] = std::process::id();
    }
    job.barrier().unwrap();
    let first = process.read(0..1).unwrap()[0];
    if what == "dies" && job.rank() == job.size() - 1 {
        std::process::exit(0);
    }
    let sum: u64 = array.read(0..64).unwrap().iter().sum();
    let end = job.barrier();
    match (&*what, end) {
        ("dies", Err(why)) => println!("died: {why}"),
        (_, end) => end.unwrap(),
    }
    let (rank, size) = (job.rank(), job.size());
    let left = job.leave();
    if what == "dies" {
        return;
    }
    left.unwrap();
    if rank > 0 {
        // A launcher may take the first process that ends for one that has crashed.
        until("node 0 has ended", || is_gone(first));
    }
    println!("node {rank} of {size} has {sum}");
}

/// Returns the command of this test program as [`node`].
fn node_command(program: &mut Command, what: &str) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OIKAZE_") {
            program.env_remove(name);
        }
    }
    program.env(NODE, what);
}

/// Arguments by which this test program runs [`node`] only.
const ARGUMENTS: [&str; 5] = ["--exact", "node", "--ignored", "--nocapture", "--test-threads=1"];

/// Runs a launcher with the test program as nodes, and checks what three nodes print.
fn three_nodes_by(launcher: &mut Command) {
    node_command(launcher, "adds");
    launcher.arg(std::env::current_exe().unwrap()).args(ARGUMENTS);
    let (status, out, err) = finish(launcher);
    assert_eq!(status, Some(0), "{out}{err}");
    for rank in 0..3 {
        assert!(out.contains(&format!("node {rank} of 3 has 64")), "{out}{err}");
    }
}

/// LAUNCH-9.3.
#[test]
#[ignore = "needs openmpi-bin; cargo xtask test-all"]
fn mpirun_of_open_mpi_starts_a_job() {
    let mut mpirun = Command::new("mpirun.openmpi");
    // Root must say so twice.
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    three_nodes_by(mpirun.args(["--oversubscribe", "-n", "3"]));
}

/// LAUNCH-9.3.
#[test]
#[ignore = "needs mpich; cargo xtask test-all"]
fn mpiexec_of_mpich_starts_a_job_by_either_way_to_its_server() {
    three_nodes_by(Command::new("mpiexec.hydra").args(["-n", "3"]));
    three_nodes_by(Command::new("mpiexec.hydra").args(["-pmi-port", "-n", "3"]));
}

/// Starts one process of a job as torchrun does.
fn torchrun(rank: u32, size: u32, port: u16, what: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    node_command(&mut command, what);
    for (name, value) in [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("TORCHELASTIC_RUN_ID", format!("{}-{what}", std::process::id())),
        ("OIKAZE_SECRET", SECRET.to_owned()),
        ("OIKAZE_FAILURE_TIME", "1000".to_owned()),
    ] {
        command.env(name, value);
    }
    command.args(ARGUMENTS).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs `N` such processes. Returns what each prints.
fn nodes_of_torchrun<const N: usize>(what: &str) -> [String; N] {
    // The launcher's own store is at this port, and ours behind it.
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = own.local_addr().unwrap().port().min(60_000);
    let size = u32::try_from(N).unwrap();
    let mut next = 0..size;
    let nodes = [(); N].map(|()| torchrun(next.next().unwrap(), size, port, what));
    nodes.map(|mut node| {
        let mut out = String::new();
        node.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        node.wait().unwrap();
        out
    })
}

/// LAUNCH-9.4.
#[test]
fn variables_of_torchrun_make_a_job() {
    for (rank, out) in nodes_of_torchrun::<3>("adds").iter().enumerate() {
        assert!(out.contains(&format!("node {rank} of 3 has 64")), "{out}");
    }
}

/// LAUNCH-9.6.
#[test]
fn death_that_no_launcher_tells_is_found() {
    // With a third node, that of rank 0 could leave before it hears of the death.
    let [out, _] = nodes_of_torchrun("dies");
    assert!(out.contains("died: ") && out.contains("node 1"), "{out}");
}

/// LAUNCH-9.1: variables of a launcher that has gone.
#[test]
fn variables_without_their_server_are_named() {
    let hello = |variables: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        node_command(&mut command, "adds");
        command.envs(variables.iter().copied()).args(ARGUMENTS);
        let (status, out, err) = finish(&mut command);
        assert_ne!(status, Some(0), "{out}{err}");
        format!("{out}{err}")
    };
    let said = hello(&[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
    assert!(said.contains("PMI_FD is \"77\""), "{said}");
    let said = hello(&[
        ("PMI_PORT", "127.0.0.1:1"),
        ("PMI_ID", "0"),
        ("PMI_RANK", "0"),
        ("PMI_SIZE", "2"),
    ]);
    assert!(said.contains("PMI_PORT"), "{said}");
    // Where the library is not installed, that is what is named.
    let said = hello(&[("PMIX_NAMESPACE", "gone"), ("PMIX_RANK", "0")]);
    assert!(said.contains("by PMIx") && said.contains("OIKAZE_LAUNCHER"), "{said}");
}
