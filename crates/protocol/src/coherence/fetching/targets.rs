//! Arrays as targets of one-sided operations (COH-12): reads, writes and changes that act at the
//! home of each page. They are writes of the initiator's open interval.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Runs;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::fetching::target_op::TargetOp;
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::machine::{ArrayId, Pages};
use crate::coherence::pages::number_set::common;
use crate::coherence::pages::page::{PageState, bytes_of, pages_of};
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::writes::Writes;
use crate::limits::PAGE;
use crate::wind::{Class, Refusal, Token};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of bytes of an array that one message is about (COH-12.4).
pub(crate) const TARGET_BYTES_MAX: u64 = 8 * PAGE as u64;

/// Operations on arrays that this node has begun and that have not ended.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Targets {
    next: u64,
    /// Messages without an answer, by number.
    parts: BTreeMap<u64, TargetPart>,
    /// Bytes that the messages of each operation have brought.
    results: BTreeMap<Token, Vec<u8>>,
    /// Operations that begin when no home may move any more (COH-11.3).
    deferred: VecDeque<DeferredOp>,
}

/// Operation that has not begun.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct DeferredOp {
    array: ArrayId,
    bytes: Range<u64>,
    op: TargetOp,
    operands: Vec<u8>,
    token: Token,
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
        self.deferred
            .iter_mut()
            .filter(|op| op.token == token)
            .for_each(|op| op.token = Token::NONE);
    }

    /// Begins the first operation that was left until homes have moved. Returns `true` if there was
    /// one.
    pub fn begin_deferred(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        let Some(DeferredOp { array, bytes, op, operands, token }) = self.deferred.pop_front()
        else {
            return false;
        };
        if let Err(error) = self.begin((array, bytes), op, &operands, token, w, pages) {
            w.base.mail.fail(token, error);
        }
        true
    }

    /// Returns home and number of each message without an answer (COH-13).
    pub fn waiting(&self) -> impl Iterator<Item = (Rank, u64)> + '_ {
        self.parts.iter().map(|(id, part)| (part.home, *id))
    }

    /// Returns the arrays that operations under way are about.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayId> + '_ {
        self.parts.values().map(|part| part.array)
    }

    /// Begins an operation (COH-12.1) on bytes of an array. The value of the operation is
    /// [`Value::Bytes`]: what it read, or the elements from before a change. `operands` has the
    /// bytes to write, an operand for each element, or expected and new element of a
    /// compare-exchange.
    pub fn begin(
        &mut self,
        (array, bytes): (ArrayId, Range<u64>),
        op: TargetOp,
        operands: &[u8],
        token: Token,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), CoherenceError> {
        let doing = || String::from("an operation on elements at their home");
        if w.base.failing.left {
            return Err(CoherenceError::Left { doing: doing() });
        }
        if let Some(broken) = w.base.failing.broken() {
            return Err(broken.clone());
        }
        if w.base.clock.moves_homes {
            let operands = operands.to_vec();
            self.deferred.push_back(DeferredOp { array, bytes, op, operands, token });
            return Ok(());
        }
        let known = w.base.arrays.get(array).filter(|known| known.agreed);
        let known = known.ok_or_else(|| CoherenceError::UnknownArray { doing: doing(), array })?;
        let (offset, len) = (bytes.start, bytes.end - bytes.start);
        let range = pages_of(&bytes);
        if len > 0 && !known.contains(range.start, range.end - range.start) {
            return Err(known.out_of_range(doing(), &range));
        }
        let homes: Vec<Rank> = range.clone().map(|page| known.home(page)).collect();
        if let Some(rank) = homes.iter().find(|home| w.base.mail.is_dead(**home)) {
            return Err(CoherenceError::NodeDead { doing: doing(), rank: *rank });
        }
        if op.is_change() {
            change_elsewhere(array, range.clone(), w, pages);
        }
        // Several operations for which nobody waits may have no token.
        if token != Token::NONE {
            self.results.insert(token, vec![0; if op.has_result() { len as usize } else { 0 }]);
        }
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
            let part = TargetPart { array, home, token, result: place };
            self.post(part, at..end, op, operands, w.base.mail);
            at = end;
        }
        self.end(token, w.base.mail);
        Ok(())
    }

    fn post(
        &mut self,
        part: TargetPart,
        bytes: Range<u64>,
        op: TargetOp,
        operands: &[u8],
        mail: &mut Mailbox,
    ) {
        let id = self.next;
        self.next += 1;
        let mut body = Vec::new();
        body.put_leb128(bytes.end - bytes.start).put(operands);
        let head = Headline::Target { array: part.array, op, offset: bytes.start, id };
        // Behind this node's diffs of the same pages. A change is settled when it is made, and a
        // release waits for that, as for a diff (COH-5.4).
        let purpose = match op.is_change() {
            true => Purpose::Diff,
            false => Purpose::Control(Doing::Target),
        };
        mail.post(part.home, Class::Sync, head, body.into(), purpose);
        self.parts.insert(id, part);
    }

    /// Takes the answer of a home.
    pub fn take(
        &mut self,
        from: Rank,
        id: u64,
        body: &[u8],
        mail: &mut Mailbox,
    ) -> Result<(), Refusal> {
        let part = self.parts.get(&id).filter(|part| part.home == from);
        // An operation of which another part has failed waits no more.
        let Some(part) = part else { return Ok(()) };
        let (token, result) = (part.token, part.result.clone());
        match self.results.get_mut(&token) {
            None => {} // nobody waits any longer
            Some(results) if results.is_empty() && body.is_empty() => {}
            Some(results) => {
                let place = results.get_mut(result).filter(|place| place.len() == body.len());
                place.ok_or(Refusal::Malformed)?.copy_from_slice(body);
            }
        }
        self.parts.remove(&id);
        self.end(token, mail);
        Ok(())
    }

    /// Ends the operation if all its parts are answered.
    fn end(&mut self, token: Token, mail: &mut Mailbox) {
        if self.parts.values().any(|part| part.token == token) {
            return;
        }
        if let Some(bytes) = self.results.remove(&token) {
            mail.done(token, Value::Bytes(bytes));
        }
    }

    /// Fails the operations that wait for a dead node, or all of them (COH-12.5).
    pub fn fail(&mut self, error: &CoherenceError, dead: Option<Rank>, mail: &mut Mailbox) {
        let is_lost = |part: &&TargetPart| dead.is_none_or(|dead| part.home == dead);
        let lost: Vec<Token> = self.parts.values().filter(is_lost).map(|part| part.token).collect();
        for token in lost {
            self.parts.retain(|_, part| part.token != token);
            if self.results.remove(&token).is_some() {
                mail.fail(token, error.clone());
            }
        }
    }
}

