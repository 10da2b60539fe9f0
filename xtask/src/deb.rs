//! Builds a Debian package with `dpkg-deb` alone.

use crate::command::{Step, root, target};
use crate::dist::{self, Dist};
use crate::install;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Section and contents are those of Debian's own packages of this kind (Debian policy, 2.4).
const SECTION: &str = "devel";
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
    install_library(&tree)?;
    let architecture = Step::new("dpkg").args(["--print-architecture"]).output()?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture.trim());
    let size = kibibytes(&tree)?;
    let control = control(version, architecture, size);
    put(control.as_bytes(), &tree.join("DEBIAN/control"), 0o644)?;
    let package = dist::folder().join(format!("oikaze_{version}_{architecture}.deb"));
    // The files of the package belong to root, whoever builds it.
    let build = ["--root-owner-group", "-Zxz", "--build"];
    Step::new("dpkg-deb").args(build).args([&tree, &package]).run()?;
    println!("{}", package.display());
    Ok(package)
}

fn control(version: &str, architecture: &str, kibibytes: u64) -> String {
    format!(
        "Package: oikaze\nVersion: {version}\nSection: {SECTION}\nPriority: optional\n\
         Architecture: {architecture}\nMaintainer: {MAINTAINER}\nInstalled-Size: {kibibytes}\n\
         Depends: libc6, libgcc-s1\n\
         Suggests: openssh-client, iproute2\n\
         Description: shared and remote memory for clusters on ordinary Ethernet\n \
         The processes of a cluster use each other's memory: shared arrays, remote\n \
         memory, messages and collectives. No special network card, kernel module or\n \
         root is needed. This package has the launcher, its manual pages, and the\n \
         libraries for C and C++.\n"
    )
}

/// Puts command, pages, completions and licences where Debian has them (Debian policy, 9 and 12).
fn lay_out(dist: &Dist, tree: &Path) -> Result<(), String> {
    copy(&dist.command, &tree.join("usr/bin/oikaze"), 0o755)?;
    for page in &dist.pages {
        let name = page.file_name().unwrap_or_default();
        let to = tree.join("usr/share/man/man1").join(name);
        copy(page, &to, 0o644)?;
        // Debian policy, 12.1.
        Step::new("gzip").args(["--best", "--no-name", "--force"]).args([&to]).run()?;
    }
    let folders =
        ["bash-completion/completions", "zsh/vendor-completions", "fish/vendor_completions.d"];
    for (script, folder) in dist.completions.iter().zip(folders) {
        let name = script.file_name().unwrap_or_default();
        copy(script, &tree.join("usr/share").join(folder).join(name), 0o644)?;
    }
    let mut licences = Vec::new();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = root().join(name);
        licences.extend(fs::read(&path).map_err(|why| format!("reading {name}: {why}"))?);
    }
    put(&licences, &tree.join("usr/share/doc/oikaze/copyright"), 0o644)
}

/// Adds library, header and `.pc` file of the C binding.
fn install_library(tree: &Path) -> Result<(), String> {
    install::run(&install::Settings {
        prefix: "/usr".into(),
        libdir: "lib".into(),
        destdir: tree.to_owned(),
        from: None,
        uninstall: false,
    })
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|why| format!("reading {}: {why}", from.display()))?;
    put(&bytes, to, mode)
}

/// Writes a file of the package. Its rights do not depend on the umask.
fn put(bytes: &[u8], to: &Path, mode: u32) -> Result<(), String> {
    let mut made = Vec::new();
    for folder in to.ancestors().skip(1).take_while(|folder| !folder.exists()) {
        made.push(folder.to_owned());
    }
    to.parent().map_or(Ok(()), dist::create)?;
    dist::write(to, bytes)?;
    made.push(to.to_owned());
    for path in made {
        let mode = if path == to { mode } else { 0o755 };
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(|why| format!("changing {}: {why}", path.display()))?;
    }
    Ok(())
}

/// Returns the size of all files, as `Installed-Size` counts it (Debian policy, 5.6.20).
fn kibibytes(folder: &Path) -> Result<u64, String> {
    let failed = |why: std::io::Error| format!("reading {}: {why}", folder.display());
    let mut sum = 1;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let meta = entry.metadata().map_err(failed)?;
        sum += if meta.is_dir() { kibibytes(&entry.path())? } else { meta.len().div_ceil(1024) };
    }
    Ok(sum)
}
