//! A neighbour that was given up while its process lives: it was stopped, or has said nothing for long. When it goes on, it finishes what it was in
//! the middle of (spec/memory.md, MEM-18.6).

use super::line::Line;
use super::marks::Marks;
use super::pair::Pair;
use std::sync::Arc;

/// Some of its threads were inside regions when it was given up.
#[derive(Debug)]
pub struct Straggler {
    marks: Marks,
    /// Where it is inside: line, and number of the region.
    inside: Vec<(usize, u32)>,
    line: Arc<Line>,
}

impl Straggler {
    /// Of a neighbour that is let into no region any more, fences made; `None` if nothing is left of it to be afraid of.
    #[must_use]
    pub fn of(pair: &Pair) -> Option<Straggler> {
        let (marks, given) = pair.grants.all();
        let mut straggler = Straggler { marks: marks.clone(), inside: given.collect(), line: Arc::clone(&pair.line) };
        (!straggler.is_gone()).then_some(straggler)
    }

    /// Has its process ended, or is it inside nowhere any more?
    pub fn is_gone(&mut self) -> bool {
        let Straggler { marks, inside, line } = self;
        inside.retain(|(line, _)| marks.is_inside(*line));
        inside.is_empty() || line.process_has_ended()
    }

    /// Is it inside this region?
    #[must_use]
    pub fn is_inside(&self, slot: u32) -> bool {
        self.slots().any(|inside| inside == slot)
    }

    /// The regions that it is inside.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.inside.iter().map(|(_, slot)| *slot)
    }

    /// This number means another region from now on, or none.
    pub fn forget(&mut self, slot: u32) {
        self.inside.retain(|(_, inside)| *inside != slot);
    }
}
