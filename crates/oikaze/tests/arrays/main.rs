//! Arrays as programs have them: shapes, blocks, elements, and the end of arrays.
#![forbid(clippy::undocumented_unsafe_blocks)]

#[path = "../support/both_ways.rs"]
mod both_ways;
#[path = "../support/cuts.rs"]
mod cuts;
mod elements;
mod files;
mod freeing;
mod numpy;
mod random;
mod replacing;
mod shapes;
mod targets;
#[path = "../support/ways.rs"]
mod ways;

use oikaze::Result;

/// Returns the text of an outcome that must be an error with all of these words.
#[track_caller]
fn failure<T>(outcome: Result<T>, words: &[&str]) -> String {
    let text = outcome.err().expect("it must fail").to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    text
}
