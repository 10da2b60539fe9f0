//! Calls that not all nodes have made: how a launcher of functions brings the nodes in step again
//! (COLL-3.7).

use crate::error::Result;
use crate::job::handle::Job;
use oikaze_engine::Request;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counter of calls that all nodes make in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallCounter {
    /// Barriers, reductions with barriers, and other calls of the whole job.
    Job,
    /// Declarations of shared arrays.
    Arrays,
    /// Collectives of the team of this number.
    Team(u64),
    /// Splits of the team of this number.
    Splits(u64),
}

/// Number of calls of a node, by counter.
pub type CallCounts = BTreeMap<CallCounter, u64>;

impl Job {
    /// Returns how many calls this node has made of which all nodes make the same ones.
    ///
    /// ```
    /// use oikaze::ffi::CallCounter;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let before = job.call_counts()[&CallCounter::Job];
    /// job.barrier()?;
    /// assert_eq!(job.call_counts()[&CallCounter::Job], before + 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn call_counts(&self) -> CallCounts {
        let arrays = self.node.with_engine(|engine| engine.coherence().next_array());
        let mut counts = CallCounts::from([
            (CallCounter::Job, self.node.coherence.order.coherence_calls()),
            (CallCounter::Arrays, u64::from(arrays)),
        ]);
        for team in self.node.collectives.all() {
            let (called, splits) = team.called();
            counts.insert(CallCounter::Team(team.id()), called);
            counts.insert(CallCounter::Splits(team.id()), splits);
        }
        counts
    }

    /// Brings this node in step with nodes that have made more calls: `counts` has the maximum of
    /// all nodes. Collectives that have not ended fail for the reason `why`.
    ///
    /// All nodes call it with the same counts, while no thread of them makes other calls. A
    /// launcher of functions does so after a function that has failed on some nodes.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// # use std::time::Duration;
    /// let job = oikaze::join()?;
    /// let counts = job.call_counts(); // of the node that has made most calls
    /// job.catch_up(&counts, "the function has failed", Duration::from_secs(10))?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A node is lost, or does not come within the limit.
    pub fn catch_up(&self, counts: &CallCounts, why: &str, limit: Duration) -> Result<()> {
        self.node.coherence.forget_interrupted();
        let most = |counter: CallCounter| counts.get(&counter).copied().unwrap_or(0);
        for team in self.node.collectives.all() {
            let (called, splits) = (CallCounter::Team(team.id()), CallCounter::Splits(team.id()));
            team.abandon(&self.node, (most(called), most(splits)), why);
        }
        self.node.with_engine(|engine| {
            // No job has more: a number that does not fit comes from elsewhere.
            engine.coherence().forget_notifications();
            engine.coherence().skip_arrays(most(CallCounter::Arrays).try_into().unwrap_or(0));
        });
        for _ in self.node.coherence.order.coherence_calls()..most(CallCounter::Job) {
            let request = Request::Cannot(why.to_owned());
            let came =
                self.node.coherence.collective(&self.node, &"catch up", request, Some(limit));
            // It fails on all nodes, which is its purpose.
            came.map(drop)
                .or_else(|error| if error.is_mismatch() { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }
}
