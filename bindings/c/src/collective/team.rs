//! Teams of nodes.

use crate::abi::call::{CallResult, Output, Raw, functions};
use crate::abi::objects::{New, Released, handled, keep};
use crate::abi::pointers::{BytesMut, Filled, Room, Text, fill, fill_text};
use crate::job::{JoinedJob, oik_job, still_joined};
use oikaze::collective::{Collectives, Team};
use std::sync::{Arc, Weak};

/// Some or all nodes of a job, with collectives of their own. Ranks of a team are numbered from 0.
pub struct oik_team;

/// A team that C has the handle of.
pub struct KeptTeam {
    job: Weak<JoinedJob>,
    /// `None` is the team of all nodes.
    team: Option<Team>,
}

handled! { oik_team: KeptTeam, "team"; }

/// A team while a call uses it.
pub struct UsedTeam {
    job: Arc<JoinedJob>,
    kept: Arc<KeptTeam>,
}

impl UsedTeam {
    pub fn team(&self) -> &Team {
        self.kept.team.as_ref().unwrap_or_else(|| self.job.job.team())
    }

    pub fn job(&self) -> &JoinedJob {
        &self.job
    }

    /// Returns a new team of the same job.
    fn with(&self, team: Team) -> KeptTeam {
        KeptTeam { job: Weak::clone(&self.kept.job), team: Some(team) }
    }
}

impl KeptTeam {
    /// Returns the team for a call.
    pub fn used(self: &Arc<Self>) -> CallResult<UsedTeam> {
        Ok(UsedTeam { job: still_joined(&self.job)?, kept: Arc::clone(self) })
    }
}

functions! {
    /// Makes a handle of the team of all nodes. No node waits for another. Thread-safe.
    oik_world(job: *mut oik_job) -> team: New<oik_team> =
        KeptTeam { job: Arc::downgrade(&job), team: None };
}

/// Stands for no color: a rank that gets no team of a split.
pub const OIK_NO_COLOR: u32 = u32::MAX;

functions! {
    /// Splits a team: ranks of the same color form a new team, in the order of their keys, and of
    /// their ranks if keys are equal. A rank of `OIK_NO_COLOR` gets NULL. All ranks call it.
    /// Thread-safe, but one collective of a team at a time.
    oik_team_split(team: *mut oik_team, color: u32, key: i64, part: Raw<New<oik_team>>) = {
        let team = team.used()?;
        // A rank without a place comes all the same, so that it stays level with the others.
        let new = team.team().split((color != OIK_NO_COLOR).then_some(color), key)?;
        let out = part.place("part")?;
        if let Some(new) = new {
            keep(out, team.with(new))?;
        } else {
            out.write(std::ptr::null_mut());
        }
    };
    /// Makes a team of the ranks of a team that live. All of them call it. Thread-safe, but one
    /// collective of a team at a time.
    oik_team_shrink(team: *mut oik_team, living: Raw<New<oik_team>>) = {
        let team = team.used()?;
        let new = team.team().shrink()?;
        keep(living.place("living")?, team.with(new))?
    };
    /// Releases a team. Thread-safe.
    oik_team_release(team: Released<oik_team>) = drop(team);
    /// Writes this node's rank in the team. Thread-safe.
    oik_team_rank(team: *mut oik_team) -> rank: Room<u32> = team.used()?.team().rank();
    /// Writes the number of ranks in the team. Thread-safe.
    oik_team_size(team: *mut oik_team) -> size: Room<u32> = team.used()?.team().size();
    /// Writes the job's ranks of the members to `ranks`, which has room for `capacity`. There are
    /// as many as `oik_team_size` says. Thread-safe.
    oik_team_ranks(team: *mut oik_team, ranks[capacity]: Room<u32>) =
        fill(ranks, team.used()?.team().ranks(), "values")?;
    /// Waits until all ranks of the team have called it. Each rank then sees what the others wrote
    /// to shared arrays before. Thread-safe, but one collective of a team at a time.
    oik_team_barrier(team: *mut oik_team) = team.used()?.team().barrier()?;
    /// Writes the name of the algorithm that a collective (such as "all_reduce") uses for vectors
    /// of `bytes` bytes: `len` bytes without a zero byte. Thread-safe.
    oik_team_algorithm(team: *mut oik_team, collective: Text, bytes: usize,
        buffer[capacity]: BytesMut)
        -> len: Filled<usize> =
        fill_text(buffer, team.used()?.team().algorithm(collective, bytes), len)?;
}
