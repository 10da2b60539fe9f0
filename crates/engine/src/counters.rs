//! Counters of the engine.

use oikaze_protocol::counters;

counters! {
/// Counters of the engine, besides those of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of turns run.
    pub turns: u64,
    /// Visits to single peers, all stages of all turns together. Only peers that have something to
    /// do are visited.
    pub visits: u64,
    /// Messages that were placed into posted memory as their bytes arrived (MEM-26.8).
    pub placed_messages: u64,
    /// Datagrams received that no connection wanted: garbage, or another job's.
    pub strangers: u64,
    /// Datagrams whose seal was wrong.
    pub unsealed: u64,
    /// Handshakes whose seal was wrong: another job's secret, or forged.
    pub unauthentic: u64,
    /// Handshakes dropped before their seal was verified, because too many wrong ones have come
    /// lately.
    pub unheard: u64,
    /// Handshakes from addresses at which their sender was not known. They were answered with a
    /// cookie, or not at all.
    pub unproved: u64,
    /// Handshakes dropped, before their seal was verified, that are not newer than the latest of
    /// their sender, or are for another node. Anybody can replay those.
    pub stale_handshakes: u64,
    /// The link failed to send or to receive (not counting "full, try later" and "nothing there").
    pub link_errors: u64,
}
}
