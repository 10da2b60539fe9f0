//! Configuration of an engine.

use oikaze_os::secrets::key_log::KeyLog;
use oikaze_os::secrets::seal::preferred_cipher;
use oikaze_os::secrets::secret::Secret;
use oikaze_os::shm::Pair;
use oikaze_protocol::Rank;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::wind::Settings;
use std::net::SocketAddr;

/// Configuration of an engine.
pub struct Setup {
    /// Rank of this node.
    pub me: Rank,
    /// Number of nodes in the job.
    pub nodes: u32,
    /// Incarnation of this process, greater than that of any earlier process at this rank.
    pub incarnation: u64,
    /// Addresses at which each rank may be reached, best first (empty for this node).
    pub addresses: Vec<Vec<SocketAddr>>,
    /// Maximum size in bytes of a datagram to each rank. If empty, the value in `settings` applies
    /// to all ranks.
    pub datagram_max: Vec<u16>,
    /// Random 64-bit connection id for each rank, by which that peer addresses this node.
    pub connections: Vec<u64>,
    /// Settings of Wind, the same for all peers.
    pub settings: Settings,
    /// Secret with which every handshake is sealed.
    pub secret: Secret,
    /// Keys of connections: which cipher, and whether they are written down.
    pub keys: KeyOptions,
    /// Local peers, each with the shared memory that it and this node have agreed to use.
    pub local_peers: Vec<(Rank, Pair)>,
}

/// Options for the keys of connections.
#[derive(Debug)]
pub struct KeyOptions {
    /// Cipher that this node prefers (SEAL-2.6).
    pub cipher: CipherKind,
    /// Log for who opens captures (SEAL-6).
    pub log: Option<KeyLog>,
}

impl Default for KeyOptions {
    /// The cipher that suits this processor, and no log.
    fn default() -> Self {
        Self { cipher: preferred_cipher(), log: None }
    }
}
