//! Programs over MPI: how those in C are built, and how those of Open MPI are started, on two hosts
//! or on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::c_program::{Built, KERNELS, KERNELS_LIBRARY, has_kernels};
use crate::error::Error;
use crate::lab::{CLIENT, Lab, Place, core_of_each, remote_shell};
use crate::process::{limited, own_program};

/// Implementation of MPI.
#[derive(Debug)]
pub struct Mpi {
    /// Program that starts the processes.
    pub launcher: &'static str,
    /// Compiler wrapper for C.
    compiler: &'static str,
    /// Debian packages of launcher, compiler wrapper and compiler.
    packages: &'static str,
    /// Folder for its programs, beside the bench.
    folder: &'static str,
}

/// Open MPI, the peer of most benches.
pub const OPEN_MPI: Mpi = Mpi {
    launcher: LAUNCHER,
    compiler: "mpicc",
    packages: "openmpi-bin, libopenmpi-dev and gcc",
    folder: "mpi",
};

/// MPICH, whose launcher is Hydra.
pub const MPICH: Mpi = Mpi {
    launcher: "mpiexec.hydra",
    compiler: "mpicc.mpich",
    packages: "mpich, libmpich-dev and gcc",
    folder: "mpich",
};

/// Launcher of Open MPI.
pub const LAUNCHER: &str = "mpirun";
/// Sources of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi");
/// Header that all programs include.
const HEADER: &str = "common.h";

impl Mpi {
    /// Builds a program if it is older than its sources. Returns its path.
    ///
    /// # Errors
    /// The implementation, a compiler or the library of the inner loops is missing, or the compiler
    /// reports an error.
    pub fn build(&self, program: &str) -> Result<PathBuf, Error> {
        let me = own_program()?;
        let source = Path::new(SOURCES).join(program).with_extension("c");
        let kernels = has_kernels(&source)?.then(|| me.with_file_name(KERNELS_LIBRARY));
        let built = Built {
            program: me.with_file_name(self.folder).join(program),
            headers: vec![Path::new(SOURCES).join(HEADER), Path::new(SOURCES).join(KERNELS)],
            libraries: kernels.into_iter().collect(),
            source,
        };
        if built.is_fresh()? {
            return Ok(built.program);
        }
        self.installed()?;
        built.compile(Command::new(self.compiler), self.packages)
    }

    /// Checks that the launcher is installed.
    ///
    /// # Errors
    /// It is not. The error names its packages.
    pub fn installed(&self) -> Result<(), Error> {
        let version = Command::new(self.launcher).arg("--version").stdin(Stdio::null()).output();
        version.map(drop).map_err(|why| self.missing(self.launcher, &why))
    }

    fn missing(&self, program: &str, why: &std::io::Error) -> Error {
        super::c_program::missing(program, why, self.packages)
    }
}

/// Returns the launcher of processes at the lab's place, up to the program: on the first hosts of a
/// wire, one process each, or on this machine ([`launcher_here`]).
///
/// # Errors
/// The wire has fewer hosts.
pub fn launcher(lab: &Lab, processes: usize, limit: Duration) -> Result<Command, Error> {
    match lab.place {
        Place::Wire { .. } => {
            let mut command = lab.on(CLIENT, limit, LAUNCHER);
            command.args(launch(&lab.place.first_addresses(processes)?, &remote_shell()?));
            Ok(command)
        }
        Place::Here => Ok(launcher_here(processes, limit)),
    }
}

/// Returns the launcher of processes of this machine, with the defaults of Open MPI, up to the
/// program. Each process is bound to a core of its own. More processes than cores are not bound,
/// and yield while they wait.
pub fn launcher_here(processes: usize, limit: Duration) -> Command {
    let mut command = limited(limit, LAUNCHER);
    command.args(launch_here(processes));
    command
}

