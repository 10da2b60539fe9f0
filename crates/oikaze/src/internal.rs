//! Parts for this project's own programs and tests. They may change at any time.

pub use crate::job::join::{join_as, join_as_without};
pub use crate::testing::{Seat, SeatStore, cluster_of};
