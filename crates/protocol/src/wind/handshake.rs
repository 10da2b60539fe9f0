//! Handshake with the peer (WIND-1). It is symmetric: both sides may begin at once, and any
//! datagram may be lost.
//!
//! A node is *established* when it knows the peer's id and the peer has shown that it knows the
//! node's id. A HELLO that says so shows it, as does any datagram with the node's id. A node that
//! is not established repeats its HELLO and asks for an answer, and an established node answers. So
//! no loss can leave one side waiting forever.

use super::death::HandshakeRefusal;
use super::keys::Keys;
use crate::Rank;
use crate::limits::{HELLO_INTERVAL_MAX, HELLO_INTERVAL_MIN};
use crate::random::mix;
use crate::seal::KeyStep;
use crate::time::Time;
use crate::wire::build::Builder;
use crate::wire::hello::{Cookie, CookieReply, Hello, Introduction, Misfit, Refuse, Shown};
use crate::wire::seal::SealKind;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

/// Effect of a handshake frame (WIND-1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    /// The frame is from an earlier incarnation.
    Stale,
    Established,
    /// The peer is a newer process, and the connection begins anew. `was_established` tells whether
    /// the connection to the older process was established.
    Restarted {
        incarnation: u64,
        was_established: bool,
    },
    Misfit(HandshakeRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeState {
    Idle,
    Calling,
    Established,
}

#[derive(Debug)]
pub(super) struct Handshake {
    pub me: Introduction,
    peer: Rank,
    paths: u8,
    state: HandshakeState,
    pub them: Option<Introduction>,
    /// Number of the peer's latest HELLO.
    heard: u64,
    /// Number of the peer's own path that brought its latest HELLO.
    their_path: u8,
    /// Path to the peer. Once established, this path is proven. Before, it is the path by which the
    /// peer's latest HELLO came.
    pub path: Option<u8>,
    began: Time,
    next_hello: Option<Time>,
    interval: Duration,
    rotation: u8,
    /// Path on which a HELLO is due as an answer.
    answer: Option<u8>,
    /// REFUSE that is due, and its path.
    refuse: Option<(Refuse, u8)>,
    number: u64,
    /// Latest cookie that the peer demanded, and the number of the HELLO for which it did.
    cookie: Option<(Cookie, u64)>,
    /// Key exchange, if the kind of seal needs keys.
    pub keys: Option<Box<Keys>>,
}

impl Handshake {
    pub fn new(me: Introduction, peer: Rank, paths: u8, now: Time) -> Handshake {
        Handshake {
            me,
            peer,
            paths: paths.max(1),
            state: HandshakeState::Idle,
            them: None,
            heard: 0,
            their_path: 0,
            path: None,
            began: now,
            next_hello: None,
            interval: HELLO_INTERVAL_MIN,
            rotation: 0,
            answer: None,
            refuse: None,
            number: 0,
            cookie: None,
            keys: None,
        }
    }

    /// Copies the state, except for keys.
    #[cfg(test)]
    pub fn without_keys(&self) -> Handshake {
        Handshake { keys: None, ..*self }
    }

    pub fn is_established(&self) -> bool {
        self.state == HandshakeState::Established
    }

    pub fn is_calling(&self) -> bool {
        self.state == HandshakeState::Calling
    }

    /// Returns when the handshake began.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Starts the handshake, unless it has begun.
    pub fn call(&mut self, now: Time) {
        if self.state == HandshakeState::Idle {
            self.state = HandshakeState::Calling;
            self.restart_timer(now);
        }
    }

    fn restart_timer(&mut self, now: Time) {
        self.began = now;
        self.interval = HELLO_INTERVAL_MIN;
        self.next_hello = Some(now);
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.next_hello
    }

    /// Returns `true` if this HELLO is the latest of a process at least as new as the known one
    /// (WIND-1.7). An earlier HELLO may be a replay by anybody who has seen it (WIND-1.9,
    /// SEAL-5.2).
    pub fn is_fresh(&self, hello: &Hello, number: u64) -> bool {
        let mine = &hello.mine;
        // A HELLO between two other nodes, which anybody can repeat here, concerns nobody here.
        hello.to.is_none_or(|to| to == self.me.rank)
            && self.them.is_none_or(|them| match mine.incarnation.cmp(&them.incarnation) {
                Ordering::Less => false,
                Ordering::Greater => true,
                // A process takes another id when it learns that this one is new, and therefore
                // before establishment. Its numbers grow all the same.
                Ordering::Equal => {
                    number > self.heard
                        && (mine.connection == them.connection
                            || self.state != HandshakeState::Established)
                }
            })
    }

    /// Returns what the HELLO shows of this node, if its sender has heard this node.
    fn shown(&self, hello: &Hello) -> Option<Shown> {
        hello.yours.filter(|yours| {
            yours.connection == self.me.connection && yours.incarnation == self.me.incarnation
        })
    }

    /// Processes a HELLO with this number that came on `path`.
    pub fn hello(&mut self, now: Time, hello: &Hello, number: u64, path: u8) -> Heard {
        if !self.is_fresh(hello, number) {
            return Heard::Stale;
        }
        if let Some(misfit) = self.misfit(hello) {
            let HandshakeRefusal { misfit: what, mine, theirs, .. } = misfit;
            let incarnation = hello.mine.incarnation;
            self.refuse = Some((
                Refuse { rank: self.me.rank, misfit: what, mine, yours: theirs, incarnation },
                path,
            ));
            return Heard::Misfit(misfit);
        }
        let shows_me = self.shown(hello);
        let heard = match self.them {
            Some(them) if hello.mine.incarnation > them.incarnation => self.begin_anew(now, hello),
            _ => Heard::Nothing,
        };
        let is_keyed = match &mut self.keys {
            Some(keys) if self.state != HandshakeState::Established => keys.heard(&self.me, hello),
            _ => self.state == HandshakeState::Established || !self.needs_keys(),
        };
        self.them = Some(hello.mine);
        self.heard = number;
        self.their_path = hello.path;
        if self.state != HandshakeState::Established {
            self.path = Some(path);
        }
        self.call(now);
        if hello.answer_wanted {
            self.answer = Some(path);
        }
        match shows_me {
            Some(shown)
                if self.state == HandshakeState::Calling && heard == Heard::Nothing && is_keyed =>
            {
                // This path is proven outward, not only inward.
                self.establish(shown.path);
                Heard::Established
            }
            _ => heard,
        }
    }

    /// Called when a datagram with this node's id came on `path`, which shows that the peer knows
    /// this node. Returns `true` if that establishes the connection.
    pub fn proven(&mut self, path: u8) -> bool {
        let news = self.state == HandshakeState::Calling
            && self.them.is_some()
            && self.keys.as_ref().map_or(!self.needs_keys(), |keys| keys.are_known());
        if news {
            self.establish(path);
        }
        news
    }

    fn establish(&mut self, path: u8) {
        self.state = HandshakeState::Established;
        self.path = Some(path);
        self.next_hello = None;
    }

    /// Returns the effect of a REFUSE, which counts only if it answers the current handshake of
    /// this process.
    pub fn refused(&self, refuse: &Refuse) -> Heard {
        if refuse.rank != self.peer
            || refuse.incarnation != self.me.incarnation
            || self.state != HandshakeState::Calling
        {
            return Heard::Stale;
        }
        Heard::Misfit(HandshakeRefusal::from_frame(refuse))
    }

    /// Returns `true` if the demand is for a HELLO of this process, sent after the one for which it
    /// has a cookie.
    pub fn expects(&self, reply: &CookieReply) -> bool {
        let known = self.cookie.map_or(0, |(_, number)| number);
        reply.rank == self.peer
            && reply.incarnation == self.me.incarnation
            && reply.number > known
            && reply.number <= self.number
    }

    /// Processes a demand for a cookie that is [expected](Self::expects) (WIND-10.6). The HELLO is
    /// repeated at once: on the path by which the demand came, or, if that is unknown, on all.
    pub fn cookie_demanded(&mut self, now: Time, reply: &CookieReply, path: Option<u8>) {
        if self.expects(reply) {
            self.cookie = Some((reply.cookie, reply.number));
            self.answer = path.or(self.answer);
            if path.is_none() && self.state == HandshakeState::Calling {
                self.next_hello = Some(now);
            }
        }
    }

    /// Begins anew with a new id, because datagrams of the older process carry the old id
    /// (WIND-1.6).
    fn begin_anew(&mut self, now: Time, hello: &Hello) -> Heard {
        let was_established = self.state == HandshakeState::Established;
        self.me.connection = successor(self.me.connection, hello.mine.incarnation);
        self.state = HandshakeState::Calling;
        self.path = None;
        if let Some(keys) = &mut self.keys {
            keys.begin_anew(&self.me);
        }
        self.restart_timer(now);
        Heard::Restarted { incarnation: hello.mine.incarnation, was_established }
    }

    /// Returns the first difference (WIND-1.5, SEAL-1.2), in an order in which the first explains
    /// the most.
    fn misfit(&self, hello: &Hello) -> Option<HandshakeRefusal> {
        let (me, them) = (&self.me, &hello.mine);
        // (WIRE-6.5)
        if me.versions.common(them.versions).is_none() {
            let (misfit, mine, theirs) =
                (Misfit::Version, me.versions.word(), them.versions.word());
            return Some(HandshakeRefusal { misfit, mine, theirs, by_peer: false });
        }
        let pairs = [
            (Misfit::Nodes, u64::from(me.nodes), u64::from(them.nodes)),
            (Misfit::PageSize, u64::from(me.page_size), u64::from(them.page_size)),
            (Misfit::ByteOrder, u64::from(me.byte_order), u64::from(them.byte_order)),
            (Misfit::Architecture, u64::from(me.architecture), u64::from(them.architecture)),
            (Misfit::Seal, u64::from(me.seal), u64::from(them.seal)),
        ];
        let (misfit, mine, theirs) = pairs.into_iter().find(|(_, mine, theirs)| mine != theirs)?;
        Some(HandshakeRefusal { misfit, mine, theirs, by_peer: false })
    }

    /// Returns `true` if the kind of seal needs keys.
    fn needs_keys(&self) -> bool {
        SealKind::from_code(self.me.seal).is_some_and(SealKind::is_keyed)
    }

    /// Returns `true` if a REFUSE is due.
    pub fn owes_refusal(&self) -> bool {
        self.refuse.is_some()
    }

    pub fn has_due(&self, now: Time) -> bool {
        self.refuse.is_some()
            || self.answer.is_some()
            || self.next_hello.is_some_and(|at| at <= now)
    }

    /// Appends a due handshake datagram and returns the path for it.
    pub fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> Option<u8> {
        if let Some((refuse, path)) = self.refuse.take() {
            self.datagram(into, |builder| builder.refuse(&refuse));
            return Some(path);
        }
        let path = match self.answer.take() {
            Some(path) => path,
            None => self.call_again(now)?,
        };
        let yours = self.them.map(|them| Shown {
            connection: them.connection,
            incarnation: them.incarnation,
            path: self.their_path,
        });
        let answer_wanted = self.state != HandshakeState::Established;
        let key = self.keys.as_ref().map_or(KeyStep::Nothing, |keys| keys.step());
        let (mine, to, cookie) = (self.me, Some(self.peer), self.cookie.map(|(cookie, _)| cookie));
        let hello = Hello { mine, to, path, yours, answer_wanted, key, cookie };
        self.datagram(into, |builder| builder.hello(&hello));
        Some(path)
    }

    /// Returns the next candidate path, if a HELLO is due (WIND-1.4).
    fn call_again(&mut self, now: Time) -> Option<u8> {
        self.next_hello.filter(|at| *at <= now)?;
        let path = self.rotation % self.paths;
        self.rotation = (path + 1) % self.paths;
        // The first round over all candidates has no pauses; the rounds after it back off.
        if self.rotation == 0 {
            self.next_hello = Some(now + self.interval);
            self.interval = (self.interval * 2).min(HELLO_INTERVAL_MAX);
        }
        Some(path)
    }

    fn datagram(&mut self, into: &mut Vec<u8>, write: impl FnOnce(&mut Builder<'_>)) {
        self.number += 1;
        let mut builder =
            Builder::new(into, 0, self.number, SealKind::Handshake, crate::limits::DATAGRAM_MIN);
        write(&mut builder);
        builder.finish(None);
    }
}

/// Returns an id for the next incarnation, from the last id (which is random and known to few
/// nodes) and the new incarnation, by SplitMix64's finaliser.
fn successor(id: u64, incarnation: u64) -> u64 {
    mix(id ^ incarnation.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15).max(1)
}
