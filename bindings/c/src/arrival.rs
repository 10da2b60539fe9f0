//! Puts with notice, as their target learns of them.

use crate::call::{CallError, CallResult, run};
use crate::job::{limit, oik_job};
use crate::message::Patience;
use crate::objects::find;
use crate::pointers::place;
use crate::region::{arrivals_of, oik_region};
use crate::status::oik_status;
use std::mem::MaybeUninit;

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
    job: *mut oik_job,
    region: *mut oik_region,
    arrival: Option<&mut MaybeUninit<oik_arrival>>,
    patience: &Patience,
) -> CallResult {
    let (out, job) = (place(arrival, "arrival")?, find(job)?);
    let arrivals = if region.is_null() { job.job.arrivals() } else { arrivals_of(region)? };
    let arrival = match patience {
        Patience::JobsLimit => arrivals.next()?,
        Patience::Limit(limit) => arrivals.next_for(*limit)?,
        Patience::None => arrivals.try_next().ok_or_else(CallError::not_ready)?,
    };
    out.write(oik_arrival {
        from: arrival.from(),
        tag: arrival.tag(),
        key: arrival.key(),
        offset: arrival.offset(),
        len: arrival.len(),
    });
    Ok(())
}

/// Takes the oldest put with notice (`oik_put_notify`) to this region, or to any for NULL. Waits
/// within the job's time limit. Each is taken once, by whoever asks first.
///
/// An entry that is not taken costs its sender 128 bytes of the 16 MiB that unread messages and
/// entries may cost. A sender without credit holds its puts with notice, and its messages, back.
/// Thread-safe.
///
/// Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will put nothing
/// more.
#[unsafe(no_mangle)]
pub extern "C" fn oik_next_arrival(
    job: *mut oik_job,
    region: *mut oik_region,
    arrival: Option<&mut MaybeUninit<oik_arrival>>,
) -> oik_status {
    run(|| next(job, region, arrival, &Patience::JobsLimit))
}

/// Takes a put with notice as `oik_next_arrival` does, with this time limit in seconds.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_next_arrival_for(
    job: *mut oik_job,
    region: *mut oik_region,
    seconds: f64,
    arrival: Option<&mut MaybeUninit<oik_arrival>>,
) -> oik_status {
    run(|| next(job, region, arrival, &Patience::Limit(limit(seconds)?)))
}

/// Takes a put with notice that has arrived already. Returns `OIK_NOT_READY` if there is none.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_try_arrival(
    job: *mut oik_job,
    region: *mut oik_region,
    arrival: Option<&mut MaybeUninit<oik_arrival>>,
) -> oik_status {
    run(|| next(job, region, arrival, &Patience::None))
}
