//! Builds the wheels into `dist/`: the Python package, the command without libraries, and the C
//! library with its header. The shared objects run with an older C library than this machine's.

use crate::command::{Step, cargo, root, target};
use crate::dist::{self, Dist};
use crate::{header, install, python};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Packages that build a wheel, in versions that were tried.
const TOOLS: &[&str] = &[
    "auditwheel==6.8.2",
    "cargo-zigbuild==0.24.1",
    "maturin==1.16.0",
    "wheel==0.48.0",
    "ziglang==0.17.1",
];
/// Versions of Python that wheels are built for without being asked.
const VERSIONS: [&str; 2] = ["3.11", "3.10"];
/// Oldest glibc that the wheels run with (manylinux_2_28, PEP 600), and the musl (PEP 656).
const GLIBC: &str = "2.28";
const GNU_PLATFORM: &str = "manylinux_2_28";
const MUSL_PLATFORM: &str = "musllinux_1_2";
/// Completions of bash, zsh and fish: their folders below `share/`.
const COMPLETIONS: [&str; 3] =
    ["bash-completion/completions", "zsh/site-functions", "fish/vendor_completions.d"];
/// A wheel has no symbolic links, so the name by which linkers find the library is a script of
/// theirs.
const LINKER_SCRIPT: &str = "/* GNU ld script */\nINPUT ( liboikaze.so.0 )\n";

/// Versions of Python to build for.
#[derive(Args)]
pub struct Settings {
    /// Versions of CPython, such as 3.10 or 3.14t (without the global lock). The wheel of 3.11 is
    /// also one for all newer versions.
    #[arg(long, value_delimiter = ',', default_values = VERSIONS)]
    python: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { python: VERSIONS.map(str::to_owned).into() }
    }
}

/// A wheel, and the interpreter for which it was built.
pub struct Wheel {
    pub file: PathBuf,
    pub interpreter: PathBuf,
}

/// Builds a wheel for each wanted Python that is on this machine.
///
/// # Errors
/// None of them is here, a package cannot be had, or a build fails.
pub fn run(settings: &Settings) -> Result<Vec<Wheel>, String> {
    let tools = python::environment(&target().join("wheel/tools"), TOOLS)?;
    let toolchain = Toolchain { host: dist::host()?, tools };
    let dist = dist::run()?;
    let library = toolchain.library()?;
    let mut wheels = Vec::new();
    for version in &settings.python {
        let Some(interpreter) = interpreter(version) else {
            println!("there is no Python {version} here: its wheel is not built");
            continue;
        };
        let raw = toolchain.raw(version, &interpreter)?;
        let file = toolchain.complete(&raw, &dist, &library)?;
        println!("{}", file.display());
        wheels.push(Wheel { file, interpreter });
    }
    if wheels.is_empty() {
        return Err(format!("Python {} is missing; install it", settings.python.join(" or ")));
    }
    Ok(wheels)
}

/// Returns an interpreter of this version: of the PATH, or of pyenv, which hides those that are not
/// chosen.
pub fn interpreter(version: &str) -> Option<PathBuf> {
    let name = format!("python{version}");
    let works = |path: &Path| Step::new(path).args(["-c", ""]).output().is_ok();
    let versions = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let hidden = versions.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let hidden = hidden.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(&name)));
    [PathBuf::from(&name)].into_iter().chain(hidden).find(|path| works(path))
}

/// Returns the folder of what is built for wheels. Cargo would build everything anew each time if
/// this shared the folder of what is linked for this machine.
fn wheel_target() -> PathBuf {
    target().join("wheel/target")
}

/// Programs that build a wheel, and the target that they build for.
struct Toolchain {
    host: String,
    tools: PathBuf,
}

impl Toolchain {
    /// Returns `true` if zig links against an older glibc. Musl needs no such help.
    fn links_by_zig(&self) -> bool {
        self.host.ends_with("-gnu")
    }

