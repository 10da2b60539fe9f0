//! Requests that a peer has acknowledged and never answers: MEM-4.8.

use super::vectors::Vectors;
use oikaze_protocol::limits::PROGRESS_FAILURE_TIMES;
use oikaze_protocol::rma::{Operation, Rights, Rma, RmaEvent, TicketId};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Class, Segment, Token};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(5);
const LEN: u64 = 300;

struct Requester {
    rma: Rma,
    memory: Vectors,
    own: u32,
    now: Time,
}

impl Requester {
    fn new() -> Self {
        let (mut memory, now) = (Vectors::default(), Time(0));
        let own = memory.add(9, Rights::NONE, vec![0; LEN as usize]);
        Self { rma: Rma::new(), memory, own, now }
    }

    fn get(&mut self, peer: u32, token: u64) -> TicketId {
        let into = Segment { region: self.own, offset: 0, len: LEN };
        let message = self.rma.get(peer, 5, 0, into, Token(token)).unwrap();
        match Operation::decode(&message.head) {
            Some(Operation::Get { ticket, .. }) => ticket,
            other => panic!("not a get: {other:?}"),
        }
    }

    fn answer(&mut self, peer: u32, number: u64, ticket: TicketId) {
        self.rma.admit(
            peer,
            number,
            Class::Unordered,
            &Operation::Data { ticket }.encode(),
            LEN,
            &mut self.memory,
        );
    }

    /// Checks this many times for unanswered requests. Returns the peers that are reported.
    fn look(&mut self, times: u32) -> Vec<u32> {
        let mut told = Vec::new();
        for _ in 0..times {
            self.rma.check_unanswered(self.now, EVERY);
            self.now = self.rma.next_check().unwrap_or(self.now + EVERY);
        }
        while let Some(event) = self.rma.poll_event() {
            told.extend(if let RmaEvent::Unanswered { by } = event { Some(by) } else { None });
        }
        told
    }
}

/// MEM-4.8.
#[test]
fn only_requests_that_were_acknowledged_are_waited_for() {
    let mut requester = Requester::new();
    requester.get(1, 7);
    assert_eq!(requester.look(20), [], "Wind watches over what is on its way");
    requester.get(2, 8);
    requester.rma.acknowledged(Token(8));
    assert_eq!(requester.look(PROGRESS_FAILURE_TIMES), []);
    assert_eq!(requester.look(1), [2]);
    requester.rma.node_died(2);
    requester.rma.node_died(1);
    requester.look(1);
    requester.rma.acknowledged(Token(7));
    requester.rma.failed(Token(8), 2);
    assert_eq!((requester.look(20), requester.rma.next_check()), (vec![], None), "nothing is open");
}

/// MEM-4.8.
#[test]
fn answer_that_comes_slowly_is_waited_for() {
    let mut requester = Requester::new();
    let slow = requester.get(1, 7);
    // The second request began later, so its answer may come later.
    requester.get(1, 8);
    requester.rma.acknowledged(Token(7));
    requester.rma.acknowledged(Token(8));
    requester.answer(1, 3, slow);
    for at in 0..20 {
        assert_eq!(requester.look(PROGRESS_FAILURE_TIMES), [], "part {at} came");
        requester.rma.place(1, 3, at * 10, &[1; 10], &mut requester.memory);
    }
    assert_eq!(requester.look(PROGRESS_FAILURE_TIMES + 1), [1], "no further part came");
}

/// MEM-4.8: answered requests that began later do not hide a request that is never answered.
#[test]
fn forgotten_request_is_found_beside_others() {
    let mut requester = Requester::new();
    requester.get(1, 7);
    requester.rma.acknowledged(Token(7));
    let mut told = Vec::new();
    for number in 0..20 {
        let ticket = requester.get(1, 100 + number);
        requester.rma.acknowledged(Token(100 + number));
        requester.answer(1, number, ticket);
        requester.rma.place(1, number, 0, &[1; LEN as usize], &mut requester.memory);
        told.extend(requester.look(1));
    }
    assert!(told.contains(&1));
}
