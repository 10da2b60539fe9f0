//! The error type of the public interface.

pub use oikaze_runtime::error::{Error, Result};
