//! A local peer that was given up while its process lives, because it was stopped or said nothing
//! for long. When it continues, it finishes what it was in the middle of (spec/memory.md,
//! MEM-18.6).

use super::line::Line;
use super::marks::Marks;
use super::pair::Pair;
use crate::memory::{Region, WeakRegion};
use std::sync::Arc;

/// Some of its threads were inside regions when it was given up.
#[derive(Debug)]
pub struct WedgedPeer {
    marks: Marks,
    /// Where it is inside: line, and the region, whatever has become of the number that it was
    /// given under.
    inside: Vec<(usize, WeakRegion)>,
    line: Arc<Line>,
}

impl WedgedPeer {
    /// Of a local peer that is let into no region any more, fences made; `None` if nothing is left
    /// of it to be afraid of.
    #[must_use]
    pub fn of(pair: &Pair) -> Option<WedgedPeer> {
        let (marks, given) = pair.grants.all();
        let mut wedged_peer = WedgedPeer {
            marks: marks.clone(),
            inside: given.map(|(_, index, region)| (index, region.clone())).collect(),
            line: Arc::clone(&pair.line),
        };
        (!wedged_peer.is_gone()).then_some(wedged_peer)
    }

    /// Has its process ended, or is it inside nowhere any more: has it come out, or has nobody any
    /// use for the memory that it is in?
    pub fn is_gone(&mut self) -> bool {
        let WedgedPeer { marks, inside, line } = self;
        inside.retain(|(line, region)| {
            marks.is_inside(*line)
                && region.upgrade().is_some_and(|region| !region.has_left_memory())
        });
        inside.is_empty() || line.process_has_ended()
    }

    /// Is it inside this region?
    #[must_use]
    pub fn is_inside(&self, region: &Region) -> bool {
        self.inside.iter().any(|(_, inside)| inside.is(region))
    }
}