/// Returns the arguments of the launcher, up to the program: one process on each host, which it
/// enters by the command `enter`, and TCP between them.
pub fn launch(hosts: &[impl AsRef<str>], enter: &str) -> Vec<String> {
    let slots: Vec<String> = hosts.iter().map(|host| format!("{}:1", host.as_ref())).collect();
    let mut arguments = vec!["--host".to_owned(), slots.join(",")];
    arguments.extend(["-n".to_owned(), hosts.len().to_string()]);
    // The lab needs root, and has given each host its core.
    arguments.extend(["--allow-run-as-root", "--bind-to", "none"].map(str::to_owned));
    // The daemons stay in the session of the bench, as Oikaze's nodes do, and share its priority.
    arguments.push("--leave-session-attached".to_owned());
    let settings = [
        ("plm_rsh_agent", enter),
        ("pml", "ob1"),
        ("btl", "tcp,self"),
        // One round trip less for each message that is longer than the default of 64 KiB.
        ("btl_tcp_eager_limit", EAGER_MAX),
        ("btl_tcp_if_include", NETWORK),
        ("oob_tcp_if_include", NETWORK),
    ];
    for (name, value) in settings {
        arguments.extend(["--mca", name, value].map(str::to_owned));
    }
    arguments
}

/// Returns the arguments of [`launcher_here`], up to the program.
fn launch_here(processes: usize) -> Vec<String> {
    let placing: &[&str] = match core_of_each(processes) {
        Some(_) => &["--map-by", "core", "--bind-to", "core"],
        None => &["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
    };
    let mut arguments: Vec<String> = ["--allow-run-as-root", "--oversubscribe"]
        .iter()
        .chain(placing)
        .map(|&one| one.into())
        .collect();
    arguments.extend(["-n".to_owned(), processes.to_string()]);
    arguments
}

/// Maximum number of bytes that Open MPI sends before the receiver has asked for them.
const EAGER_MAX: &str = "1048576";
/// Network of the lab's hosts.
const NETWORK: &str = "10.77.0.0/24";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::ADDRESSES;

    #[test]
    fn launcher_starts_one_process_on_each_host() {
        for nodes in [1, 2] {
            let arguments = launch(&ADDRESSES[..nodes], "bench enter");
            let after = |name: &str| {
                let place = arguments.iter().position(|argument| argument == name);
                place.and_then(|place| arguments.get(place + 1)).map(String::as_str)
            };
            assert_eq!(after("-n"), Some(nodes.to_string().as_str()));
            assert_eq!(after("--host").map(|hosts| hosts.split(',').count()), Some(nodes));
            assert_eq!(after("plm_rsh_agent"), Some("bench enter"));
            assert_eq!(after("btl"), Some("tcp,self"));
        }
    }

    #[test]
    fn more_processes_than_cores_yield_and_are_not_bound() {
        let cores = (1..).take_while(|&count| core_of_each(count).is_some()).count();
        let has = |processes, word: &str| launch_here(processes).iter().any(|one| one == word);
        let (fit, more) = (cores, cores + 1);
        assert!(has(more, "none") && has(more, "mpi_yield_when_idle"));
        assert!(has(fit, "core") && !has(fit, "mpi_yield_when_idle"), "{fit} cores");
    }

    #[test]
    fn network_is_that_of_the_hosts() {
        let prefix = NETWORK.strip_suffix("0/24").expect("a network of 256 addresses");
        assert!(ADDRESSES.iter().all(|address| address.starts_with(prefix)));
    }

    #[test]
    fn every_program_has_a_source() {
        use clap::ValueEnum;
        let cases = super::super::case::Case::value_variants();
        for case in cases.iter().filter(|case| case.has(super::super::system::System::Mpi)) {
            let source = Path::new(SOURCES).join(case.program()).with_extension("c");
            assert!(source.is_file(), "{}", source.display());
        }
        assert!(Path::new(SOURCES).join(HEADER).is_file());
        assert!(Path::new(SOURCES).join(KERNELS).is_file());
    }

    #[test]
    fn programs_beside_those_of_apps_have_their_kernels() {
        use clap::ValueEnum;
        let cases = super::super::case::Case::value_variants();
        for case in cases.iter().filter(|case| case.has(super::super::system::System::Mpi)) {
            let source = Path::new(SOURCES).join(case.program()).with_extension("c");
            let found = has_kernels(&source).expect("the source is there");
            assert_eq!(found, case.is_app(), "{}", source.display());
        }
    }

    #[test]
    fn missing_program_is_named_with_its_package() {
        for (mpi, package) in [(OPEN_MPI, "libopenmpi-dev"), (MPICH, "libmpich-dev")] {
            let error = mpi.missing(mpi.compiler, &std::io::ErrorKind::NotFound.into());
            let error = error.to_string();
            assert!(error.starts_with(mpi.compiler) && error.contains(package), "{error}");
        }
    }
}
