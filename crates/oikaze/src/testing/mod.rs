//! Jobs of several nodes in one process, for a program's own tests.
//!
//! ```
//! use oikaze::prelude::*;
//!
//! # fn main() {
//! let sums = oikaze::testing::cluster(4, |job| {
//!     Ok(job.barrier_reduce(u64::from(job.rank()), Sum)?)
//! });
//! assert_eq!(sums, [6; 4]);
//! # }
//! ```

pub(crate) mod seat;

#[doc(hidden)]
pub use seat::{Seat, SeatStore};

use crate::job::builder::JobBuilder;
use crate::job::handle::Job;
use crate::panics::message_of_panic;
use oikaze_launch::{Secret, Settings};
use oikaze_protocol::Rank;
use oikaze_runtime::node::lock;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Runs `program` on `nodes` nodes at once and returns the results by rank. Each node is a thread
/// of this process with a job of its own. The nodes talk over loopback and through shared memory,
/// as nodes of one machine do.
///
/// A node whose program returns an error, or panics, ends the job for all nodes.
///
/// # Panics
/// A node has failed. The message names the first one and gives its error.
#[track_caller]
pub fn cluster<T: Send>(
    nodes: u32,
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    cluster_with(nodes, JobBuilder::default(), program)
}

/// Runs `program` as [`cluster`] does, on nodes with these settings.
///
/// ```
/// use oikaze::job::Feature;
/// use oikaze::{Job, testing};
/// use std::time::Duration;
///
/// # fn main() {
/// let over_udp = Job::builder().without([Feature::Shm]);
/// let settings = over_udp.time_limit(Duration::from_secs(30));
/// let sizes = testing::cluster_with(2, settings, |job| {
///     job.barrier()?;
///     Ok(job.size())
/// });
/// assert_eq!(sizes, [2, 2]);
/// # }
/// ```
///
/// # Panics
/// As [`cluster`].
#[track_caller]
pub fn cluster_with<T: Send>(
    nodes: u32,
    settings: JobBuilder,
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    cluster_of(&vec![(None, settings); nodes as usize], program)
}

/// Runs `program` as [`cluster_with`] does, on nodes that take themselves to be on these machines,
/// one number for each node. Nodes of different machines share no memory, and collectives go from
/// machine to machine once.
///
/// ```
/// use oikaze::prelude::*;
/// use oikaze::testing;
///
/// # fn main() {
/// let sums = testing::cluster_on(&[0, 0, 1, 1, 1], Job::builder(), |job| {
///     assert_eq!(job.team().algorithm("all_reduce", 8), "hierarchical");
///     Ok(job.all_reduce(job.rank(), Sum)?)
/// });
/// assert_eq!(sums, [10; 5]);
/// # }
/// ```
///
/// # Panics
/// As [`cluster`].
#[track_caller]
pub fn cluster_on<T: Send>(
    machines: &[u32],
    settings: JobBuilder,
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    let nodes: Vec<_> = machines.iter().map(|machine| (Some(*machine), settings.clone())).collect();
    cluster_of(&nodes, program)
}

/// Runs `program` as [`cluster_on`] does, on nodes with a machine and settings each. `None` is the
/// machine of the process.
///
/// # Panics
/// As [`cluster`].
#[doc(hidden)]
#[track_caller]
pub fn cluster_of<T: Send>(
    nodes: &[(Option<u32>, JobBuilder)],
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    match try_cluster(nodes, &program) {
        Ok(results) => results,
        // The caller is a test.
        #[allow(clippy::panic)]
        Err(why) => panic!("{why}"),
    }
}

/// Runs a program on nodes with these machines and settings.
fn try_cluster<T: Send>(
    of_nodes: &[(Option<u32>, JobBuilder)],
    program: &(impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync),
) -> Result<Vec<T>, String> {
    let base = JobBuilder::of_environment().map_err(|why| why.to_string())?;
    let places = seats(of_nodes, &base).map_err(|why| why.to_string())?;
    let nodes = of_nodes.len();
    // The first failure in time: the others are most likely its consequences.
    let failed: Mutex<Option<String>> = Mutex::default();
    let fail = |rank: Rank, how: &str, why: &str| {
        lock(&failed).get_or_insert_with(|| format!("node {rank} of {nodes} {how}: {why}"));
    };
    let one = |seat: Seat, settings: &JobBuilder| {
        let rank = seat.rank;
        let job = match settings.join_at(seat) {
            Ok(job) => job,
            Err(why) => {
                fail(rank, "did not join", &why.to_string());
                return None;
            }
        };
        match catch_unwind(AssertUnwindSafe(|| program(&job))) {
            Ok(Ok(result)) => match job.leave() {
                Ok(()) => return Some(result),
                Err(why) => fail(rank, "did not leave", &why.to_string()),
            },
            Ok(Err(why)) => {
                fail(rank, "failed", &why.to_string());
                job.fail(&why.to_string());
            }
            Err(payload) => {
                let why = message_of_panic(payload.as_ref());
                fail(rank, "panicked", &why);
                job.fail(&format!("it panicked: {why}"));
            }
        }
        None
    };
    let results: Vec<Option<T>> = std::thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> = places
            .into_iter()
            .zip(of_nodes)
            .map(|(place, (_, settings))| scope.spawn(move || one(place, settings)))
            .collect();
        started.into_iter().map(|node| node.join().ok().flatten()).collect()
    });
    match lock(&failed).take() {
        Some(why) => Err(why),
        None => results
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| "a node ended without a result".to_owned()),
    }
}

