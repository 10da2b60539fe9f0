//! Hosts of one machine that a switch joins, as `oikaze run --netns` makes them.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use oikaze_launch::launcher::LaunchError;
use oikaze_launch::launcher::guard::Guard;
use oikaze_launch::launcher::netns::{Cabling, Network};

use crate::error::Error;

/// Environment variable with the names of the namespaces up to the rank, for [`enter`].
const HOSTS: &str = "OIKAZE_BENCH_SWITCH";
/// Time limit of a process on a host.
const NODE_LIMIT: Duration = Duration::from_secs(60);

/// Hosts that a switch joins. Dropping it removes them.
pub struct Switch {
    // Dropped first: the guard removes what is left if the bench is killed.
    network: Network,
    _guard: Guard,
    cabling: Cabling,
}

impl Switch {
    /// Makes the hosts. Each port carries `rate` bytes per second in each direction.
    ///
    /// # Errors
    /// The user is not root, or a tool is missing.
    pub fn make(hosts: u32, mtu: u16, rate: u64) -> Result<Switch, Error> {
        let cabling = Cabling { mtu, rate: Some(rate), ..Cabling::default() };
        let failed =
            |why: LaunchError| Error::new(format!("making hosts that a switch joins: {why}"));
        let mut guard = Guard::start().map_err(failed)?;
        let network = Network::make(hosts, cabling.clone(), &mut guard).map_err(failed)?;
        Ok(Switch { network, _guard: guard, cabling })
    }

    /// Returns the MTU of the ports.
    pub fn mtu(&self) -> u16 {
        self.cabling.mtu
    }

    /// Returns the addresses of the first hosts.
    pub fn addresses(&self, count: u32) -> Vec<String> {
        (0..count).map(|host| self.cabling.address(host).to_string()).collect()
    }

    /// Returns a command on the first host, with a time limit.
    pub fn on_first(&self, limit: Duration, program: &str) -> Command {
        let mut command = on(&self.network.name(0), limit);
        command.arg(program).env(HOSTS, self.network.name(0).trim_end_matches('0'));
        command
    }
}

/// Becomes a shell that runs `command` on the host with this address, if a [`Switch`] has it.
/// Returns `None` otherwise.
pub fn enter(address: &str, command: &[OsString]) -> Option<Error> {
    let names = std::env::var(HOSTS).ok()?;
    let address: Ipv4Addr = address.parse().ok()?;
    let host = (0..250).find(|host| Cabling::default().address(*host) == address)?;
    let mut entered = on(&format!("{names}{host}"), NODE_LIMIT);
    let why = entered.args(["sh", "-c"]).arg(command.join(std::ffi::OsStr::new(" "))).exec();
    Some(Error::io(format!("starting {:?} (package iproute2)", entered.get_program()), &why))
}

/// Returns the beginning of a command: `ip netns exec NAME timeout LIMIT`.
fn on(name: &str, limit: Duration) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, "timeout", "--kill-after=1"]);
    command.arg(limit.as_secs().to_string());
    command
}
