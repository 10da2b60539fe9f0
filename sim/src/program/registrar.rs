//! A thread whose registrations come and go while others write to them: what nobody may write any more stays as it is (MEM-1.7, MEM-1.8).

use super::{Context, Program, Progress};
use crate::random::Random;
use oikaze::engine::{Completion, Failure, Request};
use oikaze_os::memory::{Region, Registered};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::rma::{Rights, RmaError};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Refusal, Segment};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What memory holds that is registered no more, and pages that may not be written.
const CANARY: u8 = 0xC4;
/// What is written by puts.
const WRITTEN: u8 = 0x11;
/// Pieces of memory.
const PIECES: usize = 2;

/// How much it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registering {
    /// Registrations, changes and puts in all.
    pub count: u64,
    /// Puts under way at a time.
    pub in_flight: usize,
    /// Bytes of the longest piece of memory.
    pub longest: usize,
}

/// A piece of memory.
#[derive(Debug)]
struct Piece {
    memory: Region,
    registered: Option<Registered>,
    /// It is the region of somebody whose peers may only read.
    other: Option<Registered>,
    /// Where nobody may write now.
    shut: Range<u64>,
}

impl Piece {
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    fn check(&self) -> Result<(), String> {
        let mut bytes = vec![0; (self.shut.end - self.shut.start) as usize];
        self.memory.read(self.shut.start, &mut bytes).map_err(|error| error.to_string())?;
        match bytes.iter().position(|byte| *byte != CANARY) {
            None => Ok(()),
            Some(at) if self.registered.is_some() => Err(format!("byte {at} of pages that may not be written was written")),
            Some(at) => Err(format!("byte {at} of {} was written after the end of its registration", self.len())),
        }
    }

    fn shut(&mut self, range: Range<u64>) -> Result<(), String> {
        self.memory.fill(range.start, range.end - range.start, CANARY).map_err(|error| error.to_string())?;
        self.shut = range;
        Ok(())
    }
}

/// Registers, changes, ends, and writes to what others have registered.
#[derive(Debug)]
pub struct Registrar {
    work: Registering,
    begun: u64,
    pieces: Vec<Piece>,
    source: Option<u32>,
    under_way: Vec<(Rank, Arc<Completion>, Time)>,
    resume: Time,
    random: Random,
}

impl Registrar {
    /// A thread that does this much.
    #[must_use]
    pub fn new(work: Registering, random: Random) -> Registrar {
        Registrar { work, begun: 0, pieces: Vec::new(), source: None, under_way: Vec::new(), resume: Time::default(), random }
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        if self.source.is_some() {
            return Ok(());
        }
        let no_memory = |error: oikaze_os::memory::MemoryError| error.to_string();
        for _ in 0..PIECES {
            let len = self.random.between(8, self.work.longest as u64) as usize;
            let memory = if self.random.chance(0.5) { Region::private(len) } else { Region::shared(len) }.map_err(no_memory)?;
            let mut piece = Piece { memory, registered: None, other: None, shut: 0..0 };
            piece.shut(0..len as u64)?;
            self.pieces.push(piece);
        }
        let source = Region::private(self.work.longest).map_err(no_memory)?;
        source.fill(0, self.work.longest as u64, WRITTEN).map_err(|error| error.to_string())?;
        self.source = Some(context.engine.memory().insert_local(source).map_err(no_memory)?);
        Ok(())
    }

