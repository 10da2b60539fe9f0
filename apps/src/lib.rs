//! Parts common to the programs of this folder: a fingerprint of a field, a progress bar, a table
//! of the nodes' activity. The programs are `himeno/` and `lu/`. Each is written to be read and
//! copied.
#![forbid(unsafe_code)]

mod fingerprint;
mod nodes;
mod progress;

pub use fingerprint::Fingerprint;
pub use nodes::{NodesTable, nodes_table};
pub use progress::Progress;
