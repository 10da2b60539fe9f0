//! Parallel reading and writing of files: each node moves the elements of its own blocks.

use super::npy::{self, ElementFormat};
use crate::error::{Error, Result};
use crate::shared::array::SharedArray;
use crate::shared::core::ArrayCore;
use crate::shared::element::Element;
use oikaze_os::replace_file::{FileRights, PartFile};
use oikaze_protocol::coherence::Ownership;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Number of bytes that are read from a file at a time.
const CHUNK: usize = 1 << 20;
/// Maximum number of times that the nodes open a file which is replaced meanwhile.
const OPENINGS_MAX: u32 = 16;

/// A file that has the elements of an array.
struct OpenedFile {
    file: File,
    version: FileVersion,
    /// Length of the header in bytes.
    header: u64,
}

/// Attributes of a file that change when it is replaced or written.
#[derive(PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(file: &File) -> io::Result<FileVersion> {
        let metadata = file.metadata()?;
        Ok(FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl<T: Element> SharedArray<T> {
    /// Writes all elements to a file. Collective, and a barrier: all nodes name the same file, on a
    /// file system that they share. Each node writes the elements of its own blocks.
    ///
    /// A file whose name ends in `.npy` is one of NumPy (little-endian, C order; version 1.0 where
    /// the names of fields permit it). Any other file has the bytes of the elements alone.
    ///
    /// The file appears under its name when it is whole. Until then it has a hidden name in the
    /// same folder, which ends in `.part`. So of two jobs that save to one name, one has its whole
    /// file there. A file that is replaced keeps its mode, and its owner where the system permits.
    /// A symbolic link stays, and the file behind it is replaced. Other hard links to the file keep
    /// the old elements. Devices, pipes and folders are refused.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let plate = job.array::<f32>("plate", [20, 30])?;
    /// plate.fill(1.5)?;
    /// # let id = job.barrier_reduce(std::process::id() as u64, Max)?;
    /// # let path = std::env::temp_dir().join(format!("oikaze-doc-{id}.npy"));
    /// plate.save(&path)?; // numpy.load(path)
    /// let again = job.array::<f32>("again", [20, 30])?;
    /// again.load(&path)?;
    /// assert_eq!(again.read(again.whole())?[[19, 29]], 1.5);
    /// # job.barrier()?;
    /// # let _ = std::fs::remove_file(&path);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A node could not write (all nodes get the error); a node is lost; a guard of any array of
    /// this node is alive. The file is not there then, or as it was before.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.core.save(path.as_ref())
    }

    /// Reads all elements from a file that [`save`](Self::save) or NumPy has written. Collective,
    /// with a barrier at its begin and its end: all nodes name the same file. Each node reads the
    /// elements of its own blocks when no node reads the old elements any more. If another program
    /// replaces the file meanwhile, as [`save`](Self::save) does, all nodes read the old elements
    /// or all read the new ones. Nodes may have copies of the file on disks of their own.
    ///
    /// # Errors
    /// The file has another size, element type or shape than the array, or cannot be opened on a
    /// node, or is replaced again and again (all nodes get the error, and the elements stay);
    /// reading fails, or the file is written meanwhile (all nodes get the error, and some elements
    /// are read); a node is lost; a guard of any array of this node is
    /// alive.
    #[track_caller]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        self.core.load(path.as_ref(), |bytes| {
            let mut elements = bytes.chunks_exact(size_of::<T>());
            if elements.all(|one| bytemuck::checked::try_pod_read_unaligned::<T>(one).is_ok()) {
                return Ok(());
            }
            Err(format!("the bytes of an element are not a {}", std::any::type_name::<T>()))
        })
    }
}

/// Says why bytes that a file has are not elements.
type CheckElements = fn(&[u8]) -> std::result::Result<(), String>;

impl ArrayCore {
    /// Does what [`SharedArray::save`] does.
    #[track_caller]
    pub fn save(&self, path: &Path) -> Result<()> {
        let what = format!("save array \"{}\" to {}", self.name, path.display());
        let failed = |why: io::Error| file_error(&what, path, &why);
        let is_first = self.node.rank() == 0;
        // An error on any node drops the part on all nodes, and whoever drops it removes it.
        let (number, (header, part)) = self.step("save", (1, &[]), || {
            let header = if is_npy(path, &what)? { self.header(&what)? } else { Vec::new() };
            if !is_first {
                return Ok((0, (header.len(), None)));
            }
            let part = PartFile::create(path, FileRights::Kept).map_err(failed)?;
            let len = (header.len() + self.byte_len()) as u64;
            part.file().set_len(len).map_err(failed)?;
            part.file().write_all_at(&header, 0).map_err(failed)?;
            Ok((part.number(), (header.len(), Some(part))))
        })?;
        let (_, part) = self.step("save", (2, &[]), || {
            let part = match part {
                Some(part) => part,
                None => PartFile::open(path, number).map_err(failed)?,
            };
            for block in self.home_blocks(self.node.rank()) {
                let guard = self.read_block::<u8>(block)?;
                for (row, elements) in block.rows().into_iter().zip(guard.slices()) {
                    let at = header + row.start * self.element_size();
                    part.file().write_all_at(elements, at as u64).map_err(failed)?;
                }
            }
            part.file().sync_data().map_err(failed)?;
            Ok((0, part))
        })?;
        let (_, part) = self.step("save", (3, &[]), || {
            if is_first {
                return part.publish().map(|_| (0, None)).map_err(failed);
            }
            Ok((0, Some(part)))
        })?;
        // The first node has renamed it.
        part.into_iter().for_each(PartFile::leave);
        Ok(())
    }

