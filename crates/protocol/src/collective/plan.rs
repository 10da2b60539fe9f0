//! Plans: steps in rounds on one work buffer.

use crate::Rank;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of a round. A parcel that is sent in a round is received in the round of the same number.
pub type RoundNumber = u32;

/// Round in which the root of a broadcast sends the whole vector to every other rank (COLL-2.7). It
/// is greater than any round of another plan.
pub const WHOLE: RoundNumber = (1 << 24) - 1;

/// Contiguous elements of the work buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Number of the first element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Part {
    /// Makes a part from its first element and its length.
    #[must_use]
    pub const fn new(start: usize, len: usize) -> Part {
        Part { start, len }
    }

    /// Returns the part as a range of elements.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Returns `true` if the two parts have no element in common.
    #[must_use]
    pub const fn is_apart(self, other: Part) -> bool {
        self.len == 0
            || other.len == 0
            || self.start + self.len <= other.start
            || other.start + other.len <= self.start
    }

    /// Returns elements `from..to` of this part.
    pub(super) const fn slice(self, from: usize, to: usize) -> Part {
        Part { start: self.start + from, len: to - from }
    }
}

/// Order of the operands when two values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The new value is of lower ranks: `here = new op here`.
    NewFirst,
    /// The new value is of higher ranks: `here = here op new`.
    NewLast,
}

/// Effect of a received part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It replaces the elements there.
    Replace,
    /// It is combined with the elements there.
    Combine(Order),
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Sends a part to a rank.
    Send {
        /// Rank of the receiver.
        to: Rank,
        /// Elements to send, as they are when the step is reached.
        part: Part,
    },
    /// Waits for the part that a rank sends in this round.
    Receive {
        /// Rank of the sender.
        from: Rank,
        /// Elements to write.
        part: Part,
        /// How the part is written.
        how: Arrival,
    },
    /// Combines a part into another of the same length.
    Combine {
        /// The new value.
        new: Part,
        /// First element of the other part.
        into: usize,
        /// Order of the operands.
        order: Order,
    },
    /// Copies a part. The two may not overlap.
    Copy {
        /// Elements to copy.
        part: Part,
        /// First element of the destination.
        into: usize,
    },
}

impl PlanStep {
    /// Returns the parts that the step reads or writes.
    #[must_use]
    pub const fn parts(&self) -> [Part; 2] {
        match *self {
            PlanStep::Send { part, .. } | PlanStep::Receive { part, .. } => [part, part],
            PlanStep::Combine { new: part, into, .. } | PlanStep::Copy { part, into } => {
                [part, Part::new(into, part.len)]
            }
        }
    }
}

/// Work of one rank in one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps in their order, each with the number of its round. Numbers never fall.
    pub steps: Vec<(RoundNumber, PlanStep)>,
    /// Number of elements of the work buffer.
    pub len: usize,
    /// Elements that hold this rank's contribution at the beginning.
    pub input: Part,
    /// Elements that hold the result at the end.
    pub output: Part,
    /// Rank that may send the whole output in round [`WHOLE`], in place of all that this rank
    /// receives. This rank then takes no step (COLL-2.7).
    pub whole_from: Option<Rank>,
}

impl Plan {
    /// Returns `true` if the plan sends the whole vector to every other rank (COLL-2.7).
    #[must_use]
    pub fn sends_whole(&self) -> bool {
        matches!(self.steps.first(), Some((WHOLE, PlanStep::Send { .. })))
    }

    /// Returns the receivers of the sends from step `first` on.
    #[must_use]
    pub fn receivers_from(&self, first: usize) -> Vec<Rank> {
        let steps = self.steps.get(first..).unwrap_or_default();
        let receiver = |(_, step): &(RoundNumber, PlanStep)| match step {
            PlanStep::Send { to, .. } => Some(*to),
            _ => None,
        };
        steps.iter().filter_map(receiver).collect()
    }

    /// Returns the number of different rounds in which this rank sends or receives.
    #[must_use]
    pub fn rounds(&self) -> usize {
        let mut numbers: Vec<RoundNumber> = self
            .steps
            .iter()
            .filter(|(_, step)| matches!(step, PlanStep::Send { .. } | PlanStep::Receive { .. }))
            .map(|(round, _)| *round)
            .collect();
        numbers.dedup();
        numbers.len()
    }

