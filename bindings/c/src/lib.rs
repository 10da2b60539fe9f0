//! Oikaze for C and C++. Translation only: each function checks its arguments and calls [`oikaze`].
//!
//! | module | contents |
//! |---|---|
//! | `call` | rows of functions, and their frame: panics and errors become a status and a text |
//! | `pointers` | pointers of C as values that Rust can use; all unsafe code but loans |
//! | `objects` | objects by handle |
//! | the others | functions of the header, by topic, in the order of the header |
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
// Names are those of the header.
#![allow(non_camel_case_types)]

mod call;
mod objects;
mod place;
mod pointers;

mod status;

mod failures;

mod limits;

mod job;

mod settings;

mod operation;

mod region;

mod kinds;

mod remote;

mod message;

mod arrival;

mod sync;

mod array;

mod team;

mod collective;
