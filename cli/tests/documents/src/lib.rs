//! Programs that README, the book and the documentation of `oikaze` show. The build script writes
//! one module for each.
#![allow(unused, clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/programs.rs"));
