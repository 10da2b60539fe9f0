//! Builds a Debian package with `dpkg-deb` alone.

use crate::command::{Step, root, target};
use crate::dist::{self, Dist};
use crate::install::{self, Settings};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MAINTAINER: &str = "Oikaze maintainers <maintainers@oikaze.invalid>";

/// Builds the package, and returns its file.
///
/// # Errors
/// The build or `dpkg-deb` fails.
pub fn run() -> Result<PathBuf, String> {
    let dist = dist::run()?;
    let tree = target().join("deb");
    let _ = fs::remove_dir_all(&tree); // of the build before
    lay_out(&dist, &tree)?;
    let depends = install_library(&tree)?;
    let architecture = Step::new("dpkg").args(["--print-architecture"]).output()?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture.trim());
    let size = settle(&tree)?;
    let control = control(version, architecture, size, &depends);
    put(control.as_bytes(), &tree.join("DEBIAN/control"))?;
    settle(&tree.join("DEBIAN"))?;
    let package = dist::folder().join(format!("oikaze_{version}_{architecture}.deb"));
    // The files of the package belong to root, whoever builds it.
    let build = ["--root-owner-group", "-Zxz", "--build"];
    Step::new("dpkg-deb").args(build).args([&tree, &package]).run()?;
    println!("{}", package.display());
    Ok(package)
}

/// Returns the description of the package (Debian policy, 5.3).
fn control(version: &str, architecture: &str, kibibytes: u64, depends: &str) -> String {
    format!(
        "Package: oikaze\nVersion: {version}\nSection: devel\nPriority: optional\n\
         Architecture: {architecture}\nMaintainer: {MAINTAINER}\nInstalled-Size: {kibibytes}\n\
         {depends}Suggests: openssh-client, iproute2\n\
         Description: shared and remote memory for clusters on ordinary Ethernet\n \
         The processes of a cluster use each other's memory: shared arrays, remote\n \
         memory, messages and collectives. No special network card, kernel module or\n \
         root is needed.\n"
    )
}

/// Puts command, pages, completions and licences where Debian has them (Debian policy, 9 and 12).
fn lay_out(dist: &Dist, tree: &Path) -> Result<(), String> {
    copy(&dist.command, &tree.join("usr/bin"), "oikaze")?;
    let share = tree.join("usr/share");
    for page in &dist.pages {
        let copied = copy(page, &share.join("man/man1"), name(page))?;
        // Debian policy, 12.1.
        Step::new("gzip").args(["--best", "--no-name"]).args([copied]).run()?;
    }
    let folders =
        ["bash-completion/completions", "zsh/vendor-completions", "fish/vendor_completions.d"];
    for (script, folder) in dist.completions.iter().zip(folders) {
        copy(script, &share.join(folder), name(script))?;
    }
    for unit in ["oikaze-serve.service", "oikaze-serve.socket"] {
        let source = root().join("cli/systemd").join(unit);
        copy(&source, &tree.join("usr/lib/systemd/system"), unit)?;
    }
    let mut licences = Vec::new();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        licences.extend(read(&root().join(name))?);
    }
    put(&licences, &share.join("doc/oikaze/copyright"))
}

/// Adds libraries, header and `.pc` file of the C binding. Returns what they depend on, as a line
/// of the package's description.
fn install_library(tree: &Path) -> Result<String, String> {
    install::run(&Settings::of_package(tree))?;
    put(b"activate-noawait ldconfig\n", &tree.join("DEBIAN/triggers"))?;
    strip(&tree.join("usr/lib"))?;
    let library = read(&tree.join("usr/lib/liboikaze.so"))?;
    let glibc = needed_glibc(&library).ok_or("the shared library needs no C library")?;
    Ok(format!("Depends: libc6 (>= 2.{glibc}), libgcc-s1\n"))
}

/// Takes what only a debugger needs out of the libraries (Debian policy, 10.1 and 10.2), and the
/// compiler's own intermediate code, for which no linker asks.
fn strip(folder: &Path) -> Result<(), String> {
    let shared = folder.join("liboikaze.so");
    let shared = shared.canonicalize().map_err(|why| format!("{}: {why}", shared.display()))?;
    Step::new("strip").args(["--strip-unneeded"]).args([shared]).run()?;
    let sections = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let archive = Step::new("strip").args(["--strip-debug"]).args(sections);
    archive.args([folder.join("liboikaze.a")]).run()
}

/// Returns the newest version 2.x of the C library whose symbols a library names.
fn needed_glibc(library: &[u8]) -> Option<u32> {
    const BEGIN: &[u8] = b"GLIBC_2.";
    let versions = library.windows(BEGIN.len() + 3).filter_map(|window| {
        let digits = window.strip_prefix(BEGIN)?;
        let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(digits.get(..len)?).ok()?.parse().ok()
    });
    versions.max()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("reading {}: {why}", path.display()))
}

/// Copies a file into a folder of the package, and returns its place.
fn copy(from: &Path, folder: &Path, name: &str) -> Result<PathBuf, String> {
    let to = folder.join(name);
    dist::create(folder)?;
    fs::copy(from, &to).map_err(|why| format!("copying {}: {why}", from.display()))?;
    Ok(to)
}

/// Writes a file of the package.
fn put(bytes: &[u8], to: &Path) -> Result<(), String> {
    to.parent().map_or(Ok(()), dist::create)?;
    dist::write(to, bytes)
}

/// Sets the rights of all files, which then do not depend on the umask. Returns their size, as
/// `Installed-Size` counts it (Debian policy, 5.6.20).
fn settle(path: &Path) -> Result<u64, String> {
    let failed = |why: std::io::Error| format!("changing {}: {why}", path.display());
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    if meta.is_symlink() {
        return Ok(1);
    }
    let runs = meta.is_dir() || meta.permissions().mode() & 0o100 != 0;
    let mode = if runs { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    if !meta.is_dir() {
        return Ok(meta.len().div_ceil(1024));
    }
    let mut sum = 1;
    for entry in fs::read_dir(path).map_err(failed)? {
        sum += settle(&entry.map_err(failed)?.path())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_c_library_that_symbols_need_is_found() {
        assert_eq!(needed_glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0__ctype"), Some(34));
        assert_eq!(needed_glibc(b"GLIBC_PRIVATE\0GLIBC_2."), None);
    }
}
