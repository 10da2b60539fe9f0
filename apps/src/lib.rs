//! Parts common to the programs of this folder: options, the run as a job or alone, reports, shared
//! arrays with either way of touching them, random numbers, a fingerprint of a result, a progress
//! bar, a table of the nodes' activity. Each program has a folder, and is written to be read and
//! copied.
#![forbid(unsafe_code)]

mod agree;
mod fingerprint;
mod nodes;
mod partition;
mod program;
mod progress;
mod report;
mod stencil;
mod touch;

pub use agree::agree;
pub use fingerprint::Fingerprint;
pub use nodes::{NodesTable, nodes_table};
pub use oikaze_kernels::random::{random, uniform};
pub use partition::{PAGE, homes, part};
pub use program::{Program, RunOptions, RunPlan, main};
pub use progress::Progress;
pub use report::{Rate, Report, differ, hex};
pub use stencil::StencilShare;
pub use touch::{ArrayOptions, HomeChoice, Touch, Touched};
