//! Messages of remote memory from a peer gone mad: any head and body, whole and in fragments, to a
//! node with two regions and a get under way (MEM-2.2, MEM-9.2). Nothing may panic, write outside
//! what is granted, or have two encodings.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{Accumulation, AtomicOp, Destination, Memory, Operation, Rights, Rma};
use oikaze_protocol::wind::{Admission, Class, Delivered, Refusal, Rows, Segment, Token};

const LEN: u64 = 256;

/// Region 0 may be written, region 1 only read; their keys are 10 and 11.
struct Regions([Vec<u8>; 2]);

impl Regions {
    fn range(&self, region: u32, offset: u64, len: u64) -> Option<core::ops::Range<usize>> {
        let end = offset.checked_add(len).filter(|end| *end <= LEN)?;
        (region < 2).then_some(offset as usize..end as usize)
    }
}

impl Memory for Regions {
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        let region =
            key.checked_sub(10).filter(|region| *region < 2).ok_or(Refusal::UnknownKey)? as u32;
        if region == 1 && right != Rights::READ {
            return Err(Refusal::NotPermitted);
        }
        self.range(region, offset, len).map(|_| region).ok_or(Refusal::OutOfBounds)
    }
    fn has_had(&self, key: u64) -> bool {
        (10..12).contains(&key)
    }
    fn covers(&self, region: u32, offset: u64, len: u64) -> bool {
        self.range(region, offset, len).is_some()
    }
    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        if let Some(range) = self.range(region, offset, bytes.len() as u64) {
            self.0[region as usize][range].copy_from_slice(bytes);
        }
    }
    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool {
        let Some(range) = self.range(region, offset, into.len() as u64) else { return false };
        into.copy_from_slice(&self.0[region as usize][range]);
        true
    }
    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
        if offset % op.width().bytes() != 0 {
            return Err(Refusal::Misaligned);
        }
        self.range(region, offset, op.width().bytes()).map(|_| 7).ok_or(Refusal::OutOfBounds)
    }
    fn accumulate(
        &mut self,
        region: u32,
        offset: u64,
        how: Accumulation,
        elements: &[u8],
    ) -> Result<(), Refusal> {
        let width = how.width().bytes();
        assert_eq!(elements.len() as u64 % width, 0, "whole elements");
        let range =
            self.range(region, offset, elements.len() as u64).ok_or(Refusal::OutOfBounds)?;
        if offset % width != 0 {
            return Err(Refusal::Misaligned);
        }
        self.0[region as usize][range].copy_from_slice(elements);
        Ok(())
    }
    fn fifo_element(&self, region: u32) -> Result<u64, Refusal> {
        if region == 0 { Ok(50) } else { Err(Refusal::NoFifo) }
    }
    fn push(&mut self, region: u32, element: &[u8]) -> Result<(), Refusal> {
        match self.fifo_element(region)? {
            longest if element.len() as u64 > longest => Err(Refusal::TooLong),
            _ if element.first() == Some(&0) => Err(Refusal::Full),
            _ => Ok(()),
        }
    }
}

/// `form u8 | head_len u8 | body_len u8 | head | body`: one message, and what is left.
fn message(input: &[u8]) -> Option<(u8, &[u8], &[u8], &[u8])> {
    let ([form, head, body], rest) = input.split_first_chunk::<3>()?;
    let (head, rest) = rest.split_at_checked(usize::from(*head).min(64).min(rest.len()))?;
    let (body, rest) = rest.split_at_checked(usize::from(*body).min(rest.len()))?;
    Some((*form, head, body, rest))
}

fuzz_target!(|input: &[u8]| {
    let mut memory = Regions([vec![0; LEN as usize], vec![9; LEN as usize]]);
    let mut rma = Rma::new();
    let into = Segment { region: 0, offset: 0, len: 64 };
    let get = rma.get(1, 1, 0, into, Token(5)).expect("a sound request");
    assert!(Operation::decode(&get.head).is_some());
    // Rows of the region that may be written, of which every second byte is not theirs.
    let rows = Rows { region: 0, block: Block::new(128, 1).rows(32, 2) };
    let get = rma
        .get_block(2, 1, Block::new(0, 32), Destination::Rows(rows.into()), Token(6))
        .expect("a sound request");
    assert!(Operation::decode(&get.head).is_some());
    let (mut input, mut number) = (input, 0);
    while let Some((form, head, body, rest)) = message(input) {
        input = rest;
        if let Some(operation) = Operation::decode(head) {
            assert_eq!(operation.encode().as_slice(), head, "one meaning, one encoding");
        }
        let class = [Class::Ordered, Class::Unordered, Class::Sync][usize::from(form) % 3];
        let from = u32::from(form >> 2) % 3;
        number += 1;
        if form & 0x80 == 0 {
            let _ = rma.deliver(from, number, class, head, Delivered::Bytes(body), &mut memory);
        } else {
            let len = body.len() as u64 + u64::from(form >> 5 & 1);
            match rma.admit(from, number, class, head, len, &mut memory) {
                Admission::Place => {
                    rma.place(from, number, u64::from(form), body, &mut memory);
                    rma.place(from, number, 0, body, &mut memory);
                    let _ =
                        rma.deliver(from, number, class, head, Delivered::Placed(len), &mut memory);
                }
                Admission::Assemble => {
                    let _ = rma.deliver(
                        from,
                        number,
                        class,
                        head,
                        Delivered::Owned(body.to_vec()),
                        &mut memory,
                    );
                }
                Admission::Refuse(_) => {}
            }
        }
        while rma.poll_answer().is_some() {}
        while rma.poll_event().is_some() {}
        assert_eq!(memory.0[1], [9; LEN as usize], "what may not be written is as it was");
    }
});
