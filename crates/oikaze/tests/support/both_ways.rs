//! Both ways of arrays (COH-16.1): memory that all nodes of a machine map, and pages that each node
//! keeps for itself.

use oikaze::Job;
use oikaze::internal::cluster_of;
use oikaze::job::Feature;
use std::error::Error;

/// Returns what a node does without that keeps pages for itself: that way of arrays, and all that
/// the environment switches off.
pub fn of_pages() -> Vec<Feature> {
    let words = std::env::var("OIKAZE_WITHOUT").unwrap_or_default();
    let mut features = Feature::list(&words).unwrap();
    features.push(Feature::Segment);
    features
}

/// Runs a program as [`oikaze::testing::cluster`] does, first with memory that all nodes map. Then
/// the last node does without, so all nodes keep pages for themselves. Returns the results of the
/// last run, by rank.
#[allow(dead_code)]
#[track_caller]
pub fn cluster<T: Send>(
    nodes: u32,
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    oikaze::testing::cluster(nodes, &program);
    let of_node = |rank| match rank + 1 == nodes {
        true => (None, Job::builder().without(of_pages())),
        false => (None, Job::builder()),
    };
    cluster_of(&(0..nodes).map(of_node).collect::<Vec<_>>(), program)
}

/// Runs a program as [`oikaze::testing::cluster`] does, with arrays whose pages each node keeps for
/// itself.
#[allow(dead_code)]
#[track_caller]
pub fn cluster_of_pages<T: Send>(
    nodes: u32,
    program: impl Fn(&Job) -> Result<T, Box<dyn Error>> + Sync,
) -> Vec<T> {
    oikaze::testing::cluster_with(nodes, Job::builder().without(of_pages()), program)
}
