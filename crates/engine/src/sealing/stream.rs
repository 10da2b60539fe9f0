//! Keys of one multicast stream, by which its sender seals and a member opens (SEAL-8).

use super::session::{SealingKeys, open_datagram, seal_datagram};
use oikaze_os::secrets::key_log::KeyLog;
use oikaze_os::secrets::seal::Chain;
use oikaze_protocol::seal::{ReceiveChain, SendChain, StreamIdentity, StreamSecret};
use oikaze_protocol::wind::Lane;
use oikaze_protocol::wire::{SealKind, View};

/// Keys of the sender.
pub(crate) struct StreamSendKeys(SendChain<Chain>);

/// Keys of a member.
pub(crate) struct StreamReceiveKeys(ReceiveChain<Chain>);

impl StreamSendKeys {
    pub fn new(stream: &StreamIdentity, secret: &StreamSecret) -> Self {
        Self(SendChain::new(&Chain::of_stream(stream, secret)))
    }
}

impl SealingKeys for StreamSendKeys {
    /// A stream has one space of numbers, whatever the lane.
    fn seal(&mut self, kind: SealKind, _: Lane, number: u64, datagram: &mut [u8]) -> bool {
        seal_datagram(&mut self.0, kind, number, datagram)
    }
}

impl StreamReceiveKeys {
    pub fn new(stream: &StreamIdentity, secret: &StreamSecret) -> Self {
        Self(ReceiveChain::new(&Chain::of_stream(stream, secret)))
    }

    /// Opens a datagram, as [`Session::open`](super::session::Session::open).
    #[must_use]
    pub fn open<'o>(
        &mut self,
        kind: SealKind,
        view: View<'o>,
        datagram: &[u8],
        opened: &'o mut Vec<u8>,
    ) -> Option<View<'o>> {
        open_datagram(&mut self.0, kind, view, datagram, opened)
    }
}

/// Writes the keys of a stream to a log (SEAL-6.1). Each node that has them may do so.
pub(crate) fn write_down(stream: &StreamIdentity, secret: &StreamSecret, log: &KeyLog) {
    log.write(stream.cipher, stream.id, Lane::Bulk, &Chain::of_stream(stream, secret));
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::limits::DATAGRAM_MIN;
    use oikaze_protocol::seal::{CipherKind, DATAGRAMS_PER_KEY, TAG_LEN};
    use oikaze_protocol::wire::Builder;

    fn sealed(keys: &mut StreamSendKeys, kind: SealKind, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 9, number, kind, DATAGRAM_MIN);
        builder.ping();
        builder.finish(None);
        bytes.resize(bytes.len() + TAG_LEN, 0);
        assert!(keys.seal(kind, Lane::Bulk, number, &mut bytes));
        bytes
    }

    /// SEAL-8.2, SEAL-8.3: every member opens what the sender seals, and no datagram of an epoch
    /// that is long over or of another stream.
    #[test]
    fn datagrams_of_the_stream_open_and_no_others() {
        for kind in [SealKind::Encrypted, SealKind::Authenticated] {
            let stream = StreamIdentity { id: 9, sender: 1, cipher: CipherKind::Aes128Gcm };
            let secret = StreamSecret::from_bytes([4; 32]);
            let mut sender = StreamSendKeys::new(&stream, &secret);
            let member = |stream: &StreamIdentity| StreamReceiveKeys::new(stream, &secret);
            let opens = |keys: &mut StreamReceiveKeys, bytes: &Vec<u8>| {
                keys.open(kind, View::parse(bytes).unwrap(), bytes, &mut Vec::new()).is_some()
            };
            let datagrams: Vec<Vec<u8>> = (0..4)
                .map(|epoch| sealed(&mut sender, kind, epoch * DATAGRAMS_PER_KEY + 1))
                .collect();
            for keys in &mut [member(&stream), member(&stream)] {
                assert!(datagrams.iter().all(|datagram| opens(keys, datagram)));
                assert!(!opens(keys, &datagrams[0]) && !opens(keys, &datagrams[1]));
                let mut changed = datagrams[3].clone();
                *changed.last_mut().unwrap() ^= 1;
                assert!(!opens(keys, &changed) && opens(keys, &datagrams[3]));
            }
            let other = StreamIdentity { id: 8, ..stream };
            assert!(!opens(&mut member(&other), &datagrams[0]));
        }
    }
}
