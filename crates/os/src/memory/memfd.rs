//! Memory files of fixed size.

use super::error::MemoryError;
use super::mapping::whole_pages;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
};
use rustix::fs::{fstat, fstatfs, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;

/// Creates a memory file of at least `len` bytes (whole pages). The file can neither shrink nor
/// grow, so that a peer that holds the descriptor cannot make our accesses fail. The file has no
/// pages yet. The first touch of a page takes memory, and ends the process with SIGBUS if the
/// machine has run out. Call [`reserve`] before you touch a range.
pub(super) fn sparse(name: &str, len: usize) -> Result<OwnedFd, MemoryError> {
    let len = whole_pages(len)?;
    // Past this limit, the kernel sends SIGXFSZ, which ends the process before the error is seen.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len as u64) {
        return Err(MemoryError::system("size a memory file", len, Errno::FBIG));
    }
    // Linux 6.3 expects the flag that says the file is not executable (vm.memfd_noexec). Older
    // kernels do not know the flag.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|why| if why == Errno::INVAL { memfd_create(name, flags) } else { Err(why) })
        .and_then(crate::descriptor::not_standard)
        .map_err(|why| MemoryError::system("create a memory file", len, why))?;
    ftruncate(&file, len as u64)
        .map_err(|why| MemoryError::system("size a memory file", len, why))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|why| MemoryError::system("seal a memory file", len, why))?;
    Ok(file)
}

/// As [`sparse`], with all its pages reserved: missing memory is an error here instead of a SIGBUS
/// later.
#[cfg(not(all(test, loom)))]
pub(crate) fn sealed(name: &str, len: usize) -> Result<OwnedFd, MemoryError> {
    let _room = super::room::reserve(whole_pages(len)?)?;
    let file = sparse(name, len)?;
    reserve(&file, 0, len)?;
    Ok(file)
}

/// Returns the length in bytes of a memory file received from another process.
///
/// # Errors
/// An access could end this process: the file may become shorter, or its pages come from the
/// reserved huge pages, which may be used up by then.
pub(crate) fn lasting_len(file: impl AsFd) -> io::Result<u64> {
    /// Compared in 32 bits on every architecture.
    const HUGETLBFS: u32 = 0x9584_58f6;
    let sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
    if !sealed || fstatfs(&file)?.f_type as u32 == HUGETLBFS {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the memory file is not sealed, or of hugetlbfs",
        ));
    }
    Ok(u64::try_from(fstat(&file)?.st_size).unwrap_or(0))
}

/// Allocates the pages of a range of a memory file.
pub(crate) fn reserve(file: &OwnedFd, offset: usize, len: usize) -> Result<(), MemoryError> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset as u64, len as u64) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(why) => {
                return Err(MemoryError::system("reserve memory for a memory file", len, why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_pages_and_keeps_its_size() {
        let file = sparse("test", 10_000).unwrap();
        assert_eq!(fstat(&file).unwrap().st_blocks, 0);
        reserve(&file, 0, 10_000).unwrap();
        let stat = fstat(&file).unwrap();
        assert_eq!(stat.st_size, 12_288);
        assert_eq!(stat.st_blocks, 24);
        assert_eq!(ftruncate(&file, 0).unwrap_err(), rustix::io::Errno::PERM);
        assert_eq!(ftruncate(&file, 1 << 20).unwrap_err(), rustix::io::Errno::PERM);
    }
}
