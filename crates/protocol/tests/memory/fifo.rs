//! Pushes: MEM-13. (What a FIFO's memory looks like is tested where that memory is.)

use super::vectors::Vectors;
use super::world::{FRAGMENT, World};
use oikaze_protocol::limits::FIFO_ELEMENT_MAX;
use oikaze_protocol::rma::{Operation, OperationValue, Rights, Rma, RmaError, RmaEvent};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Refusal, Token};

const T: Token = Token(7);

fn push(world: &mut World, element: Vec<u8>) -> RmaEvent {
    let message = Rma::push(5, Body::Inline(element), true, T).unwrap();
    assert!(message.class == Class::Ordered && !message.charge.is_credited());
    world.post(0, 1, message);
    world.run(1);
    let events = world.take(0);
    assert_eq!(events.len(), 1, "MEM-7.1");
    events.into_iter().next().unwrap()
}

fn refused(refusal: Refusal) -> RmaEvent {
    RmaEvent::Failed { token: T, error: RmaError::Refused(refusal) }
}

/// MEM-13.2, MEM-13.3: in fragments or not, empty or not.
#[test]
fn elements_are_pushed_whole() {
    let mut world = World::new(2);
    let fifo = world.nodes[1].memory.fifo(5, 4, 3 * FRAGMENT);
    let done = RmaEvent::Done { token: T, value: OperationValue::Nothing };
    let elements =
        [vec![], vec![1; 8], vec![2; FRAGMENT as usize + 1], vec![3; 3 * FRAGMENT as usize]];
    for element in &elements {
        assert_eq!(push(&mut world, element.clone()), done);
    }
    assert_eq!(push(&mut world, vec![4]), refused(Refusal::Full));
    assert_eq!(push(&mut world, vec![4; 2 * FRAGMENT as usize]), refused(Refusal::Full));
    assert_eq!(push(&mut world, vec![4; 3 * FRAGMENT as usize + 1]), refused(Refusal::TooLong));
    assert_eq!(world.nodes[1].memory.pushed(fifo).as_slice(), elements);
    world.nodes[1].memory.pushed(fifo).remove(0);
    assert_eq!(push(&mut world, vec![5]), done, "there is room again");
    assert_eq!(world.nodes[0].rma.outstanding(), 0);
}

/// MEM-13.3: what is wrong is found when a long element begins, and nothing is collected for it.
#[test]
fn what_cannot_be_pushed_is_refused() {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    let fifo = memory.fifo(5, 4, 50);
    memory.add(6, Rights(Rights::ALL.0 & !Rights::PUSH.0), vec![0; 64]);
    memory.add(7, Rights::ALL, vec![0; 64]);
    let wrong = [
        (5, 0, 51, Refusal::TooLong),
        (5, 8, 10, Refusal::NoFifo),
        (5, 65, 10, Refusal::OutOfBounds),
        (5, u64::MAX, 10, Refusal::OutOfBounds),
        (6, 0, 10, Refusal::NotPermitted),
        (7, 0, 10, Refusal::NoFifo),
        (8, 0, 10, Refusal::UnknownKey),
    ];
    for (key, offset, len, refusal) in wrong {
        let head = Operation::Push { key, offset }.encode();
        for class in [Class::Ordered, Class::Unordered, Class::Sync] {
            assert_eq!(rma.admit(1, 1, class, &head, len, &mut memory), Admission::Refuse(refusal));
            let body = vec![1; len as usize];
            assert_eq!(
                rma.deliver(1, 1, class, &head, Delivered::Bytes(&body), &mut memory),
                Err(refusal)
            );
            assert_eq!(
                rma.deliver(1, 1, class, &head, Delivered::Owned(body), &mut memory),
                Err(refusal)
            );
        }
    }
    let head = Operation::Push { key: 5, offset: 0 }.encode();
    assert_eq!(rma.admit(1, 2, Class::Ordered, &head, 50, &mut memory), Admission::Assemble);
    assert_eq!(
        rma.deliver(1, 2, Class::Ordered, &head, Delivered::Placed(50), &mut memory),
        Err(Refusal::Malformed)
    );
    assert!(memory.pushed(fifo).is_empty());
    assert_eq!((rma.answers(), rma.poll_event()), (0, None));
    let long = Body::Inline(vec![0; FIFO_ELEMENT_MAX as usize + 1]);
    let too_long = RmaError::TooLong { len: FIFO_ELEMENT_MAX + 1, max: FIFO_ELEMENT_MAX };
    assert_eq!(Rma::push(5, long, false, T), Err(too_long));
}
