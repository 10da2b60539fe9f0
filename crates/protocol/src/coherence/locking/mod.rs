//! Locks and barriers of teams.

pub(crate) mod grant;
pub(crate) mod lock;
pub(crate) mod lock_manager;
pub(crate) mod state;
pub(crate) mod team;
