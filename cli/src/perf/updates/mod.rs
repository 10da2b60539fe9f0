//! Updates of a shared array: at nodes that write in [`turns`], and at a [`reader`] that computes.

mod reader;
mod turns;

/// Bytes of a page of a shared array.
const PAGE: usize = 4096;
/// Elements of a page.
const WORDS: usize = PAGE / size_of::<u64>();
