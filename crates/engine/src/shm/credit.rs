//! Credit for the bytes that the reader must keep until its user reads them (MEM-16.6).

use oikaze_os::shm::Writer;
use oikaze_protocol::limits::{CREDIT, CREDIT_OVERHEAD};
use oikaze_protocol::wind::Message;

/// Part of the reader's credit that is in use.
#[derive(Debug, Default)]
pub(super) struct Credit {
    outstanding: u64,
    returned: u64,
}

impl Credit {
    pub fn charge_of(message: &Message) -> u64 {
        if message.credited { Self::charge(message.body.len()) } else { 0 }
    }

    pub fn charge(len: u64) -> u64 {
        len + CREDIT_OVERHEAD
    }

    /// Returns whether there is so much left, or the message goes alone (WIND-6.7): nothing else is
    /// unread.
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

    /// Nobody reads what this was taken for.
    pub fn give_back(&mut self, charge: u64) {
        self.outstanding = self.outstanding.saturating_sub(charge);
    }
}
