//! Keys of one connection, by which its datagrams are sealed and opened (SEAL-2.5, SEAL-3.1).

use oikaze_os::secrets::key_log::KeyLog;
use oikaze_os::secrets::protected::Protected;
use oikaze_os::secrets::seal::Chain;
use oikaze_protocol::limits::HEADER_LEN;
use oikaze_protocol::seal::{Cipher, CipherKind, ReceiveChain, SendChain, SessionSecrets, TAG_LEN};
use oikaze_protocol::wind::{Lane, PerLane};
use oikaze_protocol::wire::{SealKind, View};

/// Keys of one connection.
pub(crate) struct Session {
    /// Id of the connection to which the keys belong. After the peer has restarted, the connection
    /// has another id, numbers begin anew, and these keys must not be used.
    connection: u64,
    cipher: CipherKind,
    send: PerLane<SendChain<Chain>>,
    receive: PerLane<ReceiveChain<Chain>>,
}

impl Session {
    pub fn new(connection: u64, secrets: &SessionSecrets) -> Self {
        let SessionSecrets { cipher, send, receive } = secrets;
        Self {
            connection,
            cipher: *cipher,
            send: PerLane::each(|lane| SendChain::new(&Chain::new(*cipher, send, lane))),
            receive: PerLane::each(|lane| ReceiveChain::new(&Chain::new(*cipher, receive, lane))),
        }
    }

    /// Returns the latest keys if they belong to this connection.
    pub fn of(latest: &mut Option<Protected<Session>>, connection: u64) -> Option<&mut Session> {
        latest.as_deref_mut().filter(|session| session.connection == connection)
    }

    /// Returns the cipher of the connection.
    pub fn cipher(&self) -> CipherKind {
        self.cipher
    }

    /// Opens a datagram. One that is encrypted is opened into `opened`, which afterwards holds all
    /// of it in clear. Returns `None` if the datagram is not authentic.
    #[must_use]
    pub fn open<'o>(
        &mut self,
        kind: SealKind,
        view: View<'o>,
        datagram: &[u8],
        opened: &'o mut Vec<u8>,
    ) -> Option<View<'o>> {
        let chain = &mut self.receive[view.header().lane()];
        open_datagram(chain, kind, view, datagram, opened)
    }
}

/// Keys that seal datagrams.
pub(crate) trait SealingKeys {
    /// Seals a whole datagram, whose last bytes are room for the tag. Returns `false` if it cannot
    /// be sealed.
    #[must_use]
    fn seal(&mut self, kind: SealKind, lane: Lane, number: u64, datagram: &mut [u8]) -> bool;
}

impl SealingKeys for Session {
    fn seal(&mut self, kind: SealKind, lane: Lane, number: u64, datagram: &mut [u8]) -> bool {
        seal_datagram(&mut self.send[lane], kind, number, datagram)
    }
}

/// Seals a whole datagram by the keys of a chain.
#[must_use]
pub(super) fn seal_datagram(
    chain: &mut SendChain<Chain>,
    kind: SealKind,
    number: u64,
    datagram: &mut [u8],
) -> bool {
    let Some((covered, tag)) = datagram.split_last_chunk_mut::<TAG_LEN>() else { return false };
    let Some((header, text)) = split_mut(kind, covered) else { return false };
    let Some(cipher) = chain.cipher(number) else { return false };
    cipher.seal(number, header, text, tag);
    true
}

/// Opens a datagram by the keys of a chain, as [`Session::open`].
#[must_use]
pub(super) fn open_datagram<'o>(
    chain: &mut ReceiveChain<Chain>,
    kind: SealKind,
    view: View<'o>,
    datagram: &[u8],
    opened: &'o mut Vec<u8>,
) -> Option<View<'o>> {
    let number = view.header().number;
    if kind != SealKind::Encrypted {
        // Opening leaves nothing of a tag that it was given.
        let (covered, tag) = datagram.split_last_chunk::<TAG_LEN>()?;
        return chain.open(number, covered, &mut { *tag }).then_some(view);
    }
    opened.clear();
    opened.extend_from_slice(datagram);
    let (header, sealed) = opened.split_at_mut_checked(HEADER_LEN)?;
    if chain.open(number, header, sealed) { View::parse(opened).ok() } else { None }
}

