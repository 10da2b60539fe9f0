//! Programs of MPI as nodes of `oikaze run`, which serves PMI-1 to them (LAUNCH-10).

use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Compiles a program of MPI for MPICH. Returns its path.
fn mpi_program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/mpi.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi");
    let mut compiler = Command::new("mpicc.mpich");
    compiler.args(["-Wall", "-Werror", "-O2"]).arg(source).arg("-o").arg(&program);
    let (status, out, err) = finish(&mut compiler);
    assert_eq!(status, Some(0), "{out}{err}");
    program
}

/// Returns the command that runs the program of MPI as nodes of `oikaze run`.
fn mpi_nodes(options: &[&str], what: &str) -> Command {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(mpi_program);
    let mut command = oikaze(&["run", "--failure-time", "1000", "--timeout", "50"]);
    command.args(options).arg("--").arg(&*PROGRAM).arg(what);
    command
}

/// LAUNCH-10.1, LAUNCH-10.3.
#[test]
#[ignore = "needs libmpich-dev; cargo xtask test-all"]
fn program_of_mpich_runs_as_nodes_of_oikaze_run() {
    let shell = Shell::new("mpich", "shift; exec /bin/sh -c \"$*\"");
    for (options, here) in
        [(&["-n", "4"][..], [4; 4]), (&["-n", "4", "--hosts", "a:3,b:1"], [3, 3, 3, 1])]
    {
        let mut command = mpi_nodes(options, "adds");
        let (status, out, err) = finish(command.env("OIKAZE_RSH", shell.command()));
        assert_eq!(status, Some(0), "{out}{err}");
        for (rank, here) in here.iter().enumerate() {
            let line = format!("[{rank}] mpi {rank} of 4 on a host of {here} has 6, universe 4\n");
            assert!(out.contains(&line), "{line} is not in:\n{out}{err}");
        }
    }
}

/// LAUNCH-10.3: nodes in namespaces of the network are on hosts of their own.
#[test]
#[ignore = "needs libmpich-dev; cargo xtask test-all"]
fn program_of_mpich_runs_in_namespaces() {
    let Some(_turn) = namespaces() else { return };
    let (status, out, err) = finish(&mut mpi_nodes(&["-n", "2", "--netns"], "adds"));
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.contains("[1] mpi 1 of 2 on a host of 1 has 1"), "{out}{err}");
}

/// LAUNCH-10.6: the library and the server agree on where the request ends.
#[test]
#[ignore = "needs libmpich-dev; cargo xtask test-all"]
fn mpich_goes_on_after_a_refused_spawn_of_two_programs() {
    let (status, out, err) = finish(&mut mpi_nodes(&["-n", "2"], "spawns"));
    assert_eq!(status, Some(0), "{out}{err}");
    for rank in 0..2 {
        assert!(out.contains(&format!("[{rank}] two programs were refused")), "{out}{err}");
        assert!(out.contains(&format!("[{rank}] mpi {rank} of 2 ")), "{out}{err}");
    }
}

/// LAUNCH-10.5, LAUNCH-10.6.
#[test]
#[ignore = "needs libmpich-dev; cargo xtask test-all"]
fn nodes_of_mpich_that_end_in_other_ways_end_the_job() {
    for (what, status, words) in [
        (
            "aborts",
            3,
            &["node 1 aborted the job: MPI_Abort with status 3; the job ends with 3"][..],
        ),
        ("exits", 1, &["node 1 ended with status 0 without MPI_Finalize"]),
        ("absent", 1, &["waits in MPI for node 2, which has ended"]),
    ] {
        let said = ends(&mut mpi_nodes(&["-n", "3"], what), status, words);
        assert!(!said.contains("--timeout"), "{what}: {said}");
    }
}

/// Begin of a script that asks a PMI-1 server: `ask LINE` prints its answer.
const ASK: &str =
    "ask() { printf '%s\\n' \"$1\" >&$PMI_FD; read line <&$PMI_FD && echo \"$line\"; }";

/// Returns the command that runs a script as nodes. `sh` of Debian knows no descriptors above 9.
fn pmi_script(options: &[&str], script: &str) -> Command {
    let mut command = oikaze(&["run"]);
    command.args(options).args(["--", "/bin/bash", "-c", script]);
    command
}

