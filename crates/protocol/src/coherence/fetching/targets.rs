//! Arrays as targets of one-sided operations (COH-12): reads, writes and changes that act at the
//! home of each page. They are writes of the initiator's open interval.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::array::PageState;
use crate::coherence::clock::notices::Runs;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::guards::{bytes_of, pages_of};
use crate::coherence::machine::{ArrayId, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::number_set::common;
use crate::coherence::types::{CoherenceError, Value};
use crate::limits::PAGE;
use crate::rma::{Accumulation, Combine, NumberKind, Width};
use crate::wind::{Class, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of bytes of an array that one message is about (COH-12.4).
pub(crate) const TARGET_BYTES_MAX: u64 = 8 * PAGE as u64;

/// Operation on elements at their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum TargetOp {
    /// Reads bytes of the array.
    Read,
    /// Writes bytes of the array.
    Write,
    /// Combines each element with an operand. The result is the elements from before.
    Combine(Accumulation),
    /// As *combine*, without a result.
    Accumulate(Accumulation),
    /// Replaces an element by the second operand if it is equal to the first one. The result is the
    /// element from before.
    CompareExchange(Width),
}

impl TargetOp {
    /// Returns code and type of the elements (COH-9.2).
    pub(crate) fn encode(self) -> (u8, u8) {
        match self {
            TargetOp::Read => (0, 0),
            TargetOp::Combine(how) => (how.combine as u8, how.element as u8),
            TargetOp::Accumulate(how) => (16 + how.combine as u8, how.element as u8),
            TargetOp::Write => (32, 0),
            TargetOp::CompareExchange(width) => (33, width.bytes() as u8),
        }
    }

    pub(crate) fn decode(code: u8, element: u8) -> Result<TargetOp, Refusal> {
        let how = |combine| {
            let element = NumberKind::from_code(element).ok_or(Refusal::Malformed)?;
            let combine = Combine::from_code(combine).ok_or(Refusal::Malformed)?;
            Ok::<_, Refusal>(Accumulation { element, combine })
        };
        Ok(match (code, element) {
            (0, 0) => TargetOp::Read,
            (1..16, _) => TargetOp::Combine(how(code)?),
            (16..32, _) => TargetOp::Accumulate(how(code - 16)?),
            (32, 0) => TargetOp::Write,
            (33, 4) => TargetOp::CompareExchange(Width::W32),
            (33, 8) => TargetOp::CompareExchange(Width::W64),
            _ => return Err(Refusal::Malformed),
        })
    }

    /// Returns the width of an element in bytes.
    fn width(self) -> u64 {
        match self {
            TargetOp::Read | TargetOp::Write => 1,
            TargetOp::Combine(how) | TargetOp::Accumulate(how) => how.width().bytes(),
            TargetOp::CompareExchange(width) => width.bytes(),
        }
    }

    fn is_change(self) -> bool {
        self != TargetOp::Read
    }

    fn has_result(self) -> bool {
        !matches!(self, TargetOp::Write | TargetOp::Accumulate(_))
    }

    /// Returns the new bytes of elements.
    fn change(self, old: &[u8], operands: &[u8]) -> Vec<u8> {
        match self {
            TargetOp::Read => old.to_vec(),
            TargetOp::Write => operands.to_vec(),
            TargetOp::CompareExchange(_) => match operands.split_at_checked(old.len()) {
                Some((expected, new)) if expected == old => new.to_vec(),
                _ => old.to_vec(),
            },
            TargetOp::Combine(how) | TargetOp::Accumulate(how) => {
                let width = how.width().bytes() as usize;
                let pairs = old.chunks_exact(width).zip(operands.chunks_exact(width));
                pairs.flat_map(|(here, other)| combined(how, here, other)).collect()
            }
        }
    }
}

/// Combines two little-endian numbers.
fn combined(how: Accumulation, here: &[u8], other: &[u8]) -> impl Iterator<Item = u8> + use<> {
    let bits =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let (a, b) = (bits(here), bits(other));
    fn pick<T: Ord>(how: Combine, a: T, b: T, sum: T) -> T {
        match how {
            Combine::Sum => sum,
            Combine::Min => a.min(b),
            Combine::Max => a.max(b),
        }
    }
    let result = match how.element {
        NumberKind::U32 => {
            let (a, b) = (a as u32, b as u32);
            u64::from(pick(how.combine, a, b, a.wrapping_add(b)))
        }
        NumberKind::I32 => {
            let (a, b) = (a as i32, b as i32);
            pick(how.combine, a, b, a.wrapping_add(b)) as u64
        }
        NumberKind::U64 => pick(how.combine, a, b, a.wrapping_add(b)),
        NumberKind::I64 => {
            let (a, b) = (a as i64, b as i64);
            pick(how.combine, a, b, a.wrapping_add(b)) as u64
        }
        NumberKind::F32 | NumberKind::F64 => how.of_floats(a, b),
    };
    result.to_le_bytes().into_iter().take(how.width().bytes() as usize)
}

/// Operations on arrays that this node has begun and that have not ended.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Targets {
    next: u64,
    /// Messages without an answer, by number.
    parts: BTreeMap<u64, TargetPart>,
    /// Bytes that the messages of each operation have brought.
    results: BTreeMap<Token, Vec<u8>>,
}

