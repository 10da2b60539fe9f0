//! Words of the system in JSON.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A word of the system, which may have any bytes. In JSON it is text where it is UTF-8, or else an
/// array of bytes (LAUNCH-6.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Spelled", into = "Spelled")]
pub struct Word(pub OsString);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Spelled {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Spelled> for Word {
    fn from(spelled: Spelled) -> Word {
        Word(match spelled {
            Spelled::Text(text) => text.into(),
            Spelled::Bytes(bytes) => OsString::from_vec(bytes),
        })
    }
}

impl From<Word> for Spelled {
    fn from(word: Word) -> Spelled {
        word.0.into_string().map_or_else(|word| Spelled::Bytes(word.into_vec()), Spelled::Text)
    }
}
