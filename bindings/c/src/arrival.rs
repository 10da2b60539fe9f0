//! Puts with notice, as their target learns of them.

use crate::abi::call::{CallError, CallResult, functions};
use crate::abi::objects::Nullable;
use crate::abi::pointers::Room;
use crate::job::{JoinedJob, Limit, oik_job};
use crate::memory::region::{KeptRegion, oik_region};
use crate::message::Patience;

/// A put with notice that has arrived: all its bytes are in place and visible.
#[repr(C)]
pub struct oik_arrival {
    /// Rank of the node that put the bytes.
    pub from: u32,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Key of the region (`oik_region_key`).
    pub key: u64,
    /// Offset of the bytes from the start of the region.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

fn next(
    job: &JoinedJob,
    region: Option<&KeptRegion>,
    patience: &Patience,
) -> CallResult<oik_arrival> {
    let arrivals = region.map_or_else(|| job.job.arrivals(), KeptRegion::arrivals);
    let arrival = match patience {
        Patience::JobsLimit => arrivals.next()?,
        Patience::Limit(limit) => arrivals.next_for(*limit)?,
        Patience::None => arrivals.try_next().ok_or_else(CallError::not_ready)?,
    };
    Ok(oik_arrival {
        from: arrival.from(),
        tag: arrival.tag(),
        key: arrival.key(),
        offset: arrival.offset(),
        len: arrival.len(),
    })
}

functions! {
    /// Takes the oldest put with notice (`oik_put_notify`) to this region, or to any for NULL.
    /// Waits within the job's time limit. Each is taken once, by whoever asks first.
    ///
    /// An entry that is not taken costs its sender 128 bytes of the 16 MiB that unread messages and
    /// entries may cost. A sender without credit holds its puts with notice, and its messages,
    /// back. Thread-safe.
    ///
    /// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will put
    /// nothing more.
    oik_next_arrival(job: *mut oik_job, region: Nullable<oik_region>)
        -> arrival: Room<oik_arrival> =
        next(&job, region.as_deref(), &Patience::JobsLimit)?;
    /// Takes a put with notice as `oik_next_arrival` does, with this time limit in seconds.
    /// Thread-safe.
    oik_next_arrival_for(job: *mut oik_job, region: Nullable<oik_region>, seconds: Limit)
        -> arrival: Room<oik_arrival> =
        next(&job, region.as_deref(), &Patience::Limit(seconds))?;
    /// Takes a put with notice that has arrived already. Returns `OIK_NOT_READY` if there is none.
    /// Thread-safe.
    oik_try_arrival(job: *mut oik_job, region: Nullable<oik_region>) -> arrival: Room<oik_arrival> =
        next(&job, region.as_deref(), &Patience::None)?;
}
