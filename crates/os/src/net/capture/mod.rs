//! Wrapper around a link that records the datagrams that pass: as a capture for Wireshark, or as a
//! line of text for each datagram.
//!
//! Recording never stops the job. The size of a record is bounded, and a file that is full or
//! cannot be written to only ends the recording ([`Link::notice`](super::Link::notice) says so).

mod packet;
mod pcapng;
mod recorder;
mod settings;
mod tap;
#[cfg(test)]
mod tests;
mod trace;

pub use pcapng::Pcapng;
pub use recorder::{CapturedDatagram, Recorder};
pub use settings::{PCAP_LIMIT_VARIABLE, PCAP_VARIABLE, TRACE_VARIABLE, TapSettings, TapSyntax};
pub use tap::Tap;
pub use trace::Trace;
