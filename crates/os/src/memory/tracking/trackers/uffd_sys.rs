//! Thin wrappers of userfaultfd's system calls. Each is one ioctl with its structure from
//! `linux-raw-sys`.

use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use linux_raw_sys::general as sys;
use linux_raw_sys::ioctl as op;

/// `_IO(0xAA, 0x00)`: makes a new userfaultfd from `/dev/userfaultfd` (Linux 6.1).
const USERFAULTFD_IOC_NEW: u64 = (sys::USERFAULTFD_IOC as u64) << 8;
/// `UFFDIO_CONTINUE_MODE_WP` (Linux 6.4), not in `linux-raw-sys`.
const CONTINUE_MODE_WP: u64 = 1 << 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`, not in `linux-raw-sys`.
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;

/// `UFFDIO_MOVE` (Linux 6.8), not in `linux-raw-sys`: its structure is as long as `UFFDIO_COPY`'s,
/// whose number differs in the last byte.
const UFFDIO_MOVE: u64 =
    op::UFFDIO_COPY as u64 - sys::_UFFDIO_COPY as u64 + sys::_UFFDIO_MOVE as u64;
const _: () = assert!(size_of::<sys::uffdio_copy>() == size_of::<sys::uffdio_move>());
/// `UFFDIO_MOVE_MODE_DONTWAKE` and `UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES`, not in `linux-raw-sys`.
const MOVE_QUIETLY_WITH_HOLES: u64 = 1 << 0 | 1 << 1;

/// Features that this runtime can use, by name (`UFFD_FEATURE_*`).
pub(crate) mod feature {
    use linux_raw_sys::general as sys;

    pub(crate) const MISSING_SHMEM: u64 = sys::UFFD_FEATURE_MISSING_SHMEM as u64;
    pub(crate) const PAGEFAULT_FLAG_WP: u64 = sys::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
    pub(crate) const MINOR_SHMEM: u64 = sys::UFFD_FEATURE_MINOR_SHMEM as u64;
    pub(crate) const WP_SHMEM: u64 = sys::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
    pub(crate) const POISON: u64 = sys::UFFD_FEATURE_POISON as u64;
    pub(crate) const WP_ASYNC: u64 = sys::UFFD_FEATURE_WP_ASYNC as u64;
    pub(crate) const MOVE: u64 = sys::UFFD_FEATURE_MOVE as u64;
    /// Features that moving pages needs. Ranges are registered for write-protect faults, but no
    /// page is ever write-protected, so nothing traps.
    pub(crate) const MOVER: u64 = MOVE | PAGEFAULT_FLAG_WP;
    /// Features that the tracker needs.
    pub(crate) const TRACKER: u64 = MISSING_SHMEM | PAGEFAULT_FLAG_WP | MINOR_SHMEM | WP_SHMEM;
}

/// A page fault as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFault {
    pub(crate) address: usize,
    pub(crate) write: bool,
}

fn ioctl<T>(fd: RawFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: every caller in this file passes the structure that belongs to `request`; the kernel
    // writes only inside it. The effect on memory is the caller's to justify. The casts suit both
    // libcs (request is c_ulong or c_int).
    let result = unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(argument)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a descriptor that also traps faults from inside system calls, by the system call or else
/// by `/dev/userfaultfd`.
pub(crate) fn open_full() -> io::Result<OwnedFd> {
    open(0).or_else(|by_call| open_device().map_err(|_| by_call))
}

/// Opens a descriptor for faults of user code only, which needs no privilege.
pub(crate) fn open_user_mode() -> io::Result<OwnedFd> {
    open(sys::UFFD_USER_MODE_ONLY)
}

fn open(flags: u32) -> io::Result<OwnedFd> {
    let flags = flags as libc::c_int | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: makes a new descriptor; touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    owned(fd)
}

fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open("/dev/userfaultfd")?;
    // SAFETY: this request takes flags by value and makes a new descriptor; touches no memory.
    let fd = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            USERFAULTFD_IOC_NEW as _,
            libc::O_CLOEXEC | libc::O_NONBLOCK,
        )
    };
    owned(fd.into())
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel just made this descriptor for us, and no other code knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Requests features and returns those that the kernel has. With `wanted == 0`, only asks.
pub(crate) fn handshake(fd: &OwnedFd, wanted: u64) -> io::Result<u64> {
    let mut api = sys::uffdio_api { api: u64::from(sys::UFFD_API), features: wanted, ioctls: 0 };
    ioctl(fd.as_raw_fd(), op::UFFDIO_API.into(), &mut api)?;
    Ok(api.features)
}

/// Registers a range for missing, minor and write-protect faults.
pub(crate) fn register(fd: &OwnedFd, start: usize, len: usize) -> io::Result<()> {
    let mode = sys::UFFDIO_REGISTER_MODE_MISSING
        | sys::UFFDIO_REGISTER_MODE_MINOR
        | sys::UFFDIO_REGISTER_MODE_WP;
    let mut register =
        sys::uffdio_register { range: range(start, len), mode: mode.into(), ioctls: 0 };
    ioctl(fd.as_raw_fd(), op::UFFDIO_REGISTER.into(), &mut register)
}

/// Registers a range of private anonymous memory that pages may be moved into. Nothing traps there.
pub(crate) fn register_for_moves(fd: &OwnedFd, start: usize, len: usize) -> io::Result<()> {
    let mode = sys::UFFDIO_REGISTER_MODE_WP.into();
    let mut register = sys::uffdio_register { range: range(start, len), mode, ioctls: 0 };
    ioctl(fd.as_raw_fd(), op::UFFDIO_REGISTER.into(), &mut register)
}

/// Moves pages from `from` to `to`, where no page may be present. Holes stay holes. Returns the
/// number of bytes moved, from the start. The number is less than `len`, or 0, if the kernel wants
/// to be asked again.
pub(crate) fn move_pages(fd: &OwnedFd, to: usize, from: usize, len: usize) -> io::Result<usize> {
    let (dst, src, len) = (to as u64, from as u64, len as u64);
    let mut request = sys::uffdio_move { dst, src, len, mode: MOVE_QUIETLY_WITH_HOLES, move_: 0 };
    match ioctl(fd.as_raw_fd(), UFFDIO_MOVE, &mut request) {
        Ok(()) => Ok(len as usize),
        // After a partial move, `move_` is the number of bytes moved. If nothing was moved, it is
        // the negated error.
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
            Ok(usize::try_from(request.move_).unwrap_or(0))
        }
        Err(e) => Err(e),
    }
}

/// Unregisters a range, and wakes all threads that wait in it.
pub(crate) fn unregister(fd: &OwnedFd, start: usize, len: usize) -> io::Result<()> {
    ioctl(fd.as_raw_fd(), op::UFFDIO_UNREGISTER.into(), &mut range(start, len))
}

/// Result of a ranged CONTINUE.
#[derive(Debug)]
pub(crate) enum Continued {
    /// All pages were mapped.
    All,
    /// This many bytes from the start were mapped. The next page was mapped already, or the kernel
    /// wants to be asked again.
    Part(usize),
    /// No page was mapped, because the first page is mapped already.
    Mapped,
}

/// Maps pages that the page cache holds, writable or write-protected, and wakes waiters.
pub(crate) fn map_continue(
    fd: &OwnedFd,
    start: usize,
    len: usize,
    protected: bool,
) -> io::Result<Continued> {
    let mode = if protected { CONTINUE_MODE_WP } else { 0 };
    let mut request = sys::uffdio_continue { range: range(start, len), mode, mapped: 0 };
    match ioctl(fd.as_raw_fd(), op::UFFDIO_CONTINUE.into(), &mut request) {
        Ok(()) => Ok(Continued::All),
        Err(e) => match (e.raw_os_error(), usize::try_from(request.mapped)) {
            (Some(libc::EAGAIN), Ok(done)) => Ok(Continued::Part(done)),
            // The address space changed during the call (a fork). That is not an error: ask again.
            (Some(libc::EAGAIN), Err(_)) => Ok(Continued::Part(0)),
            (Some(libc::EEXIST), _) => Ok(Continued::Mapped),
            _ => Err(e),
        },
    }
}

/// Write-protects mapped pages, or permits writing again and wakes waiters.
pub(crate) fn write_protect(
    fd: &OwnedFd,
    start: usize,
    len: usize,
    protect: bool,
) -> io::Result<()> {
    let mode = if protect { WRITEPROTECT_MODE_WP } else { 0 };
    loop {
        let mut request = sys::uffdio_writeprotect { range: range(start, len), mode };
        match ioctl(fd.as_raw_fd(), op::UFFDIO_WRITEPROTECT.into(), &mut request) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other,
        }
    }
}

/// Wakes all threads that wait in a range, which try again.
pub(crate) fn wake(fd: &OwnedFd, start: usize, len: usize) -> io::Result<()> {
    ioctl(fd.as_raw_fd(), op::UFFDIO_WAKE.into(), &mut range(start, len))
}

/// Reads up to `N` events without waiting, and calls `take` for each page fault. Returns the number
/// of events, 0 if none waits.
pub(crate) fn read_faults<const N: usize>(
    fd: &OwnedFd,
    mut take: impl FnMut(RawFault),
) -> io::Result<usize> {
    let mut events = [const { MaybeUninit::<sys::uffd_msg>::uninit() }; N];
    // SAFETY: the kernel writes whole messages into the array, at most its size.
    let got =
        unsafe { libc::read(fd.as_raw_fd(), events.as_mut_ptr().cast(), size_of_val(&events)) };
    let count = match usize::try_from(got) {
        Ok(bytes) => bytes / size_of::<sys::uffd_msg>(),
        Err(_) => {
            let e = io::Error::last_os_error();
            return if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                Ok(0)
            } else {
                Err(e)
            };
        }
    };
    for event in events.iter().take(count) {
        // SAFETY: the kernel filled the first `count` messages.
        let event = unsafe { event.assume_init_ref() };
        if u32::from(event.event) == sys::UFFD_EVENT_PAGEFAULT {
            // SAFETY: the event says that this variant of the union is the one filled; any bits are
            // valid integers.
            let fault = unsafe { event.arg.pagefault };
            let write = fault.flags
                & u64::from(sys::UFFD_PAGEFAULT_FLAG_WRITE | sys::UFFD_PAGEFAULT_FLAG_WP)
                != 0;
            take(RawFault { address: fault.address as usize, write });
        }
    }
    Ok(count)
}

fn range(start: usize, len: usize) -> sys::uffdio_range {
    sys::uffdio_range { start: start as u64, len: len as u64 }
}