/// Returns the places of all nodes of one job, which meet in one store.
fn seats(
    of_nodes: &[(Option<u32>, JobBuilder)],
    settings: &Settings,
) -> Result<Vec<Seat>, crate::error::Error> {
    let (store, secret) = (
        Arc::new(SeatStore::default()),
        Secret::random()
            .map_err(|why| crate::error::Error::system("drawing the job's secret", why))?,
    );
    let size = Rank::try_from(of_nodes.len()).unwrap_or(Rank::MAX);
    let seat = |(rank, (machine, _)): (Rank, &(Option<u32>, JobBuilder))| Seat {
        rank,
        size,
        secret: secret.clone(),
        settings: Settings {
            machine: machine
                .map(|machine| machine.to_string())
                .or_else(|| settings.machine.clone()),
            ..settings.clone()
        },
        store: Arc::clone(&store),
    };
    Ok((0..).zip(of_nodes).map(seat).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::operator::Sum;
    use crate::job::Feature;
    use std::time::Duration;

    fn failure(nodes: u32, program: impl Fn(&Job) -> Result<(), Box<dyn Error>> + Sync) -> String {
        let failed = catch_unwind(AssertUnwindSafe(|| cluster(nodes, program)));
        message_of_panic(failed.err().unwrap().as_ref())
    }

    #[test]
    fn cluster_returns_results_by_rank() {
        let results = cluster(3, |job| {
            let sum = job.barrier_reduce(u64::from(job.rank()), Sum)?;
            Ok((job.rank(), job.size(), sum))
        });
        assert_eq!(results, [(0, 3, 3), (1, 3, 3), (2, 3, 3)]);
    }

    /// All nodes of all clusters share memory with each other, however many clusters run, and
    /// whatever the settings of other clusters are.
    #[test]
    fn clusters_side_by_side_share_memory() {
        std::thread::scope(|scope| {
            for number in 0..16 {
                let without = number % 4 == 0;
                scope.spawn(move || {
                    for _ in 0..3 {
                        // A setting of this cluster alone, or none.
                        let settings = match without {
                            false => Job::builder(),
                            true => Job::builder().without([Feature::Shm]),
                        };
                        cluster_with(6, settings, |job| {
                            let others = (0..job.size()).filter(|rank| *rank != job.rank());
                            let missing: Vec<_> = others
                                .filter(|rank| !job.node.fast.has_local_peer(*rank))
                                .collect();
                            let notices = job.node.with_engine(|engine| engine.notices().to_vec());
                            let expected = if without { 5 } else { 0 };
                            assert_eq!(missing.len(), expected, "{missing:?}: {notices:?}");
                            Ok(())
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn cluster_panics_with_the_first_error() {
        let why = failure(3, |job| {
            if job.rank() == 1 {
                return Err("no fuel".into());
            }
            // Ends by the failure of node 1, which is not this node's own.
            Ok(job.barrier()?)
        });
        assert_eq!(why, "node 1 of 3 failed: no fuel");
    }

    #[test]
    fn cluster_panics_with_the_first_panic() {
        let why = failure(2, |job| {
            assert_ne!(job.rank(), 0, "node 0 is wrong");
            Ok(job.barrier()?)
        });
        assert!(why.starts_with("node 0 of 2 panicked: "), "{why}");
        assert!(why.contains("node 0 is wrong"), "{why}");
    }

    #[test]
    fn cluster_names_a_setting_that_makes_no_sense() {
        let settings = Job::builder().time_limit(Duration::ZERO);
        let failed = catch_unwind(|| cluster_with(1, settings, |_| Ok(())));
        let why = message_of_panic(failed.err().unwrap().as_ref());
        assert!(why.starts_with("node 0 of 1 did not join"), "{why}");
        assert!(why.contains("time limit is zero"), "{why}");
    }
}
