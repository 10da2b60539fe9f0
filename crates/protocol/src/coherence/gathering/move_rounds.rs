//! Homes that move at a collective of two rounds (COH-11). At the first one, nodes ask for pages,
//! and the departure proposes moves. At the second one, the new homes say that they can serve, and
//! the departure confirms the moves that nothing has contradicted.

use crate::coherence::base::Base;
use crate::coherence::clock::moves::{MOVES_TO_ONE_MAX, Move, Moves};
use crate::coherence::clock::notices::Interval;
use crate::coherence::fetching::targets::Targets;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::departure::{Departure, Outcome};
use crate::coherence::gathering::state::Collectives;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::page::ranges;
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;

impl Call {
    /// Returns `true` if homes may move at this collective (COH-11.1).
    fn may_move_homes(&self) -> bool {
        matches!(self, Call::Barrier | Call::Reduce(_))
    }
}

impl Collectives {
    /// Returns the pages for which this node asks when it arrives, or for which it serves as the
    /// home from now on, because it arrives at the second round.
    pub fn asks(&self, base: &mut Base<'_>) -> Moves {
        let (me, epoch) = (base.mail.me, base.clock.epoch);
        let mut asks = Moves::default();
        if base.clock.moves_homes {
            for Move { array, pages, home } in self.proposed.to(me) {
                let Some(known) = base.arrays.get_mut(*array) else { continue };
                let valid = match planted(Bug::MoveInvalidPages) {
                    true => pages.clone().collect(),
                    false => known.valid_copies(pages.clone()),
                };
                known.offer(&valid);
                asks.add(*array, valid, *home);
            }
        } else if self.current.as_ref().is_some_and(|current| current.call.may_move_homes()) {
            let dropped = base.arrays.dropped();
            let is_used = |(array, _): &(ArrayId, _)| !dropped.contains(u64::from(*array));
            for (array, known) in base.arrays.iter().filter(is_used) {
                asks.add(array, known.asked(epoch), me);
            }
        }
        asks.truncate(MOVES_TO_ONE_MAX);
        asks
    }

    /// Returns the moves that a departure proposes or confirms. A node can offer nothing that was
    /// not proposed.
    pub fn moves(
        &self,
        asks: Moves,
        outcome: &Outcome,
        told: &[Interval],
        base: &Base<'_>,
    ) -> Moves {
        let may_move = self.current.as_ref().is_some_and(|now| now.call.may_move_homes());
        match outcome {
            Outcome::Agreed(_) if may_move && base.clock.moves_homes => {
                asks.among(&self.proposed).uncontradicted(told, true)
            }
            Outcome::Agreed(_) if may_move => asks.uncontradicted(told, false),
            _ => Moves::default(),
        }
    }

    /// Checks the moves of a departure.
    pub fn check_moves(&self, departure: &Departure, base: &Base<'_>) -> Result<(), Refusal> {
        if departure.moves.is_empty() {
            return Ok(());
        }
        let may_move = self.current.as_ref().is_some_and(|now| now.call.may_move_homes());
        let is_agreed = matches!(departure.outcome, Outcome::Agreed(_));
        let is_proposed = !base.clock.moves_homes
            || departure.moves.clone().among(&self.proposed) == departure.moves;
        match may_move && is_agreed && is_proposed {
            true => Ok(()),
            false => Err(Refusal::Malformed),
        }
    }

    /// Proposes or changes homes at the end of a collective, or of its second round.
    pub fn end_round(
        &mut self,
        departure: &Departure,
        call: &Call,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        if planted(Bug::MoveHomesAtOnce) && !w.base.clock.moves_homes {
            w.base.clock.moves_homes = true;
            self.note_moves(&departure.moves, &mut w.base);
        }
        if w.base.clock.moves_homes {
            self.confirm_moves(&departure.moves, w);
        } else if !departure.moves.is_empty() {
            self.propose_moves(&departure.moves, w, pages);
        }
        if call.may_move_homes() && !w.base.clock.moves_homes {
            w.base.arrays.iter_mut().for_each(|(_, array)| array.moving.was_touched = true);
        }
    }

    /// Begins the second round, in which no release, acquire or operation on elements begins here
    /// (COH-11.3). Homes track stores to pages that may leave them.
    fn propose_moves(&mut self, moves: &Moves, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        w.base.clock.moves_homes = true;
        self.repeats = true;
        self.proposed = moves.clone();
        for Move { array, pages: run, .. } in moves.iter() {
            let Some(known) = w.base.arrays.get_mut(*array) else { continue };
            known.moving.proposed.insert(run.clone());
            let protected = known.share(run.clone());
            for (array, run) in ranges(protected.into_iter().map(|page| (*array, page))) {
                pages.set_access(array, run, Access::Read);
            }
        }
    }

    /// Notes the new homes of pages when the second round ends. What the departure makes invalid
    /// sends its changes there.
    pub fn note_moves(&self, moves: &Moves, base: &mut Base<'_>) {
        if !base.clock.moves_homes {
            return;
        }
        for Move { array, pages, home } in moves.iter() {
            base.arrays.change(*array, |known| known.moving.note_moved(pages.clone(), *home));
        }
    }

    /// Changes the states of pages whose homes have moved.
    fn confirm_moves(&mut self, moves: &Moves, w: &mut Writes<'_>) {
        w.base.clock.moves_homes = false;
        self.proposed = Moves::default();
        let me = w.base.mail.me;
        for Move { array, pages, home } in moves.iter() {
            let Some(known) = w.base.arrays.get_mut(*array) else { continue };
            if *home == me {
                let new = pages.clone().filter(|page| known.become_home(*page)).count();
                w.base.statistics.homes_moved += new as u64;
            } else {
                known.leave_home(pages.clone());
            }
            w.updates.feeds.subscribe_again(*array, pages, &mut w.base);
        }
        let epoch = w.base.clock.epoch;
        w.base.arrays.iter_mut().for_each(|(_, array)| array.moving.end_round(epoch));
    }

    /// Returns `true` if the second round waits for operations on elements of arrays whose homes
    /// may move. They need no call of the program.
    pub fn waits_for_targets(&self, targets: &Targets) -> bool {
        self.repeats
            && targets.arrays().any(|array| self.proposed.iter().any(|one| one.array == array))
    }

    /// Returns `true` if the second round will not end on this node (COH-11.7).
    pub fn has_lost_moves(&self, base: &Base<'_>) -> bool {
        base.clock.moves_homes && self.current.is_none() && !self.repeats
    }
}
