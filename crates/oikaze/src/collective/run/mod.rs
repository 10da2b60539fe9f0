//! Execution of plans: one collective after the other in each team, driven by parcels.
//!
//! A turn deposits the parcels that have come ([`Registry::deposit`]). The thread that ran the turn
//! then runs the teams that have news ([`Registry::run`]), outside of the engine. So collectives
//! advance whenever any thread of this node drives the engine.
//!
//! [`Registry::deposit`]: oikaze_runtime::node::Registry::deposit
//! [`Registry::run`]: oikaze_runtime::node::Registry::run
//!
//! | file | part |
//! |---|---|
//! | `core.rs` | one team: its collectives in their order, parcels, failures |
//! | `task.rs` | one collective: the steps of its plan |
//! | `memory.rs`, `exchange.rs` | one collective, and a team, in the memory of a machine |
//! | `calling.rs`, `caller.rs` | collectives whose waiting callers take their steps there |
//! | `mail.rs` | parcels that came before their step, and the credit for them |
//! | `stage.rs` | a plan's work, and what follows |
//! | `work.rs`, `long.rs` | the work buffer: short, or long and sent without copies |
//! | `shrink.rs` | agreements on the living ranks |
//! | `slot.rs` | where the outcome appears |

pub(crate) mod caller;
pub(crate) mod calling;
pub(crate) mod core;
mod exchange;
pub(crate) mod long;
mod mail;
pub(crate) mod memory;
pub(crate) mod shrink;
pub(crate) mod slot;
pub(crate) mod stage;
mod task;
pub(crate) mod work;
