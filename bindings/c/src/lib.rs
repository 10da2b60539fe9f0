//! Oikaze for C and C++. Translation only: each function checks its arguments and calls [`oikaze`].
//!
//! | module | contents |
//! |---|---|
//! | `abi::call` | rows of functions, and their frame: panics and errors become a status and a text |
//! | `abi::pointers` | pointers of C as values that Rust can use; all unsafe code but loans |
//! | `abi::objects` | objects by handle |
//! | the others | functions of the header, by topic, in the order of the header |
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
// Names are those of the header.
#![allow(non_camel_case_types)]

mod abi;

mod status;

mod failures;

mod limits;

mod job;

mod settings;

mod operation;

mod memory;

mod message;

mod arrival;

mod shared;

mod collective;
