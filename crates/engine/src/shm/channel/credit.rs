//! Flow control between local peers: credit for the bytes that the reader must keep until its user
//! reads them (MEM-16.6).

use oikaze_os::shm::{Reader, Writer};
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD, MESSAGE_MAX};
use oikaze_protocol::shm::Damaged;
use oikaze_protocol::wind::Message;

/// Part of the reader's credit that is in use.
#[derive(Debug, Default)]
pub(in crate::shm) struct Credit {
    outstanding: u64,
    returned: u64,
}

impl Credit {
    pub fn charge_of(message: &Message) -> u64 {
        message.charge.of(message.body.len()).map_or(0, Self::charge)
    }

    pub fn charge(len: u64) -> u64 {
        len + CREDIT_OVERHEAD
    }

    /// Returns `true` if this much credit is left. A message also goes if nothing else is unread,
    /// however long it is (WIND-6.7).
    pub fn is_there(&mut self, charge: u64, writer: &Writer) -> bool {
        let fits =
            |outstanding: u64| charge == 0 || outstanding == 0 || outstanding + charge <= CREDIT;
        if fits(self.outstanding) {
            return true;
        }
        let returned = writer.returned();
        self.outstanding = self.outstanding.saturating_sub(returned.saturating_sub(self.returned));
        self.returned = self.returned.max(returned);
        fits(self.outstanding)
    }

    pub fn take(&mut self, charge: u64) {
        self.outstanding += charge;
    }

    /// Frees the credit of a message that was refused or withdrawn, so that no user reads it.
    pub fn give_back(&mut self, charge: u64) {
        self.outstanding = self.outstanding.saturating_sub(charge);
    }
}

/// Part of this node's credit that a local peer has taken.
#[derive(Debug, Default)]
pub(in crate::shm) struct GrantedCredit {
    /// Credit that users' messages have taken and that was not given back.
    charged: u64,
    /// Credit given back since the rings exist.
    returned: u64,
}

impl GrantedCredit {
    /// Charges a user's message (MEM-16.6). Fails if the peer sends more than was granted. This
    /// node no longer trusts such a peer, because it would fill this node's memory.
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<u64, Damaged> {
        let charge = len.saturating_add(CREDIT_OVERHEAD);
        // A message that costs more than all credit comes alone (WIND-6.7). `charged` may then
        // exceed the credit.
        let is_covered = self.charged == 0 && len <= MESSAGE_MAX;
        if !is_covered && self.charged.saturating_add(charge) > CREDIT {
            return Err(Damaged);
        }
        self.charged += charge;
        Ok(charge)
    }

    /// Takes back the charge of a message that no user reads.
    #[inline]
    pub fn refund(&mut self, charge: u64) {
        self.charged = self.charged.saturating_sub(charge);
    }

    /// Called when the user has read messages. [`GrantedCredit::report`] follows.
    #[inline]
    pub fn free(&mut self, messages: u64, bytes: u64) {
        let freed = messages.saturating_mul(CREDIT_OVERHEAD).saturating_add(bytes);
        self.charged = self.charged.saturating_sub(freed);
        self.returned = self.returned.wrapping_add(freed);
    }

    /// Gives the freed credit back to the local peer.
    #[inline]
    pub fn report(&self, reader: &Reader) {
        reader.give_back(self.returned);
    }
}
