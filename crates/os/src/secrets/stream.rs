//! Secrets of multicast streams (SEAL-8).

use oikaze_protocol::seal::StreamSecret;
use std::io;
use zeroize::Zeroizing;

/// Draws the secret of a stream (SEAL-8.1).
///
/// # Errors
/// The system has no random bytes to give.
pub fn draw() -> io::Result<StreamSecret> {
    let mut bytes = Zeroizing::new([0; StreamSecret::LEN]);
    getrandom::fill(&mut *bytes).map_err(|why| io::Error::other(why.to_string()))?;
    Ok(StreamSecret::from_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::seal::Chain;
    use oikaze_protocol::seal::CipherKind::{Aes128Gcm, ChaCha20Poly1305};
    use oikaze_protocol::seal::{
        Cipher, DATAGRAMS_PER_KEY, ReceiveChain, SendChain, StreamIdentity, TAG_LEN,
    };
    use oikaze_protocol::wire::Lane;

    const STREAM: StreamIdentity = StreamIdentity { id: 5, sender: 3, cipher: Aes128Gcm };
    const HEADER: [u8; 24] = [9; 24];

    fn sealed(chain: &mut SendChain<Chain>, number: u64) -> Vec<u8> {
        let (mut text, mut tag) = (b"to all".to_vec(), [0; TAG_LEN]);
        chain.cipher(number).unwrap().seal(number, &HEADER, &mut text, &mut tag);
        text.extend(tag);
        text
    }

    fn opens(chain: &mut ReceiveChain<Chain>, number: u64, sealed: &[u8]) -> bool {
        let mut text = sealed.to_vec();
        chain.open(number, &HEADER, &mut text) && text.starts_with(b"to all")
    }

    fn ends(
        stream: &StreamIdentity,
        secret: &StreamSecret,
    ) -> (SendChain<Chain>, ReceiveChain<Chain>) {
        let first = Chain::of_stream(stream, secret);
        (SendChain::new(&first), ReceiveChain::new(&first))
    }

    /// SEAL-8.2: the keys are for one stream of one sender, and every member has them.
    #[test]
    fn members_open_what_the_sender_seals_and_nothing_of_other_streams() {
        let secret = draw().unwrap();
        for cipher in [Aes128Gcm, ChaCha20Poly1305] {
            let stream = StreamIdentity { cipher, ..STREAM };
            let (mut send, mut first) = ends(&stream, &secret);
            let (_, mut second) = ends(&stream, &secret);
            let datagram = sealed(&mut send, 1);
            assert!(opens(&mut first, 1, &datagram) && opens(&mut second, 1, &datagram));
            assert!(!opens(&mut first, 2, &datagram), "another number");
            for other in [
                StreamIdentity { id: 6, ..stream },
                StreamIdentity { sender: 4, ..stream },
                StreamIdentity {
                    cipher: if cipher == Aes128Gcm { ChaCha20Poly1305 } else { Aes128Gcm },
                    ..stream
                },
            ] {
                assert!(!opens(&mut ends(&other, &secret).1, 1, &datagram), "{other:?}");
            }
            // Neither direction of a connection has the same keys, if it had the same secret.
            let lane = Chain::new(cipher, secret.expose(), Lane::Bulk);
            assert!(!opens(&mut ReceiveChain::new(&lane), 1, &datagram));
        }
    }

    /// SEAL-8.4: the keys of a member are those of the sender, so a seal proves only that a member
    /// made it.
    #[test]
    fn members_can_seal_for_each_other() {
        let secret = draw().unwrap();
        let (mut first, _) = ends(&STREAM, &secret);
        let (mut second, mut third) = ends(&STREAM, &secret);
        assert_eq!(sealed(&mut first, 7), sealed(&mut second, 7));
        assert!(opens(&mut third, 7, &sealed(&mut second, 7)));
    }

    /// SEAL-8.1: the secret of a stream is new in each life of its sender, so that what was sent in
    /// an earlier life opens nowhere, although numbers begin anew.
    #[test]
    fn datagrams_of_an_earlier_life_do_not_open() {
        let (earlier, later) = (draw().unwrap(), draw().unwrap());
        assert_ne!(earlier, later);
        let datagram = sealed(&mut ends(&STREAM, &earlier).0, 1);
        assert!(!opens(&mut ends(&STREAM, &later).1, 1, &datagram));
    }

    /// SEAL-8.3: epochs change as those of a connection do.
    #[test]
    fn datagrams_of_old_epochs_do_not_open() {
        let (mut send, mut receive) = ends(&STREAM, &draw().unwrap());
        let numbers: Vec<u64> = (0..4).map(|epoch| epoch * DATAGRAMS_PER_KEY + 7).collect();
        let datagrams: Vec<Vec<u8>> =
            numbers.iter().map(|number| sealed(&mut send, *number)).collect();
        for at in 0..numbers.len() {
            assert!(opens(&mut receive, numbers[at], &datagrams[at]), "epoch {at}");
        }
        let old: Vec<bool> =
            (0..4).map(|at| opens(&mut receive, numbers[at], &datagrams[at])).collect();
        assert_eq!(old, [false, false, true, true]);
    }
}
