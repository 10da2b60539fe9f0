//! Memory that a node's own operations send from and read into, and whose registration ends while
//! the operations are in flight (MEM-1.8).

use super::{SECRET, WRITTEN, first_run};
use crate::program::interface::Context;
use crate::random::{Random, first_other};
use oikaze_engine::Keep;
use oikaze_os::memory::{Holder, Region};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Segment;
use std::sync::Arc;

/// Fill byte of memory that is no longer registered. No operation may send this memory or write to
/// it.
pub(super) const OURS: u8 = 0x5A;
/// Probability that the end of a registration does not wait for operations in flight, but cancels
/// them at one of the next polls.
const IMPATIENT: f64 = 0.3;

/// A piece to send from, and a piece of the same length behind it to read into.
#[derive(Debug)]
pub(super) struct OwnMemory {
    memory: Region,
    half: u64,
    registered: Option<(u32, Holder)>,
    /// Time since which no operation may begin to use the memory. The registration ends after the
    /// operations in flight.
    closing: Option<Time>,
    impatient: bool,
}

impl OwnMemory {
    pub fn new(half: u64) -> Result<OwnMemory, String> {
        let memory = Region::private(2 * half as usize).map_err(|error| error.to_string())?;
        memory.fill(0, 2 * half, OURS).map_err(|error| error.to_string())?;
        Ok(OwnMemory { memory, half, registered: None, closing: None, impatient: false })
    }

    /// Returns bytes to send, and a holder that keeps them registered meanwhile.
    pub fn source(&self, len: u64) -> Option<(Segment, Keep)> {
        let (region, holder) = self.registered.as_ref().filter(|_| self.closing.is_none())?;
        Some((
            Segment { region: *region, offset: 0, len: len.min(self.half) },
            Some(Arc::clone(holder)),
        ))
    }

    /// Returns a destination to read into.
    pub fn destination(&self, len: u64) -> Option<(Segment, Keep)> {
        let (segment, keep) = self.source(len)?;
        Some((Segment { offset: self.half, ..segment }, keep))
    }

    /// Registers the memory, or begins to end its registration.
    pub fn change(&mut self, context: &mut Context<'_>, random: &mut Random) -> Result<(), String> {
        match &self.registered {
            None => {
                self.memory.fill(0, self.half, WRITTEN).map_err(|error| error.to_string())?;
                let slot = context
                    .engine
                    .memory()
                    .insert_local(self.memory.clone())
                    .map_err(|error| error.to_string())?;
                let holder: Holder = Arc::new(());
                context.engine.memory().set_holder(slot, &holder);
                self.registered = Some((slot, holder));
            }
            Some((slot, _)) => {
                if context.engine.close_region(*slot) {
                    (self.closing, self.impatient) = (Some(context.now), random.chance(IMPATIENT));
                }
            }
        }
        Ok(())
    }

    /// Returns the time since which the end of the registration waits.
    pub fn waits_since(&self) -> Option<Time> {
        self.closing
    }

    /// Ends the registration if no operation uses the memory any more. An impatient end cancels the
    /// operations at a random poll. Returns `true` if the registration has ended.
    pub fn end(&mut self, context: &mut Context<'_>, random: &mut Random) -> Result<bool, String> {
        let Some((slot, holder)) = self.registered.as_ref().filter(|_| self.closing.is_some())
        else {
            return Ok(false);
        };
        if context.engine.ops().is_kept(holder) {
            if !(self.impatient && random.chance(0.2)) {
                return Ok(false);
            }
            context.engine.cancel_keeping(holder);
        }
        context.engine.remove_region(*slot);
        (self.registered, self.closing) = (None, None);
        self.memory.fill(0, 2 * self.half, OURS).map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Checks that memory which only this node uses is unchanged, and that no secret bytes have
    /// arrived.
    pub fn check(&self) -> Result<(), String> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes).map_err(|error| error.to_string())?;
        if let Some(at) = first_run(&bytes, SECRET) {
            return Err(format!("bytes came to {at} that nobody might read any more"));
        }
        if self.registered.is_some() {
            return Ok(());
        }
        match first_other(&bytes, OURS) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of a get's destination was written after the end of its registration"
            )),
        }
    }
}
