//! Token bucket that limits how many seals of handshakes this node computes in vain (WIND-10.3).

use oikaze_protocol::limits::{HANDSHAKE_BURST, HANDSHAKE_TOKEN_INTERVAL};
use oikaze_protocol::time::Time;

/// Token bucket: permits a burst, and one more token after each pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    left: u32,
    /// Time at which the pause before the next token began.
    since: Time,
}

impl TokenBucket {
    pub fn new(now: Time) -> Self {
        Self { left: HANDSHAKE_BURST, since: now }
    }

    /// Returns `true` if a token is left, so that one more seal may be computed.
    pub fn is_left(&mut self, now: Time) -> bool {
        let pauses =
            u32::try_from((now - self.since).as_nanos() / HANDSHAKE_TOKEN_INTERVAL.as_nanos())
                .unwrap_or(u32::MAX);
        if pauses > 0 {
            self.left = self.left.saturating_add(pauses).min(HANDSHAKE_BURST);
            // A full bucket gains no token, so its pause begins anew. Otherwise the part of a pause
            // that has passed counts for the next token.
            let full = self.left == HANDSHAKE_BURST;
            self.since = if full { now } else { self.since + HANDSHAKE_TOKEN_INTERVAL * pauses };
        }
        self.left > 0
    }

    /// Called when a computed seal was wrong. Takes one token.
    pub fn used(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn many_at_once_and_then_one_a_pause_whoever_asks_how_often() {
        let mut token_bucket = TokenBucket::new(Time(0));
        let mut used = 0;
        let mut now = Time(0);
        // A flood that lasts for 100 pauses, with 100 seals per pause where one is allowed.
        while now < Time(0) + HANDSHAKE_TOKEN_INTERVAL * 100 {
            if token_bucket.is_left(now) {
                token_bucket.used();
                used += 1;
            }
            now += HANDSHAKE_TOKEN_INTERVAL / 100;
        }
        assert!((99..=100).contains(&(used - HANDSHAKE_BURST)), "{used}");
        let later = now + Duration::from_secs(3600);
        let burst = (0..1000)
            .filter(|_| token_bucket.is_left(later).then(|| token_bucket.used()).is_some())
            .count();
        assert_eq!(burst, HANDSHAKE_BURST as usize);
    }
}
