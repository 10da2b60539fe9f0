//! The memfd of one array and its mappings.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::error::SharedError;

const MEMORY_REMEDY: &str = "Raise the limit on address space (ulimit -v) or make the array smaller";

/// A whole mapping of a memfd; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; who may touch its bytes is for its owner to say.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself gives out only its address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map the whole of `file`, shared, without huge pages.
    pub(super) fn new(file: &OwnedFd, len: usize, protection: ProtFlags, what: &str) -> Result<Mapping, SharedError> {
        // SAFETY: a fresh mapping at an address the kernel chooses; nothing existing is touched.
        let mapped =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED | MapFlags::NORESERVE, file, 0) };
        let base = mapped.map_err(|e| SharedError::new(format!("mapping {len} bytes ({what})"), e.into(), MEMORY_REMEDY))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| {
            SharedError::new("mapping memory", io::Error::from_raw_os_error(libc::EFAULT), "The kernel mapped address 0.")
        })?;
        let mapping = Mapping { base, len };
        // Pages are tracked one by one (4 KiB); a huge page would hide touches. EINVAL: a kernel without huge pages.
        mapping
            .advise(Advice::LinuxNoHugepage, what)
            .or_else(|e| if e.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(e) })?;
        Ok(mapping)
    }

    /// Advise the kernel about all of it.
    pub(super) fn advise(&self, advice: Advice, what: &str) -> Result<(), SharedError> {
        // SAFETY: our own live mapping. None of the advice used here (NOHUGEPAGE, DONTFORK) changes its bytes.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, advice) }.map_err(|e| {
            SharedError::new(format!("madvise({advice:?}) on {what}"), e.into(), "The kernel is too old or out of memory.")
        })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we mapped exactly this range and nobody borrows it any more. Failure would only leak it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A memfd of `len` bytes that can neither shrink (which would turn touches into SIGBUS) nor grow.
pub(super) fn memfd(name: &str, len: usize) -> Result<OwnedFd, SharedError> {
    // The kernel allows 249 bytes and no NUL; the name shows in /proc/PID/maps only.
    let label: String = format!("oikaze:{name}").chars().filter(|c| !c.is_control()).take(60).collect();
    let tried = || format!("making a memory file of {len} bytes for array {name:?}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux 6.3 wants to be told that it is not executable (vm.memfd_noexec); older kernels do not know the flag.
    let fd = match rustix::fs::memfd_create(&label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(&label, flags),
        other => other,
    }
    .map_err(|e| SharedError::new(tried(), e.into(), "Raise the limit on open files (ulimit -n)."))?;
    rustix::fs::ftruncate(&fd, len as u64).map_err(|e| {
        SharedError::new(tried(), e.into(), "Raise the limit on file size (ulimit -f) or make the array smaller.")
    })?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|e| SharedError::new(tried(), e.into(), "The kernel refuses to seal memory files."))?;
    Ok(fd)
}

/// Give the bytes of this range memory now, so that running out is an error here and not a SIGBUS later.
pub(super) fn allocate(file: &OwnedFd, offset: usize, len: usize) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), offset as u64, len as u64) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// A duplicate descriptor of the memory file.
pub(super) fn duplicate(file: &OwnedFd) -> io::Result<File> {
    Ok(File::from(file.try_clone()?))
}