/// One message of an operation.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct TargetPart {
    array: ArrayId,
    home: Rank,
    token: Token,
    /// Place of the answer in the result of the operation.
    result: Range<usize>,
}

impl Targets {
    /// Called when nobody waits for this operation any longer. Changes are made nevertheless.
    pub fn cancel(&mut self, token: Token) {
        self.results.remove(&token);
    }

    /// Returns home and number of each message without an answer (COH-13).
    pub fn waiting(&self) -> impl Iterator<Item = (Rank, u64)> + '_ {
        self.parts.iter().map(|(id, part)| (part.home, *id))
    }

    /// Returns the arrays that operations under way are about.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayId> + '_ {
        self.parts.values().map(|part| part.array)
    }
}

impl Coherence {
    /// Performs an operation (COH-12.1) on the bytes from `offset` of an array on. The value of the
    /// operation is [`Value::Bytes`]: what it read, or the elements from before a change.
    /// `operands` has the bytes to write, an operand for each element, or expected and new element
    /// of a compare-exchange. `len` is the number of bytes of the array.
    #[allow(clippy::too_many_arguments)]
    pub fn target(
        &mut self,
        array: ArrayId,
        offset: u64,
        len: u64,
        op: TargetOp,
        operands: &[u8],
        token: Token,
        pages: &mut dyn Pages,
    ) {
        match self.begin_target(array, offset, len, op, operands, token, pages) {
            Ok(()) => {}
            Err(error) => self.fail(token, error),
        }
        self.settle(pages);
    }

    #[allow(clippy::too_many_arguments)]
    fn begin_target(
        &mut self,
        array: ArrayId,
        offset: u64,
        len: u64,
        op: TargetOp,
        operands: &[u8],
        token: Token,
        pages: &mut dyn Pages,
    ) -> Result<(), CoherenceError> {
        let doing = || String::from("an operation on elements at their home");
        if self.left {
            return Err(CoherenceError::Left { doing: doing() });
        }
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let known = self.arrays.get(array).filter(|known| known.agreed);
        let known = known.ok_or_else(|| CoherenceError::UnknownArray { doing: doing(), array })?;
        let bytes = offset..offset.saturating_add(len);
        let range = pages_of(&bytes);
        if len > 0 && !known.contains(range.start, range.end - range.start) {
            return Err(CoherenceError::OutOfRange {
                doing: doing(),
                array: known.name.clone(),
                first: range.start,
                end: range.end,
                pages: known.pages,
            });
        }
        let homes: Vec<Rank> = range.clone().map(|page| known.home(page)).collect();
        if let Some(rank) = homes.iter().find(|home| self.dead.contains(home)) {
            return Err(CoherenceError::NodeDead { doing: doing(), rank: *rank });
        }
        if op.is_change() {
            self.change_elsewhere(array, range.clone(), pages);
        }
        self.targets.results.insert(token, vec![0; if op.has_result() { len as usize } else { 0 }]);
        let mut at = bytes.start;
        while at < bytes.end {
            // Consecutive pages of one home, up to the limit.
            let first = at / PAGE as u64;
            let home_of = |page: u64| homes.get((page - range.start) as usize).copied();
            let most = (first + TARGET_BYTES_MAX / PAGE as u64).min(range.end);
            let run = (first..most).take_while(|page| home_of(*page) == home_of(first));
            let end = bytes.end.min((run.last().unwrap_or(first) + 1) * PAGE as u64);
            let Some(home) = home_of(first) else { break };
            let place = (at - offset) as usize..(end - offset) as usize;
            let operands = match op {
                TargetOp::Read | TargetOp::CompareExchange(_) => operands,
                _ => operands.get(place.clone()).unwrap_or_default(),
            };
            self.post_target(array, at..end, op, operands, home, token, place);
            at = end;
        }
        self.end_target(token);
        Ok(())
    }

