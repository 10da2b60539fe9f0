//! Tests of two connections against each other, over a faulty channel.

mod by_hand;
mod channel;
mod exchanges;
mod forecasts;
mod keys;
mod lanes;
mod lives;
mod messages;
mod model;
mod observed;
mod packing;
mod pairs;
mod path;
#[cfg(feature = "planted-bugs")]
mod planted;
mod progress;
mod refusals;
mod silence;
mod world;
