//! Settings of recordings, and their files.

use super::pcapng::Pcapng;
use super::recorder::Recorder;
use super::tap::Tap;
use super::trace::Trace;
use crate::net::link::Link;
use crate::replace_file::{FileRights, Output};
use oikaze_protocol::limits::{CAPTURE_MAX, CAPTURE_MIN};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::path::{Path, PathBuf};

/// File for a capture of all datagrams; the node's rank is inserted before its extension.
pub const PCAP_VARIABLE: &str = "OIKAZE_PCAP";
/// File for lines of text; the node's rank is inserted before its extension.
pub const TRACE_VARIABLE: &str = "OIKAZE_TRACE";
/// Maximum bytes of each of these files; K, M and G are powers of 1024.
pub const PCAP_LIMIT_VARIABLE: &str = "OIKAZE_PCAP_LIMIT";

/// Error for a malformed or too small limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{PCAP_LIMIT_VARIABLE}={0}: expected bytes such as 64M, at least {CAPTURE_MIN}")]
pub struct TapSyntax(String);

/// Recordings that were requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSettings {
    /// File for a capture.
    pub pcap: Option<PathBuf>,
    /// File for text.
    pub trace: Option<PathBuf>,
    /// Maximum bytes of each file.
    pub limit: u64,
}

impl TapSettings {
    /// Reads the settings from the environment. Returns `None` if nothing is to be recorded.
    ///
    /// # Errors
    /// The limit is malformed or too small.
    pub fn from_env() -> Result<Option<Self>, TapSyntax> {
        let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (pcap, trace) =
            (text(PCAP_VARIABLE).map(PathBuf::from), text(TRACE_VARIABLE).map(PathBuf::from));
        let limit = text(PCAP_LIMIT_VARIABLE)
            .map_or(Ok(CAPTURE_MAX), |text| bytes(&text).ok_or(TapSyntax(text)))?;
        Ok((pcap.is_some() || trace.is_some()).then_some(Self { pcap, trace, limit }))
    }

    /// Records what goes through a link, as node `rank`. Returns a message for each file that could
    /// not be opened, which is not recorded.
    pub fn attach<L: Link>(&self, link: L, rank: u32) -> (Tap<L>, Vec<String>) {
        let mut tap = Tap::new(link);
        let mut failed = Vec::new();
        // A write past `ulimit -f` would end the process by SIGXFSZ.
        let allowed = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let mut record = |path: &Option<PathBuf>, recorder: Box<dyn Recorder>| {
            let Some(path) = path.as_ref().map(|path| of_rank(path, rank)) else { return };
            let name = format!("the record in {}", path.display());
            if allowed < self.limit {
                failed.push(format!("{name} has at most {allowed} bytes, as `ulimit -f` allows: use `ulimit -f unlimited`"));
            }
            let limit = self.limit.min(allowed);
            if let Err(why) =
                open(&path).and_then(|file| tap.record(name, recorder, Box::new(file), limit))
            {
                failed.push(format!(
                    "datagrams are not recorded: could not write {}: {why}",
                    path.display()
                ));
            }
        };
        record(&self.pcap, Box::new(Pcapng::new(&format!("node {rank}"))));
        record(&self.trace, Box::<Trace>::default());
        (tap, failed)
    }
}

/// Opens a file for this user only, because it holds what programs send. A file of an older job is
/// replaced, so that a job which still writes it does not write into this one.
fn open(path: &Path) -> io::Result<std::fs::File> {
    Output::open(path, FileRights::Private)?.publish()
}

/// Inserts the rank: `x.pcapng` of rank 3 is `x.3.pcapng`.
fn of_rank(path: &Path, rank: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{rank}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes >= CAPTURE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_names() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("64M"), Some(64 << 20));
        assert_eq!(bytes("2G"), Some(2 << 30));
        for bad in ["", "M", "1", "-1", "64MB", "99999999999G"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        let name = |path: &str| of_rank(Path::new(path), 3);
        assert_eq!(name("/tmp/x.pcapng"), PathBuf::from("/tmp/x.3.pcapng"));
        assert_eq!(name("y"), PathBuf::from("y.3"));
    }
}
