//! Keys and ciphers of sealed datagrams (SEAL-2, SEAL-3): the Noise protocol by `snow`, AES-128-GCM
//! and HKDF by `ring`.

use crate::secret::Secret;
use oikaze_protocol::seal::{
    Binding, Cipher, FIRST_LEN, FirstMessage, Identity, KeyExchange, SECOND_LEN, SecondMessage,
    SessionSecrets, TAG_LEN,
};
use oikaze_protocol::wire::Lane;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use snow::{Builder, HandshakeState};

/// Name of the handshake pattern and its algorithms, as the Noise specification writes it.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Length of an AES-128 key in bytes.
const KEY_LEN: usize = 16;
/// Length of a nonce of AES-GCM in bytes.
const NONCE_LEN: usize = 12;

/// Key exchange of one connection by the Noise pattern NNpsk0 (SEAL-2.1).
pub struct NoiseExchange {
    secret: Secret,
    /// State after the first message of this node.
    waiting: Option<HandshakeState>,
}

impl NoiseExchange {
    /// Makes the exchange for members of the job with this secret.
    #[must_use]
    pub fn new(job: &Secret) -> Self {
        Self { secret: job.derive(&[b"oikaze ", PATTERN.as_bytes()]), waiting: None }
    }

    fn builder<'a>(binding: &'a [u8], psk: &'a [u8; 32]) -> Result<Builder<'a>, snow::Error> {
        Builder::new(PATTERN.parse()?).prologue(binding)?.psk(0, psk)
    }

    fn begin(&self, binding: &Binding) -> Result<(HandshakeState, FirstMessage), snow::Error> {
        let (binding, psk) = (binding.to_bytes(), self.secret.expose());
        let mut state = Self::builder(&binding, psk)?.build_initiator()?;
        let mut message = [0; FIRST_LEN];
        state.write_message(&[], &mut message)?;
        Ok((state, message))
    }

    fn answer(
        &self,
        binding: &Binding,
        first: &FirstMessage,
        mine: Identity,
    ) -> Result<(SecondMessage, SessionSecrets), snow::Error> {
        let (binding, psk) = (binding.to_bytes(), self.secret.expose());
        let mut state = Self::builder(&binding, psk)?.build_responder()?;
        state.read_message(first, &mut [])?;
        let mut message = [0; SECOND_LEN];
        state.write_message(&mine.to_bytes(), &mut message)?;
        let (receive, send) = state.dangerously_get_raw_split();
        Ok((message, SessionSecrets { send, receive }))
    }
}

impl KeyExchange for NoiseExchange {
    fn first(&mut self, binding: &Binding) -> Option<FirstMessage> {
        let (state, message) = self.begin(binding).ok()?;
        self.waiting = Some(state);
        Some(message)
    }

    fn second(
        &mut self,
        binding: &Binding,
        first: &FirstMessage,
        mine: Identity,
    ) -> Option<(SecondMessage, SessionSecrets)> {
        self.answer(binding, first, mine).ok()
    }

    fn finish(&mut self, second: &SecondMessage) -> Option<(Identity, SessionSecrets)> {
        let state = self.waiting.as_mut()?;
        let mut identity = [0; Identity::LEN];
        // A message that is not authentic leaves the state as it was.
        state.read_message(second, &mut identity).ok()?;
        let (send, receive) = state.dangerously_get_raw_split();
        self.waiting = None;
        Some((Identity::from_bytes(identity), SessionSecrets { send, receive }))
    }
}

/// Secret of one direction of a lane, from one epoch on (SEAL-4.2).
pub struct Chain(Secret);

impl Chain {
    /// Returns the secret of epoch 0. `direction` is a secret of the key exchange.
    #[must_use]
    pub fn new(direction: &[u8; 32], lane: Lane) -> Self {
        Self(expand(direction, &[b"oikaze lane", &[lane as u8]]))
    }
}

impl oikaze_protocol::seal::Chain for Chain {
    type Cipher = AesGcm;

    fn cipher(&self) -> AesGcm {
        AesGcm::derived(&self.0, &[b"oikaze key"])
    }

    fn next(&self) -> Self {
        Self(expand(self.0.expose(), &[b"oikaze next"]))
    }
}

/// HKDF-Expand of HMAC-SHA-256 (RFC 5869) to 32 bytes.
fn expand(secret: &[u8; 32], info: &[&[u8]]) -> Secret {
    struct Len;
    impl KeyType for Len {
        fn len(&self) -> usize {
            32
        }
    }
    let mut bytes = [0; 32];
    // HKDF-Expand fails only for more than 8,160 bytes.
    if let Ok(key) = Prk::new_less_safe(HKDF_SHA256, secret).expand(info, Len) {
        let _ = key.fill(&mut bytes);
    }
    Secret::from_bytes(bytes)
}