    /// Returns a step that finds the tools first, and builds apart from all else.
    fn step(&self, step: Step) -> Result<Step, String> {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.tools.clone()].into_iter().chain(std::env::split_paths(&before));
        let path = std::env::join_paths(folders).map_err(|why| format!("the PATH: {why}"))?;
        let step = step.env("PATH", path).env("CARGO_TARGET_DIR", wheel_target());
        Ok(if self.links_by_zig() { step.env("RUSTFLAGS", unwinder_flags()?) } else { step })
    }

    /// Builds the shared C library.
    fn library(&self) -> Result<PathBuf, String> {
        let (build, target) = match self.links_by_zig() {
            true => ("zigbuild", format!("{}.{GLIBC}", self.host)),
            false => ("build", self.host.clone()),
        };
        let build = [build, "--quiet", "--profile", "dist", "-p", "oikaze-c", "--target", &target];
        self.step(cargo(&build))?.run()?;
        Ok(wheel_target().join(&self.host).join("dist/liboikaze_c.so"))
    }

    /// Builds a wheel of the Python package alone.
    fn raw(&self, version: &str, interpreter: &Path) -> Result<PathBuf, String> {
        let folder = target().join("wheel/raw");
        // An older wheel must not be taken for the new one.
        let _ = fs::remove_dir_all(&folder);
        let linker: &[&str] = match self.links_by_zig() {
            true => &["--zig", "--compatibility", GNU_PLATFORM],
            false => &["--compatibility", MUSL_PLATFORM],
        };
        // The stable ABI has no buffers in 3.10, and none at all without the global lock.
        let is_stable = version != "3.10" && !version.ends_with('t');
        let features: &[&str] = if is_stable { &[] } else { &["--no-default-features"] };
        let step = Step::new(self.tools.join("maturin"))
            .args(["build", "--quiet", "--profile", "dist", "--target", &self.host])
            .args(linker)
            .args(features)
            .args(["--manifest-path".into(), root().join("bindings/python/Cargo.toml")])
            .args(["--interpreter".into(), interpreter.to_owned(), "--out".into(), folder.clone()]);
        self.step(step)?.run()?;
        python::only_file_of(&folder)
    }

    /// Adds command, library, header, manual pages and completions to a wheel.
    fn complete(&self, raw: &Path, dist: &Dist, library: &Path) -> Result<PathBuf, String> {
        let folder = target().join("wheel/unpacked");
        let _ = fs::remove_dir_all(&folder);
        let wheel = || Step::new(self.tools.join("python")).args(["-m", "wheel"]);
        wheel().args(["unpack", "--dest"]).args([&folder, raw]).output()?;
        let content = python::only_file_of(&folder)?;
        let data = content.join(format!("oikaze-{}.data", env!("CARGO_PKG_VERSION")));
        copy(&dist.command, &data.join("scripts/oikaze"))?;
        // Files of `data` go to the prefix of the environment.
        let prefix = data.join("data");
        copy(library, &prefix.join("lib").join(install::SONAME))?;
        put(&prefix.join("lib/liboikaze.so"), LINKER_SCRIPT)?;
        copy(&header::folder().join("include/oikaze.h"), &prefix.join("include/oikaze.h"))?;
        put(&prefix.join("lib/pkgconfig/oikaze.pc"), &install::movable_package()?)?;
        for page in &dist.pages {
            copy(page, &prefix.join("share/man/man1").join(page.file_name().unwrap_or_default()))?;
        }
        for (script, shells) in dist.completions.iter().zip(COMPLETIONS) {
            let name = script.file_name().unwrap_or_default();
            copy(script, &prefix.join("share").join(shells).join(name))?;
        }
        let packed = target().join("wheel/packed");
        let _ = fs::remove_dir_all(&packed);
        dist::create(&packed)?;
        wheel().args(["pack", "--dest-dir"]).args([&packed, &content]).output()?;
        let packed = python::only_file_of(&packed)?;
        let file = dist::folder().join(packed.file_name().unwrap_or_default());
        copy(&packed, &file)?;
        Ok(file)
    }
}

