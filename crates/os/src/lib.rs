//! os
pub mod interfaces;
