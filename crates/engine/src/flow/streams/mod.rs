//! Streams of multicast, in the flow of messages: which messages are shared, and what nodes say
//! about streams.

mod opening;
mod steps;