/// LAUNCH-10.2, LAUNCH-10.4: without an MPI library.
#[test]
fn values_go_to_all_nodes_at_the_barrier() {
    let script = format!(
        "{ASK}; ask 'cmd=init pmi_version=1 pmi_subversion=1'; ask cmd=get_universe_size
         ask \"cmd=put key=k$PMI_RANK value=of-$PMI_RANK\"
         ask cmd=barrier_in; ask 'cmd=get key=k0'; ask 'cmd=get key=k2'; ask cmd=finalize"
    );
    let shell = Shell::new("values", "shift; exec /bin/sh -c \"$*\"");
    for options in [&["-n", "3"][..], &["--hosts", "a:2,b:1"]] {
        let mut command = pmi_script(options, &script);
        let (status, out, err) = finish(command.env("OIKAZE_RSH", shell.command()));
        assert_eq!(status, Some(0), "{out}{err}");
        for rank in 0..3 {
            for line in
                ["cmd=universe_size rc=0 size=3", "value=of-0", "value=of-2", "finalize_ack"]
            {
                let is_there = |printed: &str| {
                    printed.starts_with(&format!("[{rank}] ")) && printed.contains(line)
                };
                assert!(out.lines().any(is_there), "{rank}: {line} is not in:\n{out}{err}");
            }
        }
    }
}

/// LAUNCH-10.1, LAUNCH-10.3: each node in a namespace is alone on its host.
#[test]
fn nodes_in_namespaces_have_no_local_nodes() {
    let Some(_turn) = namespaces() else { return };
    let script = format!(
        "{ASK}; echo $MPI_LOCALRANKID of $MPI_LOCALNRANKS; ask 'cmd=get key=PMI_process_mapping'"
    );
    let (status, out, err) = finish(&mut pmi_script(&["-n", "2", "--netns"], &script));
    assert_eq!(status, Some(0), "{out}{err}");
    for rank in 0..2 {
        assert!(out.contains(&format!("[{rank}] 0 of 1\n")), "{out}{err}");
        assert!(
            out.contains(&format!("[{rank}] cmd=get_result rc=0 value=(vector,(0,2,1))")),
            "{out}{err}"
        );
    }
}

/// LAUNCH-10.5: the nodes at the barrier lose their connection, and no node is ended.
#[test]
fn barrier_without_a_dead_node_fails_where_the_job_keeps_going() {
    for (end, status) in [(7, 7), (0, 1)] {
        let script = format!(
            "{ASK}; trap '' PIPE; [ $PMI_RANK = 1 ] && exit {end}
             ask cmd=barrier_in || echo lost; ask cmd=barrier_in || echo lost again; exit 0"
        );
        let (ended, out, err) = finish(&mut pmi_script(&["-n", "3", "--keep-going"], &script));
        assert_eq!(ended, Some(status), "{out}{err}");
        for rank in [0, 2] {
            for line in ["lost\n", "lost again\n"] {
                assert!(out.contains(&format!("[{rank}] {line}")), "{out}{err}");
            }
        }
        assert_eq!(err.matches("in MPI for node 1, which has ended").count(), 1, "{err}");
    }
}

/// LAUNCH-10.5: no node waits for one that has gone, wherever it runs.
#[test]
fn node_that_ends_before_the_barrier_ends_the_job() {
    // The node that waits hears of it: its connection ends.
    let script = format!("{ASK}; [ $PMI_RANK = 1 ] && exit 0; ask cmd=barrier_in; echo went on");
    let shell = Shell::new("gone", "shift; exec /bin/sh -c \"$*\"");
    for options in [&["-n", "2"][..], &["--hosts", "a,b"]] {
        let mut command = pmi_script(options, &script);
        command.env("OIKAZE_RSH", shell.command());
        ends(&mut command, 1, &["node 0 waits in MPI for node 1, which has ended"]);
    }
    let script = format!("{ASK}; ask 'cmd=init pmi_version=1'; exit 0");
    ends(&mut pmi_script(&[], &script), 1, &["node 0 ended with status 0 without MPI_Finalize"]);
}

/// LAUNCH-10.6.
#[test]
fn requests_that_make_no_sense_are_named() {
    for (line, words) in [
        ("nonsense", &["node 0: the PMI-1 server does not know \"nonsense\""][..]),
        ("cmd=get_ranks2hosts", &["does not know \"cmd=get_ranks2hosts\""]),
        ("cmd=put\\033[2J", &["bytes that are not text"]),
        ("cmd=publish_name service=a port=b", &["keeps no names of MPI services"]),
        ("mcmd=spawn\\nnprocs=1\\nendcmd", &["MPI_Comm_spawn: a job of `oikaze run`"]),
        ("cmd=abort exitcode=7 message=too cold", &["MPI_Abort with status 7: too cold"]),
    ] {
        let script = format!("printf '{line}\\n' >&$PMI_FD; read line <&$PMI_FD; exit 7");
        ends(&mut pmi_script(&[], &script), 7, words);
    }
}