    /// Change one of our own registrations.
    fn change(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        let index = self.random.index(PIECES);
        let choice = self.random.below(6);
        let Some(piece) = self.pieces.get_mut(index) else { return Ok(()) };
        let (len, failed) = (piece.len(), |error: oikaze_os::memory::MemoryError| error.to_string());
        let Some(registered) = piece.registered else {
            if let Some(other) = piece.other.take() {
                context.engine.remove_region(other.slot);
            }
            let registered = context.engine.memory().insert(piece.memory.clone(), Rights::ALL).map_err(failed)?;
            (piece.registered, piece.shut) = (Some(registered), 0..0);
            context.oracle.registered.insert((context.me, index), (registered.key, len));
            return Ok(());
        };
        match choice {
            0 => {
                context.engine.close_region(registered.slot);
                let renewed = context.engine.renew_region(registered.slot, Rights::ALL).map_err(failed)?;
                (piece.registered, piece.shut) = (Some(renewed), 0..0);
                context.oracle.registered.insert((context.me, index), (renewed.key, len));
            }
            1 | 2 => {
                let pages = len.div_ceil(PAGE as u64);
                let first = self.random.below(pages);
                let end = (first + 1 + self.random.below(pages - first)).min(pages) * PAGE as u64;
                let range = first * PAGE as u64..end.min(len);
                context.engine.set_rights(registered.slot, None, Rights::ALL).map_err(failed)?;
                context.engine.set_rights(registered.slot, Some(range.clone()), Rights::READ).map_err(failed)?;
                piece.shut(range)?;
            }
            3 => {
                context.engine.set_rights(registered.slot, None, Rights::ALL).map_err(failed)?;
                piece.shut = 0..0;
            }
            _ => {
                context.engine.close_region(registered.slot);
                context.engine.remove_region(registered.slot);
                context.oracle.registered.remove(&(context.me, index));
                piece.registered = None;
                piece.shut(0..len)?;
                if self.random.chance(0.5) {
                    let other = context.engine.memory().insert(piece.memory.clone(), Rights::READ).map_err(failed)?;
                    piece.other = Some(other);
                }
            }
        }
        Ok(())
    }

    /// Write to somebody's registration, as it is known at this moment.
    fn put(&mut self, context: &mut Context<'_>) {
        let known: Vec<(Rank, u64, u64)> =
            context.oracle.registered.iter().map(|((rank, _), (key, len))| (*rank, *key, *len)).collect();
        let (Some(region), false) = (self.source, known.is_empty()) else { return };
        let (to, key, size) = *self.random.pick(&known);
        let offset = self.random.below(size);
        let len = 1 + self.random.below(size - offset);
        let body = match self.random.chance(0.7) {
            true => Body::Segment(Segment { region, offset: 0, len: len.min(self.work.longest as u64) }),
            false => Body::Inline(vec![WRITTEN; len as usize]),
        };
        let completion = context.submit(Request::Put { to, key, offset, body, signal: None }, None);
        self.under_way.push((to, completion, context.now));
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let before = self.under_way.len();
        for (to, completion, since) in std::mem::take(&mut self.under_way) {
            match completion.outcome() {
                None => self.under_way.push((to, completion, since)),
                Some(Ok(_)) => {}
                Some(Err(Failure::Remote(RmaError::Refused(Refusal::UnknownKey | Refusal::NotPermitted)))) => {}
                Some(Err(failure)) => {
                    context.oracle.excuse(&format!("a put to node {to}"), (context.me, context.life), &failure)?;
                }
            }
        }
        Ok(self.under_way.len() < before)
    }
}

impl Program for Registrar {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        self.prepare(context)?;
        self.pieces.iter().try_for_each(Piece::check)?;
        let settled = self.settle(context)?;
        if self.begun >= self.work.count {
            return Ok(if settled { Progress::ACTED } else { Progress::NONE });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        self.begun += 1;
        if self.under_way.len() < self.work.in_flight && self.random.chance(0.6) {
            self.put(context);
        } else {
            self.change(context)?;
        }
        self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 1_000_000));
        Ok(Progress { acted: true, wake: Some(self.resume) })
    }

    fn is_finished(&self) -> bool {
        self.begun >= self.work.count && self.under_way.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.under_way.iter().map(|(_, _, since)| *since).min()
    }

    fn conclude(&self, _: Rank, _: &crate::oracle::Oracle) -> Result<(), String> {
        self.pieces.iter().try_for_each(Piece::check)
    }

    fn describe(&self) -> String {
        format!("registrar: {} of {} begun, {} puts under way", self.begun, self.work.count, self.under_way.len())
    }
}
