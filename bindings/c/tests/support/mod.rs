//! Helpers of the tests: install the binding as a user does, compile programs, run them.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Folder in which programs find the binding, below the test's own root of the file system.
const PREFIX: &str = "/opt/oikaze";

/// Returns the folder of the binding's sources.
pub fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder in which cargo has built this test and the libraries.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Returns a folder for the files of this test program, which is empty at its start.
pub fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let name = std::env::current_exe().unwrap().file_stem().unwrap().to_owned();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Runs a command that has to succeed. Returns its output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|why| {
        panic!("{command:?}: {why}; `make packages` names what the tests need")
    });
    let Output { status, stdout, stderr } = &output;
    let (stdout, stderr) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Installs the libraries that cargo has built for this test, once. Returns the root.
pub fn installed() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = scratch().join("root");
        let mut install = Command::new(env!("CARGO"));
        install.current_dir(sources()).args(["xtask", "install", "--prefix", PREFIX, "--from"]);
        succeed(install.arg(built()).arg("--destdir").arg(&root));
        root
    })
}

/// Returns a command that finds the installed file for pkg-config.
pub fn pkg_config() -> Command {
    let root = installed();
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_PATH", root.join(&PREFIX[1..]).join("lib/pkgconfig"));
    command
}

/// Returns the folder of the installed libraries.
pub fn libraries() -> PathBuf {
    installed().join(&PREFIX[1..]).join("lib")
}

/// Compiles a program with all warnings as errors. Returns its path.
pub fn compile(source: &Path) -> PathBuf {
    compile_with(source, &[])
}

/// Compiles a program as [`compile`] does, with further flags. Each call writes a file of its own,
/// because another test may run a program of the same source.
pub fn compile_with(source: &Path, further: &[&str]) -> PathBuf {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let folder = scratch().join(format!("program-{}", CALLS.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join(source.file_stem().unwrap());
    let flags = succeed(pkg_config().args(["--cflags", "--libs", "oikaze"]));
    let (compiler, standard) = match source.extension().unwrap().to_str().unwrap() {
        "c" => ("cc", "-std=c11"),
        _ => ("c++", "-std=c++17"),
    };
    let mut command = Command::new(compiler);
    command
        .args([standard, "-O2", "-D_POSIX_C_SOURCE=200809L", "-ffp-contract=off"])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
        .args(further)
        .arg(source)
        .args(flags.split_whitespace())
        .args(["-lm", "-o"]);
    succeed(command.arg(&program));
    program
}

/// Compiles a program of `tests/programs/`.
pub fn program(name: &str) -> PathBuf {
    compile(&sources().join("tests/programs").join(name))
}

/// Compiles a program of `examples/`.
pub fn example(name: &str) -> PathBuf {
    compile(&sources().join("examples").join(name))
}

/// Returns the `oikaze` command, which a build of the workspace has put beside these tests. `cargo
/// xtask test` passes its path.
pub fn oikaze() -> PathBuf {
    let given = std::env::var_os("OIKAZE_TEST_COMMAND").map(PathBuf::from);
    let command = given.unwrap_or_else(|| built().parent().unwrap().join("oikaze"));
    let remedy = "run `cargo build --workspace --bin oikaze` first";
    assert!(command.exists(), "{} is missing: {remedy}", command.display());
    command
}

/// Returns the command that runs a program as `nodes` nodes.
pub fn nodes(nodes: u32, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(oikaze());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OIKAZE_") {
            command.env_remove(name);
        }
    }
    command.args(["run", "--no-prefix", "-n", &nodes.to_string(), "--timeout", "60", "--"]);
    command.arg(program).args(arguments);
    command.current_dir(scratch()).env("LD_LIBRARY_PATH", libraries());
    command
}

/// Runs a program as `count` nodes, which have to succeed. Returns the lines of their output,
/// sorted.
pub fn run(count: u32, program: &Path, arguments: &[&str]) -> Vec<String> {
    lines(&mut nodes(count, program, arguments))
}

/// Runs a command, which has to succeed. Returns the lines of its output, sorted.
pub fn lines(command: &mut Command) -> Vec<String> {
    let output = succeed(command);
    let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Runs a program of `tests/programs/` as two nodes, through shared memory and through the network.
/// They print these lines, in any order.
#[track_caller]
pub fn two_nodes_print(name: &str, expected: &[&str]) {
    let program = program(name);
    for without in ["", "shm"] {
        let mut command = nodes(2, &program, &[]);
        assert_eq!(lines(command.env("OIKAZE_WITHOUT", without)), expected, "without {without:?}");
    }
}
