//! Output of a node's program, and its errors.

use crate::error::Error;
use serde_json::json;

/// Converts an error of Oikaze or of its memory.
pub fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(why.to_string())
}

/// Prints the result of node 0: values by name.
pub fn tell(values: &[(&str, f64)]) {
    let line: serde_json::Map<String, serde_json::Value> =
        values.iter().map(|&(name, value)| (name.to_owned(), json!(value))).collect();
    println!("{}", serde_json::Value::Object(line));
}
