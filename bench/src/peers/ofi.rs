//! libfabric over TCP and over UDP, measured by its own `fi_pingpong` (Debian package
//! `libfabric-bin`).
//!
//! fabtests, which would have streams of writes, are not packaged. The figure for bulk is therefore
//! that of a ping-pong, too.

use std::time::Duration;

use super::{Effort, Found, System, installed};
use crate::error::Error;
use crate::lab::{ADDRESSES, Lab};
use crate::process::{Ready, pair};
use crate::suite::case::{Case, Figure, Test};

const PROGRAM: &str = "fi_pingpong";
/// Port at which the server of `fi_pingpong` listens for the client's first message.
const CONTROL_PORT: u16 = 47592;
/// Time limit of a run, because the datagram provider may hang for ever.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a measurement. `fi_pingpong` does not walk through memory, so fewer large operations
/// give the same result.
const VOLUME: usize = 256 << 20;

/// libfabric with one provider, endpoints of type RDM (reliable datagrams).
pub struct Ofi {
    name: &'static str,
    provider: &'static str,
}

impl Ofi {
    /// libfabric's protocol over TCP.
    pub const TCP: Self = Self { name: "ofi-tcp", provider: "tcp" };
    /// libfabric's reliability over UDP.
    pub const UDP: Self = Self { name: "ofi-udp", provider: "udp;ofi_rxd" };
}

impl System for Ofi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn present(&self) -> Result<(), Error> {
        installed(PROGRAM, "-h", "libfabric-bin", self.name)
    }

    fn has(&self, case: Case) -> bool {
        // `fi_pingpong` has only a ping-pong. 64 MiB exceed a message of its providers.
        matches!(case.test, Test::MessageLatency | Test::MessageBandwidth) && case.size <= 1 << 20
    }

    fn is_quick(&self, case: Case) -> bool {
        // Each run sleeps for a second.
        case.size != 4096
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let times = match case.test {
            Test::MessageLatency => effort.exchanges as usize,
            _ => (effort.volume.min(VOLUME) / 2 / case.size).clamp(8, 2000),
        };
        let [_, server] = ADDRESSES;
        let arguments = [
            "-p",
            self.provider,
            "-e",
            "rdm",
            "-S",
            &case.size.to_string(),
            "-I",
            &times.to_string(),
        ]
        .map(str::to_owned);
        let mut listening = lab.on(1, LIMIT, PROGRAM);
        listening.args(&arguments);
        let mut asking = lab.on(0, LIMIT, PROGRAM);
        asking.args(&arguments).arg(server);
        let printed = pair(listening, Ready::Listens(CONTROL_PORT), asking)?;
        let row = Row::parse(&printed);
        let row = row.ok_or_else(|| {
            Error::new(format!("{PROGRAM} printed other columns than expected: {}", printed.trim()))
        })?;
        Ok(vec![match case.test {
            Test::MessageLatency => (Figure::MessageLat, row.microseconds),
            _ => (Figure::MessageBw, row.megabytes_per_second / 1e3),
        }])
    }

    fn note(&self) -> Option<&'static str> {
        Some(if self.provider == "tcp" {
            "ofi-tcp, ofi-udp: libfabric's own fi_pingpong: bandwidth, too, is that of a ping-pong, and latency a mean. It reuses \
             one buffer and so runs hot."
        } else {
            return None;
        })
    }
}

/// Values needed from the last row of the program's table.
struct Row {
    /// Bytes divided by microseconds.
    megabytes_per_second: f64,
    /// Time of one way.
    microseconds: f64,
}

impl Row {
    fn parse(printed: &str) -> Option<Self> {
        let heading = printed.lines().find(|line| line.starts_with("bytes"))?;
        let values: Vec<&str> = printed
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())?
            .split_whitespace()
            .collect();
        let column = |name: &str| -> Option<f64> {
            let place = heading.split_whitespace().position(|column| column == name)?;
            values.get(place)?.parse().ok()
        };
        Some(Self { megabytes_per_second: column("MB/sec")?, microseconds: column("usec/xfer")? })
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    #[test]
    fn its_output_is_understood() {
        // Output of libfabric 1.17.
        let printed = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                       4k      2k      =2k      15m         0.10s    163.56      25.04       0.04\n";
        let row = Row::parse(printed).expect("a row");
        assert_eq!((row.megabytes_per_second, row.microseconds), (163.56, 25.04));
        assert!(Row::parse("bytes MB/sec usec/xfer\nfi_connect failed\n").is_none());
        assert!(Row::parse("").is_none());
    }
}