    /// Returns the number of elements that this rank sends.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.steps
            .iter()
            .map(|(_, step)| if let PlanStep::Send { part, .. } = step { part.len } else { 0 })
            .sum()
    }

    /// Returns `true` if none of these steps reads or writes an element of a part.
    #[must_use]
    pub fn leaves_alone(&self, steps: Range<usize>, part: Part) -> bool {
        let steps = self.steps.get(steps).unwrap_or_default();
        steps.iter().all(|(_, step)| step.parts().into_iter().all(|used| used.is_apart(part)))
    }

    /// Returns the number of elements of the longest part that this rank sends.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.steps
            .iter()
            .map(|(_, step)| if let PlanStep::Send { part, .. } = step { part.len } else { 0 })
            .max()
            .unwrap_or(0)
    }
}

/// Ranks that take part in a phase, and this rank's place among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'g> {
    /// Ranks by place; `None`: each place is the rank of that number.
    pub members: Option<&'g [Rank]>,
    /// Number of members.
    pub size: usize,
    /// Place of this rank.
    pub me: usize,
}

impl Group<'_> {
    fn rank(&self, place: usize) -> Rank {
        match self.members {
            Some(members) => members.get(place).copied().unwrap_or(Rank::MAX),
            None => Rank::try_from(place).unwrap_or(Rank::MAX),
        }
    }
}

/// Number of rounds that one phase of a plan may have. It exceeds the number of ranks of any job.
const ROUNDS_A_PHASE: RoundNumber = 1 << 20;

/// Plan under construction.
#[derive(Debug, Default)]
pub(super) struct PlanBuilder {
    plan: Plan,
    phase: RoundNumber,
}

impl PlanBuilder {
    /// Reserves elements of the work buffer.
    pub fn reserve(&mut self, len: usize) -> Part {
        let part = Part::new(self.plan.len, len);
        self.plan.len += len;
        part
    }

    /// Begins a phase, whose rounds come after all rounds of the phases before. All ranks begin the
    /// same phases, also those in which they have nothing to do.
    pub fn next_phase(&mut self) {
        self.phase += ROUNDS_A_PHASE;
    }

    pub fn send(&mut self, group: &Group<'_>, round: usize, to: usize, part: Part) {
        self.step(round, PlanStep::Send { to: group.rank(to), part });
    }

    pub fn receive(
        &mut self,
        group: &Group<'_>,
        round: usize,
        from: usize,
        part: Part,
        how: Arrival,
    ) {
        self.step(round, PlanStep::Receive { from: group.rank(from), part, how });
    }

    pub fn combine(&mut self, round: usize, new: Part, into: usize, order: Order) {
        self.step(round, PlanStep::Combine { new, into, order });
    }

    pub fn copy(&mut self, round: usize, part: Part, into: usize) {
        if part.len > 0 && part.start != into {
            self.step(round, PlanStep::Copy { part, into });
        }
    }

    fn step(&mut self, round: usize, step: PlanStep) {
        let round = RoundNumber::try_from(round).unwrap_or(ROUNDS_A_PHASE - 1);
        self.plan.steps.push((self.phase + round, step));
    }

    /// Lets a rank send the whole output in place of all that this rank receives.
    pub fn accept_whole(&mut self, from: Rank) {
        self.plan.whole_from = Some(from);
    }

    /// Returns the plan.
    pub fn finish(mut self, input: Part, output: Part) -> Plan {
        (self.plan.input, self.plan.output) = (input, output);
        self.plan
    }
}

/// Returns the number of rounds in which a value that doubles reaches `size` places (COLL-2.3).
pub(super) const fn log2_ceil(size: usize) -> usize {
    size.next_power_of_two().trailing_zeros() as usize
}

/// Returns the first element of block `block`, if `len` elements are cut into `blocks` blocks whose
/// lengths differ by at most one. The block after the last gives `len`.
pub(super) const fn cut(len: usize, blocks: usize, block: usize) -> usize {
    let (each, longer) = (len / blocks, len % blocks);
    block * each + if block < longer { block } else { longer }
}