/// Writes the keys of a connection to a log (SEAL-6.1): what the peer seals for the id `mine`, and
/// what this node seals for the peer's id, if that is known.
pub(crate) fn write_down(secrets: &SessionSecrets, mine: u64, theirs: Option<u64>, log: &KeyLog) {
    for lane in [Lane::Small, Lane::Bulk] {
        let chain = |direction| Chain::new(secrets.cipher, direction, lane);
        log.write(secrets.cipher, mine, lane, &chain(&secrets.receive));
        if let Some(theirs) = theirs {
            log.write(secrets.cipher, theirs, lane, &chain(&secrets.send));
        }
    }
}

/// Splits a datagram without its tag into what is only authenticated and what is encrypted.
fn split_mut(kind: SealKind, covered: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    let clear = if kind == SealKind::Encrypted { HEADER_LEN } else { covered.len() };
    covered.split_at_mut_checked(clear)
}

#[cfg(test)]
mod tests {
    use super::{SealingKeys, Session};
    use oikaze_protocol::limits::DATAGRAM_MIN;
    use oikaze_protocol::seal::{CipherKind, DATAGRAMS_PER_KEY, SessionSecrets, TAG_LEN};
    use oikaze_protocol::wind::Lane;
    use oikaze_protocol::wire::{Builder, SealKind, View};

    /// Connection to which the keys belong.
    const ID: u64 = 9;

    fn sealed(session: &mut Session, kind: SealKind, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, ID, number, kind, DATAGRAM_MIN);
        builder.ping();
        builder.finish(None);
        bytes.resize(bytes.len() + TAG_LEN, 0);
        assert!(session.seal(kind, Lane::Small, number, &mut bytes));
        bytes
    }

    /// SEAL-4.3, SEAL-5.1: datagrams that are held up for more than an epoch, or replayed after it,
    /// no longer open. Those of the epoch before do, in any order.
    #[test]
    fn datagrams_of_old_epochs_do_not_open() {
        for kind in [SealKind::Encrypted, SealKind::Authenticated] {
            let secrets = |send, receive| SessionSecrets {
                cipher: CipherKind::Aes128Gcm,
                send: [send; 32],
                receive: [receive; 32],
            };
            let mut sender = Session::new(ID, &secrets(1, 2));
            let mut receiver = Session::new(ID, &secrets(2, 1));
            let mut opens = |bytes: &Vec<u8>| {
                let view = View::parse(bytes).unwrap();
                receiver.open(kind, view, bytes, &mut Vec::new()).is_some()
            };
            let of_epoch: Vec<[Vec<u8>; 2]> = (0..5)
                .map(|epoch| {
                    [5, 6].map(|at| sealed(&mut sender, kind, epoch * DATAGRAMS_PER_KEY + at))
                })
                .collect();
            assert!(opens(&of_epoch[0][1]) && opens(&of_epoch[0][0]));
            assert!(!opens(&of_epoch[2][0]), "an epoch was skipped");
            assert!(opens(&of_epoch[1][0]) && opens(&of_epoch[0][1]), "the epoch before");
            assert!(opens(&of_epoch[2][0]) && opens(&of_epoch[1][1]));
            assert!(!opens(&of_epoch[0][0]) && !opens(&of_epoch[0][1]), "two epochs before");
            assert!(opens(&of_epoch[3][0]) && opens(&of_epoch[4][0]));
            assert!(of_epoch[..3].iter().flatten().all(|bytes| !opens(bytes)), "old epochs");
        }
    }
}
