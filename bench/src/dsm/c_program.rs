//! Programs in C that the bench builds, with the inner loops of `apps/kernels`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Tried};

/// Options of the compiler. Products and sums are not fused: Rust does not fuse them either, and
/// the fields have the same bits on both sides.
const OPTIONS: [&str; 4] = ["-std=gnu11", "-O3", "-march=native", "-ffp-contract=off"];
/// Header of the inner loops, which come from a library.
pub const KERNELS: &str = "kernels.h";
/// Library of the inner loops ([`KERNELS`]), which is built beside the bench.
pub const KERNELS_LIBRARY: &str = "liboikaze_kernels_c.a";
/// Command that builds a library, for the same processor as the programs of `apps/`.
const BUILD_LIBRARY: &str = "cargo rustc --release -p oikaze-kernels-c -- -C target-cpu=native";
/// Command that builds Oikaze's library.
const BUILD_OIKAZE: &str = "cargo build --release -p oikaze-c";

/// Program in C, and what it is built from.
#[derive(Debug)]
pub struct Built {
    pub program: PathBuf,
    pub source: PathBuf,
    pub headers: Vec<PathBuf>,
    pub libraries: Vec<PathBuf>,
}

impl Built {
    /// Returns `true` if the program is newer than its inputs and the bench.
    ///
    /// # Errors
    /// A library is not there. The error says how to build it.
    pub fn is_fresh(&self) -> Result<bool, Error> {
        if let Some(library) = self.libraries.iter().find(|library| !library.is_file()) {
            return Err(no_library(library));
        }
        let inputs = [&self.source].into_iter().chain(&self.headers).chain(&self.libraries);
        let mut inputs: Vec<PathBuf> = inputs.cloned().collect();
        inputs.push(crate::process::own_program()?);
        Ok(is_newer(&self.program, &inputs))
    }

    /// Builds the program. Returns its path. `packages` are the Debian packages of the compiler.
    ///
    /// # Errors
    /// The compiler is missing or reports an error.
    pub fn compile(self, mut compiler: Command, packages: &str) -> Result<PathBuf, Error> {
        if let Some(folder) = self.program.parent() {
            std::fs::create_dir_all(folder).tried(format!("making {}", folder.display()))?;
        }
        let name = compiler.get_program().to_string_lossy().into_owned();
        compiler.args(OPTIONS).arg(&self.source).args(&self.libraries);
        compiler.arg("-o").arg(&self.program).arg("-lm").stdin(Stdio::null());
        let output = compiler.output().map_err(|why| missing(&name, &why, packages))?;
        if output.status.success() {
            return Ok(self.program);
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!(
            "building {}: {}; the Debian packages {packages} are needed",
            self.source.display(),
            why.trim()
        )))
    }
}

/// Returns `true` if a program computes with the kernels of `apps/`.
///
/// # Errors
/// The source cannot be read.
pub fn has_kernels(source: &Path) -> Result<bool, Error> {
    let text = std::fs::read_to_string(source).tried(format!("reading {}", source.display()))?;
    Ok(text.lines().any(|line| line.starts_with("#include ") && line.contains(KERNELS)))
}

fn no_library(library: &Path) -> Error {
    let is_of_kernels = library.file_name().is_some_and(|name| name == KERNELS_LIBRARY);
    let command = if is_of_kernels { BUILD_LIBRARY } else { BUILD_OIKAZE };
    Error::new(format!("{} is not there; build it: {command}", library.display()))
}

/// Returns `true` if `file` exists and is newer than all of `others`.
fn is_newer(file: &Path, others: &[PathBuf]) -> bool {
    let time = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    let Some(built) = time(file) else { return false };
    others.iter().all(|other| time(other).is_some_and(|changed| changed < built))
}

/// Returns the error of a program that cannot be started, with its Debian packages.
pub fn missing(program: &str, why: &std::io::Error, packages: &str) -> Error {
    Error::new(format!(
        "{program}: {why}; install the Debian packages {packages}, or leave the system out by --without"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_named_with_its_command() {
        let error = no_library(&Path::new("release").join(KERNELS_LIBRARY)).to_string();
        assert!(error.contains(BUILD_LIBRARY), "{error}");
        let error = no_library(Path::new("release/liboikaze_c.so")).to_string();
        assert!(error.contains(BUILD_OIKAZE) && error.contains("release/"), "{error}");
    }

    #[test]
    fn program_older_than_an_input_is_not_newer() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let absent = source.with_extension("absent");
        assert!(!is_newer(&source, std::slice::from_ref(&source)) && !is_newer(&absent, &[]));
        assert!(!is_newer(&source, &[absent]) && is_newer(&source, &[]));
    }
}
