//! Compares what documents say about defaults, modes and limits with the constants of the code.
//!
//! `docs/LIMITS.md` has a test of its own (`crates/oikaze/tests/limits.rs`), and
//! `src/documented.rs` parses the command lines of all pages.

use oikaze_launch::{MEET_TIME, Seal};
use oikaze_protocol::coherence::Delivery;
use oikaze_protocol::limits::{FAILURE_TIME, PAGE};
use std::path::Path;
use std::process::Command;

/// Returns a file of the repository with one space between two words.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let text = std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{name}: {why}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Panics unless each page has its sentence, which is made from constants.
fn claim(claims: &[(&str, String)]) {
    for (name, sentence) in claims {
        assert!(page(name).contains(sentence.as_str()), "{name} does not say {sentence:?}");
    }
}

#[test]
fn default_seal_and_all_seals_are_those_of_the_code() {
    let default = Seal::default();
    assert_eq!(default.weakness(), None, "SECURITY.md says that the default has no weakness");
    let name = default.name();
    claim(&[
        ("SECURITY.md", format!("encrypted and authenticated by default (`--seal {name}`)")),
        ("SECURITY.md", format!("| `{name}` (default) |")),
        ("README.md", "**Sealed by default**".to_owned()),
        (
            "docs/book/src/firewalls-and-containers.md",
            format!("encrypted and authenticated (`--seal {name}`, the default)"),
        ),
        ("docs/book/src/tuning.md", format!("The default seal `{name}` copies bulk")),
        ("docs/decisions/004-direct-placement.md", format!("With the default seal `{name}`")),
        ("docs/decisions/006-zero-copy-send.md", format!("With the default seal `{name}`")),
    ]);
    for seal in Seal::ALL {
        let row = format!("| `{}`", seal.name());
        claim(
            &["SECURITY.md", "docs/book/src/firewalls-and-containers.md"]
                .map(|page| (page, row.clone())),
        );
    }
}

#[test]
fn limits_of_readme_and_of_the_book_are_those_of_the_code() {
    let (page, failure) = (PAGE / 1024, FAILURE_TIME.as_secs());
    let meet = MEET_TIME.as_secs();
    claim(&[
        ("README.md", format!("The unit of sharing is a page of {page} KiB.")),
        ("README.md", format!("after {failure} s of silence otherwise")),
        (
            "docs/book/src/running.md",
            format!("silence after which a node counts as dead | {} |", FAILURE_TIME.as_millis()),
        ),
        ("docs/book/src/running.md", format!("none, and {meet} s to join |")),
        ("docs/book/src/shared-arrays.md", format!("Each page of {page} KiB has a *home*")),
    ]);
}

#[test]
fn modes_and_deliveries_of_the_book_are_those_of_the_code() {
    for mode in ["inline", "thread", "process"] {
        claim(&[("docs/book/src/tuning.md", format!("| `OIKAZE_ENGINE={mode}` |"))]);
    }
    let deliveries = page("docs/book/src/shared-arrays.md");
    for delivery in Delivery::ALL {
        assert!(deliveries.contains(delivery.name()), "shared-arrays.md lacks {}", delivery.name());
    }
    assert!(!page("docs/PAPERS.md").contains("delivery are fixed"));
}

/// A decision that was replaced names its successor, on its page and in the list.
#[test]
fn replaced_decisions_name_their_successors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/decisions");
    let list = page("docs/decisions/README.md");
    let mut replaced = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = page(&format!("docs/decisions/{name}"));
        let number = name.get(..3).unwrap_or_default();
        for old in text.split("Replaces [").skip(1).filter_map(|rest| rest.get(..3)) {
            replaced += 1;
            let row = list.split("| [").find(|row| row.starts_with(old)).unwrap_or_default();
            assert!(row.contains(&format!("(replaced by {number})")), "the row of {old}: {row}");
            let link = row.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            let old = page(&format!("docs/decisions/{}", link.unwrap().0));
            assert!(old.contains(&format!("Replaced by [{number}]")), "{old}");
        }
        assert!(name == "README.md" || list.contains(&format!("({name})")), "{name} is not listed");
    }
    assert!(replaced > 0);
}

/// `--version` of a debug build is the number alone; `tests/packages.rs` checks releases.
#[test]
fn version_begins_with_the_number() {
    let output = Command::new(env!("CARGO_BIN_EXE_oikaze")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let number = format!("oikaze {}", env!("CARGO_PKG_VERSION"));
    let revision = text.trim_end().strip_prefix(&number);
    assert!(revision.is_some_and(|more| more.is_empty() || more.starts_with(" (")), "{text:?}");
}
