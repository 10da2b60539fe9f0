use super::layout::WARM;
use super::*;
use crate::memory::mapping::Mapping;
use crate::shm::Part;
use oikaze_protocol::shm::{Damaged, Heading, RecordKind};
use oikaze_protocol::wind::Refusal;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

fn memory() -> Memory {
    Memory::new(Arc::new(Mapping::anonymous(CHANNEL).unwrap()), 0, CHANNEL)
}

fn take(reader: &mut Reader) -> Option<(u64, Vec<u8>)> {
    let heading = reader.peek().unwrap()?;
    assert_eq!(heading.kind, RecordKind::Piece);
    let mut bytes = Vec::new();
    reader.append(0, heading.len, &mut bytes);
    Some((reader.pass(heading), bytes))
}

/// Steps of the property test.
#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Take { refuse: bool },
    Settle,
    Hear,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..200usize, 1..20_000usize];
    prop_oneof![
        4 => len.prop_map(Step::Put),
        4 => any::<bool>().prop_map(|refuse| Step::Take { refuse }),
        2 => Just(Step::Settle),
        2 => Just(Step::Hear),
    ]
}

proptest! {
    /// MEM-16.1, MEM-16.4: a ring is a bounded queue, and the outcome of each record is reported
    /// once, in order.
    #[test]
    fn a_ring_is_a_queue(steps in prop::collection::vec(step(), 1..400)) {
        let memory = memory();
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        // Records in the ring, records taken, and records whose outcome is not known yet.
        let (mut queue, mut taken, mut unheard) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        for (number, step) in (0u64..).zip(steps) {
            match step {
                Step::Put(len) => {
                    let bytes: Vec<u8> = (0..len).map(|at| (number as usize + at) as u8).collect();
                    let (room, empty) = (writer.has_room(len), queue.is_empty() && unheard.is_empty());
                    let put = writer.put(Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(&bytes[..len / 2]), Part::Bytes(&bytes[len / 2..])]);
                    prop_assert_eq!(room, put.is_ok());
                    prop_assert!(room || !empty, "an empty ring has room");
                    if let Ok(end) = put {
                        queue.push_back((end, bytes));
                    }
                }
                Step::Take { refuse } => {
                    let (next, told) = (queue.pop_front(), take(&mut reader));
                    prop_assert_eq!(&next, &told);
                    if let Some((end, _)) = told {
                        let refused = refuse && reader.refuse(end, Refusal::NoRoom).is_ok();
                        taken.push_back(end);
                        unheard.push_back((end, refused.then_some(Refusal::NoRoom)));
                    }
                }
                Step::Settle => {
                    if let Some(end) = taken.drain(..).next_back() {
                        reader.settle(end);
                    }
                }
                Step::Hear => {
                    let settled = writer.settled().unwrap();
                    while let Some((end, refusal)) = unheard.front().copied().filter(|(end, _)| *end <= settled) {
                        prop_assert_eq!(writer.refusal(end), Ok(refusal));
                        unheard.pop_front();
                    }
                }
            }
        }
    }

    /// MEM-16.2: for all contents of the memory, nothing is read or written outside the ring, and
    /// nothing panics.
    #[test]
    fn garbage_is_an_error_or_a_record(words in prop::collection::vec((0..CHANNEL / 8, any::<u64>(), any::<bool>()), 1..300)) {
        let memory = memory();
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory.clone()));
        for (at, word, at_head) in words {
            let at = if at_head { place(reader.position()) } else { 8 * at };
            memory.store(at, if at_head { word & 0xff03_ff0f_0000_ffff } else { word }, Ordering::Relaxed);
            let _ = writer.put(Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(&[1; 300])]);
            if let Ok(settled) = writer.settled() {
                let _ = writer.refusal(settled);
            }
            let Ok(Some(heading)) = reader.peek() else { continue };
            let mut bytes = Vec::new();
            reader.append(0, heading.len, &mut bytes);
            prop_assert_eq!(bytes.len(), heading.len);
            let position = reader.pass(heading);
            let _ = reader.refuse(position, Refusal::Malformed);
            reader.settle(position);
        }
    }
}

#[test]
fn a_position_that_cannot_be_is_not_believed() {
    let memory = memory();
    let mut writer = Writer::new(memory.clone());
    let end = writer.put(Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(&[1; 10])]).unwrap();
    memory.store(SETTLED, end + 1, Ordering::Relaxed);
    assert_eq!(writer.settled(), Err(Damaged));
    memory.store(SETTLED, end, Ordering::Relaxed);
    assert_eq!(writer.settled(), Ok(end));
    memory.store(SETTLED, 0, Ordering::Relaxed);
    assert_eq!(writer.settled(), Err(Damaged), "it went back");
}

/// MEM-16.2, MEM-16.4: a writer that goes on without room would be read for ever, and more refusals
/// would be kept than a ring holds messages.
#[test]
fn a_writer_that_overruns_what_is_not_settled_is_not_believed() {
    let memory = memory();
    let mut reader = Reader::new(memory.clone());
    let record = Heading::plain(RecordKind::Withdrawn, 0);
    let mut read = 0;
    while read <= 2 * RING {
        memory.store(place(reader.position()), record.encode(), Ordering::Relaxed);
        match reader.peek() {
            Ok(Some(heading)) => read += (reader.pass(heading) - read as u64) as usize,
            Ok(None) => panic!("it stands there"),
            Err(Damaged) => break,
        }
    }
    assert_eq!(read, RING, "a whole ring that is not settled, and no more");
}

/// MEM-16.10: and a reader that falls behind finds all that there is room for.
#[test]
fn small_records_whose_reader_keeps_up_stay_at_the_beginning() {
    let memory = memory();
    let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
    let put = |writer: &mut Writer| {
        writer.put(Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(b"small")]).is_ok()
    };
    for _ in 0..10_000 {
        assert!(put(&mut writer) && offset(writer.tail) <= WARM);
        let (position, bytes) = take(&mut reader).unwrap();
        assert_eq!(bytes, b"small");
        reader.settle(position);
    }
    let left = std::iter::repeat_with(|| put(&mut writer)).take_while(|put| *put).count();
    assert!(left > (RING - 2 * WARM) / 64, "{left}");
    let mut caught_up = 0;
    for _ in 0..left {
        caught_up = take(&mut reader).unwrap().0;
    }
    // The reader stays behind for more than a lap, in records that leave nothing of the ring
    // unused, and then catches up.
    reader.settle(caught_up);
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..3 * RING / 64 {
        assert!(put(&mut writer));
        waiting.push_back(take(&mut reader).unwrap().0);
        if n >= WARM / 64 {
            reader.settle(waiting.pop_front().unwrap());
        }
    }
    reader.settle(*waiting.back().unwrap());
    let mut furthest = 0;
    for n in 0..3 * RING / 64 {
        assert!(put(&mut writer));
        if n > RING / 64 {
            furthest = furthest.max(offset(writer.tail));
        }
        let (position, _) = take(&mut reader).unwrap();
        reader.settle(position);
    }
    assert!(furthest <= WARM, "{furthest}");
}
