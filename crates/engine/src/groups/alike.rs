//! Messages that several nodes get alike. Coherence posts them one after the other, with one head
//! and one body, and the engine gathers them here. So no layer needs to know of multicast.

use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelPurpose;
use oikaze_protocol::limits::GROUP_MEMBERS_MAX;
use oikaze_protocol::rma;
use oikaze_protocol::traffic::MessagePurpose;
use oikaze_protocol::wind::{Body, Class, Message};
use std::sync::Arc;

/// Returns `true` if a message with this head may come by group datagrams: an update of a shared
/// array, or data of a collective (WIND-13.1). Senders share no other messages, and receivers take
/// no others from groups, whose members can write in the sender's name (WIND-12.13).
pub(crate) fn may_be_shared(class: Class, head: &[u8]) -> bool {
    let is_data = || {
        let parcel = rma::parcel_head(head);
        class == Class::Unordered && parcel.is_some_and(|head| head.purpose == ParcelPurpose::Data)
    };
    MessagePurpose::of(head) == MessagePurpose::Update || is_data()
}

/// Messages to different nodes that are alike except for their tokens.
#[derive(Default)]
pub(crate) struct Alike {
    messages: Vec<(Rank, Message)>,
}

impl Alike {
    /// Returns `true` if a message may be sent to several nodes at once: it costs no credit
    /// (WIND-12.3), its body is long enough, and is the same memory for all (WIND-13.1).
    pub fn is_eligible(message: &Message, body_min: u64) -> bool {
        !message.charge.is_credited()
            && matches!(message.body, Body::Shared(_) | Body::Segment(_))
            && message.body.len() >= body_min
            && may_be_shared(message.class, &message.head)
    }

    /// Returns `true` if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Gathers an eligible message. Gives it back if it is not like those that are gathered.
    pub fn gather(&mut self, to: Rank, message: Message) -> Option<Message> {
        let takes = self.messages.first().is_none_or(|(_, first)| is_like(first, &message))
            && self.messages.len() < GROUP_MEMBERS_MAX
            && self.messages.iter().all(|(rank, _)| *rank != to);
        if !takes {
            return Some(message);
        }
        self.messages.push((to, message));
        None
    }

    /// Takes all messages. [`Alike::put_back`] follows.
    pub fn take(&mut self) -> Vec<(Rank, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Gives the memory of [`Alike::take`] back.
    pub fn put_back(&mut self, mut messages: Vec<(Rank, Message)>) {
        messages.clear();
        self.messages = messages;
    }
}

fn is_like(one: &Message, other: &Message) -> bool {
    let has_same_body = match (&one.body, &other.body) {
        (Body::Shared(one), Body::Shared(other)) => Arc::ptr_eq(one, other),
        (Body::Segment(one), Body::Segment(other)) => one == other,
        _ => false,
    };
    has_same_body
        && one.class == other.class
        && one.urgent == other.urgent
        && one.charge == other.charge
        && one.head == other.head
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::collective::{CollectiveCall, ParcelHead, WHOLE};
    use oikaze_protocol::limits::GROUP_BODY_MIN;
    use oikaze_protocol::rma::MessageKind;
    use oikaze_protocol::wind::{Head, Segment, Token};

    fn parcel(purpose: ParcelPurpose) -> Head {
        let call = CollectiveCall::SHRINK;
        ParcelHead { purpose, team: 0, number: 1, round: WHOLE, call }.encode()
    }

    fn message(body: &Body, token: u64) -> Message {
        let head = parcel(ParcelPurpose::Data);
        Message::new(Class::Unordered, head, body.clone(), Token(token))
    }

    /// WIND-13.1, WIND-12.13: a member cannot forge a grant of a lock, a step of a stream or an
    /// answer to a get.
    #[test]
    fn only_updates_and_data_of_collectives_are_shared() {
        // The second byte tells which message of shared arrays it is (COH-9.2).
        let coherence = |code: u8| Head::from_iter([MessageKind::Coherence as u8, code]);
        let update = coherence(13);
        let data = parcel(ParcelPurpose::Data);
        assert!(Class::ALL.iter().all(|class| may_be_shared(*class, &update)));
        assert!(may_be_shared(Class::Unordered, &data) && !may_be_shared(Class::Sync, &data));
        let cut = &data[..data.len() - 1];
        assert!(!may_be_shared(Class::Unordered, cut) && !may_be_shared(Class::Unordered, &[]));
        let purposes = (1..).map_while(ParcelPurpose::from_code).map(parcel);
        let others = (0..=u8::MAX).filter(|code| *code != 13).map(coherence);
        let kinds = (0..=u8::MAX).filter(|code| *code != MessageKind::Coherence as u8);
        let kinds = kinds.map(|code| Head::from_iter([code, 13]));
        for head in purposes.chain(others).chain(kinds) {
            assert!(!may_be_shared(Class::Unordered, &head), "{head:?}");
        }
    }

    #[test]
    fn only_messages_of_one_body_are_alike() {
        let shared = Body::Inline(vec![1; GROUP_BODY_MIN as usize]).into_shared();
        let copy = Body::Inline(vec![1; GROUP_BODY_MIN as usize]).into_shared();
        let segment = |offset| Body::Segment(Segment { region: 3, offset, len: GROUP_BODY_MIN });
        for (body, other) in
            [(shared.clone(), copy), (segment(0), segment(8)), (shared, segment(0))]
        {
            let mut alike = Alike::default();
            assert!(Alike::is_eligible(&message(&body, 1), GROUP_BODY_MIN));
            assert!(alike.gather(1, message(&body, 1)).is_none());
            assert!(alike.gather(2, message(&body, 2)).is_none());
            assert!(alike.gather(2, message(&body, 3)).is_some(), "one message for each node");
            assert!(alike.gather(3, message(&other, 4)).is_some());
            let differing = Message { class: Class::Sync, ..message(&body, 5) };
            assert!(alike.gather(3, differing).is_some());
            let differing = Message { head: Head::from_iter([9]), ..message(&body, 5) };
            assert!(alike.gather(3, differing).is_some());
            let ranks: Vec<Rank> = alike.take().iter().map(|(rank, _)| *rank).collect();
            assert_eq!(ranks, [1, 2]);
        }
    }

    #[test]
    fn short_bodies_and_those_of_one_message_are_not_shared() {
        let len = GROUP_BODY_MIN as usize;
        let short = Body::Inline(vec![1; len - 1]).into_shared();
        assert!(!Alike::is_eligible(&message(&short, 1), GROUP_BODY_MIN));
        assert!(!Alike::is_eligible(&message(&Body::Inline(vec![1; len]), 1), GROUP_BODY_MIN));
        assert!(!Alike::is_eligible(&message(&Body::Empty, 1), GROUP_BODY_MIN));
    }
}