/// Prepares for changes that this node makes at the homes of these pages (COH-12.2). Its own
/// copies become invalid after their diffs were sent, and its open interval names the pages.
/// Readers get no updates of them.
fn change_elsewhere(array: ArrayId, range: Range<u64>, w: &mut Writes<'_>, pages: &mut dyn Pages) {
    w.invalidate(&Runs::from_pages(range.clone().map(|page| (array, page))), pages);
    let Some(known) = w.base.arrays.get(array) else { return };
    let is_named = |page: &u64| {
        // Without a copy elsewhere, nobody needs a notice.
        !matches!(known.state(*page), PageState::HomeUntouched | PageState::HomePrivate)
    };
    for page in range.filter(is_named) {
        w.releasing.name((array, page));
        w.updates.sending.share_with_none((array, page));
    }
}

/// Performs an operation on pages homed here (COH-12.3). The message is checked as a whole
/// before the first byte is written.
pub(crate) fn serve_target(
    from: Rank,
    (array, op, offset, id): (ArrayId, TargetOp, u64, u64),
    body: &[u8],
    base: &mut Base<'_>,
    pages: &mut dyn Pages,
) -> Result<(), Refusal> {
    let known = base.arrays.get(array).ok_or(Refusal::UnknownObject)?;
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
    known.check_served(range.clone())?;
    base.mail.owe(from, 1)?;
    base.accept_homes(array, range.clone());
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
        base.arrays.apply_change(array, offset, &new, pages);
        range.for_each(|page| base.arrays.note_change((array, page), base.clock.epoch));
        if pages.failure().is_some() {
            return Err(Refusal::NoRoom);
        }
    }
    let answer = if op.has_result() { old } else { Vec::new() };
    base.mail.post(
        from,
        Class::Unordered,
        Headline::TargetDone { id },
        answer.into(),
        Purpose::Answer,
    );
    Ok(())
}