/// LAUNCH-10.6: a program may ask again without end.
#[test]
fn request_that_is_not_served_is_named_once() {
    let script = format!(
        "{ASK}; for turn in 1 2 3; do ask 'cmd=lookup_name service=a'; done; ask cmd=finalize"
    );
    let (status, out, err) = finish(&mut pmi_script(&["-n", "2"], &script));
    assert_eq!(status, Some(0), "{out}{err}");
    assert_eq!(out.matches("cmd=lookup_result rc=-1").count(), 6, "{out}{err}");
    assert_eq!(err.matches("keeps no names of MPI services").count(), 1, "{err}");
}

/// Runs a job on hosts `a` and `b`. The agent of `b` says that its node is at the barrier, and then
/// reads nothing more. The node of `a` has values for it that do not fit into a pipe.
fn job_with_a_frozen_host(options: &[&str]) -> (Option<i32>, String) {
    let shell = Shell::new(
        &format!("frozen{}", options.len()),
        "host=$1; shift; [ $host = a ] && exec \"$@\"
         version=$(\"$1\" agent --version); version=${version##*protocol }
         printf '\\nOIKAZE-AGENT %s\\n' \"${version%)}\"
         printf '\\012\\001\\000\\000\\000\\022\\000\\000\\000{\"Arrived\":[1,[]]}'
         kill -STOP $$",
    );
    let script = format!(
        "{ASK}; value=$(printf %01000d 0)
         for key in $(seq 100); do ask \"cmd=put key=$key value=$value\" >/dev/null; done
         ask cmd=barrier_in; exec sleep 100"
    );
    // A launcher that hangs is killed.
    let mut command = Command::new("timeout");
    let launcher = pmi_script(&[&["--hosts", "a,b", "--agent", OIKAZE], options].concat(), &script);
    command.args(["--signal=KILL", "50"]).arg(launcher.get_program()).args(launcher.get_args());
    for (name, value) in launcher.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("OIKAZE_RSH", shell.command());
    let (status, out, err) = finish(&mut command);
    assert!(out.contains("[0] cmd=barrier_out rc=0"), "{out}{err}");
    (status, err)
}

/// LAUNCH-8.6: the launcher's time limit holds.
#[test]
fn host_that_reads_nothing_does_not_stop_the_time_limit() {
    let (status, err) = job_with_a_frozen_host(&["--failure-time", "60000", "--timeout", "8"]);
    assert_eq!(status, Some(124), "{err}");
    assert!(err.contains("time limit of 8 s"), "{err}");
}

/// LAUNCH-8.6: the nodes of such a host are lost.
#[test]
fn host_that_reads_nothing_counts_as_lost() {
    let (status, err) = job_with_a_frozen_host(&["--failure-time", "500"]);
    assert_eq!(status, Some(125), "{err}");
    assert!(err.contains("node 1 was lost: host b took no message for 2.5 s"), "{err}");
}

/// LAUNCH-10.7.
#[test]
fn node_that_has_lost_its_variables_is_no_node_of_a_pmi_launcher() {
    let mut command = oikaze(&["run", "-n", "2", "--failure-time", "1000", "--"]);
    let lost = ["OIKAZE_STORE", "OIKAZE_RANK", "OIKAZE_SIZE", "OIKAZE_SECRET_FD"];
    command.arg("env").args(lost.map(|name| format!("--unset={name}")));
    command.args([OIKAZE, "hello"]);
    let (status, out, err) = finish(&mut command);
    assert_ne!(status, Some(0), "{out}{err}");
    assert!(err.contains("let the OIKAZE_ variables pass"), "{out}{err}");
}

/// LAUNCH-10.8: a child has inherited the socket of its node.
#[test]
fn child_that_begins_beside_its_node_is_refused() {
    let script = format!(
        "{ASK}; export -f ask; begin=\"ask 'cmd=init pmi_version=1'\"
         eval \"$begin\"; bash -c \"$begin; exit\"; ask cmd=finalize
         bash -c \"$begin; ask cmd=finalize\""
    );
    let (status, out, err) = finish(&mut pmi_script(&["--no-prefix"], &script));
    assert_eq!(status, Some(0), "{out}{err}");
    let answers: Vec<&str> = out.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(answers, ["rc=0", "rc=-1", "rc=0", "rc=0", "rc=0"], "{out}{err}");
    assert!(err.contains("\"bash\" begins MPI on the connection of \"bash\""), "{err}");
}
