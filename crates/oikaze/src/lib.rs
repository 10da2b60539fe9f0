//! oikaze
#![forbid(unsafe_code)]

pub mod job;
