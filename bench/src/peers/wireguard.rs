//! TCP through a tunnel of WireGuard that runs in user space (Debian packages `wireguard-go` and
//! `wireguard-tools`). The tunnel's program of each host shares the host's core with the bench's
//! own TCP.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::ends::measure;
use super::{Effort, Found, System, installed};
use crate::error::Error;
use crate::lab::{ADDRESSES, CLIENT, HOSTS, Lab, SERVER, tool};
use crate::process::{Running, with_input};
use crate::suite::case::{Case, Test};

/// Program of the tunnel.
const PROGRAM: &str = "wireguard-go";
/// Devices of the tunnel. Their names differ, because both programs make a socket of that name in
/// one folder.
const DEVICES: [&str; 2] = ["wga", "wgb"];
/// Addresses inside the tunnel.
const INSIDE: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Port outside the tunnel.
const PORT: &str = "51820";
/// Bytes that the tunnel adds to a packet over IPv4: 20 of IP, 8 of UDP, 32 of WireGuard.
const OVERHEAD: u16 = 60;
/// Time limit of the tunnel's programs.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit for a device of the tunnel to appear.
const START: Duration = Duration::from_secs(10);

/// TCP through WireGuard as a measured system.
pub struct WireGuard;

impl System for WireGuard {
    fn name(&self) -> &'static str {
        "wireguard"
    }

    fn present(&self) -> Result<(), Error> {
        installed(PROGRAM, "--version", PROGRAM, self.name())?;
        installed("wg", "--version", "wireguard-tools", self.name())
    }

    fn has(&self, case: Case) -> bool {
        matches!(case.test, Test::MessageLatency | Test::MessageBandwidth | Test::Processor)
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let keys = [Key::new()?, Key::new()?];
        let _tunnel = [
            end(lab, CLIENT, &keys[CLIENT], &keys[SERVER])?,
            end(lab, SERVER, &keys[SERVER], &keys[CLIENT])?,
        ];
        measure(lab, "tcp", &["--at", INSIDE[SERVER], "--charge", PROGRAM], case, effort)
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "wireguard: plain TCP through a tunnel of wireguard-go, ChaCha20-Poly1305. On each host both share one core; \
             cpu counts both.",
        )
    }
}

/// Key pair of one end, as text.
struct Key {
    private: String,
    public: String,
}

impl Key {
    fn new() -> Result<Self, Error> {
        let private = wg(&["genkey"], "")?;
        let public = wg(&["pubkey"], &private)?.trim().to_owned();
        Ok(Self { private, public })
    }
}

/// Starts one end of the tunnel. It ends when the returned value is dropped.
fn end(lab: &Lab, host: usize, mine: &Key, other: &Key) -> Result<Running, Error> {
    let (device, there) = (DEVICES[host], 1 - host);
    let mut command = lab.on(host, LIMIT, PROGRAM);
    command.args(["--foreground", device]).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(command)?;
    wait_for_socket(device)?;
    let (allowed, endpoint) =
        (format!("{}/32", INSIDE[there]), format!("{}:{PORT}", ADDRESSES[there]));
    let me = ["set", device, "listen-port", PORT, "private-key", "/dev/stdin"];
    let peer = ["peer", &other.public, "allowed-ips", &allowed, "endpoint", &endpoint];
    wg(&[me, peer].concat(), &mine.private)?;
    let mtu = (lab.place.mtu() - OVERHEAD).to_string();
    let address = format!("{}/24", INSIDE[host]);
    tool("ip", &["-n", HOSTS[host], "addr", "add", &address, "dev", device])?;
    tool("ip", &["-n", HOSTS[host], "link", "set", device, "up", "mtu", &mtu])?;
    Ok(running)
}

/// Waits until the tunnel's program can be configured.
fn wait_for_socket(device: &str) -> Result<(), Error> {
    let socket = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
    let begun = Instant::now();
    while !socket.exists() || wg(&["show", device], "").is_err() {
        if begun.elapsed() > START {
            return Err(Error::new(format!(
                "{PROGRAM} did not make {} within {START:?}; it needs root and /dev/net/tun",
                socket.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Runs `wg` with this standard input. Returns its output.
fn wg(arguments: &[&str], input: &str) -> Result<String, Error> {
    let mut command = Command::new("wg");
    // The arguments hold no secret.
    command.args(arguments);
    with_input(command, input)
}
