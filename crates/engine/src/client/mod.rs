//! Client side of the engine: what threads hand to the engine, and what threads hold and read
//! without entering the engine.

pub(crate) mod completion;
pub(crate) mod compound;
pub(crate) mod fence_watch;
pub(crate) mod label;
pub(crate) mod posted;
pub(crate) mod shm_channel;
pub(crate) mod shown_groups;
pub(crate) mod submission;
pub(crate) mod untaken;
