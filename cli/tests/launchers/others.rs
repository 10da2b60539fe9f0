//! Jobs that launchers of other projects start (LAUNCH-9).

use crate::support::*;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
const ARGUMENTS: [&str; 5] =
    ["--exact", "others::node", "--ignored", "--nocapture", "--test-threads=1"];

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

/// Two hosts, which are namespaces of the network, and the script by which launchers enter them.
struct TwoHosts {
    cable: Cable,
    enter: PathBuf,
}

/// Addresses of these hosts.
const ADDRESSES: [&str; 2] = ["10.98.7.1", "10.98.7.2"];

impl TwoHosts {
    fn new() -> TwoHosts {
        let with_prefix = ADDRESSES.map(|address| format!("{address}/24"));
        let cable =
            Cable::new("mpi", ["1500", "1500"], [with_prefix[0].as_str(), with_prefix[1].as_str()]);
        let [first, second] = &cable.0;
        // Drops the options of ssh. Launchers know hosts by their names, so each gets one.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             [ $host = {} ] && space={first} || space={second}\n\
             exec ip netns exec $space unshare -u sh -c \"hostname host${{host##*.}}; $*\"\n",
            ADDRESSES[0]
        );
        let enter = Path::new(env!("CARGO_TARGET_TMPDIR")).join("enter-host");
        std::fs::write(&enter, script).unwrap();
        std::fs::set_permissions(&enter, PermissionsExt::from_mode(0o755)).unwrap();
        TwoHosts { cable, enter }
    }

    /// Returns the command that runs a launcher on the first host.
    fn on_first(&self, launcher: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.cable.0[0], "unshare", "-u", "sh", "-c"]);
        command.args(["hostname host1; exec \"$@\"", "sh"]).args(launcher);
        command
    }
}

/// LAUNCH-9.5: the nodes are on two hosts.
#[test]
#[ignore = "needs openmpi-bin and mpich; cargo xtask test-all"]
fn mpirun_and_mpiexec_start_a_job_on_two_hosts() {
    let Some(_turn) = namespaces() else { return };
    let hosts = TwoHosts::new();
    let enter = hosts.enter.to_str().unwrap();
    let [slots, names] = [":1", ""].map(|more| ADDRESSES.map(|at| format!("{at}{more}")).join(","));
    let mpirun = ["mpirun.openmpi", "--mca", "plm_rsh_agent", enter, "-n", "2"];
    let mpirun = [&mpirun[..], &["--mca", "oob_tcp_if_include", "e", "-H", &slots]].concat();
    let mpiexec = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", enter, "-n", "2"];
    let mpiexec = [&mpiexec[..], &["-hosts", &names]].concat();
    for launcher in [mpirun, mpiexec] {
        let mut command = hosts.on_first(&launcher);
        node_command(&mut command, "adds");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (status, out, err) = finish(command.args([OIKAZE, "hello"]));
        assert_eq!(status, Some(0), "{launcher:?}: {out}{err}");
        for line in [
            "node 0 of 2 on host1, 1 of the job's nodes on this host",
            "node 1 of 2 on host2, 1 of the job's nodes on this host",
            &format!("node 0 reaches node 1 at {}:", ADDRESSES[1]),
        ] {
            assert!(out.contains(line), "{launcher:?}: {line} is not in:\n{out}{err}");
        }
    }
}

