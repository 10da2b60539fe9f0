//! Tests of two connections against each other, over a faulty channel.

mod by_hand;
mod delivery;
mod exchanges;
mod flows;
mod forecasts;
mod keys;
mod lives;
mod model;
mod multicast;
mod observed;
mod path;
#[cfg(feature = "planted-bugs")]
mod planted;
mod progress;
mod refusals;
mod silence;
mod support;
