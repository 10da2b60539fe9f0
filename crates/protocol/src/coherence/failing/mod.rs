//! Nodes that are dead or contradict this one, and questions about long waits.

pub(crate) mod failure;
