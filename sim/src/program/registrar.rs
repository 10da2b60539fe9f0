//! A thread that registers memory and ends registrations while other nodes write to the memory and
//! read it. The thread checks that memory stays unchanged after peers have lost the right to write
//! it, and that no bytes are sent from memory that is no longer registered (MEM-1.7, MEM-1.8).

mod own;

use super::interface::{Context, Program, Progress};
use crate::random::{Random, first_other};
use oikaze_engine::{Completion, Failure, Request};
use oikaze_os::memory::{Region, Registered};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::rma::{Rights, RmaError};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Refusal};
use own::{OURS, OwnMemory};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Fill byte of pages that peers may read and not write.
const CANARY: u8 = 0xC4;
/// Fill byte of memory that is no longer registered, and of pages that peers may neither read nor
/// write.
const SECRET: u8 = 0x5E;
/// Byte that puts write.
const WRITTEN: u8 = 0x11;
/// Number of pieces of memory.
const PIECES: usize = 2;

/// Amount of a registrar's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registering {
    /// Number of registrations, changes and puts.
    pub count: u64,
    /// Maximum number of puts in flight.
    pub in_flight: usize,
    /// Bytes of the longest piece of memory.
    pub longest: usize,
}

/// Returns the offset of the first aligned word of 8 bytes that all have this value. A single byte
/// proves nothing, because a damaged datagram may write any bytes where a transfer is expected
/// (MEM-3.7).
fn first_run(bytes: &[u8], of: u8) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().position(|word| *word == [of; 8]).map(|at| at * 8)
}

/// A piece of memory.
#[derive(Debug)]
struct Piece {
    memory: Region,
    registered: Option<Registered>,
    /// Second registration of the same memory, by another owner. It lets peers only read.
    other: Option<Registered>,
    /// Range that no peer may write now. All its bytes must equal `filled`.
    shut: Range<u64>,
    filled: u8,
}

impl Piece {
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    fn check(&self) -> Result<(), String> {
        let mut bytes = vec![0; (self.shut.end - self.shut.start) as usize];
        self.memory.read(self.shut.start, &mut bytes).map_err(|error| error.to_string())?;
        match first_other(&bytes, self.filled) {
            None => Ok(()),
            Some(at) if self.registered.is_some() => {
                Err(format!("byte {at} of pages that may not be written was written"))
            }
            Some(at) => Err(format!(
                "byte {at} of {} was written after the end of its registration",
                self.len()
            )),
        }
    }

    /// Makes the closed range writable again, and overwrites the secret bytes.
    fn open(&mut self) -> Result<(), String> {
        let range = std::mem::take(&mut self.shut);
        self.memory
            .fill(range.start, range.end - range.start, CANARY)
            .map_err(|error| error.to_string())
    }

    fn shut(&mut self, range: Range<u64>, filled: u8) -> Result<(), String> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.memory.read(range.start, &mut bytes).map_err(|error| error.to_string())?;
        if let Some(at) = first_run(&bytes, OURS) {
            return Err(format!(
                "byte {at} was sent from memory after the end of its registration"
            ));
        }
        self.memory
            .fill(range.start, range.end - range.start, filled)
            .map_err(|error| error.to_string())?;
        (self.shut, self.filled) = (range, filled);
        Ok(())
    }
}

/// Thread that begins, changes and ends registrations, and accesses those of other nodes.
#[derive(Debug)]
pub struct Registrar {
    work: Registering,
    begun: u64,
    pieces: Vec<Piece>,
    own: Option<OwnMemory>,
    under_way: Vec<(Rank, Arc<Completion>, Time)>,
    resume: Time,
    random: Random,
}

impl Registrar {
    /// Makes a thread with this amount of work.
    #[must_use]
    pub fn new(work: Registering, random: Random) -> Registrar {
        Registrar {
            work,
            begun: 0,
            pieces: Vec::new(),
            own: None,
            under_way: Vec::new(),
            resume: Time::default(),
            random,
        }
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        if self.own.is_some() {
            return Ok(());
        }
        let no_memory = |error: oikaze_os::memory::MemoryError| error.to_string();
        for _ in 0..PIECES {
            let len = self.random.between(8, self.work.longest as u64) as usize;
            let memory =
                if self.random.chance(0.5) { Region::private(len) } else { Region::shared(len) }
                    .map_err(no_memory)?;
            let mut piece =
                Piece { memory, registered: None, other: None, shut: 0..0, filled: SECRET };
            piece.shut(0..len as u64, SECRET)?;
            self.pieces.push(piece);
        }
        let mut own = OwnMemory::new(self.work.longest as u64)?;
        own.change(context, &mut self.random)?;
        self.own = Some(own);
        Ok(())
    }

