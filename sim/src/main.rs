//! `sim`: run seeds of the simulator.
fn main() {}
