//! Gives `oikaze --version` the revision from which a release was built.
//!
//! Debug builds have none. Otherwise each commit would build the tests of this crate again.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let release = env!("CARGO_PKG_VERSION");
    let revision =
        if std::env::var("PROFILE").as_deref() == Ok("release") { revision() } else { None };
    let version = revision.map_or(release.to_owned(), |revision| format!("{release} ({revision})"));
    println!("cargo::rustc-env=OIKAZE_VERSION={version}");
}

/// Returns the commit and its day, unless the sources are not a checkout of git.
fn revision() -> Option<String> {
    for file in ["HEAD", "packed-refs", &git(&["symbolic-ref", "HEAD"]).unwrap_or_default()] {
        let watched = git(&["rev-parse", "--git-path", file])?;
        if std::path::Path::new(&watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    git(&["log", "-1", "--format=%h %cs", "--abbrev=10"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
