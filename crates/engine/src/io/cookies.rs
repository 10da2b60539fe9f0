//! Cookies: proofs that the sender of a handshake receives at the address from which it sends
//! (WIND-10.6).
//!
//! A node keeps nothing about an address before that. A cookie is a MAC over the address, under a
//! key that only this node has (DTLS, RFC 9147, section 5.1; WireGuard's cookie reply).

use arrayvec::ArrayVec;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wire::{Cookie, CookieReply, Hello};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time for which a cookie is made. It is valid for this time after that, too.
const PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of demands in one turn.
const DEMANDS_A_TURN: usize = 16;

/// Makes and checks cookies, and keeps the demands that wait to be sent.
pub(crate) struct Cookies {
    me: Rank,
    key: Secret,
    demands: ArrayVec<(SocketAddr, CookieReply), DEMANDS_A_TURN>,
}

impl Cookies {
    /// Derives the key from the job's secret, which strangers do not know, and from this node's
    /// random number, which the job's other nodes do not know.
    pub fn new(me: Rank, job: &Secret, private_seed: u64) -> Cookies {
        let key = job.derive(&[b"oikaze cookie", &private_seed.to_le_bytes()]);
        Cookies { me, key, demands: ArrayVec::new() }
    }

    /// Returns `true` if the HELLO has a cookie for the address from which it came.
    pub fn is_valid(&self, hello: &Hello, from: SocketAddr, now: Time) -> bool {
        let period = period(now);
        hello.cookie.is_some_and(|cookie| {
            [period, period.saturating_sub(1)].into_iter().any(|period| {
                with_parts(hello.mine.rank, from, period, |parts| self.key.verify(parts, &cookie))
            })
        })
    }

    /// Demands that the HELLO with this number be repeated with a cookie. A demand beyond the
    /// room of a turn is dropped, as if it were lost.
    pub fn demand(&mut self, hello: &Hello, number: u64, from: SocketAddr, now: Time) {
        let mac = with_parts(hello.mine.rank, from, period(now), |parts| self.key.mac(parts));
        let Some(cookie) = mac.first_chunk::<{ size_of::<Cookie>() }>() else { return };
        let (rank, incarnation) = (self.me, hello.mine.incarnation);
        let _ = self
            .demands
            .try_push((from, CookieReply { rank, incarnation, number, cookie: *cookie }));
    }

    /// Returns a demand to send, and the address to which it goes.
    pub fn take_demand(&mut self) -> Option<(SocketAddr, CookieReply)> {
        self.demands.pop()
    }
}

fn period(now: Time) -> u64 {
    now.0 / PERIOD.as_nanos() as u64
}

/// Calls `with` with what a cookie covers.
fn with_parts<R>(rank: Rank, from: SocketAddr, period: u64, with: impl FnOnce(&[&[u8]]) -> R) -> R {
    let address = match from.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let (rank, port, period) =
        (rank.to_le_bytes(), from.port().to_le_bytes(), period.to_le_bytes());
    with(&[&address.octets(), &port, &rank, &period])
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::seal::KeyStep;
    use oikaze_protocol::wire::Introduction;

    /// WIND-10.6: a cookie is valid for its address, rank and node, and for two periods at most.
    #[test]
    fn cookie_is_valid_for_one_address_and_a_short_time() {
        let secret = Secret::from_bytes([1; 32]);
        let mut cookies = Cookies::new(1, &secret, 7);
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let hello = |rank, cookie| Hello {
            mine: Introduction::here(rank, 3, 5, 9),
            to: Some(1),
            path: 0,
            yours: None,
            answer_wanted: true,
            key: KeyStep::Nothing,
            cookie,
        };
        let (from, now) = (address("10.0.0.1:5000"), Time(0) + PERIOD * 3);
        cookies.demand(&hello(0, None), 77, from, now);
        let (to, reply) = cookies.take_demand().unwrap();
        assert_eq!((to, reply.rank, reply.incarnation, reply.number), (from, 1, 5, 77));
        assert!(cookies.take_demand().is_none());
        let cookie = Some(reply.cookie);
        for later in [Duration::ZERO, PERIOD] {
            assert!(cookies.is_valid(&hello(0, cookie), from, now + later));
        }
        assert!(!cookies.is_valid(&hello(0, cookie), from, now + PERIOD * 2));
        assert!(!cookies.is_valid(&hello(0, None), from, now));
        assert!(!cookies.is_valid(&hello(2, cookie), from, now), "another rank");
        for other in ["10.0.0.1:5001", "10.0.0.2:5000", "[::1]:5000"] {
            assert!(!cookies.is_valid(&hello(0, cookie), address(other), now), "{other}");
        }
        let others = Cookies::new(1, &secret, 8);
        assert!(!others.is_valid(&hello(0, cookie), from, now), "another node's key");
        // A flood keeps no more than a turn sends.
        (0..100).for_each(|number| cookies.demand(&hello(0, None), number, from, now));
        assert_eq!(std::iter::from_fn(|| cookies.take_demand()).count(), DEMANDS_A_TURN);
    }
}
