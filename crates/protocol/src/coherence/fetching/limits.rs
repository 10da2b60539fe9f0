//! Limits of fetches (COH-3.3).

/// Maximum number of runs in one fetch.
pub const FETCH_RUNS_MAX: usize = 32;
/// Maximum number of pages in all runs of one fetch: 1 MiB.
pub const FETCH_PAGES_MAX: u32 = 256;
/// Maximum number of pages that a fault fetches.
pub const READ_AHEAD_MAX: u32 = 32;
/// Number of pages of a run that are mapped together, while others come.
pub const MAPPED_TOGETHER: usize = 32;
/// Maximum number of pages on their way to this node for which a prefetch adds more: 4 MiB.
pub const PREFETCH_PAGES_MAX: u64 = 1024;
