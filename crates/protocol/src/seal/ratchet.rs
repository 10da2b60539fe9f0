//! Change of keys without negotiation (SEAL-4.1, SEAL-4.3). The datagram number tells the epoch,
//! and each epoch has a key of its own.

use super::{Chain, Cipher};

/// Number of datagram numbers that share a key: 2²², at most 34 GB of datagrams.
pub const DATAGRAMS_PER_KEY: u64 = 1 << 22;

const fn epoch_of(number: u64) -> u64 {
    number / DATAGRAMS_PER_KEY
}

/// Keys by which one lane of a connection seals.
#[derive(Debug)]
pub struct SendChain<C: Chain> {
    epoch: u64,
    cipher: C::Cipher,
    /// Secret of the epoch after this one.
    next: C,
}

impl<C: Chain> SendChain<C> {
    /// Begins with the secret of epoch 0.
    #[must_use]
    pub fn new(first: &C) -> Self {
        Self { epoch: 0, cipher: first.cipher(), next: first.next() }
    }

    /// Returns the cipher for the datagram of this number. Numbers do not fall from call to call,
    /// and skip no epoch; otherwise there is no cipher.
    pub fn cipher(&mut self, number: u64) -> Option<&C::Cipher> {
        let epoch = epoch_of(number);
        if epoch == self.epoch + 1 {
            self.cipher = self.next.cipher();
            self.next = self.next.next();
            self.epoch = epoch;
        }
        (epoch == self.epoch).then_some(&self.cipher)
    }
}

/// Keys by which one lane of a connection opens.
#[derive(Debug)]
pub struct ReceiveChain<C: Chain> {
    /// Latest epoch of which a datagram was authentic.
    epoch: u64,
    before: Option<C::Cipher>,
    cipher: C::Cipher,
    after: C::Cipher,
    /// Secret of the epoch after `after`.
    next: C,
}

impl<C: Chain> ReceiveChain<C> {
    /// Begins with the secret of epoch 0.
    #[must_use]
    pub fn new(first: &C) -> Self {
        let second = first.next();
        Self {
            epoch: 0,
            before: None,
            cipher: first.cipher(),
            after: second.cipher(),
            next: second.next(),
        }
    }

    /// Opens a datagram in place ([`Cipher::open`]). Returns `false` if it is not authentic, or of
    /// an epoch other than the current one, the one before and the one after (SEAL-4.3).
    #[must_use]
    pub fn open(&mut self, number: u64, associated: &[u8], sealed: &mut [u8]) -> bool {
        let epoch = epoch_of(number);
        if epoch == self.epoch {
            return self.cipher.open(number, associated, sealed);
        }
        if epoch == self.epoch + 1 {
            let is_authentic = self.after.open(number, associated, sealed);
            if is_authentic {
                self.advance();
            }
            return is_authentic;
        }
        let before = self.before.as_ref().filter(|_| epoch + 1 == self.epoch);
        before.is_some_and(|cipher| cipher.open(number, associated, sealed))
    }

    /// Moves on by one epoch. The oldest key is dropped.
    fn advance(&mut self) {
        let after = core::mem::replace(&mut self.after, self.next.cipher());
        self.before = Some(core::mem::replace(&mut self.cipher, after));
        self.next = self.next.next();
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cipher, TAG_LEN};
    use super::*;
    use crate::random::Random;
    use alloc::vec::Vec;

    /// Chain whose secret is its epoch. Its cipher marks a text with that epoch.
    #[derive(Debug)]
    struct Counted(u64);

    impl Cipher for Counted {
        fn seal(&self, number: u64, _: &[u8], text: &mut [u8], tag: &mut [u8; TAG_LEN]) {
            text.iter_mut().for_each(|byte| *byte ^= self.0 as u8);
            tag[..8].copy_from_slice(&self.0.to_le_bytes());
            tag[8..].copy_from_slice(&number.to_le_bytes());
        }

        fn open(&self, number: u64, _: &[u8], sealed: &mut [u8]) -> bool {
            let (text, tag) = sealed.split_at_mut(sealed.len() - TAG_LEN);
            text.iter_mut().for_each(|byte| *byte ^= self.0 as u8);
            tag[..8] == self.0.to_le_bytes() && tag[8..] == number.to_le_bytes()
        }
    }

    impl Chain for Counted {
        type Cipher = Counted;

        fn cipher(&self) -> Counted {
            Counted(self.0)
        }

        fn next(&self) -> Counted {
            Counted(self.0 + 1)
        }
    }

    fn sealed(chain: &mut SendChain<Counted>, number: u64) -> Vec<u8> {
        let (mut text, mut tag) = (alloc::vec![1, 2, 3], [0; TAG_LEN]);
        chain.cipher(number).unwrap().seal(number, &[], &mut text, &mut tag);
        text.extend(tag);
        text
    }

    /// SEAL-4.1, SEAL-4.3: a sender with loss, delay and reordering of up to an epoch. A receiver
    /// that knows only the numbers of what it accepted opens exactly what the clause says.
    #[test]
    fn datagrams_of_three_epochs_are_opened() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut send = SendChain::new(&Counted(0));
            let mut receive = ReceiveChain::new(&Counted(0));
            let (mut number, mut latest, mut waiting) = (1u64, 0u64, Vec::new());
            for _ in 0..400 {
                // Numbers grow by up to three quarters of an epoch, so that none is skipped.
                number += 1 + random.below(DATAGRAMS_PER_KEY as usize * 3 / 4) as u64;
                waiting.push((number, sealed(&mut send, number)));
                while !waiting.is_empty() && random.below(3) > 0 {
                    let at = random.below(waiting.len());
                    let (number, mut bytes) = waiting.swap_remove(at);
                    if random.below(4) == 0 {
                        continue;
                    }
                    let epoch = number / DATAGRAMS_PER_KEY;
                    let must = epoch.abs_diff(latest) <= 1;
                    assert_eq!(receive.open(number, &[], &mut bytes), must, "seed {seed}");
                    if must {
                        assert_eq!(bytes[..3], [1, 2, 3]);
                        latest = latest.max(epoch);
                    }
                    // A wrong tag of the next epoch moves nothing.
                    let forged = (latest + 1) * DATAGRAMS_PER_KEY;
                    assert!(!receive.open(forged, &[], &mut [0; 24]));
                }
            }
        }
    }

    #[test]
    fn sender_has_no_cipher_for_a_past_epoch_or_a_skipped_one() {
        let mut chain = SendChain::new(&Counted(0));
        assert!(chain.cipher(2 * DATAGRAMS_PER_KEY).is_none());
        assert!(chain.cipher(DATAGRAMS_PER_KEY).is_some());
        assert!(chain.cipher(DATAGRAMS_PER_KEY - 1).is_none());
    }
}
