//! Direct access to a local peer's mapped region, by the caller's own loads and stores. Such an
//! operation is done when the call returns (MEM-18.2). An operation that is not possible in this
//! way (bounds, rights, a region that was taken back, a fence) goes to the owner as a message, and
//! the owner reports the error.

use crate::completion::operation::{Operation, Outcome};
use crate::memory::region::RegionSlice;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::Value;
use oikaze_os::shm::Mapped;
use oikaze_protocol::rma::{AtomicOp, Signal};

impl RemoteRegion {
    /// Returns the memory, unless an earlier operation must come first.
    #[inline]
    fn direct(&self) -> Option<&Mapped> {
        self.mapped.as_deref().filter(|_| self.peer.node.may_go_direct())
    }

    /// Returns the memory if it may be written at this offset.
    #[inline]
    fn direct_to(&self, offset: u64) -> Option<&Mapped> {
        self.direct().inspect(|mapped| mapped.claim(offset))
    }

    /// Puts the data directly, and returns `true` if that was possible.
    #[inline(never)]
    pub(super) fn put_direct(
        &self,
        offset: u64,
        from: &RegionSlice,
        signal: Option<Signal>,
    ) -> bool {
        let Some(mapped) = self.direct_to(offset) else { return false };
        let signal = match signal {
            Some(signal) if signal.key == self.published.key => Some((signal.offset, signal.add)),
            Some(_) => return false,
            None => None,
        };
        from.use_directly(|region, at, len| mapped.write_from(offset, region, at, len, signal))
    }

    #[inline]
    pub(crate) fn put_bytes_direct(&self, offset: u64, bytes: &[u8]) -> Option<Operation<()>> {
        let put = self.direct_to(offset)?.write(offset, bytes, None);
        put.then(|| Operation::done(()))
    }

    /// Copies bytes into memory of the caller, and returns `true` if that was possible.
    #[inline]
    pub(crate) fn get_bytes_direct(&self, offset: u64, into: &mut [u8]) -> bool {
        self.direct().is_some_and(|mapped| mapped.read(offset, into))
    }

    #[inline]
    pub(super) fn get_direct(&self, offset: u64, into: &RegionSlice) -> Option<Operation<()>> {
        let mapped = self.direct()?;
        let got = into.use_directly(|region, at, len| mapped.read_to(offset, region, at, len));
        got.then(|| Operation::done(()))
    }

    #[inline]
    pub(super) fn atomic_direct<T: Outcome>(
        &self,
        offset: u64,
        op: AtomicOp,
    ) -> Option<Operation<T>> {
        let old = self.direct()?.atomic(offset, op)?;
        T::from_value(Value::Word(old)).map(Operation::done)
    }
}
