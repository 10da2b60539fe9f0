//! Messages that are in the ring to a local peer and not settled, in the order of their records.

use oikaze_os::shm::Writer;
use oikaze_protocol::shm::Damaged;
use oikaze_protocol::wind::{Refusal, Token};
use std::collections::VecDeque;

/// Maximum number of fast-path messages that are settled together as a group.
const FAST_GROUP_MESSAGES_MAX: u32 = 1 << 16;

/// Outcome of one message, or of several fast-path messages.
pub(crate) enum Settled {
    /// Outcome of one message, and the credit that it had taken.
    Message { token: Token, outcome: Result<(), Refusal>, charge: u64 },
    /// Fast-path messages of this epoch were settled: `count` messages, or a part of a group, whose
    /// number is not known, if `count` is 0.
    FastPath { count: u32, epoch: u32 },
}

/// Messages that the local peer has not settled.
#[derive(Debug, Default)]
pub(in crate::shm) struct UnsettledQueue {
    queue: VecDeque<Unsettled>,
    /// Position up to which the ring was settled when it was last read.
    heard: u64,
}

#[derive(Debug)]
struct Unsettled {
    /// Position behind the last record.
    end: u64,
    what: UnsettledKind,
}

#[derive(Debug)]
enum UnsettledKind {
    Message {
        token: Token,
        charge: u64,
    },
    /// Group of consecutive fast-path messages in one epoch of fences.
    FastPath {
        count: u32,
        epoch: u32,
        /// The messages are parcels, whose outcome no caller waits for.
        are_parcels: bool,
    },
}

/// Group of fast-path messages that were not settled when the ring ended.
pub(crate) struct LostGroup {
    /// Number of the messages.
    pub count: u32,
    /// Epoch of fences.
    pub epoch: u32,
    /// A caller has to learn of the loss: the messages are not parcels, and the reader has not
    /// taken all of them.
    pub is_reported: bool,
}

impl UnsettledQueue {
    /// Adds a message whose last record ends at this position.
    #[inline]
    pub fn push(&mut self, end: u64, token: Token, charge: u64) {
        self.queue.push_back(Unsettled { end, what: UnsettledKind::Message { token, charge } });
    }

    /// Adds a fast-path message of this epoch that ends at this position.
    #[inline]
    pub fn push_fast(&mut self, position: u64, epoch: u32, is_parcel: bool) {
        if let Some(Unsettled {
            end,
            what: UnsettledKind::FastPath { count, epoch: same, are_parcels },
        }) = self.queue.back_mut()
            && (*same, *are_parcels) == (epoch, is_parcel)
            && *count < FAST_GROUP_MESSAGES_MAX
        {
            (*end, *count) = (position, *count + 1);
            return;
        }
        let what = UnsettledKind::FastPath { count: 1, epoch, are_parcels: is_parcel };
        self.queue.push_back(Unsettled { end: position, what });
    }

    /// Returns the number of messages, of which a group of fast-path messages counts as one.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns `true` if every message is settled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if [`UnsettledQueue::next`] has something to report, which may be damage.
    #[inline]
    pub fn has_settled(&self, writer: &mut Writer) -> bool {
        match self.queue.front() {
            Some(Unsettled { end, what: UnsettledKind::Message { .. } }) => {
                writer.settled().map_or(true, |settled| settled >= *end)
            }
            // A group may grow for ever, so a settled part of the group is news, too.
            Some(_) => writer.settled().map_or(true, |settled| settled > self.heard),
            None => false,
        }
    }

    /// Returns the outcome of the oldest message, if the local peer is done with it.
    pub fn next(&mut self, writer: &mut Writer) -> Result<Option<Settled>, Damaged> {
        let settled = writer.settled()?;
        let before = std::mem::replace(&mut self.heard, settled);
        let Some(Unsettled { end, what }) = self.queue.front() else { return Ok(None) };
        if *end > settled {
            return Ok(match what {
                UnsettledKind::FastPath { epoch, .. } if settled > before => {
                    Some(Settled::FastPath { count: 0, epoch: *epoch })
                }
                _ => None,
            });
        }
        // If the refusal is malformed, the message stays queued and fails when the rings end.
        let refusal = writer.refusal(*end)?;
        if refusal.is_some() && matches!(what, UnsettledKind::FastPath { .. }) {
            // Nothing in a fast-path message can be refused (MEM-16.9), so the reader is broken.
            return Err(Damaged);
        }
        Ok(self.queue.pop_front().map(|unsettled| match unsettled.what {
            UnsettledKind::Message { token, charge } => {
                Settled::Message { token, outcome: refusal.map_or(Ok(()), Err), charge }
            }
            UnsettledKind::FastPath { count, epoch, .. } => Settled::FastPath { count, epoch },
        }))
    }

    /// Cancels messages. Their outcomes are not reported.
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        for unsettled in &mut self.queue {
            if let UnsettledKind::Message { token, .. } = &mut unsettled.what
                && cancelled(*token)
            {
                *token = Token::NONE;
            }
        }
    }

    /// Returns the fast-path messages by epoch, once the reader has settled the ring up to here for
    /// good.
    pub fn fast(&self, settled: u64) -> impl Iterator<Item = LostGroup> {
        self.queue.iter().filter_map(move |unsettled| match unsettled.what {
            UnsettledKind::FastPath { count, epoch, are_parcels } => {
                let is_reported = !are_parcels && unsettled.end > settled;
                Some(LostGroup { count, epoch, is_reported })
            }
            UnsettledKind::Message { .. } => None,
        })
    }

    /// Returns all messages that did not take the fast path.
    pub fn into_tokens(self) -> impl Iterator<Item = Token> {
        self.queue.into_iter().filter_map(|unsettled| match unsettled.what {
            UnsettledKind::Message { token, .. } => Some(token),
            UnsettledKind::FastPath { .. } => None,
        })
    }
}
