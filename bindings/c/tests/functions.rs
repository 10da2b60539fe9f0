//! The installed binding: what its functions do, and what its files are.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::{
    compile, compile_with, installed, libraries, lines, nodes, oikaze, pkg_config, program,
    scratch, sources, succeed, two_nodes_print,
};

/// MEM-19.3: through rings and mapped memory, and through the network.
#[test]
fn every_group_of_functions_does_what_it_says() {
    let done = ["node 0 has done everything", "node 1 has done everything"];
    two_nodes_print("everything.c", &done);
}

/// Sets of cores, mode `process` and priorities, in the words of `OIKAZE_ENGINE` and
/// `OIKAZE_PRIORITY`.
#[test]
fn engine_is_set_in_the_words_of_its_variable() {
    let engine = program("engine.c");
    let server = format!("process:c-{}@0", std::process::id());
    for (words, priority, expected) in [
        ("thread:0", "nice:5", "oikaze on 0, nice 5"),
        (server.as_str(), "nice:3", "oikaze on 0, nice 3"),
        ("threads", "nice:5", "setting engine to \"threads\": expected inline, thread"),
        ("thread:0,1000", "nice:5", "this machine has no core 1000; its cores are 0"),
        ("thread", "high", "setting priority to \"high\": expected fifo"),
    ] {
        let mut command = Command::new(&engine);
        command.args([words, priority]).env("LD_LIBRARY_PATH", libraries());
        // The server is started on demand.
        let said = succeed(command.env("OIKAZE_COMMAND", oikaze()));
        assert!(said.lines().any(|line| line.contains(expected)), "{words}, {priority}: {said}");
    }
}

/// MEM-21.5.
#[test]
fn wait_names_the_line_of_a_program_with_debug_information_else_its_function() {
    let text = "#include <oikaze.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void exchange(oik_job *job) {
    oik_check(oik_barrier(job));
}
int main(void) {
    oik_job *job;
    uint32_t rank;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    if (rank == 0) exchange(job);
    for (;;) pause();
}
";
    for (name, flag, place) in [
        ("lines.c", "-g", "lines.c:5: node 1"),
        ("functions.c", "-g0", "function exchange: node 1"),
    ] {
        let source = scratch().join(name);
        fs::write(&source, text).unwrap();
        let program = compile_with(&source, &[flag, "-fno-optimize-sibling-calls"]);
        let mut job = nodes(2, &program, &[])
            .env("OIKAZE_EXPLAIN_AFTER", "200")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains("has waited")));
        job.kill().unwrap();
        job.wait().unwrap();
        let line = line.unwrap();
        assert!(line.contains(" for barrier 1 at ") && line.contains(place), "{line}");
    }
}

#[test]
fn check_ends_the_job_with_the_text_of_the_error() {
    let source = scratch().join("fails.c");
    let text = "#include <oikaze.h>
int main(void) {
    oik_job *job;
    uint32_t rank;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    if (rank == 1) oik_check(oik_rank(job, NULL));
    oik_check(oik_barrier(job));
    return 0;
}
";
    fs::write(&source, text).unwrap();
    let output = nodes(2, &compile(&source), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // Node 0 is told why by its barrier.
    assert!(said.contains("oikaze: rank is NULL; pass a pointer to it"), "{said}");
    assert!(said.contains("node 1 aborted the job: rank is NULL"), "{said}");
}

/// A program that ends without `oik_leave` is lost to the others, who are told.
#[test]
fn node_that_does_not_leave_is_lost() {
    let source = scratch().join("forgets.c");
    let text = "#include <oikaze.h>
#include <stdio.h>
int main(void) {
    oik_job *job;
    uint32_t rank, lost;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    oik_check(oik_barrier(job)); /* a node that ends while another joins is an error of joining */
    if (rank == 1) return 0;
    if (oik_barrier(job) == OIK_PEER_LOST && oik_error_lost_peer(&lost) == OIK_OK)
        printf(\"lost %u\\n\", lost);
    return 0;
}
";
    fs::write(&source, text).unwrap();
    let program = compile(&source);
    let mut command = Command::new(oikaze());
    command.args(["run", "--no-prefix", "-n", "2", "--keep-going", "--timeout", "60", "--"]);
    let output = command.arg(program).env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "lost 1\n");
}

/// Functions of the header, by name.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(sources().join("include/oikaze.h")).unwrap();
    let lines = header.lines().filter(|line| !line.starts_with([' ', '*', '/', '#']));
    let names = lines.filter_map(|line| {
        let before = line.split_once('(')?.0;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    });
    names.filter(|name| name.starts_with("oik_")).collect()
}

#[test]
fn library_exports_the_functions_of_the_header_alone() {
    let library = libraries().join("liboikaze.so");
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let exported = symbols.lines().filter_map(|line| Some(line.rsplit_once(' ')?.1.to_owned()));
    assert_eq!(exported.collect::<BTreeSet<_>>(), declared());
    assert!(declared().len() > 150);
}

