//! Collectives, and the teams that call them.

pub mod team;

pub mod calls;
