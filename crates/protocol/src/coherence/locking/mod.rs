//! Locks, barriers of teams, and notifications.

pub(crate) mod grant;
pub(crate) mod lock;
pub(crate) mod lock_manager;
pub(crate) mod notifications;
pub(crate) mod state;
pub(crate) mod team;
pub(crate) mod written;
