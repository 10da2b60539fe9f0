//! Tests what is handed to others. `cargo xtask test-all` builds it and runs these tests.

mod support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("{name} is not set: cargo xtask test-all runs this test"))
        .into()
}

/// Returns a directory of this test, which is removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("oikaze-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns what `--version` of a release prints: its number, and the commit where git knows it.
fn version() -> String {
    let git = Command::new("git").args(["log", "-1", "--format= (%h %cs)", "--abbrev=10"]).output();
    let revision = git.ok().filter(|git| git.status.success());
    let revision = revision.map_or(String::new(), |git| String::from_utf8(git.stdout).unwrap());
    format!("oikaze {}{}\n", env!("CARGO_PKG_VERSION"), revision.trim_end())
}

#[test]
#[ignore = "cargo xtask test-all builds the command first"]
fn static_command_needs_no_library() {
    let command = variable("OIKAZE_TEST_DIST").join("oikaze");
    let (_, kind, _) = finish(Command::new("file").arg("--brief").arg(&command));
    assert!(kind.contains("ELF"), "{kind}");
    assert!(kind.contains("statically linked") || kind.contains("static-pie linked"), "{kind}");
    let version = version();
    // A directory that holds nothing else.
    let Directory(root) = &Directory::new("root");
    fs::copy(&command, root.join("oikaze")).unwrap();
    if !rustix::process::getuid().is_root() {
        return skip("it needs root, for chroot");
    }
    let run = finish(Command::new("chroot").arg(root).args(["/oikaze", "--version"]));
    assert_eq!(run, (Some(0), version, String::new()));
}

/// A static C library finds names without the plugins of the machine's own (nsswitch.conf(5)).
#[test]
#[ignore = "cargo xtask test-all builds the command first"]
fn static_command_resolves_names() {
    let mut hello = Command::new(variable("OIKAZE_TEST_DIST").join("oikaze"));
    hello.args(["hello", "--limit", "1"]);
    for (name, value) in [("STORE", "localhost:1"), ("RANK", "0"), ("SIZE", "2")] {
        hello.env(format!("OIKAZE_{name}"), value);
    }
    ends(hello.env("OIKAZE_SECRET", "00".repeat(32)), 1, &[":1: nobody listens there"]);
}

#[test]
#[ignore = "cargo xtask test-all builds the command first"]
fn completions_are_scripts_of_their_shells() {
    let completions = variable("OIKAZE_TEST_DIST").join("completions");
    for (shell, option, name) in [
        ("bash", "-n", "oikaze"),
        ("zsh", "-n", "_oikaze"),
        ("fish", "--no-execute", "oikaze.fish"),
    ] {
        let mut check = Command::new(shell);
        check.arg(option).arg(completions.join(name));
        match check.output() {
            Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
            Err(_) => skipped(&format!("{shell} is not installed")),
        }
    }
    // What bash offers for `oikaze run --no-`.
    let ask = "COMP_WORDS=(oikaze run --no-) COMP_CWORD=2; . \"$1\"; _oikaze oikaze --no- run; \
               echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.args(["-c", ask, "bash"]).arg(completions.join("oikaze"));
    let (status, out, err) = finish(&mut bash);
    assert_eq!((status, out.as_str()), (Some(0), "--no-prefix --no-ship\n"), "{err}");
}

#[test]
#[ignore = "cargo xtask test-all builds the package first"]
fn package_has_a_command_that_runs() {
    let package = variable("OIKAZE_TEST_PACKAGE");
    let deb = |arguments: &[&str], more: &[&Path]| {
        let mut command = Command::new("dpkg-deb");
        let (status, out, err) = finish(command.args(arguments).arg(&package).args(more));
        assert_eq!(status, Some(0), "{err}");
        out
    };
    let info = deb(&["--info"], &[]);
    for line in [" Package: oikaze", &format!(" Version: {}", env!("CARGO_PKG_VERSION"))] {
        assert!(info.lines().any(|found| found == line), "{info}");
    }
    let contents = deb(&["--contents"], &[]);
    assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");
    let Directory(tree) = &Directory::new("deb");
    deb(&["--extract"], &[tree]);
    let files = [
        "man/man1/oikaze.1.gz",
        "man/man1/oikaze-run.1.gz",
        "bash-completion/completions/oikaze",
        "zsh/vendor-completions/_oikaze",
        "fish/vendor_completions.d/oikaze.fish",
        "doc/oikaze/copyright",
    ];
    for file in files {
        let path = tree.join("usr/share").join(file);
        assert!(
            fs::metadata(&path).is_ok_and(|meta| meta.len() > 0),
            "{file} is not in the package"
        );
    }
    let command = tree.join("usr/bin/oikaze");
    let (status, page, _) = finish(
        Command::new("gzip").args(["-dc"]).arg(tree.join("usr/share/man/man1/oikaze-run.1.gz")),
    );
    assert!(status == Some(0) && page.contains(".SH SYNOPSIS"), "{page}");
    let version = finish(Command::new(&command).arg("--version"));
    assert_eq!(version.1, self::version());
    let mut job = Command::new(&command);
    let (status, out, err) = finish(job.args(["run", "-n", "2", "--"]).arg(&command).arg("hello"));
    assert!(status == Some(0) && out.contains("[1] node 1 of 2"), "{out}{err}");
    for file in ["include/oikaze.h", "lib/pkgconfig/oikaze.pc", "lib/liboikaze.so"] {
        let path = tree.join("usr").join(file);
        assert!(
            fs::metadata(&path).is_ok_and(|meta| meta.len() > 0),
            "{file} is not in the package"
        );
    }
    assert!(info.contains(" Depends: libc6 (>= 2."), "{info}");
}
