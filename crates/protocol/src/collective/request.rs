//! Requests for plans, and their dispatch to the algorithms.

use super::choice::{Facts, choose};
use super::hierarchy::{self, Machines};
use super::plan::{Arrival, Group, Part, Plan, PlanBuilder, WHOLE};
use super::{bruck, doubling, pairwise, rabenseifner, ring, tree};
use crate::Rank;
use crate::collective::call::CollectiveKind;
use crate::collective::choice::CollectiveAlgorithm;
use crate::limits::{GROUP_BODY_MIN, GROUP_MEMBERS_MAX, GROUP_RECEIVERS_MIN, MESSAGE_MAX};
use alloc::vec::Vec;

/// Lengths of the blocks, in elements.
#[derive(Clone, Copy, Debug)]
pub enum Lengths<'l> {
    /// Each rank's vector has this length. For gather, scatter, reduce_scatter and exchanges, it is
    /// the length of one block.
    Even(usize),
    /// Blocks differ, by rank.
    Uneven {
        /// Lengths of the blocks that this rank sends to each rank (scatter, exchange).
        sent: &'l [usize],
        /// Lengths of the blocks that each rank contributes (gather, all_gather), keeps
        /// (reduce_scatter), or sends to this rank (exchange).
        received: &'l [usize],
    },
}

/// Request for the plan of one rank.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'r> {
    /// Kind of the collective.
    pub kind: CollectiveKind,
    /// CollectiveAlgorithm, chosen by [`choose`] or by a test.
    pub algorithm: CollectiveAlgorithm,
    /// Rank that asks for its plan.
    pub rank: Rank,
    /// Number of ranks.
    pub ranks: Rank,
    /// Root, for kinds that have one.
    pub root: Rank,
    /// Lengths of the blocks.
    pub lengths: Lengths<'r>,
    /// Bytes of one element, on which the choice among leaders rests.
    pub element: usize,
    /// The operator commutes, or there is none.
    pub commutes: bool,
    /// Machine of each rank, for [`CollectiveAlgorithm::Hierarchical`].
    pub machines: &'r [u32],
}

/// Error of a request without a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A rank or a root is none of the ranks.
    #[error("rank {rank} is none of {ranks}, which are numbered from 0")]
    NoSuchRank {
        /// Rank in question.
        rank: Rank,
        /// Number of ranks.
        ranks: Rank,
    },
    /// The algorithm is not for this kind, number of ranks, lengths or operator.
    #[error("{algorithm:?} is not an algorithm for this {kind}")]
    Unfit {
        /// CollectiveAlgorithm in question.
        algorithm: CollectiveAlgorithm,
        /// Kind of the collective.
        kind: CollectiveKind,
    },
    /// There is not one length for each rank, or the lengths overflow.
    #[error("the lengths do not fit the number of ranks, or their sum is too large")]
    Lengths,
}

/// Returns the first elements of blocks of these lengths, and the end of the last.
pub(super) fn starts(size: usize, len: &dyn Fn(usize) -> usize) -> Vec<usize> {
    let mut at = 0;
    let mut starts = Vec::with_capacity(size + 1);
    for place in 0..size {
        starts.push(at);
        at += len(place);
    }
    starts.push(at);
    starts
}

impl PlanRequest<'_> {
    fn check(&self) -> Result<(), PlanError> {
        for rank in [self.rank, self.root] {
            if rank >= self.ranks {
                return Err(PlanError::NoSuchRank { rank, ranks: self.ranks });
            }
        }
        let ranks = self.ranks as usize;
        // Work buffers hold up to five times all blocks.
        let fits = |len: usize| len.checked_mul(8).is_some();
        let is_right = |lens: &[usize]| {
            let sum = lens.iter().try_fold(0usize, |sum, len| sum.checked_add(*len));
            lens.len() == ranks && sum.is_some_and(fits)
        };
        let (sends, receives) = match self.kind {
            CollectiveKind::Scatter => (true, false),
            CollectiveKind::Gather | CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                (false, true)
            }
            _ => (true, true),
        };
        let sound = match self.lengths {
            Lengths::Even(len) => len.checked_mul(ranks).is_some_and(fits),
            Lengths::Uneven { sent, received } => {
                (!sends || is_right(sent)) && (!receives || is_right(received))
            }
        };
        if sound { Ok(()) } else { Err(PlanError::Lengths) }
    }

    /// Returns the algorithm among the leaders of machines.
    fn among_leaders(&self, bytes: usize, ranks: usize) -> CollectiveAlgorithm {
        choose(&Facts {
            kind: self.kind,
            bytes,
            ranks,
            commutes: self.commutes,
            several_machines: false,
            has_group: false,
        })
    }

    /// Returns `true` if the root of a broadcast of `len` elements may send all of them to every
    /// other rank at once (COLL-2.7).
    fn may_send_whole(&self, len: usize) -> bool {
        may_send_whole(
            self.machines,
            self.ranks as usize,
            self.root,
            len.saturating_mul(self.element),
        )
    }
}

