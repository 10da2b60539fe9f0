//! Admission of connections at the store's port. They are accepted at once and authenticated, and
//! closed when too many are not authenticated yet (WIND-11.5).

use super::super::places::Claim;
use super::super::protocol::{Greeting, NONCE_LEN, Proof, VERSION, Verdict};
use super::super::seal::{self, FrameSeal, FrameWriter};
use super::super::table::Table;
use super::{Connection, ConnectionPhase, Doors};
use oikaze_os::secrets::secret::Secret;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::time::Duration;

/// Time within which a connection must prove the job's secret.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Maximum number of connections that are not authenticated yet; see [`unauthenticated_max`].
const UNAUTHENTICATED_MAX: usize = 512;
/// Lower bound of the limit on connections that are not authenticated yet.
const UNAUTHENTICATED_MIN: usize = 16;
/// Age up to which a connection is not closed in favour of another one: some round trips.
const SAFE_TIME: Duration = Duration::from_millis(150);
/// Maximum number of connections accepted in one turn, so that those accepted before are read in
/// between.
const ACCEPTED_MAX: usize = 64;
/// Time without accepting connections after the system had no room for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of connections that wait in the kernel's queue; `net.core.somaxconn` bounds it
/// too.
const QUEUE_MAX: i32 = 4096;

/// Lets many connections wait for `accept`, because the standard library asks for 128.
pub(super) fn lengthen_queue(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, QUEUE_MAX)?)
}

/// Returns a quarter of the descriptors that this process may open. The others are for nodes, their
/// output and their connections.
pub(super) fn unauthenticated_max() -> usize {
    let descriptors =
        getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    descriptors.map_or(UNAUTHENTICATED_MAX, |descriptors| {
        (descriptors / 4).clamp(UNAUTHENTICATED_MIN, UNAUTHENTICATED_MAX)
    })
}

impl Doors {
    /// Accepts connections that wait. Above the limit, they replace older ones that are not
    /// authenticated yet.
    pub(super) fn accept(&mut self, now: Duration) {
        if self.paused_until > now {
            return;
        }
        for _ in 0..ACCEPTED_MAX {
            if !self.make_room(now) {
                return;
            }
            let (stream, from) = match self.listener.accept() {
                Ok((stream, from)) => (stream, from.ip()),
                Err(why) => match why.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // Perhaps no descriptor is left. Asking again at once would be asking always.
                    _ => {
                        self.paused_until = now + ACCEPT_PAUSE;
                        return;
                    }
                },
            };
            let mut nonce = [0; NONCE_LEN];
            let ready = stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok();
            if !ready || getrandom::fill(&mut nonce).is_err() {
                continue;
            }
            let greeting = Greeting { version: VERSION, nonce };
            let unsent = seal::plain(&greeting.encode());
            let phase = ConnectionPhase::Unauthenticated(greeting, now + HANDSHAKE_TIME);
            self.connections.push(Connection {
                stream,
                from,
                accepted: now,
                phase,
                read: Vec::new(),
                unsent,
                closed: false,
            });
        }
    }

    /// Closes a connection if too many are not authenticated: the oldest of the address that has
    /// most. Returns `false` if all are too young. Then no connection is accepted until the oldest
    /// is old enough.
    fn make_room(&mut self, now: Duration) -> bool {
        let is_unauthenticated =
            |one: &&Connection| !matches!(one.phase, ConnectionPhase::Node(..)) && !one.closed;
        let mut unauthenticated: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.connections.iter().filter(is_unauthenticated) {
            *unauthenticated.entry(connection.from).or_default() += 1;
        }
        if unauthenticated.values().sum::<usize>() < self.unauthenticated_max {
            return true;
        }
        let Some((&most, _)) = unauthenticated.iter().max_by_key(|(_, count)| **count) else {
            return true;
        };
        // Connections stand in the order in which they came.
        let oldest =
            self.connections.iter_mut().find(|one| one.from == most && is_unauthenticated(&&**one));
        match oldest {
            Some(oldest) if now < oldest.accepted + SAFE_TIME => {
                self.paused_until = oldest.accepted + SAFE_TIME;
                false
            }
            Some(oldest) => {
                oldest.closed = true;
                true
            }
            None => true,
        }
    }
}

/// Verifies the proof of a connection. Returns its next phase, and the answer.
pub(super) fn judge(
    content: &[u8],
    greeting: &Greeting,
    now: Duration,
    secret: &Secret,
    table: &mut Table,
) -> (ConnectionPhase, Verdict) {
    let refused =
        |mac, why| (ConnectionPhase::Leaving(now + HANDSHAKE_TIME), Verdict::Refused { mac, why });
    let unproven = [0; 32];
    let proof = match Proof::decode(content) {
        Ok(Ok(proof)) => proof,
        Ok(Err(theirs)) => {
            let why = format!(
                "it speaks version {theirs} of the store's protocol, the launcher {VERSION}: build both from one release"
            );
            return refused(unproven, why);
        }
        Err(why) => return refused(unproven, why.to_string()),
    };
    if !proof.verify(secret, greeting) {
        return refused(
            unproven,
            "it does not know this job's secret (OIKAZE_SECRET is of another job)".into(),
        );
    }
    let claim = Claim { process: proof.process, attempt: proof.attempt };
    if let Err(why) = table.connect(proof.rank, proof.size, claim) {
        return refused(proof.refusal(secret, greeting, &why), why);
    }
    let key = proof.session(secret, greeting);
    let seals = (FrameSeal::new(&key, FrameWriter::Node), FrameSeal::new(&key, FrameWriter::Store));
    (
        ConnectionPhase::Node(proof.rank, claim, Box::new(seals)),
        Verdict::Welcome(proof.answer(secret, greeting)),
    )
}
