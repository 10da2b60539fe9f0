//! Teams of nodes.

use crate::call::{CallResult, run};
use crate::job::{JoinedJob, oik_job, still_joined};
use crate::objects::{find, handled, keep, take};
use crate::pointers::{BytesMut, RanksOut, Text, place};
use crate::status::oik_status;
use oikaze::collective::{Collectives, Team};
use std::mem::MaybeUninit;
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
}

/// Returns the team of a handle.
pub fn team_of(team: *mut oik_team) -> CallResult<UsedTeam> {
    let kept = find(team)?;
    Ok(UsedTeam { job: still_joined(&kept.job)?, kept })
}

/// Makes a handle of the team of all nodes. No node waits for another. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_world(
    job: *mut oik_job,
    team: Option<&mut MaybeUninit<*mut oik_team>>,
) -> oik_status {
    run(|| {
        let out = place(team, "team")?;
        keep(out, KeptTeam { job: Arc::downgrade(&find(job)?), team: None }).map(drop)
    })
}

/// Stands for no color: a rank that gets no team of a split.
pub const OIK_NO_COLOR: u32 = u32::MAX;

/// Splits a team: ranks of the same color form a new team, in the order of their keys, and of their
/// ranks if keys are equal. A rank of `OIK_NO_COLOR` gets NULL. All ranks call it. Thread-safe, but
/// one collective of a team at a time.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_split(
    team: *mut oik_team,
    color: u32,
    key: i64,
    part: Option<&mut MaybeUninit<*mut oik_team>>,
) -> oik_status {
    run(|| {
        let (out, team) = (place(part, "part"), team_of(team)?);
        // A rank without a place comes all the same, so that it stays level with the others.
        let part = team.team().split((color != OIK_NO_COLOR).then_some(color), key)?;
        let out = out?;
        match part {
            Some(part) => {
                let job = Weak::clone(&team.kept.job);
                keep(out, KeptTeam { job, team: Some(part) }).map(drop)
            }
            None => {
                out.write(std::ptr::null_mut());
                Ok(())
            }
        }
    })
}

/// Makes a team of the ranks of a team that live. All of them call it. Thread-safe, but one
/// collective of a team at a time.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_shrink(
    team: *mut oik_team,
    living: Option<&mut MaybeUninit<*mut oik_team>>,
) -> oik_status {
    run(|| {
        let (out, team) = (place(living, "living"), team_of(team)?);
        let living = Some(team.team().shrink()?);
        keep(out?, KeptTeam { job: Weak::clone(&team.kept.job), team: living }).map(drop)
    })
}

/// Releases a team. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_release(team: *mut oik_team) -> oik_status {
    run(|| take(team).map(drop))
}

/// Writes this node's rank in the team. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_rank(
    team: *mut oik_team,
    rank: Option<&mut MaybeUninit<u32>>,
) -> oik_status {
    run(|| {
        place(rank, "rank")?.write(team_of(team)?.team().rank());
        Ok(())
    })
}

/// Writes the number of ranks in the team. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_size(
    team: *mut oik_team,
    size: Option<&mut MaybeUninit<u32>>,
) -> oik_status {
    run(|| {
        place(size, "size")?.write(team_of(team)?.team().size());
        Ok(())
    })
}

/// Writes the job's ranks of the members to `ranks`, which has room for `capacity`. There are as
/// many as `oik_team_size` says. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_ranks(
    team: *mut oik_team,
    mut ranks: RanksOut,
    capacity: usize,
) -> oik_status {
    run(|| {
        let team = team_of(team)?;
        let members = team.team().ranks();
        let room = ranks.get(capacity, "ranks")?.get_mut(..members.len());
        let room = room.ok_or_else(|| crate::array::too_small(members.len(), capacity))?;
        room.write_copy_of_slice(members);
        Ok(())
    })
}

/// Waits until all ranks of the team have come here. Makes no writes to shared arrays visible.
/// Thread-safe, but one collective of a team at a time.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_barrier(team: *mut oik_team) -> oik_status {
    run(|| Ok(team_of(team)?.team().barrier()?))
}

/// Writes the name of the algorithm that a collective (such as "all_reduce") uses for vectors of
/// `bytes` bytes: `len` bytes without a zero byte. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_team_algorithm(
    team: *mut oik_team,
    collective: Text,
    bytes: usize,
    mut buffer: BytesMut,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> oik_status {
    run(|| {
        let team = team_of(team)?;
        let name = team.team().algorithm(collective.get("collective")?, bytes);
        buffer.fill(capacity, name.as_bytes(), len)
    })
}