/// AES-128-GCM under one key (SEAL-3).
pub struct AesGcm {
    key: Option<LessSafeKey>,
    iv: [u8; NONCE_LEN],
}

impl AesGcm {
    /// Makes the cipher whose key and IV follow from a secret, for one purpose.
    #[must_use]
    pub fn derived(secret: &Secret, purpose: &[&[u8]]) -> Self {
        let (mut key, mut iv) = ([0; KEY_LEN], [0; NONCE_LEN]);
        let bytes = expand(secret.expose(), purpose);
        let (of_key, rest) = bytes.expose().split_at(KEY_LEN);
        key.iter_mut().zip(of_key).for_each(|(to, from)| *to = *from);
        iv.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Self::new(&key, iv)
    }

    /// Makes the cipher of a key.
    #[must_use]
    pub fn new(key: &[u8; KEY_LEN], iv: [u8; NONCE_LEN]) -> Self {
        // A key of this length is always taken. Without one, nothing is sealed and nothing opened.
        Self { key: UnboundKey::new(&AES_128_GCM, key).ok().map(LessSafeKey::new), iv }
    }

    /// Returns the nonce of a datagram: its number, added to the last bytes of the IV without carry
    /// (SEAL-3.2).
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        let last = nonce.iter_mut().skip(NONCE_LEN - 8);
        last.zip(number.to_be_bytes()).for_each(|(byte, of_number)| *byte ^= of_number);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for AesGcm {
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8], tag: &mut [u8; TAG_LEN]) {
        let (nonce, associated) = (self.nonce(number), Aad::from(associated));
        let sealed =
            self.key.as_ref().map(|key| key.seal_in_place_separate_tag(nonce, associated, text));
        match sealed {
            Some(Ok(sealed)) => {
                tag.iter_mut().zip(sealed.as_ref()).for_each(|(to, from)| *to = *from);
            }
            // Only a text of more than 64 GiB fails. Clear text must not leave.
            _ => text.fill(0),
        }
    }

    fn open(&self, number: u64, associated: &[u8], sealed: &mut [u8]) -> bool {
        let (nonce, associated) = (self.nonce(number), Aad::from(associated));
        self.key.as_ref().is_some_and(|key| key.open_in_place(nonce, associated, sealed).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::seal::{Chain as _, DATAGRAMS_PER_KEY, ReceiveChain, SendChain};

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex
            .bytes()
            .filter_map(|digit| char::from(digit).to_digit(16).map(|d| d as u8))
            .collect();
        digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn binding() -> Binding {
        let identity = Identity { incarnation: 7, connection: 8 };
        Binding { nodes: 3, seal: 3, first: 1, second: 2, identity }
    }

    const MINE: Identity = Identity { incarnation: 9, connection: u64::MAX };

    /// SEAL-2.1, SEAL-2.3.
    #[test]
    fn members_of_a_job_agree_and_nobody_else() {
        let secret = Secret::from_bytes([1; 32]);
        let mut first = NoiseExchange::new(&secret);
        let mut second = NoiseExchange::new(&secret);
        let message = first.first(&binding()).unwrap();
        for other in [
            Binding { nodes: 4, ..binding() },
            Binding { seal: 4, ..binding() },
            Binding { first: 0, ..binding() },
            Binding { second: 3, ..binding() },
            Binding { identity: MINE, ..binding() },
        ] {
            assert!(second.second(&other, &message, MINE).is_none());
        }
        let mut stranger = NoiseExchange::new(&Secret::from_bytes([2; 32]));
        assert!(stranger.second(&binding(), &message, MINE).is_none());
        let (answer, theirs) = second.second(&binding(), &message, MINE).unwrap();
        // A wrong answer ends nothing.
        for at in [0, 40, 63] {
            let mut wrong = answer;
            wrong[at] ^= 1;
            assert!(first.finish(&wrong).is_none());
        }
        let (identity, mine) = first.finish(&answer).unwrap();
        assert_eq!(identity, MINE);
        assert_eq!((mine.send, mine.receive), (theirs.receive, theirs.send));
        assert_ne!(mine.send, mine.receive);
        assert!(first.finish(&answer).is_none(), "an answer counts once");
        // Forward secrecy: another exchange of the same processes has other secrets.
        let message = first.first(&binding()).unwrap();
        let (_, again) = second.second(&binding(), &message, MINE).unwrap();
        assert_ne!(again.send, theirs.send);
    }

    /// Test case 4 of the GCM specification (McGrew and Viega), whose key has 128 bits.
    #[test]
    fn cipher_is_aes_128_gcm() {
        let key = bytes("feffe9928665731c6d6a8f9467308308").try_into().unwrap();
        let iv: [u8; NONCE_LEN] = bytes("cafebabefacedbaddecaf888").try_into().unwrap();
        let mut text = bytes(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let plain = text.clone();
        let associated = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let cipher = AesGcm::new(&key, iv);
        let mut tag = [0; TAG_LEN];
        cipher.seal(0, &associated, &mut text, &mut tag);
        assert_eq!(
            text,
            bytes(
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                 21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
            )
        );
        assert_eq!(tag.to_vec(), bytes("5bc94fbc3221a5db94fae95ae7121a47"));
        text.extend(tag);
        assert!(cipher.open(0, &associated, &mut text));
        assert_eq!(text[..plain.len()], plain);
        // The number enters the nonce as in RFC 9001, section 5.3.
        let shifted: [u8; NONCE_LEN] = bytes("cafebabefacedbaddecaf889").try_into().unwrap();
        let mut again = plain.clone();
        AesGcm::new(&key, shifted).seal(1, &associated, &mut again, &mut tag);
        assert_eq!(tag.to_vec(), bytes("5bc94fbc3221a5db94fae95ae7121a47"));
    }

    /// RFC 5869 has no vector of one step with a 32-byte secret; this is the definition by HMAC.
    #[test]
    fn secrets_are_expanded_as_hkdf_says() {
        let secret = Secret::from_bytes([5; 32]);
        let expected = secret.mac(&[b"oikaze lane", &[1], &[1]]);
        assert_eq!(expand(&[5; 32], &[b"oikaze lane", &[1]]).expose(), &expected);
    }

    /// SEAL-3.2, SEAL-3.3, SEAL-4.1, SEAL-4.2: another implementation seals the same. The vectors
    /// are from `tools/seal_vectors.py`, by Python's `cryptography`.
    #[test]
    fn other_implementation_seals_the_same() {
        let direction: [u8; 32] = std::array::from_fn(|at| at as u8);
        let header: [u8; 24] = std::array::from_fn(|at| at as u8);
        for (lane, number, expected) in [
            (Lane::Small, 1, "6a0cdfb5cc1c5b52eaa71a01b0ed8ded65701daabf0f6ef9386fafdf55"),
            (Lane::Bulk, 5, "c4ad09f22d7672bc54e3d80299ba63469e5fb215f7dcdcd7174bdd2d96"),
            (Lane::Bulk, 4194309, "b65bbf41ec5c700299ebaaac2b2a7b498bdecb2b7abbd89e256df09616"),
            (Lane::Small, 8388608, "12121d728dc1f59da4eee045c7662c410d7d89390797b438fbeec22f28"),
        ] {
            let mut chain = SendChain::new(&Chain::new(&direction, lane));
            let mut receive = ReceiveChain::new(&Chain::new(&direction, lane));
            let epochs = number / DATAGRAMS_PER_KEY;
            for epoch in 0..=epochs {
                let number = if epoch == epochs { number } else { epoch * DATAGRAMS_PER_KEY };
                let (mut text, mut tag) = (b"remote memory".to_vec(), [0; TAG_LEN]);
                chain.cipher(number).unwrap().seal(number, &header, &mut text, &mut tag);
                text.extend(tag);
                assert!(epoch < epochs || text == bytes(expected), "number {number}");
                assert!(receive.open(number, &header, &mut text));
                assert!(text.starts_with(b"remote memory"));
            }
        }
    }

    /// SEAL-3.1: every bit of a datagram counts.
    #[test]
    fn every_changed_bit_is_found() {
        let first = Chain::new(&[3; 32], Lane::Bulk);
        let (mut send, mut receive) = (SendChain::new(&first), ReceiveChain::new(&first));
        let (header, mut text, mut tag) = ([7; 24], vec![1, 2, 3, 4, 5], [0; TAG_LEN]);
        send.cipher(9).unwrap().seal(9, &header, &mut text, &mut tag);
        text.extend(tag);
        for bit in 0..8 * (header.len() + text.len()) {
            let (mut header, mut text) = (header, text.clone());
            let byte = header.iter_mut().chain(&mut text).nth(bit / 8).unwrap();
            *byte ^= 1 << (bit % 8);
            assert!(!receive.open(9, &header, &mut text), "bit {bit}");
        }
        assert!(!receive.open(10, &header, &mut text.clone()));
        let other = Chain::new(&[3; 32], Lane::Small);
        assert!(!ReceiveChain::new(&other).open(9, &header, &mut text.clone()));
        assert!(receive.open(9, &header, &mut text));
        assert_eq!(text[..5], [1, 2, 3, 4, 5]);
        assert_ne!(first.next().0, first.0);
    }
}
