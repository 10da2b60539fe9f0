//! Memory of peers: put, get, atomics and signals. No operation needs a call at the target.
//!
//! The operations on a [`RemoteRegion`] are in one file for each kind of operation.

mod accumulate;
mod block;
mod direct;
mod elements;
mod exchange;
mod list;
mod lookup;
mod put;
mod region;
mod words;

pub use elements::RemoteElements;
pub use put::{COPY_MAX, RemoteSignal};
pub use region::RemoteRegion;
pub use words::RemoteWord;

use crate::job::Peer;
