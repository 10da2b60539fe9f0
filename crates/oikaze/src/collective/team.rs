//! Teams: ranks that have collectives of their own.

use crate::collective::begin::Start;
use crate::collective::pending::Pending;
use crate::collective::run::core::TeamCore;
use crate::collective::run::long::RegionPool;
use crate::collective::run::slot::Slot;
use crate::collective::run::stage::group_of_root;
use crate::collective::run::work::UntypedResult;
use crate::error::{Error, Result};
use oikaze_engine::{Failure, GroupState, Request, Value};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::collective::{CollectiveCall, CollectiveKind, Facts, choose};
use oikaze_protocol::fnv::fnv1a;
use oikaze_runtime::node::{Node, WORLD, lock};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// First word of the number of a team of living ranks, where a split has the split's number.
const SHRINK: u64 = u64::MAX;

/// Some or all nodes of a job, with collectives of their own. Ranks of a team are numbered from 0.
///
/// Different teams may work at the same time, from different threads. The collectives of one team
/// must be called in the same order by all its ranks. Dropping the team releases it.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let row = job.split(Some(job.rank() / 2), 0)?.expect("a color was given");
/// let members = row.all_gather(&[job.rank()])?;
/// assert_eq!(members, row.ranks());
/// # Ok(())
/// # }
/// ```
pub struct Team {
    pub(super) core: Arc<TeamCore>,
    pub(super) node: Arc<Node>,
    pub(super) limit: Option<Duration>,
    /// Memory of long work buffers.
    pub(super) pool: Arc<RegionPool>,
    /// Machine of each rank.
    pub(super) machines: Arc<[u32]>,
    pub(super) several_machines: bool,
    /// Number and end of an agreement for which a caller of `shrink` has waited too long.
    unshrunk: Mutex<Option<(u64, Pending<BTreeSet<Rank>>)>>,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("rank", &self.rank()).field("ranks", &self.ranks()).finish()
    }
}

impl Team {
    /// Makes the team of all nodes.
    pub(crate) fn world(
        node: &Arc<Node>,
        rank: Rank,
        machines: Vec<u32>,
        limit: Option<Duration>,
    ) -> Team {
        let ranks = (0..).take(machines.len()).collect();
        let core = TeamCore::new(WORLD, ranks, rank, node.collectives.arena_of(WORLD));
        Team::of(core, RegionPool::new(node), node, machines.into(), limit)
    }

    fn of(
        core: Arc<TeamCore>,
        pool: Arc<RegionPool>,
        node: &Arc<Node>,
        machines: Arc<[u32]>,
        limit: Option<Duration>,
    ) -> Team {
        node.collectives.add(Arc::<TeamCore>::clone(&core));
        let distinct: std::collections::BTreeSet<_> = machines.iter().collect();
        let several_machines = distinct.len() > 1 && distinct.len() < machines.len();
        Team {
            core,
            node: Arc::clone(node),
            limit,
            pool,
            machines,
            several_machines,
            unshrunk: Mutex::default(),
        }
    }

