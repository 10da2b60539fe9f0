//! State of collectives on one node: those that it has called, arrivals at them, and nodes that
//! leave (COH-6).

use crate::Rank;
use crate::coherence::clock::epoch::{Clock, CollectiveProgress};
use crate::coherence::clock::moves::Moves;
use crate::coherence::clock::vector::Vector;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::arrivals::Gather;
use crate::coherence::gathering::departure::Departure;
use crate::coherence::pages::number_set::NumberSet;
use crate::wind::Token;
use alloc::collections::{BTreeMap, VecDeque};

/// The collective that this node is in.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct CurrentCollective {
    pub call: Call,
    pub token: Token,
    /// Number of the last interval that this node reported when it arrived.
    pub reported: u64,
    /// Vector time of this node when it arrived.
    pub known: Option<Vector>,
    /// Number of updates sent to each node in the epoch that the collective ends (COH-10.7).
    pub counts: BTreeMap<Rank, u64>,
    /// Arrays that this node had dropped when its interval was closed (COH-14.2).
    pub dropped: NumberSet,
    /// The departure, once it is here.
    pub departure: Option<Departure>,
}

/// Collectives on one node.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Collectives {
    /// Calls that have not begun.
    pub queue: VecDeque<(Call, Token)>,
    pub current: Option<CurrentCollective>,
    /// Arrivals at collectives, and this node's place in the tree.
    pub gather: Gather,
    /// `true` once this node has told the others that it leaves.
    pub has_announced: bool,
    /// Token of this node's own *leave*, until the nodes below have the last departure.
    pub leaving: Option<Token>,
    /// Moves of homes that the second round is about (COH-11.2).
    pub proposed: Moves,
    /// `true` until the second round has begun here.
    pub repeats: bool,
}

impl Collectives {
    pub fn new(me: Rank, nodes: u32) -> Collectives {
        Collectives {
            queue: VecDeque::new(),
            current: None,
            gather: Gather::new(me, nodes),
            has_announced: false,
            leaving: None,
            proposed: Moves::default(),
            repeats: false,
        }
    }

    pub fn call(&mut self, call: Call, token: Token) {
        self.queue.push_back((call, token));
    }

    /// Called when nobody waits for this collective any longer. It goes on, because other nodes
    /// wait for it.
    pub fn cancel(&mut self, token: Token) {
        let queued = self.queue.iter_mut().map(|(_, token)| token);
        for slot in queued.chain(self.current.as_mut().map(|current| &mut current.token)) {
            if *slot == token {
                *slot = Token::NONE;
            }
        }
    }

    /// Returns the departure of the collective that this node is in, if it is here.
    #[inline]
    pub fn departure(&self) -> Option<&Departure> {
        self.current.as_ref()?.departure.as_ref()
    }

    /// Returns `true` if this node has arrived and waits for the departure.
    pub fn waits_for_departure(&self, clock: &Clock) -> bool {
        self.current.is_some() && clock.has_arrived() && self.departure().is_none()
    }

    /// Takes the collective that this node is in, which has ended.
    pub fn take_current(&mut self, clock: &mut Clock) -> Option<CurrentCollective> {
        clock.progress = CollectiveProgress::Open;
        self.current.take()
    }
}