/// Slurm of two hosts, which are namespaces. Dropping the value ends its daemons.
struct Slurm {
    cable: Cable,
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Slurm {
    fn start() -> Slurm {
        let [first, second] = ADDRESSES;
        let cable = [first, second].map(|address| format!("{address}/24"));
        let cable = Cable::new("slurm", ["1500", "1500"], [cable[0].as_str(), cable[1].as_str()]);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slurm");
        let _ = std::fs::remove_dir_all(&folder);
        // The daemons of both hosts must not meet in one folder for files on their way.
        for host in ["host1", "host2"] {
            std::fs::create_dir_all(folder.join(host)).unwrap();
        }
        // Authentication by nothing needs no daemon, and the network is the test's own.
        let here = folder.display();
        let settings = format!(
            "ClusterName=oikaze\nSlurmctldHost=host1({first})\nAuthType=auth/none\n\
             CredType=cred/none\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={here}\n\
             SlurmdSpoolDir={here}/%n\nTmpFS={here}/%n\n\
             SlurmctldPidFile={here}/pid\nSlurmdPidFile={here}/pid-%n\n\
             SlurmctldLogFile={here}/log\nSlurmdLogFile={here}/log-%n\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=2\n\
             NodeName=host1 NodeAddr={first} CPUs=2 State=UNKNOWN\n\
             NodeName=host2 NodeAddr={second} CPUs=2 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        let hosts = format!("127.0.0.1 localhost\n{first} host1\n{second} host2\n");
        let control_groups = "CgroupPlugin=cgroup/v1\n".to_owned();
        for (name, text) in
            [("slurm.conf", settings), ("hosts", hosts), ("cgroup.conf", control_groups)]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut slurm = Slurm { cable, folder, daemons: Vec::new() };
        for (host, daemon) in
            [(0, &["slurmctld", "-D", "-c"][..]), (0, &["slurmd", "-D"]), (1, &["slurmd", "-D"])]
        {
            let mut command = slurm.on(host, daemon);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            slurm.daemons.push(command.spawn().unwrap());
        }
        until("both hosts are idle", || {
            let idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"];
            finish(&mut slurm.on(0, &idle)).1.trim() == "2"
        });
        slurm
    }

    /// Returns a command on a host, which has a name and files of its own.
    fn on(&self, host: usize, words: &[&str]) -> Command {
        let script = format!(
            "hostname host{}; mount --bind {}/hosts /etc/hosts; exec \"$@\"",
            host + 1,
            self.folder.display()
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.cable.0[host], "unshare", "-u", "-m", "sh", "-c"]);
        command.args([&script, "sh"]).args(words);
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// LAUNCH-9.3, LAUNCH-9.4: by each server of Slurm, and without one.
#[test]
#[ignore = "needs slurmctld, slurmd and slurm-client; cargo xtask test-all"]
fn srun_starts_a_job_on_two_hosts() {
    let Some(_turn) = namespaces() else { return };
    let found = Command::new("slurmd").arg("-V").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return skipped("Slurm is not installed (slurmctld, slurmd and slurm-client)");
    }
    let slurm = Slurm::start();
    for (server, launcher) in [("none", "slurm"), ("pmi2", "pmi"), ("pmix", "pmix")] {
        let server = format!("--mpi={server}");
        // It would wait without end for a host that is down.
        let limits = ["--immediate=60", "--time=1"];
        let mut srun = vec!["srun", &server, "-N2", "-n3", "--overcommit"];
        srun.extend(limits.into_iter().chain([OIKAZE, "hello"]));
        let mut command = slurm.on(0, &srun);
        node_command(&mut command, "adds");
        // Without the server, there would be a job by the variables of Slurm.
        command.env("OIKAZE_LAUNCHER", launcher);
        if launcher == "slurm" {
            command.env("OIKAZE_SECRET", SECRET);
        }
        let (status, out, err) = finish(&mut command);
        assert_eq!(status, Some(0), "{server}: {out}{err}");
        for line in [
            "node 0 of 3 on host1, 2 of the job's nodes on this host",
            "node 2 of 3 on host2, 1 of the job's nodes on this host",
        ] {
            assert!(out.contains(line), "{server}: {line} is not in:\n{out}{err}");
        }
    }
}

/// The command measures in the job of another launcher.
#[test]
#[ignore = "needs mpich; cargo xtask test-all"]
fn perf_measures_between_nodes_of_mpiexec() {
    let mut mpiexec = Command::new("mpiexec.hydra");
    node_command(&mut mpiexec, "adds");
    let perf = [OIKAZE, "perf", "put", "--size", "8", "--only", "latency"];
    let (status, out, err) = finish(mpiexec.args(["-n", "2"]).args(perf));
    assert_eq!(status, Some(0), "{out}{err}");
    // Two jobs of their own would print it twice.
    assert_eq!(out.matches("put of 8 bytes, 2 nodes").count(), 1, "{out}{err}");
}

/// LAUNCH-9.4: the launcher itself, where PyTorch is installed.
#[test]
#[ignore = "needs python3-torch; cargo xtask test-all"]
fn torchrun_starts_a_job() {
    let found = Command::new("torchrun").arg("--help").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        // 200 MB, and not needed for anything else.
        return skipped("torchrun is not installed (python3-torch, or pip install torch)");
    }
    let mut torchrun = Command::new("torchrun");
    torchrun.args(["--nproc_per_node", "3", "--master_port", "29571", "--no_python"]);
    // The torchrun of Debian 12 fails without a choice for some process, which need not be there.
    torchrun.args(["-r", "9:1", "-t", "9:1"]);
    three_nodes_by(torchrun.env("OIKAZE_SECRET", SECRET));
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