    /// Does what [`SharedArray::load`] does. `check` refuses bytes that are not elements.
    #[track_caller]
    pub fn load(&self, path: &Path, check: CheckElements) -> Result<()> {
        let what = format!("load array \"{}\" from {}", self.name, path.display());
        let open = || Ok((0, self.open(path, &what)?));
        let (_, mut opened) = self.step("load", (1, &[]), open)?;
        // All nodes have opened the file before any node opens it again. If each node finds the
        // file that it has open, then all of them had that file at the time between. So no node
        // has another version, whether they share the file or have copies of it.
        for _ in 0..OPENINGS_MAX {
            let (replaced, again) = self.step("load", (2, &[]), || {
                let again = self.open(path, &what)?;
                Ok((u64::from(again.version != opened.version), again))
            })?;
            if replaced == 0 {
                let load = || Ok((0, self.load_blocks(&opened, &what, path, check)?));
                return self.step("load", (3, &[]), load).map(drop);
            }
            opened = again;
        }
        let why = format!(
            "{} was replaced whenever the nodes opened it: load it when nothing saves to that name",
            path.display()
        );
        Err(Error::invalid(what, why))
    }

    /// Opens a file that has the elements of this array.
    fn open(&self, path: &Path, what: &str) -> Result<OpenedFile> {
        let failed = |why: io::Error| file_error(what, path, &why);
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::invalid(what, format!("{} is not a file", path.display())));
        }
        let file = File::open(path).map_err(failed)?;
        let version = FileVersion::of(&file).map_err(failed)?;
        let header = if is_npy(path, what)? { self.check_header(&file, what, path)? } else { 0 };
        let expected = header + self.byte_len() as u64;
        if version.len != expected {
            let why = format!("the file has {} bytes, the array needs {expected}", version.len);
            return Err(Error::invalid(what, why));
        }
        Ok(OpenedFile { file, version, header })
    }

    fn load_blocks(
        &self,
        opened: &OpenedFile,
        what: &str,
        path: &Path,
        check: CheckElements,
    ) -> Result<()> {
        let failed = |why: io::Error| file_error(what, path, &why);
        let OpenedFile { file, version, header } = opened;
        let size = self.element_size();
        let mut bytes = vec![0; (CHUNK / size).max(1) * size];
        for block in self.home_blocks(self.node.rank()) {
            let mut guard = self.write_block::<u8>(block, Ownership::Owned)?;
            for (row, slots) in block.rows().into_iter().zip(guard.slices_mut()) {
                let mut at = header + (row.start * size) as u64;
                for part in slots.chunks_mut(bytes.len()) {
                    let bytes = bytes.get_mut(..part.len()).unwrap_or_default();
                    file.read_exact_at(bytes, at).map_err(failed)?;
                    check(bytes).map_err(|why| Error::invalid(what, why))?;
                    part.copy_from_slice(bytes);
                    at += part.len() as u64;
                }
            }
        }
        if FileVersion::of(file).map_err(failed)? != *version {
            let why = format!(
                "{} was written while it was read: load it when nothing writes to it",
                path.display()
            );
            return Err(Error::invalid(what, why));
        }
        Ok(())
    }

    fn byte_len(&self) -> usize {
        self.len().saturating_mul(self.element_size())
    }

    fn format(&self) -> ElementFormat {
        ElementFormat::of(&self.settings.element.fields, self.element_size())
    }

    fn header(&self, what: &str) -> Result<Vec<u8>> {
        npy::header(&self.format(), self.shape().as_slice())
            .map_err(|why| Error::invalid(what.to_owned(), why))
    }

    /// Checks that the file has the elements of this array. Returns the length of its header.
    fn check_header(&self, file: &File, what: &str, path: &Path) -> Result<u64> {
        let failed = |why: io::Error| file_error(what, path, &why);
        let mut bytes = vec![0; npy::HEADER_MAX];
        let mut len = 0;
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(failed(why)),
            }
        }
        let bytes = bytes.get(..len).unwrap_or_default();
        npy::check(bytes, &self.format(), self.shape().as_slice())
            .map(|len| len as u64)
            .map_err(|why| Error::invalid(what.to_owned(), why))
    }
}

/// Returns `true` if the name is one of a file of NumPy, and an error for an archive of them.
fn is_npy(path: &Path, what: &str) -> Result<bool> {
    let ends_in = |ending| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
    if ends_in("npz") {
        let why = "an .npz file is an archive: write each array to its own .npy file (numpy.save)";
        return Err(Error::invalid(what, why));
    }
    Ok(ends_in("npy"))
}

fn file_error(what: &str, path: &Path, why: &io::Error) -> Error {
    let why = format!(
        "{}: {why}; all nodes need the same file, on a file system that they share",
        path.display()
    );
    Error::invalid(what.to_owned(), why)
}
