//! Programs in C over arrays of Oikaze by plain pointers: no guard, and no call but barriers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::c_program::{Built, KERNELS, KERNELS_LIBRARY};
use crate::error::{Error, Tried};
use crate::process::own_program;

/// Compiler of the programs, which is that of MPI's wrapper.
const COMPILER: &str = "cc";
/// Debian package of the compiler.
const PACKAGES: &str = "gcc";
/// Sources of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/plain");
/// Header of the inner loops.
const KERNELS_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi");
/// Header of Oikaze.
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings/c/include");
/// Library of Oikaze as Cargo names it, and the name under which programs look for it.
const LIBRARY: (&str, &str) = ("liboikaze_c.so", "liboikaze.so.0");

/// Returns the path of the source of a program, which need not be there.
pub fn source(program: &str) -> PathBuf {
    Path::new(SOURCES).join(program).with_extension("c")
}

/// Builds a program if it is older than its sources. Returns its path.
///
/// # Errors
/// The compiler or a library is missing, or the compiler reports an error.
pub fn build(program: &str) -> Result<PathBuf, Error> {
    let me = own_program()?;
    let folder = me.with_file_name("plain");
    let library = me.with_file_name(LIBRARY.0);
    let built = Built {
        program: folder.join(program),
        source: source(program),
        headers: vec![Path::new(INCLUDE).join("oikaze.h"), Path::new(KERNELS_FOLDER).join(KERNELS)],
        libraries: vec![library.clone(), me.with_file_name(KERNELS_LIBRARY)],
    };
    if built.is_fresh()? {
        return Ok(built.program);
    }
    std::fs::create_dir_all(&folder).tried(format!("making {}", folder.display()))?;
    let link = folder.join(LIBRARY.1);
    if !link.exists() {
        // Left by an earlier build of a library that is gone.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&library, &link).tried(format!("making {}", link.display()))?;
    }
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-I", INCLUDE, "-Wl,-rpath,$ORIGIN"]);
    built.compile(compiler, PACKAGES)
}

#[cfg(test)]
mod tests {
    use super::super::c_program::has_kernels;
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_program_has_a_source_with_the_kernels() {
        let cases = super::super::case::Case::value_variants();
        let mut programs =
            cases.iter().filter(|case| case.has(super::super::System::OikazeC)).peekable();
        assert!(programs.peek().is_some());
        for case in programs {
            let source = source(case.program());
            assert!(has_kernels(&source).expect("the source is there"), "{}", source.display());
        }
    }
}
