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
    /// Datagrams received with an identifier of no connection: garbage, or of another job.
    pub unknown_connection: u64,
    /// Datagrams whose seal was wrong.
    pub bad_seal: u64,
    /// Handshakes whose authentication code was wrong: of another job's secret, or forged.
    pub bad_mac: u64,
    /// Handshakes dropped before they were verified, because wrong ones have used up the rate limit
    /// (WIND-10.3).
    pub rate_limited: u64,
    /// Handshakes without the cookie that proves their sender's address. They were answered with a
    /// cookie, or not at all.
    pub no_cookie: u64,
    /// Handshakes dropped, before their seal was verified, that are not newer than the latest of
    /// their sender, or are for another node. Anybody can replay those.
    pub stale_handshakes: u64,
    /// The link failed to send or to receive (not counting "full, try later" and "nothing there").
    pub link_errors: u64,
}
}
