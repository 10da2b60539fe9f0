//! Jobs over networks that lose, change, forge or narrow their datagrams, and over several hosts.

mod attack;
#[path = "../support/attacker.rs"]
mod attacker;
mod bottleneck;
mod broadcasts;
mod flows;
mod groups;
mod hosts;
mod loss;
mod netns;
mod networks;
mod path;
mod seal;
#[path = "../support/mod.rs"]
mod support;
mod tampered;
