//! Running other programs, from the root of the repository.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Returns the directory in which cargo builds. It is the directory of this program
/// (`TARGET/debug/xtask`), wherever CARGO_TARGET_DIR or cargo's configuration has put it.
pub fn target() -> PathBuf {
    let here = std::env::current_exe().ok();
    let built = here.as_deref().and_then(|program| program.parent()?.parent());
    built.map_or_else(|| root().join("target"), Path::to_owned)
}

/// Program that runs beside others.
pub struct BackgroundProcess {
    child: Child,
    output: PathBuf,
}

impl BackgroundProcess {
    /// Waits for the program's end, and prints what it has said.
    ///
    /// # Errors
    /// The program has failed, or its output is not UTF-8.
    pub fn finish(mut self) -> Result<(), String> {
        let failed = |why: std::io::Error| format!("reading {}: {why}", self.output.display());
        let status = self.child.wait().map_err(failed)?;
        print!("{}", std::fs::read_to_string(&self.output).map_err(failed)?);
        if status.success() { Ok(()) } else { Err(format!("{status}")) }
    }
}

/// Program to run.
pub struct Step(Command);

/// Shows the variables that are set and the words of the command, but not the variables that are
/// removed.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.0.get_envs() {
            if let Some(value) = value {
                write!(f, "{}={value:?} ", name.display())?;
            }
        }
        write!(f, "{:?}", self.0.get_program())?;
        self.0.get_args().try_for_each(|word| write!(f, " {word:?}"))
    }
}

/// Returns a step that runs the same cargo that started this program.
pub fn cargo(arguments: &[&str]) -> Step {
    Step::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments)
}

impl Step {
    /// Makes a step without arguments.
    ///
    /// The step does not see what cargo tells this program about itself. Build scripts watch these
    /// variables, so an inner cargo would build again what cargo has built from the shell.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root());
        let of_this_package = |name: &str| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(of_this_package) {
                command.env_remove(name);
            }
        }
        Self(command)
    }

    /// Adds arguments to the command.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.0.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts the program at the lowest priority, with both outputs in a file. It computes while
    /// others wait.
    ///
    /// # Errors
    /// The file cannot be written, or the program cannot be started.
    pub fn start_beside(self, output: &Path) -> Result<BackgroundProcess, String> {
        let failed = |why: std::io::Error| format!("writing {}: {why}", output.display());
        let file = File::create(output).map_err(failed)?;
        let mut nice = Step::new("nice").args(["-n", "19"]).args([self.0.get_program()]);
        nice = nice.args(self.0.get_args());
        nice.0.envs(self.0.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let copy = file.try_clone().map_err(failed)?;
        nice.0.stdin(Stdio::null()).stdout(file).stderr(copy);
        let child = nice.0.spawn().map_err(|why| format!("{nice:?}: {why}"))?;
        Ok(BackgroundProcess { child, output: output.to_owned() })
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// The program cannot be started, or fails.
    pub fn run(mut self) -> Result<(), String> {
        let status = self.0.status().map_err(|why| format!("{self:?}: {why}"))?;
        if status.success() { Ok(()) } else { Err(format!("{self:?}: {status}")) }
    }

    /// Runs the program to its end, and returns its standard output.
    ///
    /// # Errors
    /// As [`Step::run`], or the output is not UTF-8.
    pub fn output(mut self) -> Result<String, String> {
        let output = self.0.stderr(Stdio::inherit()).output();
        let output = output.map_err(|why| format!("{self:?}: {why}"))?;
        if !output.status.success() {
            return Err(format!("{self:?}: {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|why| format!("{self:?}: {why}"))
    }

    /// Runs the program to its end, prints its output, and calls `line` with each line of it.
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
            let _ = writeln!(std::io::stdout(), "{text}"); // the reader of this output may have gone
        }
        let status = child.wait().map_err(|why| failed(&self.0, why))?;
        if status.success() { Ok(()) } else { Err(format!("{self:?}: {status}")) }
    }
}