    /// Changes one of this node's registrations.
    fn change(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        let index = self.random.index(PIECES);
        let choice = self.random.below(6);
        let Some(piece) = self.pieces.get_mut(index) else { return Ok(()) };
        let (len, failed) =
            (piece.len(), |error: oikaze_os::memory::MemoryError| error.to_string());
        let Some(registered) = piece.registered else {
            if let Some(other) = piece.other.take() {
                context.engine.remove_region(other.slot);
            }
            piece.open()?;
            let registered = context
                .engine
                .memory()
                .insert(piece.memory.clone(), Rights::ALL)
                .map_err(failed)?;
            piece.registered = Some(registered);
            context.oracle.registered.insert((context.me, index), (registered.key, len));
            return Ok(());
        };
        match choice {
            0 => {
                context.engine.close_region(registered.slot);
                piece.open()?;
                let renewed =
                    context.engine.renew_region(registered.slot, Rights::ALL).map_err(failed)?;
                context.oracle.registrations += 1;
                piece.registered = Some(renewed);
                context.oracle.registered.insert((context.me, index), (renewed.key, len));
            }
            1 | 2 => {
                let pages = len.div_ceil(PAGE as u64);
                let first = self.random.below(pages);
                let end = (first + 1 + self.random.below(pages - first)).min(pages) * PAGE as u64;
                let range = first * PAGE as u64..end.min(len);
                let (rights, filled) =
                    *self.random.pick(&[(Rights::READ, CANARY), (Rights::NONE, SECRET)]);
                piece.open()?;
                context.engine.set_rights(registered.slot, None, Rights::ALL).map_err(failed)?;
                context
                    .engine
                    .set_rights(registered.slot, Some(range.clone()), rights)
                    .map_err(failed)?;
                piece.shut(range, filled)?;
            }
            3 => {
                piece.open()?;
                context.engine.set_rights(registered.slot, None, Rights::ALL).map_err(failed)?;
            }
            _ => {
                context.engine.close_region(registered.slot);
                context.engine.remove_region(registered.slot);
                context.oracle.registered.remove(&(context.me, index));
                context.oracle.registrations += 1;
                piece.registered = None;
                piece.shut(0..len, SECRET)?;
                if self.random.chance(0.5) {
                    let other = context
                        .engine
                        .memory()
                        .insert(piece.memory.clone(), Rights::READ)
                        .map_err(failed)?;
                    piece.other = Some(other);
                }
            }
        }
        Ok(())
    }

    /// Writes to a registration of another node, or reads it. The simulator knows all registrations
    /// of that node at this moment.
    fn reach(&mut self, context: &mut Context<'_>) {
        let known: Vec<(Rank, u64, u64)> = context
            .oracle
            .registered
            .iter()
            .map(|((rank, _), (key, len))| (*rank, *key, *len))
            .collect();
        let (Some(own), false) = (&self.own, known.is_empty()) else { return };
        let (to, key, size) = *self.random.pick(&known);
        let offset = self.random.below(size);
        let len = 1 + self.random.below(size - offset);
        let put = |body| Request::Put { to, key, offset, body, signal: None };
        let (request, keep) = match self.random.below(10) {
            0..=4 => own.source(len).map(|(from, keep)| (put(Body::Segment(from)), keep)),
            5..=7 => own
                .destination(len)
                .map(|(into, keep)| (Request::Get { from: to, key, offset, into }, keep)),
            _ => None,
        }
        .unwrap_or_else(|| (put(Body::Inline(vec![WRITTEN; len as usize])), None));
        let completion = context.submit(request, keep);
        self.under_way.push((to, completion, context.now));
    }

    /// Returns the time since which the end of this node's own registration waits.
    fn own_end(&self) -> Option<Time> {
        self.own.as_ref().and_then(OwnMemory::waits_since)
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let before = self.under_way.len();
        for (to, completion, since) in std::mem::take(&mut self.under_way) {
            let Some(outcome) = completion.outcome() else {
                self.under_way.push((to, completion, since));
                continue;
            };
            context.account("what comes and goes", to, since, &outcome);
            match outcome {
                Ok(_)
                | Err(Failure::Remote(RmaError::Refused(
                    Refusal::UnknownKey | Refusal::NotPermitted,
                ))) => {}
                // The registration of this node's own memory ended before the operation did.
                Err(
                    Failure::Cancelled
                    | Failure::Remote(RmaError::SourceGone | RmaError::DestinationGone),
                ) => {}
                Err(failure) => {
                    context.oracle.excuse(
                        &format!("what comes and goes at node {to}"),
                        (context.me, context.life),
                        &failure,
                    )?;
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
        let mut settled = self.settle(context)?;
        if let Some(own) = &mut self.own {
            own.check()?;
            settled |= own.end(context, &mut self.random)?;
        }
        if self.begun >= self.work.count {
            return Ok(if settled { Progress::ACTED } else { Progress::NONE });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        self.begun += 1;
        if self.under_way.len() < self.work.in_flight && self.random.chance(0.6) {
            self.reach(context);
        } else if let Some(own) = self.own.as_mut().filter(|_| self.random.chance(0.2)) {
            own.change(context, &mut self.random)?;
        } else {
            self.change(context)?;
        }
        self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 1_000_000));
        Ok(Progress { acted: true, wake: Some(self.resume) })
    }

    fn is_finished(&self) -> bool {
        self.begun >= self.work.count && self.under_way.is_empty() && self.own_end().is_none()
    }

    fn waits_since(&self) -> Option<Time> {
        self.under_way.iter().map(|(_, _, since)| *since).chain(self.own_end()).min()
    }

    fn conclude(&self, _: Rank, _: &crate::oracle::Oracle) -> Result<(), String> {
        self.own.iter().try_for_each(OwnMemory::check)?;
        self.pieces.iter().try_for_each(Piece::check)
    }

    fn describe(&self) -> String {
        format!(
            "registrar: {} of {} begun, {} puts under way",
            self.begun,
            self.work.count,
            self.under_way.len()
        )
    }
}
