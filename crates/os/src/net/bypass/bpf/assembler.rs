//! Assembler for instructions of the kernel's virtual machine (RFC 9669), with jumps to labels that
//! are placed later.

use rustix::fd::{AsRawFd, BorrowedFd};

/// One instruction, as the kernel reads it (RFC 9669, section 3). Little-endian machines only,
/// because the order of the two registers in their byte depends on the byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high four bits.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register, by its number. The calling convention (RFC 9669, section 2.2) gives the purpose: 0
/// is the result, 1 to 5 are arguments and lost in calls, 6 to 9 are preserved, 10 leads to the
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register(pub(crate) u8);

/// Number of bytes of a load or store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    const fn bits(self) -> u8 {
        match self {
            Width::One => 0x10,
            Width::Two => 0x08,
            Width::Four => 0x00,
            Width::Eight => 0x18,
        }
    }
}

/// Unsigned comparison of a jump.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    Equal,
    NotEqual,
    Above,
    Below,
}

impl Condition {
    const fn bits(self) -> u8 {
        match self {
            Condition::Equal => 0x10,
            Condition::Above => 0x20,
            Condition::NotEqual => 0x50,
            Condition::Below => 0xa0,
        }
    }
}

// Classes, operations and sources of RFC 9669, sections 4 and 5.
const LOAD_WIDE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const ATOMIC: u8 = 0xc3;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const OF_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Immediate of an atomic addition that also fetches the previous value, which makes it a full
/// barrier.
const ADD_AND_FETCH: i32 = 0x01;
/// Kinds of wide loads: the address of a map, or the address of a map's first value.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;

/// Builds a program. `L` is the type of its labels.
#[derive(Debug)]
pub(crate) struct Assembler<L> {
    instructions: Vec<Instruction>,
    /// Jumps whose offset is not known yet.
    jumps: Vec<(usize, L)>,
    places: Vec<(L, usize)>,
}

impl<L: Copy + PartialEq + core::fmt::Debug> Assembler<L> {
    pub(crate) fn new() -> Assembler<L> {
        Assembler { instructions: Vec::new(), jumps: Vec::new(), places: Vec::new() }
    }

    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction {
            code,
            registers: to.0 | from << 4,
            offset,
            immediate,
        });
    }

    /// `to = *(base + offset)`, zero-extended.
    pub(crate) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        self.push(LOAD | width.bits(), to, base.0, offset, 0);
    }

    /// `*(base + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, base: Register, offset: i16, from: Register) {
        self.push(STORE | width.bits(), base, from.0, offset, 0);
    }

    /// Full barrier: earlier accesses are visible to others before any later access happens, as far
    /// as the kernel's memory model goes. It is an atomic addition that fetches the previous value.
    /// `scratch` is lost, and eight bytes of the stack at `offset`.
    pub(crate) fn full_barrier(&mut self, offset: i16, scratch: Register) {
        let stack = Register(10);
        self.set(scratch, 0);
        self.store(Width::Eight, stack, offset, scratch);
        self.push(ATOMIC | Width::Eight.bits(), stack, scratch.0, offset, ADD_AND_FETCH);
    }

    /// `to = value`.
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.push(MOVE, to, 0, 0, value);
    }

    /// `to = from`.
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(MOVE_REGISTER, to, from.0, 0, 0);
    }

    /// `to += value`.
    pub(crate) fn add(&mut self, to: Register, value: i32) {
        self.push(ADD, to, 0, 0, value);
    }

    /// `to &= value`.
    pub(crate) fn and(&mut self, to: Register, value: i32) {
        self.push(AND, to, 0, 0, value);
    }

    /// `to = ` the map itself, for calls.
    pub(crate) fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.wide(to, MAP, map);
    }

    /// `to = ` the address of the first value of an array.
    pub(crate) fn map_value(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.wide(to, MAP_VALUE, map);
    }

    fn wide(&mut self, to: Register, what: u8, map: BorrowedFd<'_>) {
        self.push(LOAD_WIDE, to, what, 0, map.as_raw_fd());
        self.push(0, Register(0), 0, 0, 0);
    }

    /// Jumps to `place` if the low 32 bits of `left` compare in this way with `right`.
    pub(crate) fn jump_if(&mut self, left: Register, condition: Condition, right: u32, place: L) {
        self.jumps.push((self.instructions.len(), place));
        self.push(JUMP_32 | condition.bits(), left, 0, 0, right as i32);
    }

    /// Jumps to `place` if `left` is above `right`, comparing all 64 bits.
    pub(crate) fn jump_if_above(&mut self, left: Register, right: Register, place: L) {
        self.jumps.push((self.instructions.len(), place));
        self.push(JUMP | OF_REGISTER | Condition::Above.bits(), left, right.0, 0, 0);
    }

    /// Jumps to `place` if all 64 bits are zero. Afterwards the verifier knows that a pointer is
    /// not null.
    pub(crate) fn jump_if_null(&mut self, value: Register, place: L) {
        self.jumps.push((self.instructions.len(), place));
        self.push(JUMP | Condition::Equal.bits(), value, 0, 0, 0);
    }

    /// Jumps to `place`.
    pub(crate) fn jump(&mut self, place: L) {
        self.jumps.push((self.instructions.len(), place));
        self.push(JUMP, Register(0), 0, 0, 0);
    }

    /// Calls one of the kernel's helpers, by its number.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(CALL, Register(0), 0, 0, helper);
    }

    /// Exits with this result.
    pub(crate) fn exit_with(&mut self, result: i32) {
        self.set(Register(0), result);
        self.push(EXIT, Register(0), 0, 0, 0);
    }

    /// Puts the label `place` here.
    pub(crate) fn place(&mut self, place: L) {
        self.places.push((place, self.instructions.len()));
    }

    /// Returns the program, or `None` if a jump has no target or is too far.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, place) in self.jumps {
            let (_, to) = self.places.iter().find(|(known, _)| *known == place)?;
            // Offsets are relative to the instruction after the jump.
            let offset = i16::try_from(to.checked_signed_diff(at + 1)?).ok()?;
            self.instructions.get_mut(at)?.offset = offset;
        }
        Some(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_places() {
        let mut one = Assembler::new();
        one.jump_if(Register(1), Condition::Equal, 0x8000_0001, "end");
        one.set(Register(0), 1);
        one.place("end");
        one.exit_with(2);
        let program = one.finish().unwrap();
        assert_eq!(
            program[0],
            Instruction { code: 0x16, registers: 1, offset: 1, immediate: 0x8000_0001_u32 as i32 }
        );
        assert_eq!(program.len(), 4);
    }

    #[test]
    fn a_jump_to_nowhere_is_no_program() {
        let mut one = Assembler::new();
        one.jump("somewhere");
        assert_eq!(one.finish(), None);
    }
}
