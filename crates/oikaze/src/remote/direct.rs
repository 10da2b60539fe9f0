//! A neighbour's region that is mapped: reached by the caller's own loads and stores, done when the call returns (MEM-18.2). What
//! cannot be done so (bounds, rights, a region that was taken back, a fence) is asked of the owner, who says what is wrong.

use super::RemoteRegion;
use crate::engine::Value;
use crate::operation::{Operation, Outcome, Verb};
use crate::region::RegionSlice;
use oikaze_os::neighbour::Mapped;
use oikaze_protocol::rma::{AtomicOp, Signal};

impl RemoteRegion {
    /// The memory, if nothing that was begun before must come first.
    #[inline]
    fn direct(&self) -> Option<&Mapped> {
        self.mapped.as_deref().filter(|_| self.peer.node.may_go_direct())
    }

    #[inline]
    fn done<T: Outcome>(&self, value: Value, verb: Verb, offset: u64, len: u64) -> Operation<T> {
        Operation::done(&self.peer.node, value, self.what(verb, offset, len))
    }

    #[inline]
    pub(super) fn put_direct(&self, offset: u64, from: &RegionSlice, signal: Option<Signal>) -> Option<Operation<()>> {
        let mapped = self.direct()?;
        let signal = match signal {
            Some(signal) if signal.key == self.published.key => Some((signal.offset, signal.add)),
            Some(_) => return None,
            None => None,
        };
        let put = from.use_directly(|source| mapped.write_from(offset, &source, signal));
        put.then(|| self.done(Value::Done, Verb::Put, offset, from.len() as u64))
    }

    #[inline]
    pub(super) fn put_bytes_direct(&self, offset: u64, bytes: &[u8]) -> Option<Operation<()>> {
        let put = self.direct()?.write(offset, bytes);
        put.then(|| self.done(Value::Done, Verb::Put, offset, bytes.len() as u64))
    }

    #[inline]
    pub(super) fn get_direct(&self, offset: u64, into: &RegionSlice) -> Option<Operation<()>> {
        let mapped = self.direct()?;
        let got = into.fill_directly(|region, at, len| mapped.read_to(offset, region, at, len));
        got.then(|| self.done(Value::Done, Verb::Get, offset, into.len() as u64))
    }

    #[inline]
    pub(super) fn atomic_direct<T: Outcome>(&self, offset: u64, op: AtomicOp, verb: Verb) -> Option<Operation<T>> {
        let old = self.direct()?.atomic(offset, op)?;
        Some(self.done(Value::Word(old), verb, offset, op.width().bytes()))
    }
}