/// Returns the flags that link the system's unwinder. Zig brings another one, which cannot follow
/// pthread_exit(3) of glibc: a thread that Python ends below frames of the wheel would crash.
fn unwinder_flags() -> Result<String, String> {
    let found = Step::new("cc").args(["-print-file-name=libgcc_s.so.1"]).output()?;
    // The bare name stands for none.
    match found.trim() {
        path if Path::new(path).is_absolute() => Ok(format!("-C link-arg={path}")),
        _ => Err("the C compiler has no libgcc_s.so.1; install gcc".to_owned()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    to.parent().map_or(Ok(()), dist::create)?;
    fs::copy(from, to).map(drop).map_err(|why| format!("copying {}: {why}", from.display()))
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    path.parent().map_or(Ok(()), dist::create)?;
    dist::write(path, text.as_bytes())
}

/// Installs a wheel into an empty environment, and uses what it brings.
///
/// # Errors
/// Something does not work, or the wheel is none of the old C library.
pub fn test(wheel: &Wheel) -> Result<(), String> {
    let folder = target().join("wheel/tried");
    let _ = fs::remove_dir_all(&folder);
    Step::new(&wheel.interpreter).args(["-m", "venv"]).args([&folder]).run()?;
    let programs = folder.join("bin");
    python::pip(&programs, &[], &[wheel.file.as_os_str()])?;
    let tools = target().join("wheel/tools/bin");
    let shown = Step::new(tools.join("auditwheel")).args(["show"]).args([&wheel.file]).output()?;
    let musl = dist::host()?.ends_with("-musl");
    expect("auditwheel", &shown, if musl { MUSL_PLATFORM } else { GNU_PLATFORM })?;
    let command = programs.join("oikaze");
    expect("file", &Step::new("file").args([&command]).output()?, "static")?;
    // Nothing but the environment is on the PATH.
    let said = Step::new(&command)
        .args(["run", "--no-prefix", "-n", "2", "--", "python", "-c", PROGRAM])
        .env("PATH", &programs)
        .output()?;
    expect("a program in Python", &said, "sum 3.0\n")?;
    let module = Step::new(programs.join("python")).args(["-m", "oikaze", "--version"]).output()?;
    expect("python -m oikaze", &module, env!("CARGO_PKG_VERSION"))?;
    test_library(&folder, &command)?;
    python::pip(&programs, &[], python::TESTED_WITH)?;
    python::test(&programs, &command, &["-m".into(), "not long".into()])
}

/// Program that two nodes run from the wheel.
const PROGRAM: &str = "
import numpy, oikaze
job = oikaze.join()
array = job.array('numbers', 1000, 'f8')
lo, hi = array.home()
array[lo:hi] = job.rank + 1
job.barrier()
if job.rank == 0:
    print('sum', float(array[0] + array[999]))
job.leave()
";

/// Compiles a program in C against the library of the environment, and runs it.
fn test_library(environment: &Path, command: &Path) -> Result<(), String> {
    let flags = Step::new("pkg-config")
        .args(["--cflags", "--libs", "oikaze"])
        .env("PKG_CONFIG_PATH", environment.join("lib/pkgconfig"))
        .output()?;
    let program = environment.join("put_get");
    Step::new("cc")
        .args([header::folder().join("examples/put_get.c"), "-o".into(), program.clone()])
        .args(flags.split_whitespace())
        .run()?;
    let said = Step::new(command)
        .args(["run", "--no-prefix", "-n", "2", "--"])
        .args([&program])
        .output()?;
    expect("a program in C", &said, "node 0 has 1001, and")
}

fn expect(what: &str, said: &str, part: &str) -> Result<(), String> {
    if said.contains(part) {
        return Ok(());
    }
    Err(format!("{what}: expected {part:?} in:\n{said}"))
}
