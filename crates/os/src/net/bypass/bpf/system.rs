//! System call bpf(2).

use super::assembler::Instruction;
use core::mem::size_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Numbers of commands, and of kinds of maps, programs and links (linux/bpf.h).
mod number {
    pub(super) const MAP_CREATE: libc::c_long = 0;
    pub(super) const PROGRAM_LOAD: libc::c_long = 5;
    #[cfg(test)]
    pub(super) const PROGRAM_TEST_RUN: libc::c_long = 10;
    pub(super) const LINK_CREATE: libc::c_long = 28;
    pub(super) const MAP_ARRAY: u32 = 2;
    pub(super) const MAP_RING: u32 = 27;
    pub(super) const MAP_CAN_BE_MAPPED: u32 = 1 << 10;
    pub(super) const PROGRAM_CLASSIFIER: u32 = 3;
    pub(super) const TCX_INGRESS: u32 = 46;
}

/// Name of our objects in `bpftool`.
const NAME: [u8; 16] = *b"oikaze\0\0\0\0\0\0\0\0\0\0";

/// Memory that BPF programs and this process share.
#[derive(Debug)]
pub(crate) struct Map(OwnedFd);

/// A program that the kernel has verified.
#[derive(Debug)]
pub(crate) struct Loaded(OwnedFd);

/// Attachment of a program to an interface. It ends when this is dropped, however the process ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    _fd: OwnedFd,
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

impl Map {
    /// Makes a ring of `bytes` (a power of two, and whole pages) that programs write to and one
    /// process reads.
    pub(crate) fn ring(bytes: u32) -> Result<Map, Errno> {
        Map::create(number::MAP_RING, 0, 0, bytes, 0)
    }

    /// Makes an array of `bytes` that programs and this process read and write.
    pub(crate) fn shared(bytes: u32) -> Result<Map, Errno> {
        Map::create(number::MAP_ARRAY, 4, bytes, 1, number::MAP_CAN_BE_MAPPED)
    }

    fn create(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> Result<Map, Errno> {
        let mut ask =
            MapCreate { kind, key, value, entries, flags, inner: 0, numa_node: 0, name: NAME };
        // SAFETY: the structure is the beginning of what the command reads, and leads nowhere.
        unsafe { call_for_fd(number::MAP_CREATE, &mut ask) }.map(Map)
    }
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected: u32,
}

/// Makes the kernel verify a program that sees packets as they come in, above the card's driver and
/// below IP.
///
/// # Errors
/// EPERM: it takes CAP_BPF and CAP_NET_ADMIN. EINVAL, EACCES: the kernel lacks a feature that the
/// program uses.
pub(crate) fn load_classifier(program: &[Instruction]) -> Result<Loaded, Errno> {
    let count = u32::try_from(program.len()).map_err(|_| Errno::TOOBIG)?;
    let mut ask = ProgramLoad {
        kind: number::PROGRAM_CLASSIFIER,
        count,
        instructions: program.as_ptr().expose_provenance() as u64,
        license: c"Dual MIT/GPL".as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name: NAME,
        interface: 0,
        expected: number::TCX_INGRESS,
    };
    // SAFETY: the structure is the beginning of what the command reads; the instructions, as many
    // as it says, and the terminated text outlive the call, which only reads them.
    unsafe { call_for_fd(number::PROGRAM_LOAD, &mut ask) }.map(Loaded)
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Attaches a program to the packets that come in at an interface of this network namespace, behind
/// programs that are already there.
///
/// # Errors
/// EINVAL: older than Linux 6.6.
pub(crate) fn attach_to_ingress(program: &Loaded, interface: u32) -> Result<Attachment, Errno> {
    let mut ask = LinkCreate {
        program: program.0.as_raw_fd().cast_unsigned(),
        interface,
        kind: number::TCX_INGRESS,
        flags: 0,
    };
    // SAFETY: the structure is the beginning of what the command reads, and leads nowhere.
    unsafe { call_for_fd(number::LINK_CREATE, &mut ask) }.map(|fd| Attachment { _fd: fd })
}

/// Runs a command that makes an object, and returns its descriptor (the kernel closes it on exec).
///
/// # Safety
/// `ask` is a beginning of what this command reads, and what it leads to may be read.
unsafe fn call_for_fd<T>(command: libc::c_long, ask: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: by the caller's promise.
    let fd = unsafe { call(command, ask) }?;
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// As [`call_for_fd`]; what it leads to to be written to, may be.
unsafe fn call<T>(command: libc::c_long, ask: &mut T) -> Result<i32, Errno> {
    // SAFETY: the kernel reads and writes as many bytes as it is told; the rest by the caller's
    // promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *ask, size_of::<T>()) };
    match i32::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Runs a program on one Ethernet frame, as if it had come in, and returns the result.
#[cfg(test)]
pub(crate) fn run_on(program: &Loaded, frame: &[u8]) -> Result<i32, Errno> {
    #[repr(C)]
    struct TestRun {
        program: u32,
        result: u32,
        in_len: u32,
        out_len: u32,
        bytes_in: u64,
        bytes_out: u64,
        repeat: u32,
        duration: u32,
        context: [u64; 4],
    }
    let mut ask = TestRun {
        program: program.0.as_raw_fd().cast_unsigned(),
        result: 0,
        in_len: u32::try_from(frame.len()).map_err(|_| Errno::TOOBIG)?,
        out_len: 0,
        bytes_in: frame.as_ptr().expose_provenance() as u64,
        bytes_out: 0,
        repeat: 1,
        duration: 0,
        context: [0; 4],
    };
    // SAFETY: the structure is the beginning of what the command uses; the frame, as long as it
    // says, is only read.
    unsafe { call(number::PROGRAM_TEST_RUN, &mut ask) }?;
    Ok(ask.result.cast_signed())
}
