//! Files that the launcher sends to other hosts for one job (`--ship`, LAUNCH-8.5).

use super::pipe::{FileHeader, Order};
use crate::launcher::error::LaunchError;
use crate::launcher::word::Word;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Files of one job, in the order in which they are sent.
#[derive(Debug, Default)]
pub struct Files {
    sources: Vec<PathBuf>,
    headers: Vec<FileHeader>,
    /// Files and directories as the user names them, with their paths on the other host.
    names: Vec<(OsString, PathBuf)>,
}

impl Files {
    /// Finds the files, and all files of directories among them.
    ///
    /// # Errors
    /// A file is not there or is no file, or two would have the same path on the other host.
    pub fn find(names: &[PathBuf]) -> Result<Files, LaunchError> {
        let mut files = Files::default();
        for name in names {
            let path = path_there(name).ok_or_else(|| wrong(name, "it names no file"))?;
            files.names.push((name.clone().into_os_string(), path.clone()));
            files.add(name, path)?;
        }
        let mut paths: Vec<&Word> = files.headers.iter().map(|header| &header.path).collect();
        paths.sort_unstable();
        let twice = paths.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(Path::new(&one.0)),
            _ => None,
        });
        match twice {
            Some(path) => Err(wrong(path, "two files would have this path on the other hosts")),
            None => Ok(files),
        }
    }

    fn add(&mut self, source: &Path, path: PathBuf) -> Result<(), LaunchError> {
        let failed = |why: io::Error| wrong(source, &why.to_string());
        let meta = std::fs::metadata(source).map_err(failed)?;
        if meta.is_file() {
            let (size, mode) = (meta.len(), meta.permissions().mode());
            self.sources.push(source.to_owned());
            self.headers.push(FileHeader { path: Word(path.into_os_string()), size, mode });
            return Ok(());
        }
        if !meta.is_dir() {
            return Err(wrong(source, "it is neither a file nor a directory"));
        }
        let mut entries: Vec<_> =
            std::fs::read_dir(source).and_then(Iterator::collect).map_err(failed)?;
        entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            // A link to a directory may lead in a circle.
            if entry.path().is_dir() && entry.path().is_symlink() {
                return Err(wrong(&entry.path(), &link_problem(&entry.path())));
            }
            self.add(&entry.path(), path.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// Describes the files in an order. A word of the program's command line that names a file
    /// which lies elsewhere there becomes the file's path there.
    pub fn announce(&self, order: &mut Order) {
        order.files.clone_from(&self.headers);
        let program = order.program.first().map(|word| word.0.clone());
        let elsewhere = self.names.iter().filter(|(name, path)| {
            // The nodes run in the directory of the files, so that plain relative paths hold.
            !is_plain(Path::new(name)) || (program.as_ref() == Some(name) && *name == *path)
        });
        order.renamed = elsewhere
            .map(|(name, path)| (Word(name.clone()), Word(path.clone().into_os_string())))
            .collect();
    }

    /// Writes the contents of all files, one after the other.
    ///
    /// # Errors
    /// A file has become shorter or unreadable, or `to` fails.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        for (source, header) in self.sources.iter().zip(&self.headers) {
            let named =
                |why: io::Error| io::Error::new(why.kind(), format!("{}: {why}", source.display()));
            let file = File::open(source).map_err(named)?;
            if io::copy(&mut file.take(header.size), to)? < header.size {
                return Err(named(io::Error::other("it became shorter while it was sent")));
            }
        }
        to.flush()
    }
}

/// Returns `true` for relative paths that stay below the directory in which they begin.
pub fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && path.file_name().is_some()
}

/// Returns the path of a file in the directory of the job. It is that of its name if the name is
/// plain, or else the last component alone.
fn path_there(name: &Path) -> Option<PathBuf> {
    let last = name.file_name()?;
    if !is_plain(name) {
        return Some(last.into());
    }
    Some(name.components().filter(|part| *part != Component::CurDir).collect())
}

/// Says why a link to a directory cannot be sent, and what to do. A virtual environment of Python
/// consists of links and absolute paths, so that it works on its own host only.
fn link_problem(link: &Path) -> String {
    let is_venv = link.ancestors().skip(1).any(|folder| folder.join("pyvenv.cfg").is_file());
    let remedy = if is_venv {
        "it belongs to a virtual environment, which works on its own host only: `pip install \
         --target site PACKAGES`, and give `--ship PROGRAM.py site -x PYTHONPATH=site`"
    } else {
        "name that directory itself, or copy what you need with `cp -rL`"
    };
    format!("it is a symbolic link to a directory; {remedy}")
}

fn wrong(path: &Path, why: &str) -> LaunchError {
    LaunchError::Usage(format!("{} (--ship) cannot be sent: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_keep_their_directories_and_others_their_last_component() {
        for (name, path) in [
            ("./himeno", Some("himeno")),
            ("build/himeno", Some("build/himeno")),
            ("/usr/bin/himeno", Some("himeno")),
            ("../data/a.bin", Some("a.bin")),
            ("/", None),
            ("..", None),
        ] {
            assert_eq!(path_there(Path::new(name)), path.map(PathBuf::from), "{name}");
        }
    }

    /// LAUNCH-8.5.
    #[test]
    fn file_that_is_not_there_or_comes_twice_is_refused() {
        let why = |names: &[&str]| {
            let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            Files::find(&names).unwrap_err().to_string()
        };
        assert!(why(&["/no/such/file"]).contains("No such file"));
        assert!(why(&["/dev/null"]).contains("neither a file"));
        assert!(why(&["/etc/passwd", "/etc/../etc/passwd"]).contains("two files"));
        assert!(why(&[".."]).contains("names no file"));
    }

    /// LAUNCH-8.5.
    #[test]
    fn link_to_directory_is_refused_with_a_remedy_also_for_virtual_environments() {
        let folder = std::env::temp_dir().join(format!("oikaze-links-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("venv/lib")).unwrap();
        std::os::unix::fs::symlink("lib", folder.join("venv/lib64")).unwrap();
        let why = || Files::find(&[folder.join("venv")]).unwrap_err().to_string();
        let plain = why();
        std::fs::write(folder.join("venv/pyvenv.cfg"), "").unwrap();
        let venv = why();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(plain.contains("lib64") && plain.contains("cp -rL"), "{plain}");
        assert!(venv.contains("pip install --target site"), "{venv}");
    }
}
