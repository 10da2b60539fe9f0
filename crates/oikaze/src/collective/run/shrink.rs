//! Agreements of a team on its living ranks (COLL-6).

use super::slot::{CollectiveFailure, Slot};
use super::work::UntypedResult;
use crate::collective::run::core::TeamCore;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{Agreed, Agreement, CollectiveCall, GoneView, ParcelPurpose};
use oikaze_runtime::node::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

/// Maximum number of agreements by which another rank may be ahead of this one.
const AHEAD_MAX: u64 = 16;

/// Agreements of one team.
#[derive(Default)]
pub(super) struct Shrinks {
    /// Number of the next agreement of this rank.
    next: u64,
    under_way: BTreeMap<u64, Shrink>,
    /// Why this rank cannot go on.
    failed: Option<CollectiveFailure>,
}

struct Shrink {
    agreement: Agreement,
    /// Slot for the ranks that are gone. `None`: this rank has not called it.
    slot: Option<Arc<Slot>>,
}

impl Shrinks {
    fn of(&mut self, number: u64, team: &TeamCore) -> &mut Shrink {
        self.under_way.entry(number).or_insert_with(|| {
            let ranks = Rank::try_from(team.ranks().len()).unwrap_or(Rank::MAX);
            Shrink { agreement: Agreement::new(team.me(), ranks), slot: None }
        })
    }

    /// Begins the next agreement. Returns its number.
    pub fn begin(&mut self, team: &TeamCore, slot: Arc<Slot>) -> u64 {
        let number = self.next;
        self.next += 1;
        let shrink = self.of(number, team);
        shrink.slot = Some(slot);
        shrink.agreement.join();
        number
    }

    /// Returns `true` while this rank has called an agreement that has not ended.
    pub fn are_called(&self) -> bool {
        self.under_way.values().any(|shrink| shrink.slot.is_some())
    }

    /// Takes the view of another rank. It may come before this rank has called the agreement.
    pub fn hear(&mut self, team: &TeamCore, from: Rank, number: u64, body: &[u8]) {
        let ranks = Rank::try_from(team.ranks().len()).unwrap_or(Rank::MAX);
        let is_near = number < self.next.saturating_add(AHEAD_MAX);
        let is_over = number < self.next && !self.under_way.contains_key(&number);
        if let Ok(view) = GoneView::decode(body, ranks)
            && is_near
            && !is_over
        {
            self.of(number, team).agreement.hear(from, &view);
        }
    }

    /// Fails the agreements that this rank has called, or else the next one.
    pub fn fail(&mut self, failure: CollectiveFailure) {
        self.failed = Some(failure);
    }

    /// Notes the ranks that are gone, sends what there is to tell, and settles what is decided.
    /// Returns `true` if anything was settled.
    pub fn run(&mut self, team: &TeamCore, node: &Node, wakers: &mut Vec<Waker>) -> bool {
        if self.under_way.is_empty() {
            return false;
        }
        let over =
            node.departures.loss_in(&[]).map(CollectiveFailure::Lost).or(self.failed.clone());
        let gone = node.departures.gone_of(team.ranks());
        let mut has_settled = false;
        self.under_way.retain(|number, Shrink { agreement, slot }| {
            gone.iter().filter_map(|rank| team.place_of(*rank)).for_each(|at| agreement.lose(at));
            if let Some(view) = agreement.message() {
                let head = team.head(ParcelPurpose::View, *number, 0, CollectiveCall::SHRINK);
                let body = view.encode();
                // Also to the ranks in it. One that lives after all learns that it is excluded.
                let others = (0..).take(team.ranks().len()).filter(|to| *to != team.me());
                for to in others {
                    team.send(node, to, head, &body);
                }
            }
            let Some(slot) = slot else { return true };
            let outcome = match (agreement.outcome(), &over) {
                (Some(Agreed::Gone(gone)), _) => {
                    Ok(UntypedResult::of(&gone.iter().copied().collect::<Vec<Rank>>()))
                }
                (Some(Agreed::Excluded), _) => {
                    let why = "the other ranks count this rank as dead: it cannot go on with them";
                    Err(CollectiveFailure::Mistake(why.into()))
                }
                (None, Some(failure)) => Err(failure.clone()),
                (None, None) => return true,
            };
            wakers.extend(slot.settle(outcome));
            has_settled = true;
            false
        });
        if has_settled {
            // It fails the agreement that it came for, and no later one.
            self.failed = None;
        }
        has_settled
    }
}