/// Returns `true` if the root of a broadcast may send the whole vector to every other rank at once
/// (COLL-2.7): the vector has this many bytes, one group can have all other ranks, and none of them
/// is on the root's machine.
///
/// ```
/// use oikaze_protocol::collective::may_send_whole;
/// assert!(may_send_whole(&[0, 1, 2], 3, 0, 4096));
/// assert!(!may_send_whole(&[0, 1, 2], 3, 0, 4095));
/// assert!(!may_send_whole(&[0, 1, 0], 3, 0, 4096), "rank 2 is on the machine of the root");
/// assert!(may_send_whole(&[0, 1, 0], 3, 1, 4096));
/// let machines: Vec<u32> = (0..34).collect();
/// assert!(may_send_whole(&machines[..33], 33, 0, 4096));
/// assert!(!may_send_whole(&machines, 34, 0, 4096), "a group has at most 32 members");
/// ```
#[must_use]
pub fn may_send_whole(machines: &[u32], ranks: usize, root: Rank, bytes: usize) -> bool {
    let of_root = machines.get(root as usize);
    (GROUP_RECEIVERS_MIN..=GROUP_MEMBERS_MAX).contains(&ranks.saturating_sub(1))
        && (GROUP_BODY_MIN..=MESSAGE_MAX).contains(&(bytes as u64))
        && machines.iter().filter(|machine| Some(*machine) == of_root).count() <= 1
}

/// Sends the whole of the root's part to every other rank.
fn send_whole(out: &mut PlanBuilder, group: &Group<'_>, root: usize, part: Part) {
    let round = WHOLE as usize;
    if group.me == root {
        let others = (0..group.size).filter(|place| *place != root);
        others.for_each(|place| out.send(group, round, place, part));
    } else {
        out.receive(group, round, root, part, Arrival::Replace);
    }
}

