//! Locks and barriers of teams.

pub(crate) mod lock;
pub(crate) mod lock_manager;
pub(crate) mod team;
