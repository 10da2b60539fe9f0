//! # Oikaze's hands
//!
//! Links, memory, waiting. All unsafe code of the runtime lives here, each block justified.

pub mod interfaces;
pub mod memory;