/// Returns what this rank does.
///
/// ```
/// use oikaze_protocol::collective::{
///     CollectiveAlgorithm, CollectiveKind, Lengths, PlanRequest, PlanStep, plan,
/// };
/// let plan = plan(&PlanRequest {
///     kind: CollectiveKind::Broadcast,
///     algorithm: CollectiveAlgorithm::Binomial,
///     rank: 0,
///     ranks: 4,
///     root: 0,
///     lengths: Lengths::Even(10),
///     element: 8,
///     commutes: true,
///     machines: &[],
/// })?;
/// let sends_to_2 = matches!(plan.steps[0], (0, PlanStep::Send { to: 2, .. }));
/// assert!(sends_to_2 && plan.steps.len() == 2);
/// # Ok::<(), oikaze_protocol::collective::PlanError>(())
/// ```
///
/// # Errors
/// A rank is none of the ranks, the lengths do not fit, or the algorithm is not for this kind,
/// number of ranks, lengths or operator.
pub fn plan(request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    request.check()?;
    let PlanRequest { kind, algorithm, rank, root, lengths, commutes, machines, element, .. } =
        *request;
    let unfit = Err(PlanError::Unfit { algorithm, kind });
    let hierarchical = algorithm == CollectiveAlgorithm::Hierarchical;
    if hierarchical && machines.len() != request.ranks as usize {
        return unfit;
    }
    let group = Group { members: None, size: request.ranks as usize, me: rank as usize };
    let place = root as usize;
    let out = &mut PlanBuilder::default();
    let at = |lens: &[usize], place: usize| lens.get(place).copied().unwrap_or(0);
    let sent = |place: usize| match lengths {
        Lengths::Even(len) => len,
        Lengths::Uneven { sent, .. } => at(sent, place),
    };
    let received = |place: usize| match lengths {
        Lengths::Even(len) => len,
        Lengths::Uneven { received, .. } => at(received, place),
    };
    let even = match lengths {
        Lengths::Even(len) => Some(len),
        Lengths::Uneven { .. } => None,
    };
    let nothing = Part::new(0, 0);
    let (input, output) = match (kind, algorithm, even) {
        (CollectiveKind::Broadcast, _, Some(len)) => {
            let part = out.reserve(len);
            match algorithm {
                CollectiveAlgorithm::Binomial => tree::broadcast(out, &group, place, part),
                CollectiveAlgorithm::ScatterAllGather => {
                    let at = |place| super::plan::cut(len, group.size, place);
                    tree::scatter_in_place(out, &group, place, part, &at);
                    out.next_phase();
                    ring::all_gather(out, &group, 0, &|place| part.slice(at(place), at(place + 1)));
                }
                CollectiveAlgorithm::Hierarchical => {
                    let machines = Machines::new(machines, rank, Some(root));
                    hierarchy::broadcast(out, &machines, root, part);
                }
                CollectiveAlgorithm::Multicast => send_whole(out, &group, place, part),
                _ => return unfit,
            }
            let is_other = algorithm != CollectiveAlgorithm::Multicast && rank != root;
            if is_other && request.may_send_whole(len) {
                out.accept_whole(root);
            }
            (if rank == root { part } else { nothing }, part)
        }
        (CollectiveKind::Gather, CollectiveAlgorithm::Binomial, _) => {
            tree::gather(out, &group, place, &received)
        }
        (CollectiveKind::Scatter, CollectiveAlgorithm::Binomial, _) => {
            tree::scatter(out, &group, place, &sent)
        }
        (CollectiveKind::Reduce, _, Some(len)) => {
            let part = out.reserve(len);
            match algorithm {
                CollectiveAlgorithm::Binomial => tree::reduce(out, &group, place, part, commutes),
                CollectiveAlgorithm::Rabenseifner => rabenseifner::reduce(out, &group, place, part),
                CollectiveAlgorithm::Hierarchical => {
                    let machines = Machines::new(machines, rank, Some(root));
                    if !(commutes || machines.contiguous) {
                        return unfit;
                    }
                    hierarchy::reduce(out, &machines, root, part, commutes);
                }
                _ => return unfit,
            }
            (part, if rank == root { part } else { nothing })
        }
        (CollectiveKind::AllReduce, _, Some(len)) => {
            let part = out.reserve(len);
            match algorithm {
                CollectiveAlgorithm::RecursiveDoubling => doubling::all_reduce(out, &group, part),
                CollectiveAlgorithm::Rabenseifner => rabenseifner::all_reduce(out, &group, part),
                CollectiveAlgorithm::Ring if commutes => {
                    hierarchy::ring_all_reduce(out, &group, part)
                }
                CollectiveAlgorithm::Hierarchical => {
                    let machines = Machines::new(machines, rank, None);
                    if !(commutes || machines.contiguous) {
                        return unfit;
                    }
                    let bytes = len.saturating_mul(element);
                    let among = request.among_leaders(bytes, machines.count());
                    hierarchy::all_reduce(out, &machines, part, among, commutes);
                }
                _ => return unfit,
            }
            (part, part)
        }
        (CollectiveKind::AllGather, CollectiveAlgorithm::RecursiveDoubling, Some(each))
            if group.size.is_power_of_two() =>
        {
            doubling::all_gather(out, &group, each)
        }
        (CollectiveKind::AllGather, CollectiveAlgorithm::Bruck, _) => {
            bruck::all_gather(out, &group, &received)
        }
        (CollectiveKind::AllGather, CollectiveAlgorithm::Ring, _) => {
            let starts = starts(group.size, &received);
            let all = out.reserve(at(&starts, group.size));
            let block = |place| all.slice(at(&starts, place), at(&starts, place + 1));
            ring::all_gather(out, &group, 0, &block);
            (block(group.me), all)
        }
        (CollectiveKind::ReduceScatter, _, _) => {
            let starts = starts(group.size, &received);
            let all = out.reserve(at(&starts, group.size));
            let block = |place| all.slice(at(&starts, place), at(&starts, place + 1));
            match algorithm {
                CollectiveAlgorithm::Ring if commutes => {
                    ring::reduce_scatter(out, &group, &block);
                }
                CollectiveAlgorithm::ReduceThenScatter => {
                    tree::reduce(out, &group, 0, all, commutes);
                    out.next_phase();
                    tree::scatter_in_place(out, &group, 0, all, &|place| at(&starts, place));
                }
                _ => return unfit,
            }
            (all, block(group.me))
        }
        (
            CollectiveKind::Scan | CollectiveKind::ExclusiveScan,
            CollectiveAlgorithm::RecursiveDoubling,
            Some(len),
        ) => doubling::scan(out, &group, len, kind == CollectiveKind::ExclusiveScan),
        (CollectiveKind::AllToAll, CollectiveAlgorithm::Bruck, Some(each)) => {
            bruck::all_to_all(out, &group, each)
        }
        (CollectiveKind::AllToAll, CollectiveAlgorithm::Pairwise, _) => {
            pairwise::all_to_all(out, &group, &sent, &received)
        }
        _ => return unfit,
    };
    Ok(core::mem::take(out).finish(input, output))
}