    /// Prepares for changes that this node makes at the homes of these pages (COH-12.2). Its own
    /// copies become invalid after their diffs were sent, and its open interval names the pages.
    /// Readers get no updates of them.
    fn change_elsewhere(&mut self, array: ArrayId, range: Range<u64>, pages: &mut dyn Pages) {
        self.invalidate(&Runs::from_pages(range.clone().map(|page| (array, page))), pages);
        let Some(known) = self.arrays.get(array) else { return };
        let is_named = |page: &u64| {
            // Without a copy elsewhere, nobody needs a notice.
            !matches!(known.state(*page), PageState::HomeUntouched | PageState::HomePrivate)
        };
        for page in range.filter(is_named) {
            self.releases.name((array, page));
            self.updates.sending.share_with_none((array, page));
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn post_target(
        &mut self,
        array: ArrayId,
        bytes: Range<u64>,
        op: TargetOp,
        operands: &[u8],
        home: Rank,
        token: Token,
        result: Range<usize>,
    ) {
        let id = self.targets.next;
        self.targets.next += 1;
        let mut body = Vec::new();
        body.put_leb128(bytes.end - bytes.start).put(operands);
        self.targets.parts.insert(id, TargetPart { array, home, token, result });
        let head = Headline::Target { array, op, offset: bytes.start, id };
        // Behind this node's diffs of the same pages. A change is settled when it is made, and a
        // release waits for that, as for a diff (COH-5.4).
        let purpose = match op.is_change() {
            true => Purpose::Diff,
            false => Purpose::Control(Doing::Target),
        };
        self.post(home, Class::Sync, head, body, purpose);
    }

    /// Performs an operation on pages homed here (COH-12.3). The message is checked as a whole
    /// before the first byte is written.
    pub(crate) fn serve_target(
        &mut self,
        from: Rank,
        (array, op, offset, id): (ArrayId, TargetOp, u64, u64),
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let known = self.arrays.get(array).ok_or(Refusal::UnknownObject)?;
        let mut reader = ByteReader(body);
        let len = reader.leb128()?;
        let operands = reader.0;
        let end = offset.checked_add(len).ok_or(Refusal::OutOfBounds)?;
        let (bytes, width) = (offset..end, op.width());
        let expected = match op {
            TargetOp::Read => 0,
            TargetOp::CompareExchange(width) => 2 * width.bytes(),
            _ => len,
        };
        let is_one = len == width || !matches!(op, TargetOp::CompareExchange(_));
        let is_whole = offset.is_multiple_of(width) && len.is_multiple_of(width) && is_one;
        if len == 0 || len > TARGET_BYTES_MAX || operands.len() as u64 != expected || !is_whole {
            return Err(Refusal::Malformed);
        }
        let range = pages_of(&bytes);
        if !known.contains(range.start, range.end - range.start) {
            return Err(Refusal::OutOfBounds);
        }
        if range.clone().any(|page| !known.state(page).is_home()) {
            return Err(Refusal::NotPermitted);
        }
        self.owe(from, 1)?;
        let mut old = Vec::with_capacity(len as usize);
        for page in range.clone() {
            let mut newest = vec![0; PAGE];
            pages.read_newest(array, page, &mut newest);
            let (of_page, part) = (bytes_of(page), common(&bytes, &bytes_of(page)));
            let part = (part.start - of_page.start) as usize..(part.end - of_page.start) as usize;
            old.extend_from_slice(newest.get(part).unwrap_or_default());
        }
        if op.is_change() {
            let new = op.change(&old, operands);
            for page in range {
                let (of_page, part) = (bytes_of(page), common(&bytes, &bytes_of(page)));
                let place = (part.start - offset) as usize..(part.end - offset) as usize;
                let new = new.get(place).unwrap_or_default();
                self.apply_change((array, page), (part.start - of_page.start) as usize, new, pages);
                self.changed((array, page));
            }
            if pages.failure().is_some() {
                return Err(Refusal::NoRoom);
            }
        }
        let answer = if op.has_result() { old } else { Vec::new() };
        self.post(from, Class::Unordered, Headline::TargetDone { id }, answer, Purpose::Answer);
        Ok(())
    }

    /// Takes the answer of a home.
    pub(crate) fn take_target(&mut self, from: Rank, id: u64, body: &[u8]) -> Result<(), Refusal> {
        let part = self.targets.parts.get(&id).filter(|part| part.home == from);
        // An operation of which another part has failed waits no more.
        let Some(part) = part else { return Ok(()) };
        let (token, result) = (part.token, part.result.clone());
        match self.targets.results.get_mut(&token) {
            None => {} // nobody waits any longer
            Some(results) if results.is_empty() && body.is_empty() => {}
            Some(results) => {
                let place = results.get_mut(result).filter(|place| place.len() == body.len());
                place.ok_or(Refusal::Malformed)?.copy_from_slice(body);
            }
        }
        self.targets.parts.remove(&id);
        self.end_target(token);
        Ok(())
    }

    /// Ends the operation if all its parts are answered.
    fn end_target(&mut self, token: Token) {
        if self.targets.parts.values().any(|part| part.token == token) {
            return;
        }
        if let Some(bytes) = self.targets.results.remove(&token) {
            self.done(token, Value::Bytes(bytes));
        }
    }

    /// Fails the operations that wait for a dead node, or all of them (COH-12.5).
    pub(crate) fn fail_targets(&mut self, error: &CoherenceError, dead: Option<Rank>) {
        let is_lost = |part: &&TargetPart| dead.is_none_or(|dead| part.home == dead);
        let lost: Vec<Token> =
            self.targets.parts.values().filter(is_lost).map(|part| part.token).collect();
        for token in lost {
            self.targets.parts.retain(|_, part| part.token != token);
            if self.targets.results.remove(&token).is_some() {
                self.fail(token, error.clone());
            }
        }
    }
}
