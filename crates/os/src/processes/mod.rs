//! Processes: their signals, their children, and what children inherit.

pub mod control_group;
pub mod inherited;
pub mod origin;
pub mod pmix;
pub mod process;
pub mod sender;
pub mod signals;
