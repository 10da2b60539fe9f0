//! Runs all programs as jobs of real processes and checks results bit for bit: on 1 to 8 nodes,
//! with either tracker, and over a network that loses, repeats, reorders and damages datagrams.

mod support;

use std::process::Command;
use std::sync::PoisonError;

use support::{CG, HEAT, HIMENO, HISTOGRAM, LU, ONE_AT_A_TIME, SORT, TRANSPOSE, oikaze, skip};

/// Seconds after which the launcher ends a job, so that a hang is a failure and nothing stays
/// behind.
const LIMIT_SECONDS: &str = "120";

/// Options and environment of a job.
struct Run {
    options: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Run {
    fn on(nodes: u32) -> Self {
        let options =
            ["-n", &nodes.to_string(), "--timeout", LIMIT_SECONDS].map(str::to_owned).to_vec();
        Self { options, environment: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Runs `program`, which must succeed and print this line last.
    fn verifies(self, program: &str, arguments: &str, last: &str) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new(oikaze());
        command
            .args(["run", "--no-prefix"])
            .args(&self.options)
            .args(["--", program])
            .args(arguments.split(' '))
            .arg("--verify");
        let output =
            command.envs(self.environment.iter().copied()).output().expect("oikaze starts");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success(),
            "{:?} {command:?}: {}\n{out}\n{err}",
            self.environment,
            output.status
        );
        assert_eq!(
            out.lines().last(),
            Some(last),
            "{:?} {command:?}\n{out}\n{err}",
            self.environment
        );
    }
}

const XS_100: &str = "verified: p hash 8d5d87ddd7e48c09";
const S_100: &str = "verified: p hash c7b03b55c2081330";
const M_10: &str = "verified: p hash c731a226a9808a40";
const LU_256: &str = "verified: factors hash 75765e01f030ac9f";
const LU_48: &str = "verified: factors hash 0756969db36eb990";
const LU_1024: &str = "verified: factors hash a4f87dc3c1832125";
const CG_S: &str = "verified: zeta of class S";
/// Hashes that C programs over MPI printed, which share nothing with these programs but the
/// definition of the problem.
const HEAT_100: &str = "verified: field hash 04b9869afc2d8518";
const TRANSPOSE_96: &str = "verified: matrix hash 48b750db5a0b0052";
const HISTOGRAM_1000: &str = "verified: counts hash a6c332fb546873a9";
/// Arguments of sorts, and hashes that a Python program printed, which shares nothing with `sort`
/// but the definition of keys and hash.
const SORTS: [(&str, &str); 4] = [
    ("--distribution uniform", "verified: keys hash 284ab1f5cc155368"),
    ("--distribution skewed", "verified: keys hash 6c1d99bfcc1b7587"),
    ("--distribution equal", "verified: keys hash 4f0ae3be9e670d9f"),
    ("--distribution falling", "verified: keys hash bc9a65ef70161f3b"),
];
/// Options of all these sorts.
const SORT_10007: &str = "--size 10007 --iterations 3 --seed 7";
/// Loss, duplication and reordering of 5 %, damage of 1 %.
const FAULT: &str = "loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=7";

#[test]
fn himeno_on_any_number_of_nodes() {
    for nodes in [1, 2, 3, 4, 8] {
        Run::on(nodes).verifies(HIMENO, "--size s --iterations 100", S_100);
    }
    for nodes in [2, 3] {
        Run::on(nodes).verifies(HIMENO, "--size m --iterations 10", M_10);
    }
}

#[test]
fn lu_on_any_number_of_nodes() {
    for nodes in [1, 2, 3, 4, 8] {
        Run::on(nodes).verifies(LU, "--n 256", LU_256);
    }
    Run::on(4).verifies(LU, "--n 1024", LU_1024);
}

/// The small problems of the other programs: program, arguments and the last line of the output.
const SMALL: [(&str, &str, &str); 6] = [
    (CG, "--size s", CG_S),
    (HEAT, "--size 100 --iterations 50", HEAT_100),
    (TRANSPOSE, "--size 96 --iterations 5", TRANSPOSE_96),
    (HISTOGRAM, "--size 1000 --keys 5000 --iterations 9", HISTOGRAM_1000),
    (HISTOGRAM, "--size 1000 --keys 5000 --iterations 9 --table interleaved", HISTOGRAM_1000),
    (HISTOGRAM, "--size 1000 --keys 5000 --iterations 9 --locks", HISTOGRAM_1000),
];

#[test]
fn small_problems_with_either_touch_give_the_known_results() {
    for (program, arguments, last) in SMALL {
        for touch in ["ahead", "lazily"] {
            for nodes in 1..=4 {
                Run::on(nodes).verifies(program, &format!("{arguments} --touch {touch}"), last);
            }
        }
    }
}

#[test]
fn sort_gives_the_known_keys_for_each_distribution() {
    for (arguments, last) in SORTS {
        for nodes in [1, 2, 3, 4] {
            Run::on(nodes).verifies(SORT, &format!("{SORT_10007} {arguments}"), last);
        }
    }
}

#[test]
fn lu_with_loads_and_stores_that_fault_gives_the_known_factors() {
    for nodes in [1, 3, 4] {
        Run::on(nodes).verifies(LU, "--n 256 --touch lazily", LU_256);
    }
}

/// As on several hosts: nodes of one machine that map no common memory wait by notifications.
#[test]
fn pages_of_their_own_give_the_known_results_on_any_number_of_nodes() {
    for touch in ["ahead", "lazily"] {
        for nodes in [2, 3, 5, 8] {
            let run = || Run::on(nodes).with("OIKAZE_WITHOUT", "segment");
            let himeno = format!("--size xs --iterations 100 --touch {touch}");
            run().verifies(HIMENO, &himeno, XS_100);
            run().verifies(LU, &format!("--n 256 --touch {touch}"), LU_256);
            run().verifies(LU, &format!("--n 48 --touch {touch}"), LU_48);
        }
    }
}

/// COH-11: homes that the programs do not declare move to where their pages are written.
#[test]
fn homes_that_are_not_declared_give_the_known_results() {
    for homes in ["default", "cyclic"] {
        for nodes in [2, 3, 8] {
            for touch in ["ahead", "lazily"] {
                let run = || Run::on(nodes).with("OIKAZE_WITHOUT", "segment");
                let options = format!("--homes {homes} --touch {touch}");
                run().verifies(HIMENO, &format!("--size xs --iterations 100 {options}"), XS_100);
                run().verifies(LU, &format!("--n 256 {options}"), LU_256);
                for (program, arguments, last) in SMALL {
                    run().verifies(program, &format!("{arguments} {options}"), last);
                }
            }
        }
    }
}

#[test]
fn loads_and_stores_that_fault_with_either_tracker() {
    for without in ["segment", "segment,uffd"] {
        let run = || Run::on(4).with("OIKAZE_WITHOUT", without);
        run().verifies(HIMENO, "--size xs --iterations 100 --touch lazily", XS_100);
        run().verifies(HIMENO, "--size xs --iterations 100 --touch ahead", XS_100);
        run().verifies(LU, "--n 256", LU_256);
    }
}

#[test]
fn over_a_network_that_spoils_datagrams() {
    let run = |nodes| Run::on(nodes).with("OIKAZE_FAULT", FAULT);
    run(4).verifies(HIMENO, "--size xs --iterations 100", XS_100);
    run(3).verifies(HIMENO, "--size s --iterations 100", S_100);
    run(4).verifies(LU, "--n 256", LU_256);
    for (program, arguments, last) in SMALL.into_iter().skip(1) {
        run(3).verifies(program, arguments, last);
    }
    for (arguments, last) in SORTS {
        run(3).verifies(SORT, &format!("{SORT_10007} {arguments}"), last);
    }
}

#[test]
fn with_an_engine_thread_and_every_way_of_waiting() {
    for (name, value) in [
        ("OIKAZE_ENGINE", "thread"),
        ("OIKAZE_WAIT", "block"),
        ("OIKAZE_WAIT", "spin"),
        ("OIKAZE_WITHOUT", "gso,gro,ipv6"),
    ] {
        for touch in ["ahead", "lazily"] {
            Run::on(2).with(name, value).verifies(
                HIMENO,
                &format!("--size xs --iterations 100 --touch {touch}"),
                XS_100,
            );
        }
    }
}

/// Needs root for network namespaces; skipped otherwise.
#[test]
fn over_network_namespaces() {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let root = status
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !root {
        return skip("network namespaces need root");
    }
    Run::on(4).option("--netns").verifies(HIMENO, "--size s --iterations 100", S_100);
    Run::on(3).option("--netns").verifies(LU, "--n 256", LU_256);
}

#[test]
fn a_program_alone_is_a_job_of_one_node() {
    let large = [(HIMENO, "--size xs", XS_100), (LU, "--n 256", LU_256)];
    let sort = format!("{SORT_10007} --distribution skewed");
    let sort = (SORT, sort.as_str(), "verified: keys hash 6c1d99bfcc1b7587");
    for (program, arguments, last) in large.into_iter().chain(SMALL).chain([sort]) {
        for serial in [None, Some("--serial")] {
            let mut command = Command::new(program);
            let output = command
                .args(arguments.split(' '))
                .args(serial)
                .arg("--verify")
                .output()
                .expect("it starts");
            assert!(
                output.status.success(),
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(
                String::from_utf8_lossy(&output.stdout).lines().last(),
                Some(last),
                "{command:?}"
            );
        }
    }
}
