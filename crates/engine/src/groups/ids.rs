//! Ids of the streams of a node.

use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;

/// Ids of the streams of a node. They follow from the job's secret, so that nobody else can tell
/// which ids are in use.
pub(crate) struct StreamIds {
    secret: Secret,
    next: u64,
}

impl StreamIds {
    pub fn new(job: &Secret, me: Rank, incarnation: u64) -> Self {
        let parts = [b"oikaze stream ids", &me.to_le_bytes()[..], &incarnation.to_le_bytes()];
        Self { secret: job.derive(&parts), next: 0 }
    }

    /// Returns an id that is not taken.
    pub fn next(&mut self, mut is_taken: impl FnMut(u64) -> bool) -> u64 {
        loop {
            self.next += 1;
            let mac = self.secret.mac(&[&self.next.to_le_bytes()]);
            let id = mac.first_chunk().map_or(self.next, |bytes| u64::from_le_bytes(*bytes));
            if id != 0 && !is_taken(id) {
                return id;
            }
        }
    }
}
