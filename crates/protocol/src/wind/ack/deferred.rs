//! Deferred acknowledgement: an acknowledgement that came beside a message is processed after what
//! the message causes was sent, because nobody waits for what it settles (WIND-3.11). Serves the
//! case `message_lat` of 8 bytes of `bench wind`, which takes an eighth more time without it.

use crate::time::Time;
use crate::wind::connection::Connection;
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::header::Lane;

/// Acknowledgement that was found correct and is still to be processed.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct DeferredAck {
    /// Time at which it came, and the lane and number of its datagram.
    at: Time,
    by: (Lane, u64),
    ack: Acknowledgement<'static>,
}

impl Connection {
    /// Defers this acknowledgement to [`process_deferred_ack`](Self::process_deferred_ack), if
    /// nothing waits for the room that it makes and it is of the most frequent kind. Returns
    /// `false` if it has to be processed now.
    pub(crate) fn put_off(
        &mut self,
        now: Time,
        by: (Lane, u64),
        ack: &Acknowledgement<'_>,
    ) -> bool {
        let lane = ack.fields.lane;
        let sending = &self.sending[lane];
        let waits = !self.is_quiet()
            || self.outbox.is_full()
            || self.outbox.is_blocked()
            || self.refusals.len() > 0
            || sending.flight.in_flight() * 2 >= sending.window(now);
        let Some(ack) = ack
            .alone()
            .filter(|_| !waits && lane == Lane::Small && sending.flight.has_sent(ack.largest))
        else {
            return false;
        };
        self.deferred_ack = Some(DeferredAck { at: now, by, ack });
        true
    }

    /// Processes the acknowledgement that [`receive_ahead`](Self::receive_ahead) has deferred.
    /// Returns `true` if there was one.
    pub fn process_deferred_ack(&mut self) -> bool {
        let Some(DeferredAck { at, by, ack }) = self.deferred_ack.take() else { return false };
        self.acknowledged(at, by, &ack)
    }
}