/// Programs find the library by the version of its interface.
#[test]
fn library_is_found_by_its_soname() {
    let library = libraries().join("liboikaze.so.0");
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(library));
    assert!(dynamic.contains("Library soname: [liboikaze.so.0]"), "{dynamic}");
    let link = fs::read_link(libraries().join("liboikaze.so")).unwrap();
    assert_eq!(link.to_str(), Some("liboikaze.so.0"));
}

#[test]
fn header_compiles_as_c_and_cpp_of_all_standards() {
    let source = scratch().join("header.c");
    fs::write(&source, "#include <oikaze.h>\nint main(void) { return oik_error()[0]; }\n").unwrap();
    let flags = succeed(pkg_config().args(["--cflags", "oikaze"]));
    for (compiler, language, standard) in [
        ("cc", "c", "c11"),
        ("cc", "c", "c17"),
        ("c++", "c++", "c++11"),
        ("c++", "c++", "c++17"),
        ("c++", "c++", "c++20"),
    ] {
        let mut command = Command::new(compiler);
        command
            .args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"])
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
            .args(flags.split_whitespace());
        succeed(command.arg(&source));
    }
}

#[test]
fn program_with_the_static_library_needs_no_other() {
    let program = scratch().join("static");
    let flags = succeed(pkg_config().args(["--cflags", "oikaze"]));
    let archive = succeed(pkg_config().args(["--variable=archive", "oikaze"]));
    let mut command = Command::new("cc");
    command.arg(sources().join("examples/put_get.c")).args(flags.split_whitespace());
    succeed(command.args(archive.split_whitespace()).arg("-o").arg(&program));
    let needed = succeed(Command::new("readelf").arg("-d").arg(&program));
    assert!(!needed.contains("liboikaze"), "{needed}");
    let mut command = nodes(2, &program, &[]);
    assert_eq!(lines(command.env_remove("LD_LIBRARY_PATH")).len(), 2);
}

#[test]
fn uninstall_removes_what_install_wrote() {
    let root = scratch().join("removed");
    let install = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(sources()).args(["xtask", "install", "--prefix", "/usr", "--destdir"]);
        succeed(command.arg(&root).args(more));
    };
    let from = installed().with_file_name("from");
    fs::create_dir_all(&from).unwrap();
    for name in ["liboikaze_c.so", "liboikaze_c.a"] {
        fs::write(from.join(name), "a library").unwrap();
    }
    install(&["--from", from.to_str().unwrap()]);
    assert!(root.join("usr/lib/pkgconfig/oikaze.pc").is_file());
    install(&["--uninstall"]);
    let files = succeed(Command::new("find").arg(&root).args(["-type", "f", "-o", "-type", "l"]));
    assert_eq!(files, "");
}

/// END-1.2: a program leaves its job in a function of atexit(3), and calls work there and in an
/// ending thread.
#[test]
fn calls_after_exit_and_in_an_ending_thread_work() {
    let thread = "at the end of a thread: everything works";
    let exit = "at exit: everything works";
    let said = [exit, exit, thread, thread, "left: 0", "left: 0"];
    two_nodes_print("at_exit.c", &said);
}

/// END-1.2: as above, by destructors of objects of C++.
#[test]
fn destructors_of_static_objects_use_and_leave_the_job() {
    let said = support::run(2, &program("static_end.cpp"), &[]);
    let expected = ["static: 0 ", "static: 0 "].into_iter().chain(["thread_local: 0 "; 4]);
    assert_eq!(said, expected.collect::<Vec<_>>());
}

/// END-3.1, LAUNCH-3.1: the status of an abort is that of the job, whatever else is wrong.
#[test]
fn abort_ends_process_and_job_with_its_status() {
    let abort = program("abort.c");
    for (status, how, expected, reason) in [
        ("3", "", 3, "node 1 aborted the job: the input is broken"),
        ("0", "", 1, "node 1 aborted the job: the input is broken"),
        ("4", "bad arguments", 4, "node 1 aborted the job: no reason was given"),
        ("5", "at exit", 9, "node 1 aborted the job: in a function of atexit"),
    ] {
        let output = nodes(2, &abort, &[status, how]).output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(expected), "{how}: {out}{err}");
        assert!(out == "before" && err.contains(reason), "{how}: {out}{err}");
    }
}

/// COLL-3.9.
#[test]
fn barrier_against_all_reduce_is_a_mismatch_on_both_nodes() {
    let source = scratch().join("order.c");
    let text = r#"#include <oikaze.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    oik_job *job;
    oik_team *team;
    uint32_t rank;
    int32_t one = 1;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    oik_check(oik_world(job, &team));
    oik_status status = rank == 0 ? oik_barrier(job)
                                  : oik_all_reduce(team, OIK_I32, OIK_SUM, &one, 1, NULL);
    if (status != OIK_MISMATCH || !strstr(oik_error(), "calls barrier") ||
        !strstr(oik_error(), "calls all_reduce of 1 i32 with Sum"))
        printf("%d: %s\n", (int)status, oik_error());
    oik_check(oik_barrier(job));
    oik_check(oik_leave(job));
    return 0;
}
"#;
    fs::write(&source, text).unwrap();
    assert_eq!(lines(&mut nodes(2, &compile(&source), &[])), Vec::<String>::new());
}