    /// Returns this node's rank in the team.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.core.me()
    }

    /// Returns the number of ranks in the team.
    #[must_use]
    pub fn size(&self) -> u32 {
        Rank::try_from(self.ranks().len()).unwrap_or(Rank::MAX)
    }

    /// Returns the job's ranks of the members, by rank in the team.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        self.core.ranks()
    }

    /// Returns the name of the algorithm that a collective uses for this many bytes: of one rank's
    /// vector, or of one block of an exchange. For a broadcast, this rank is the root.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// assert_eq!(job.team().algorithm("all_reduce", 8), "recursive doubling");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn algorithm(&self, collective: &str, bytes: usize) -> &'static str {
        let kind = CollectiveKind::from_name(collective);
        let Some(kind) = kind.filter(|kind| *kind != CollectiveKind::Shrink) else { return "none" };
        let ranks = self.ranks().len();
        let all = if kind == CollectiveKind::AllGather { ranks } else { 1 };
        let several_machines = self.several_machines;
        let bytes = bytes.saturating_mul(all);
        let group = group_of_root(self.ranks(), &self.machines, self.rank(), bytes);
        let group = group.filter(|_| kind == CollectiveKind::Broadcast);
        let has_group =
            group.is_some_and(|group| self.node.group_state(&group) == GroupState::Open);
        choose(&Facts { kind, bytes, ranks, commutes: true, several_machines, has_group }).name()
    }

    /// Splits the team (COLL-5.1): ranks of the same color form a new team, in the order of their
    /// keys, and of their ranks if keys are equal. A rank without a color gets no team.
    ///
    /// # Errors
    /// As all collectives ([`Pending::wait`](super::Pending::wait)).
    #[track_caller]
    pub(super) fn split_by(&self, color: Option<u32>, key: i64) -> Result<Option<Team>> {
        let number = self.core.next_split();
        let mine = [color.map_or(0, |color| u64::from(color) + 1), key.cast_unsigned()];
        let all = Start::of(self).exchange_colors(mine).wait()?;
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(i64, usize)> = all
            .iter()
            .enumerate()
            .filter(|(_, [theirs, _])| *theirs == u64::from(color) + 1)
            .map(|(place, [_, key])| (key.cast_signed(), place))
            .collect();
        members.sort_unstable();
        let places: Vec<usize> = members.into_iter().map(|(_, place)| place).collect();
        self.sub_team("split", &[number, u64::from(color)], &places).map(Some)
    }

    /// Makes a team of the living ranks (COLL-6.1).
    ///
    /// # Errors
    /// As [`Collectives::shrink`](super::Collectives::shrink).
    #[track_caller]
    pub(super) fn shrink_to_living(&self) -> Result<Team> {
        let slot = Arc::new(Slot::default());
        let call = CollectiveCall::SHRINK;
        let begin = || {
            let pending = Pending::new(Arc::clone(&slot), &self.node, call, None, self.limit);
            let begin = |_| {
                self.node.coherence.forget_interrupted();
                self.core.begin_shrink(&self.node, Arc::clone(&slot))
            };
            let number = self.node.enter().map_or(0, begin);
            let gone = |gone: UntypedResult| gone.into_elements().into_iter().collect();
            (number, pending.then(gone))
        };
        // Ranks that ran into different time limits still number their agreements alike.
        let (number, pending) = lock(&self.unshrunk).take().unwrap_or_else(begin);
        let gone = pending.wait_for(self.limit.unwrap_or(Duration::MAX));
        if gone.as_ref().is_err_and(Error::is_timeout) {
            *lock(&self.unshrunk) = Some((number, pending));
        }
        let gone = gone?;
        let mut words = vec![SHRINK, number];
        words.extend(gone.iter().copied().map(u64::from));
        let living = (0..self.size()).filter(|rank| !gone.contains(rank));
        let places: Vec<usize> = living.map(|rank| rank as usize).collect();
        self.sub_team("shrink", &words, &places)
    }

    /// Makes a team of some ranks of this one. Its number follows from this team's number and these
    /// words.
    fn sub_team(&self, what: &'static str, words: &[u64], places: &[usize]) -> Result<Team> {
        let of = |from: &[u32]| -> Vec<u32> {
            places.iter().filter_map(|place| from.get(*place)).copied().collect()
        };
        let me = places.iter().position(|place| *place == self.rank() as usize);
        let Some(me) = me.and_then(|me| Rank::try_from(me).ok()) else {
            return Err(Error::invalid(what, "this rank is not in its own team (a defect)"));
        };
        let words = [&[self.core.id()], words].concat();
        // 0 is the team of all nodes.
        let id = fnv1a(words.into_iter().flat_map(u64::to_le_bytes)).max(1);
        let core = TeamCore::new(id, of(self.ranks()).into(), me, None);
        // Teams share the memory: as many as a program makes keep no more of it.
        let pool = Arc::clone(&self.pool);
        Ok(Team::of(core, pool, &self.node, of(&self.machines).into(), self.limit))
    }

    /// Waits for all ranks of the team (COH-15.1 to 15.3). After the barrier, all of them see in
    /// shared arrays what any of them wrote, or knew of, before it. Other nodes see these writes at
    /// a barrier or lock of their own.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let seen = job.array::<u32>("seen", job.size() as usize)?;
    /// let pair = job.split(Some(job.rank() / 2), 0)?.expect("a color was given");
    /// let me = job.rank() as usize;
    /// seen.write(me..me + 1)?[0] = 7;
    /// pair.barrier()?;
    /// let first = me / 2 * 2;
    /// let both = first..first + pair.size() as usize;
    /// assert!(seen.read(both)?.iter().all(|value| *value == 7));
    /// # job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As all collectives ([`Pending::wait`](super::Pending::wait)); or a guard of any array of
    /// this node is alive. In the last case this node does not come, and the others go on waiting
    /// for it.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.node.coherence.check_no_guard(&self.node, "team barrier")?;
        let what = "team barrier";
        let released = self.release(what);
        // A member that cannot release comes with nothing, so that no other waits for it.
        let mine = released.as_deref().unwrap_or_default();
        let told = Start::of(self).exchange_knowledge(mine).wait()?;
        released?;
        let others = (0..).zip(told).filter(|(rank, _)| *rank != self.rank());
        self.learn(what, others)
    }

    /// Brings this node's writes to their homes, and returns what it knows then (COH-15.1).
    #[track_caller]
    fn release(&self, what: &str) -> Result<Vec<u8>> {
        let released = self.node.submit(Request::ReleaseToTeam, None);
        // This release orders what was owned before it (COH-10.14).
        drop(self.node.coherence.segments.end_interval());
        match self.node.outcome(&what, &released, self.limit)? {
            Value::Knowledge(mine) => Ok(mine),
            _ => Err(Error::invalid(what, "the release has no result (a defect)")),
        }
    }

    /// Learns what these ranks of the team know (COH-15.2). A rank that could not release tells
    /// nothing.
    #[track_caller]
    fn learn(&self, what: &str, told: impl IntoIterator<Item = (Rank, Vec<u8>)>) -> Result<()> {
        let told = told.into_iter().map(|(rank, knowledge)| known_by(rank, knowledge, what));
        let request = Request::AcquireFromTeam(told.collect::<Result<_>>()?);
        let learnt = self.node.submit(request, None);
        self.node.outcome(&what, &learnt, self.limit).map(drop)
    }
}

/// Returns what a rank of a team has told, unless it could not release.
fn known_by(rank: Rank, knowledge: Vec<u8>, what: &str) -> Result<Vec<u8>> {
    if knowledge.is_empty() {
        let failure = CoherenceError::NotReleased { rank };
        return Err(Error::failed(what, Failure::Coherence(failure)));
    }
    Ok(knowledge)
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.node.enter().is_some() {
            self.core.dropped();
            self.node.collectives.ask(Arc::<TeamCore>::clone(&self.core));
            self.node.collectives.run(&self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::collective::Collectives;
    use crate::testing::cluster;

    /// COLL-5.1.
    #[test]
    fn a_dropped_team_leaves_nothing_behind() {
        cluster(3, |job| {
            for n in 0..30 {
                let team = job.split(Some(n % 2), 0)?.ok_or("a team")?;
                team.all_gather(&[n])?;
            }
            // The last parcels of other ranks may still come, for a team that is gone.
            job.all_gather(&[0])?;
            assert_eq!(job.node.collectives.all().len(), 1);
            Ok(())
        });
    }
}
