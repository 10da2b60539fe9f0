//! stub
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[derive(Debug)]
pub struct Event(OwnedFd);
impl Event {
    pub fn new() -> std::io::Result<Self> { Ok(Self(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC)?)) }
    pub fn signal(&self) { let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); }
    pub fn clear(&self) { let mut b = [0u8; 8]; let _ = rustix::io::read(&self.0, &mut b); }
}
impl AsFd for Event { fn as_fd(&self) -> BorrowedFd<'_> { self.0.as_fd() } }
pub fn usable_cores() -> usize { std::thread::available_parallelism().map_or(1, |n| n.get()) }
pub fn pin_to_core(_core: usize) -> std::io::Result<()> { Ok(()) }
