//! Case `crowd`: more nodes than cores on one machine, which add at each other's memory, beside
//! Open MPI. The size of a record is the number of nodes.

use std::process::Command;

use crate::dsm::mpi;
use crate::error::Error;
use crate::peers::oikaze;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::programs::{LIMIT, Values, options};
use crate::process::{alone, own_program, seal};

/// Number of nodes.
pub const NODES: usize = 4;
/// Program of the peer.
const PROGRAM: &str = "fetch_add";
/// Systems, with the options of the node's program.
const SYSTEMS: [(&str, &[&str]); 2] = [("oikaze", &[]), ("oikaze private", &["--private"])];

/// Measures one round.
pub fn round(extent: Extent, all: &mut Collected) {
    let turns = if extent.quick { 2000 } else { 20_000 };
    let turns = options(&[("turns", turns)]);
    let key = |system| Key { mtu: None, ..Key::new("crowd", NODES, system, "us") };
    let value =
        |system| move |printed: String| Ok(vec![(key(system), Values::of(&printed)?.get("each")?)]);
    for (system, more) in SYSTEMS {
        let found = nodes().and_then(|mut command| {
            command.arg("crowd").args(&turns).args(more);
            alone(command)
        });
        all.add_all(&format!("crowd, {system}"), found.and_then(value(system)));
    }
    let found = mpi::OPEN_MPI.build(PROGRAM).and_then(|program| {
        let mut command = mpi::launcher_here(NODES, LIMIT);
        command.arg(program).args(&turns);
        alone(command)
    });
    all.add_all("crowd, mpi", found.and_then(value("mpi")));
}

/// Returns the command that starts the nodes of this machine, up to the role.
fn nodes() -> Result<Command, Error> {
    let me = own_program()?;
    let mut command = oikaze::launcher_here(NODES, LIMIT)?;
    command.args(["--seal", &seal(), "--"]);
    command.arg(me).args(["node", "--engines", "launcher", "--waits", "adaptive"]);
    Ok(command)
}
