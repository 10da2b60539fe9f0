//! Single words of a peer's region, changed atomically.

use super::RemoteRegion;
use crate::engine::Request;
use crate::operation::Operation;
use oikaze_protocol::rma::AtomicOp;

impl RemoteRegion {
    /// Add to the 64-bit word at `offset` (wrapping); its old value. At most once, whatever the network does.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::FetchAdd(add), "fetch-add")
    }

    /// Store `new` into the 64-bit word at `offset` if it is `expected`; its old value. At most once.
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::CompareSwap { expected, new }, "compare-and-swap")
    }

    /// Store `new` into the 64-bit word at `offset`; its old value. At most once.
    pub fn swap(&self, offset: u64, new: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::Swap(new), "swap")
    }

    fn atomic(&self, offset: u64, op: AtomicOp, verb: &'static str) -> Operation<u64> {
        let request = Request::Atomic { at: self.peer.rank, key: self.published.key, offset, op };
        self.peer.begin(request, None, self.what(verb, offset, 8))
    }
}
