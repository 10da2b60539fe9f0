//! Running other programs, from the root of the repository.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Directory in which cargo builds. It is that of this very program (`TARGET/debug/xtask`),
/// wherever CARGO_TARGET_DIR or cargo's configuration has put it.
pub fn target() -> PathBuf {
    let here = std::env::current_exe().ok();
    let built = here.as_deref().and_then(|program| program.parent()?.parent());
    built.map_or_else(|| root().join("target"), Path::to_owned)
}

/// A program to be run.
#[derive(Debug)]
pub struct Step(Command);

/// Cargo, the one that started us.
pub fn cargo(arguments: &[&str]) -> Step {
    Step::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments)
}

impl Step {
    /// A program without arguments.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root());
        Self(command)
    }

    /// Further arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.0.args(arguments);
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(mut self) -> Result<(), String> {
        let status = self.0.status().map_err(|why| format!("{:?}: {why}", self.0))?;
        if status.success() { Ok(()) } else { Err(format!("{:?}: {status}", self.0)) }
    }

    /// Runs it to its end; shows its output and hands each line of it out.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn run_watched(mut self, mut line: impl FnMut(&str)) -> Result<(), String> {
        let failed = |command: &Command, why: std::io::Error| format!("{command:?}: {why}");
        let mut child =
            self.0.stdout(Stdio::piped()).spawn().map_err(|why| failed(&self.0, why))?;
        for text in child
            .stdout
            .take()
            .into_iter()
            .flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok))
        {
            line(&text);
            let _ = writeln!(std::io::stdout(), "{text}"); // nobody may be listening any more
        }
        let status = child.wait().map_err(|why| failed(&self.0, why))?;
        if status.success() { Ok(()) } else { Err(format!("{:?}: {status}", self.0)) }
    }
}
