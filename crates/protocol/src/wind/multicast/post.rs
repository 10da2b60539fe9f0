//! Posting to a stream: one message to several receivers.

use super::stream::{GroupStream, Members, SharedMessage};
use crate::Rank;
use crate::limits::GROUP_RECEIVERS_MIN;
use crate::time::Time;
use crate::wind::death::Death;
use crate::wind::event::PostError;
use crate::wind::send::message::{Message, Token};
use alloc::vec::Vec;

impl GroupStream {
    /// Posts a message to several receivers, each with its own token. Proven members get it by
    /// group datagrams, and all others, members or not, by [`Connection::post`]. Calls `posted`
    /// once for each receiver, with the number that the message has in its connection. Each of them
    /// settles the message for itself (WIND-12.1).
    ///
    /// [`Connection::post`]: crate::wind::Connection::post
    pub fn post(
        &mut self,
        now: Time,
        message: Message,
        to: &[(Rank, Token)],
        members: &mut impl Members,
        mut posted: impl FnMut(Rank, Result<u64, PostError>),
    ) {
        let body = message.body.into_shared();
        let message = Message { body, ..message };
        let is_proven = |index: u8| {
            self.members.get(usize::from(index)).is_some_and(|member| member.is_proven())
        };
        let proven: Vec<Option<u8>> = to
            .iter()
            .map(|(rank, _)| self.index_of(*rank).filter(|index| is_proven(*index)))
            .collect();
        let enough = proven.iter().flatten().count() >= GROUP_RECEIVERS_MIN;
        // A message that costs credit is not shared, because a member can have forged its cost.
        let may_share = !message.body.is_empty() && !message.charge.is_credited();
        let shares = enough && may_share && self.is_usable();
        let mut shared = SharedMessage { offset: 0, to: Vec::new() };
        for (&(rank, token), index) in to.iter().zip(proven) {
            let index = index.filter(|index| {
                // A receiver that stands in the list twice gets the second message alone.
                shares && shared.to.iter().all(|(other, _)| other != index)
            });
            let Some(connection) = members.connection(rank) else {
                posted(rank, Err(PostError::Dead(Death::Closed)));
                continue;
            };
            let message = Message { token, ..message.clone() };
            let result = match index {
                Some(_) => connection.post_shared(now, message),
                None => connection.post(now, message),
            };
            if let (Ok(number), Some(index)) = (result, index) {
                shared.to.push((index, number));
            }
            posted(rank, result);
        }
        if !shared.to.is_empty() {
            shared.to.sort_unstable();
            self.statistics.messages += 1;
            self.queue.push_back(shared);
        }
    }
}
