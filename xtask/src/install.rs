//! Installs the C binding: libraries, header, and the files for pkg-config and Valgrind.

use crate::command::{Step, cargo, root, target};
use crate::header;
use clap::Args;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Places of the installed files.
#[derive(Args)]
pub struct Settings {
    /// Folder in which programs will find the files.
    #[arg(long, default_value = "/usr/local")]
    pub prefix: PathBuf,
    /// Folder of libraries, from the prefix.
    #[arg(long, default_value = "lib")]
    pub libdir: PathBuf,
    /// Folder that stands for the root of the file system while a package is made.
    #[arg(long, default_value = "/")]
    pub destdir: PathBuf,
    /// Install the libraries of this folder, and build none.
    #[arg(long)]
    pub from: Option<PathBuf>,
    /// Remove the files instead.
    #[arg(long)]
    pub uninstall: bool,
}

/// Version of the package.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Name under which programs find the shared library (bindings/c/build.rs).
pub const SONAME: &str = "liboikaze.so.0";

/// Reports of Valgrind that are not errors.
const SUPPRESSIONS: &str = "oikaze.supp";

/// System libraries that a program needs that links the static library.
const PRIVATE_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Lines of oikaze.pc that name the static library.
const ARCHIVE: &str = "\
# For programs that link the static library: pkg-config --variable=archive oikaze
archive=${pc_sysrootdir}${libdir}/liboikaze.a";

impl Settings {
    /// Returns the settings of a distribution's package, whose files are laid out in `folder`.
    pub fn of_package(folder: &Path) -> Settings {
        Settings {
            prefix: "/usr".into(),
            libdir: "lib".into(),
            destdir: folder.to_owned(),
            from: None,
            uninstall: false,
        }
    }

    /// Returns where a file of the prefix goes.
    fn path(&self, folder: &Path, name: &str) -> PathBuf {
        let prefix = self.prefix.strip_prefix("/").unwrap_or(&self.prefix);
        self.destdir.join(prefix).join(folder).join(name)
    }

    /// Returns the names of the installed files, each with its place.
    fn files(&self) -> Files {
        let (lib, include) = (&self.libdir, Path::new("include"));
        Files {
            shared: self.path(lib, &format!("liboikaze.so.{VERSION}")),
            soname: self.path(lib, SONAME),
            link: self.path(lib, "liboikaze.so"),
            archive: self.path(lib, "liboikaze.a"),
            header: self.path(include, "oikaze.h"),
            package: self.path(&lib.join("pkgconfig"), "oikaze.pc"),
            suppressions: self.path(Path::new("share/oikaze"), SUPPRESSIONS),
        }
    }
}

/// Places of all installed files.
struct Files {
    shared: PathBuf,
    soname: PathBuf,
    link: PathBuf,
    archive: PathBuf,
    header: PathBuf,
    package: PathBuf,
    suppressions: PathBuf,
}

/// Builds and installs the C binding, or removes it.
///
/// # Errors
/// The build fails, or a file cannot be written or removed.
pub fn run(settings: &Settings) -> Result<(), String> {
    let files = settings.files();
    if settings.uninstall {
        return uninstall(&files);
    }
    let built = match &settings.from {
        Some(folder) => folder.clone(),
        None => {
            cargo(&["build", "--quiet", "--release", "-p", "oikaze-c"]).run()?;
            target().join("release")
        }
    };
    let shared_name = format!("liboikaze.so.{VERSION}");
    copy(&built.join("liboikaze_c.so"), &files.shared)?;
    link(&shared_name, &files.soname)?;
    link(SONAME, &files.link)?;
    copy(&built.join("liboikaze_c.a"), &files.archive)?;
    copy(&header::folder().join("include/oikaze.h"), &files.header)?;
    write(&files.package, &package(settings)?)?;
    copy(&header::folder().join(SUPPRESSIONS), &files.suppressions)?;
    if settings.from.is_none() {
        // The files are a fifth as long without what only debuggers of Oikaze itself read.
        Step::new("strip").args(["--strip-debug"]).args([&files.shared, &files.archive]).run()?;
    }
    println!("installed {}", files.link.display());
    Ok(())
}

/// Returns the text of oikaze.pc.
fn package(settings: &Settings) -> Result<String, String> {
    let prefix = Path::new("/").join(&settings.prefix);
    let archive = format!("{ARCHIVE} {PRIVATE_LIBRARIES}\n");
    text_of_package(&prefix.to_string_lossy(), &settings.libdir.to_string_lossy(), &archive)
}

/// Returns the text of an oikaze.pc that is installed anywhere, in `LIBDIR/pkgconfig`. Programs
/// find the library there when they run. It comes without the static library.
pub fn movable_package() -> Result<String, String> {
    let text = text_of_package("${pcfiledir}/../..", "lib", "")?;
    Ok(text.replace("-L${libdir} ", "-L${libdir} -Wl,-rpath,${libdir} "))
}

fn text_of_package(prefix: &str, libdir: &str, archive: &str) -> Result<String, String> {
    let template = header::folder().join("oikaze.pc.in");
    let text = fs::read_to_string(&template).map_err(|why| named(&template, &why))?;
    Ok(text
        .replace("@prefix@", prefix)
        .replace("@libdir@", libdir)
        .replace("@version@", VERSION)
        .replace("@archive@\n", archive)
        .replace("@private@", PRIVATE_LIBRARIES))
}

fn named(path: &Path, why: &std::io::Error) -> String {
    format!("{}: {why}", path.display())
}

/// Makes the folder of a file, and removes a file of this name, which a program may have mapped.
fn make_place(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(root());
    fs::create_dir_all(folder).map_err(|why| named(folder, &why))?;
    remove(path)
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(named(path, &why)),
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_place(to)?;
    fs::copy(from, to).map(drop).map_err(|why| named(to, &why))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    make_place(path)?;
    fs::write(path, text).map_err(|why| named(path, &why))
}

fn link(to: &str, path: &Path) -> Result<(), String> {
    make_place(path)?;
    symlink(to, path).map_err(|why| named(path, &why))
}

fn uninstall(files: &Files) -> Result<(), String> {
    let Files { shared, soname, link, archive, header, package, suppressions } = files;
    [shared, soname, link, archive, header, package, suppressions]
        .into_iter()
        .try_for_each(|path| remove(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_for_pkg_config_names_the_static_library_only_where_it_is_installed() {
        let installed = package(&Settings::of_package(Path::new("/tmp"))).unwrap();
        assert!(installed.contains("\narchive=${pc_sysrootdir}${libdir}/liboikaze.a -l"));
        assert!(installed.starts_with("prefix=/usr\n"), "{installed}");
        let movable = movable_package().unwrap();
        assert!(!movable.contains("archive") && !movable.contains("liboikaze.a"), "{movable}");
        assert!(movable.contains("\nLibs: -L${libdir} -Wl,-rpath,${libdir} -loikaze\n"));
        for text in [installed, movable] {
            assert!(!text.contains('@'), "{text}");
        }
    }
}
