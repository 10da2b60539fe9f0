//! All ranks of one collective on one thread, and the oracle.

use super::super::*;
use crate::Rank;
use crate::random::Random;
use std::collections::BTreeMap;
use std::vec::Vec;

/// An element: the contributions that it combines, in the order of its operands.
type Element = Vec<(Rank, usize)>;

/// One collective of all ranks.
pub(super) struct World<'w> {
    pub kind: CollectiveKind,
    pub algorithm: CollectiveAlgorithm,
    /// Algorithm of the root, which may be another one (COLL-2.7).
    pub root_by: CollectiveAlgorithm,
    pub ranks: Rank,
    pub root: Rank,
    pub commutes: bool,
    pub machines: &'w [u32],
    pub len: usize,
    /// Bytes of an element.
    pub element: usize,
}

struct Runner {
    plan: Plan,
    buffer: Vec<Element>,
    next: usize,
}

/// Contribution of a rank: `len` elements from number `at` on.
fn contribution(rank: Rank, at: usize, len: usize) -> Vec<Element> {
    (at..at + len).map(|n| Vec::from([(rank, n)])).collect()
}

impl World<'_> {
    /// Length of the block from one rank to another.
    fn block(&self, from: Rank, to: Rank, uneven: bool) -> usize {
        // Vectors that are combined have the same blocks on all ranks.
        let from = if self.kind == CollectiveKind::ReduceScatter { 0 } else { from };
        if uneven { (self.len + 3 * from as usize + to as usize) % 7 } else { self.len }
    }

    fn lens(&self, uneven: bool, len: impl Fn(Rank) -> (Rank, Rank)) -> Vec<usize> {
        (0..self.ranks).map(len).map(|(from, to)| self.block(from, to, uneven)).collect()
    }

    fn input(&self, rank: Rank, uneven: bool) -> Vec<Element> {
        let blocks = |to: &mut dyn Iterator<Item = Rank>| {
            contribution(rank, 0, to.map(|to| self.block(rank, to, uneven)).sum())
        };
        match self.kind {
            CollectiveKind::Broadcast if rank != self.root => Vec::new(),
            CollectiveKind::Scatter if rank != self.root => Vec::new(),
            CollectiveKind::Scatter | CollectiveKind::AllToAll | CollectiveKind::ReduceScatter => {
                blocks(&mut (0..self.ranks))
            }
            CollectiveKind::Gather | CollectiveKind::AllGather => {
                contribution(rank, 0, self.block(rank, 0, uneven))
            }
            _ => contribution(rank, 0, self.len),
        }
    }

    /// Elements of the combined vector of these ranks.
    fn combined(&self, ranks: std::ops::Range<Rank>, at: usize, len: usize) -> Vec<Element> {
        (at..at + len).map(|n| ranks.clone().map(|rank| (rank, n)).collect()).collect()
    }

    fn output(&self, rank: Rank, uneven: bool) -> Vec<Element> {
        let all = 0..self.ranks;
        let is_root = rank == self.root;
        let start = |from: Rank, to: Rank| (0..to).map(|to| self.block(from, to, uneven)).sum();
        match self.kind {
            CollectiveKind::Broadcast => contribution(self.root, 0, self.len),
            CollectiveKind::Gather if !is_root => Vec::new(),
            CollectiveKind::Gather | CollectiveKind::AllGather => {
                all.flat_map(|from| contribution(from, 0, self.block(from, 0, uneven))).collect()
            }
            CollectiveKind::Scatter => {
                contribution(self.root, start(self.root, rank), self.block(self.root, rank, uneven))
            }
            CollectiveKind::Reduce if !is_root => Vec::new(),
            CollectiveKind::Reduce | CollectiveKind::AllReduce => self.combined(all, 0, self.len),
            CollectiveKind::ReduceScatter => {
                self.combined(all, start(0, rank), self.block(0, rank, uneven))
            }
            CollectiveKind::Scan => self.combined(0..rank + 1, 0, self.len),
            CollectiveKind::ExclusiveScan if rank == 0 => Vec::new(),
            CollectiveKind::ExclusiveScan => self.combined(0..rank, 0, self.len),
            CollectiveKind::AllToAll => all
                .flat_map(|from| {
                    contribution(from, start(from, rank), self.block(from, rank, uneven))
                })
                .collect(),
            CollectiveKind::Shrink => unreachable!("it has no plan"),
        }
    }

    fn runner(&self, rank: Rank, uneven: bool) -> Option<Runner> {
        let sent = self.lens(uneven, |other| (rank, other));
        let received = match self.kind {
            CollectiveKind::AllToAll => self.lens(uneven, |other| (other, rank)),
            CollectiveKind::ReduceScatter => self.lens(uneven, |other| (0, other)),
            _ => self.lens(uneven, |other| (other, 0)),
        };
        let sent = match self.kind {
            CollectiveKind::Scatter => self.lens(uneven, |other| (self.root, other)),
            _ => sent,
        };
        let lengths = if uneven {
            Lengths::Uneven { sent: &sent, received: &received }
        } else {
            Lengths::Even(self.len)
        };
        let request = PlanRequest {
            kind: self.kind,
            algorithm: if rank == self.root { self.root_by } else { self.algorithm },
            rank,
            ranks: self.ranks,
            root: self.root,
            lengths,
            element: self.element,
            commutes: self.commutes,
            machines: self.machines,
        };
        let plan = match plan(&request) {
            Ok(plan) => plan,
            Err(PlanError::Unfit { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        let mut buffer = Vec::from_iter((0..plan.len).map(|_| Element::new()));
        let input = self.input(rank, uneven);
        assert_eq!(plan.input.len, input.len(), "{request:?}");
        for (place, element) in buffer[plan.input.range()].iter_mut().zip(input) {
            *place = element;
        }
        assert!(plan.steps.is_sorted_by_key(|(round, _)| *round), "{plan:?}");
        Some(Runner { plan, buffer, next: 0 })
    }

    /// Runs all ranks in a random order, and compares.
    pub fn check(&self, uneven: bool) {
        let runners: Option<Vec<Runner>> =
            (0..self.ranks).map(|rank| self.runner(rank, uneven)).collect();
        // An algorithm may be unfit, but for all ranks alike.
        let Some(mut runners) = runners else {
            assert!((0..self.ranks).all(|rank| self.runner(rank, uneven).is_none()));
            return;
        };
        let what = std::format!(
            "{} by {:?}, {} ranks, root {}, {} elements, commutes {}, uneven {uneven}",
            self.kind,
            self.algorithm,
            self.ranks,
            self.root,
            self.len,
            self.commutes
        );
        let mut mail = BTreeMap::new();
        let mut random = Random::new(u64::from(self.ranks) + self.len as u64);
        let mut active: Vec<Rank> = (0..self.ranks).collect();
        let mut idle = 0;
        while !active.is_empty() {
            let at = (random.next_u64() % active.len() as u64) as usize;
            let rank = active[at];
            let runner = &mut runners[rank as usize];
            let before = runner.next;
            let steps = 1 + random.next_u64() % 3;
            for _ in 0..steps {
                if !runner.step(rank, &mut mail, &what) {
                    break;
                }
            }
            idle = if runner.next > before { 0 } else { idle + 1 };
            if runner.next == runner.plan.steps.len() {
                active.swap_remove(at);
                idle = 0;
            }
            assert!(idle < 1_000_000, "{what}: ranks wait for ever");
        }
        assert!(mail.is_empty(), "{what}: parcels are left over");
        for (rank, runner) in runners.iter().enumerate() {
            let mut output = runner.buffer[runner.plan.output.range()].to_vec();
            if self.commutes {
                output.iter_mut().for_each(|element| element.sort_unstable());
            }
            assert_eq!(output, self.output(rank as Rank, uneven), "{what}, rank {rank}");
        }
        self.check_bits(&runners, &what);
    }

    /// Results of all_reduce are combined in the same order everywhere.
    fn check_bits(&self, runners: &[Runner], what: &str) {
        if self.kind == CollectiveKind::AllReduce {
            let output = |runner: &Runner| runner.buffer[runner.plan.output.range()].to_vec();
            let first = output(&runners[0]);
            assert!(runners.iter().all(|runner| output(runner) == first), "{what}");
        }
    }
}

type Mail = BTreeMap<(Rank, Rank, RoundNumber), Vec<Element>>;

/// Number of steps among which parcels are placed before their step.
const STEPS_AHEAD: usize = 8;

impl Runner {
    /// Damages the memory into which parcels may be placed from now on (COLL-1.5).
    fn begin_placements(&mut self) {
        for at in (self.next..self.plan.steps.len()).take(STEPS_AHEAD) {
            if let PlanStep::Receive { part, how: Arrival::Replace, .. } = self.plan.steps[at].1
                && self.plan.leaves_alone(self.next..at, part)
            {
                self.buffer[part.range()].fill(Vec::from([(Rank::MAX, 0)]));
            }
        }
    }

    /// Takes the whole output, if the root has sent it (COLL-2.7).
    fn takes_whole(&mut self, me: Rank, mail: &mut Mail) -> bool {
        let sent = self.plan.whole_from.and_then(|root| mail.remove(&(root, me, WHOLE)));
        let Some(body) = sent else { return false };
        assert_eq!(self.next, 0, "a step was taken before");
        self.buffer[self.plan.output.range()].clone_from_slice(&body);
        self.next = self.plan.steps.len();
        true
    }

    fn step(&mut self, me: Rank, mail: &mut Mail, what: &str) -> bool {
        let Some(&(round, step)) = self.plan.steps.get(self.next) else { return false };
        if self.takes_whole(me, mail) {
            return true;
        }
        self.begin_placements();
        match step {
            PlanStep::Send { to, part } => {
                assert!(to != me, "{what}");
                let body = self.buffer[part.range()].to_vec();
                assert!(mail.insert((me, to, round), body).is_none(), "{what}: two in one round");
            }
            PlanStep::Receive { from, part, how } => {
                let Some(body) = mail.remove(&(from, me, round)) else { return false };
                assert_eq!(body.len(), part.len, "{what}: part of another length");
                for (place, new) in self.buffer[part.range()].iter_mut().zip(body) {
                    match how {
                        Arrival::Replace => *place = new,
                        Arrival::Combine(order) => combine(place, &new, order),
                    }
                }
            }
            PlanStep::Combine { new, into, order } => {
                for n in 0..new.len {
                    let value = self.buffer[new.start + n].clone();
                    combine(&mut self.buffer[into + n], &value, order);
                }
            }
            PlanStep::Copy { part, into } => {
                let (from, to) = (part.range(), into..into + part.len);
                assert!(from.end <= to.start || to.end <= from.start, "{what}: overlap");
                for n in 0..part.len {
                    self.buffer[into + n] = self.buffer[part.start + n].clone();
                }
            }
        }
        self.next += 1;
        true
    }
}

fn combine(here: &mut Element, new: &[(Rank, usize)], order: Order) {
    match order {
        Order::NewFirst => *here = [new, here].concat(),
        Order::NewLast => here.extend_from_slice(new),
    }
}
