//! Regions of a peer, found by their names.

use crate::error::{Error, Result};
use crate::job::peer::Peer;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::{Failure, Request, Value};
use oikaze_protocol::rma::{Published, RmaError};
use oikaze_runtime::error::Cause;
use oikaze_runtime::node::{LongWait, WaitSubject};
use std::time::{Duration, Instant};

/// Time for which [`Peer::region`] waits for a name if the job has no time limit. Publishing takes
/// a moment, but a misspelt name never appears.
const PUBLISH_TIME: Duration = Duration::from_secs(10);
/// Pause before the next lookup of a name that is not published yet.
const ASK_AGAIN: Duration = Duration::from_millis(10);

impl Peer {
    /// Returns the region that this peer has published under `name`. Waits for a region that is not
    /// published yet, within the job's time limit (10 s if it has none).
    ///
    /// # Errors
    /// Nothing was published under that name in time (the error lists the names that are there);
    /// the name was withdrawn (reported at once); the peer is lost.
    #[track_caller]
    pub fn region(&self, name: &str) -> Result<RemoteRegion> {
        self.region_within(name, self.limit)
    }

    /// Returns a region as [`Peer::region`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Peer::region`].
    #[track_caller]
    pub fn region_for(&self, name: &str, limit: Duration) -> Result<RemoteRegion> {
        self.region_within(name, Some(limit))
    }

    #[track_caller]
    fn region_within(&self, name: &str, limit: Option<Duration>) -> Result<RemoteRegion> {
        let what = format!("region \"{name}\" of node {}", self.rank);
        let published = self.find(name, what, limit)?;
        Ok(RemoteRegion::new(self.clone(), name, published).mapped())
    }

    /// Waits for the region that is, or will be, published under this name.
    #[track_caller]
    pub(crate) fn find(
        &self,
        name: &str,
        what: String,
        limit: Option<Duration>,
    ) -> Result<Published> {
        let begun = Instant::now();
        let limit = limit.unwrap_or(PUBLISH_TIME);
        let mut unknown = None;
        let subject = || WaitSubject::Name { name: name.to_owned(), owner: self.rank };
        let mut long = LongWait::new(&self.node, &subject);
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let was_leaving = self.node.departures.is_leaving(self.rank);
            let completion =
                self.node.submit(Request::Lookup { at: self.rank, name: name.to_owned() }, None);
            match self.node.outcome_of(&subject, &what, || completion.outcome(), Some(left)) {
                Ok(Value::Region(published)) => return Ok(published),
                Ok(_) => {
                    return Err(Error::invalid(what, "the answer is of another kind (a defect)"));
                }
                // A leaving node publishes nothing more (END-2.3).
                Err(error) if is_unknown_name(&error) && was_leaving => {
                    return Err(self
                        .node
                        .departures
                        .failure(&what, Failure::Leaving { peer: Some(self.rank) }));
                }
                Err(error) if is_unknown_name(&error) && !left.is_zero() => {
                    unknown = Some(error);
                    let _: Option<()> = self.node.wait_within(
                        &mut long,
                        Instant::now().checked_add(left.min(ASK_AGAIN)),
                        || None,
                    );
                }
                // The last answer says more than a timeout without another answer would.
                Err(timeout) if timeout.is_timeout() => {
                    return Err(unknown.unwrap_or(timeout).after(limit));
                }
                Err(error) if is_unknown_name(&error) => return Err(error.after(limit)),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_unknown_name(error: &Error) -> bool {
    matches!(
        error.cause(),
        Cause::Failed { failure: Failure::Remote(RmaError::UnknownName { .. }), .. }
    )
}
