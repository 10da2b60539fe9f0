//! Dispatch: passes each message from Wind to remote memory or to coherence, by the first byte of
//! its head.

use crate::client::posted::MessagePlacement;
use crate::groups::alike;
use crate::inbox::{Parcel, ParcelBody};
use crate::layers::Layers;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::{self, MessageKind, StreamStep};
use oikaze_protocol::seal::StreamSecret;
use oikaze_protocol::traffic::MessagePurpose;
use oikaze_protocol::wind::{Admission, Class, Delivered, Handler, Refusal};

impl<P: Pages> Handler for Layers<P> {
    fn admit(&mut self, from: Rank, number: u64, class: Class, head: &[u8], len: u64) -> Admission {
        match rma::kind(head) {
            MessageKind::Coherence => self.coherence.admit(from, number, head, len),
            MessageKind::Stream if len <= StreamSecret::LEN as u64 => Admission::Assemble,
            MessageKind::Stream => Admission::Refuse(Refusal::Malformed),
            _ => self.rma.admit(from, number, class, head, len, &mut self.memory),
        }
    }

    fn places(&self, class: Class, head: &[u8]) -> bool {
        rma::places(class, head)
    }

    fn may_be_shared(&self, class: Class, head: &[u8]) -> bool {
        alike::may_be_shared(class, head)
    }

    fn costs_credit(&self, head: &[u8], _: bool) -> bool {
        rma::costs_credit(head)
    }

    fn charges_body(&self, head: &[u8]) -> bool {
        rma::charges_body(head)
    }

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        self.buffer_pool.try_lend(len)
    }

    fn refused(&mut self, from: Rank, head: &[u8], len: u64) {
        self.rma.refused_for_room(from, head, len);
    }

    fn places_until_turn(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> bool {
        let Some(posted) = &self.posted else { return false };
        let placement = match head.try_into().ok().and_then(rma::user_tag) {
            // An earlier message that no receive has been offered yet may be another's match.
            Some(tag) if self.unoffered == 0 => posted.begin(from, tag, len),
            Some(_) => None,
            None => rma::parcel_head(head).and_then(|head| posted.begin_parcel(from, &head, len)),
        };
        placement.is_some_and(|placement| {
            self.placing.insert((from, number), placement);
            true
        })
    }

    fn place(&mut self, from: Rank, number: u64, offset: u64, bytes: &[u8]) {
        if !self.placing.is_empty()
            && let Some(placement) = self.placing.get_mut(&(from, number))
        {
            return placement.write(offset, bytes);
        }
        // Both layers get the bytes. Message numbers are unique within a connection, so the layer
        // that did not admit this message ignores them.
        self.coherence.place(from, number, offset, bytes, &mut self.pages);
        self.rma.place(from, number, offset, bytes, &mut self.memory);
    }

    fn wait_for_pages(&mut self, waits: bool) {
        self.memory.wait_for_pages(waits);
    }

    fn deliver(
        &mut self,
        from: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
    ) -> Result<(), Refusal> {
        let purpose = MessagePurpose::of(head);
        self.requests += usize::from(purpose.is_request());
        self.urgent += u64::from(purpose.is_urgent());
        match rma::kind(head) {
            MessageKind::Coherence => match body {
                Delivered::Placed(_) => self.coherence.arrived(from, number, head, &mut self.pages),
                Delivered::Bytes(bytes) => {
                    self.coherence.receive(from, head, bytes, &mut self.pages)
                }
                Delivered::Owned(bytes) => {
                    self.coherence.receive(from, head, &bytes, &mut self.pages)
                }
            },
            MessageKind::Stream => {
                let read = match &body {
                    Delivered::Bytes(bytes) => StreamStep::read(head, bytes),
                    Delivered::Owned(bytes) => StreamStep::read(head, bytes),
                    Delivered::Placed(_) => return Err(Refusal::Malformed),
                };
                let (id, step) = read.map_err(|_| Refusal::Malformed)?;
                self.stream_steps.push((from, id, step));
                Ok(())
            }
            MessageKind::User => match (body, self.placing.remove(&(from, number))) {
                (Delivered::Placed(len), Some(placement)) => {
                    // Only a message that a posted receive has got is read by now.
                    let is_received = placement.finish();
                    self.received.extend(is_received.then_some((from, len)));
                    self.placed_messages += u64::from(is_received);
                    self.unplaced += usize::from(!is_received);
                    if is_received { Ok(()) } else { Err(Refusal::NoMemory) }
                }
                (body, _) => {
                    self.unoffered += 1;
                    self.rma.deliver(from, number, class, head, body, &mut self.memory)
                }
            },
            MessageKind::Parcel if matches!(body, Delivered::Placed(_)) => {
                let placement = self.placing.remove(&(from, number));
                let (Delivered::Placed(len), Some(head)) = (body, rma::parcel_head(head)) else {
                    return Err(Refusal::Malformed);
                };
                // The sender waits for the credit of a parcel, also if its memory is gone with the
                // collective.
                let is_placed = placement.is_some_and(MessagePlacement::finish);
                let body =
                    if is_placed { ParcelBody::Placed(len) } else { ParcelBody::Refused(len) };
                self.placed_parcels.push(Parcel { from, head, body });
                Ok(())
            }
            _ => self.rma.deliver(from, number, class, head, body, &mut self.memory),
        }
    }

    fn withdrawn(&mut self, from: Rank, number: u64) {
        self.abort_placement(from, number);
        self.rma.withdrawn(from, number);
        self.coherence.withdrawn(from, number, &mut self.pages);
    }

    fn replaced(&mut self, from: Rank, number: u64) {
        self.abort_placement(from, number);
        self.rma.withdrawn(from, number);
        self.coherence.replaced(from, number);
    }

    fn abandon(&mut self, from: Rank) {
        self.abort_placements(|rank| rank == from);
        self.rma.abandon(from);
        // Coherence treats a restarted peer as dead, because the new process does not have the old
        // one's pages.
        self.coherence.node_died(from, &mut self.pages);
    }
}
