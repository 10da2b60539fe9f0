//! Exchange by a function of the program: an allgather of MPI, an actor of Ray, a client of Dask
//! (LAUNCH-9.2).

use super::exchange::Exchange;
use crate::JobError;
use std::time::Duration;

/// Function that gathers a few bytes from each process: it is given those of this process, and
/// returns those of all processes in the order of their ranks. All processes call it at the same
/// point.
pub type Gather<'a> =
    dyn FnMut(&[u8]) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> + 'a;

pub(super) struct Caller<'a, 'b> {
    pub rank: u32,
    pub size: u32,
    pub gather: &'a mut Gather<'b>,
}

impl Exchange for Caller<'_, '_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn share(&mut self, of_rank_0: Option<&str>, _: Duration) -> Result<String, JobError> {
        let failed = |why| JobError::Exchange { server: "the program's own exchange", why };
        let all = (self.gather)(of_rank_0.unwrap_or_default().as_bytes())
            .map_err(|why| failed(why.to_string()))?;
        if all.len() != self.size as usize {
            let why = format!("it returned the bytes of {} processes of {}", all.len(), self.size);
            return Err(failed(why));
        }
        let first = all.into_iter().next().unwrap_or_default();
        String::from_utf8(first).map_err(|_| failed("the bytes of rank 0 were changed".into()))
    }
}
