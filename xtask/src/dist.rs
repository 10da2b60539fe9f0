//! Builds what is handed to others into `dist/`: the command without any library, its manual pages
//! and its completions.

use crate::command::{Step, cargo, root, target};
use std::fs;
use std::path::{Path, PathBuf};

/// Shells, with the names under which they look for completions.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "oikaze"), ("zsh", "_oikaze"), ("fish", "oikaze.fish")];

/// Files that [`run`] has made.
pub struct Dist {
    /// Command without libraries.
    pub command: PathBuf,
    /// Manual pages of section 1.
    pub pages: Vec<PathBuf>,
    /// Completions of bash, zsh and fish.
    pub completions: [PathBuf; 3],
}

/// Returns the folder of everything that is handed to others.
pub fn folder() -> PathBuf {
    root().join("dist")
}

/// Builds the command, and lets it write its pages and completions.
///
/// # Errors
/// The build fails, or a file cannot be written.
pub fn run() -> Result<Dist, String> {
    let folder = folder();
    let command = static_command(&folder)?;
    let pages = pages(&command, &folder.join("man"))?;
    let completions = completions(&command, &folder.join("completions"))?;
    println!("{}", command.display());
    Ok(Dist { command, pages, completions })
}

/// Returns the target for which cargo builds on this machine.
pub fn host() -> Result<String, String> {
    let said = Step::new("rustc").args(["-vV"]).output()?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

/// Builds the command with the C library inside. gcc links it, so that no other target is needed.
fn static_command(folder: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    // With --target, the flags hold for the command, and not for build scripts and macros.
    let build = ["build", "--quiet", "--profile", "dist", "-p", "oikaze-cli", "--target", &host];
    cargo(&build).env("RUSTFLAGS", "-C target-feature=+crt-static").run()?;
    let built = target().join(&host).join("dist/oikaze");
    let command = folder.join("oikaze");
    create(folder)?;
    // A running command keeps its file, which cannot be written.
    let part = folder.join("oikaze.part");
    fs::copy(&built, &part)
        .and_then(|_| fs::rename(&part, &command))
        .map_err(|why| format!("copying {}: {why}", built.display()))?;
    Ok(command)
}

fn pages(command: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    create(folder)?;
    let failed = |why: std::io::Error| format!("reading {}: {why}", folder.display());
    let entries = || fs::read_dir(folder).map_err(failed);
    for old in entries()? {
        fs::remove_file(old.map_err(failed)?.path()).map_err(failed)?;
    }
    Step::new(command).args(["manual"]).args([folder]).run()?;
    let mut pages: Vec<PathBuf> = entries()?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    pages.sort();
    Ok(pages)
}

fn completions(command: &Path, folder: &Path) -> Result<[PathBuf; 3], String> {
    create(folder)?;
    for (shell, name) in COMPLETIONS {
        let script = Step::new(command).args(["completions", shell]).output()?;
        write(&folder.join(name), script.as_bytes())?;
    }
    Ok(COMPLETIONS.map(|(_, name)| folder.join(name)))
}

/// Makes a folder and those above it.
pub fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|why| format!("making {}: {why}", folder.display()))
}

/// Writes a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|why| format!("writing {}: {why}", path.display()))
}
