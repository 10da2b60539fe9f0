//! Fast paths that deliver nothing: the link's decisions.

use super::*;

fn peer(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// One silence that the link's own socket ends.
fn silence(peers: &mut PlainOnlyPeers, now: &mut Instant) -> bool {
    peers.report_silence(peer(1));
    assert!(peers.contains(peer(1)) && peers.contains_any(*now) && !peers.contains(peer(2)));
    let given_up = peers.heard_plain(peer(1), *now);
    assert!(!peers.heard_plain(peer(1), *now), "what comes at once ends the same silence");
    *now += REOPEN_TIME;
    assert_eq!(peers.contains_any(*now), given_up);
    given_up
}

/// WIND-8.13.
#[test]
fn peer_heard_by_the_plain_socket_only_is_received_so() {
    let (mut peers, mut now) = (PlainOnlyPeers::default(), Instant::now());
    let given_up: Vec<bool> = (0..SILENCES_MAX).map(|_| silence(&mut peers, &mut now)).collect();
    assert_eq!(given_up, [false, false, true]);
    peers.heard_fast(peer(1));
    peers.report_silence(peer(1));
    assert!(peers.contains(peer(1)) && !peers.heard_plain(peer(1), now), "for good, and told once");
}

/// WIND-8.13: a peer that was silent for a reason of its own is heard by a fast path later.
#[test]
fn silences_that_a_fast_path_outlives_do_not_add_up() {
    let (mut peers, mut now) = (PlainOnlyPeers::default(), Instant::now());
    for _ in 0..5 * SILENCES_MAX {
        assert!(!silence(&mut peers, &mut now));
        peers.heard_fast(peer(1));
        assert!(peers.is_empty());
        assert!(!silence(&mut peers, &mut now));
        // Silences of a peer that has no fast path now do not add up either.
        assert!(!peers.heard_plain(peer(1), now));
        assert!(peers.is_empty());
    }
}
