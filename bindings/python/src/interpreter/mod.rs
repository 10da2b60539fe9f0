//! Buffers, numbers, exceptions, the end of the interpreter, and places of calls.

pub mod buffer;
pub mod error;
pub mod finalization;
pub mod number;
pub mod place;
