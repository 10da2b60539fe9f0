//! `Debug` for public types: what identifies each of them, and no contents of memory.

use crate::completion::counter::Counter;
use crate::completion::operation::{Operation, Outcome};
use crate::completion::queue::CompletionQueue;
use crate::job::handle::Job;
use crate::job::peer::Peer;
use crate::memory::region::{LocalRegion, RegionSlice};
use crate::memory::remote::region::RemoteRegion;
use crate::memory::remote::words::RemoteWord;
use crate::memory::scope::Scope;
use crate::message::fifo::Fifo;
use crate::message::remote_fifo::RemoteFifo;
use crate::shared::array::SharedArray;
use crate::shared::element::Element;
use crate::shared::lock::LockGuard;
use std::fmt;

/// Implements `Debug` for a type with the fields that these calls return.
macro_rules! debug {
    ($([$($generics:tt)*] $type:ty { $($field:ident: $value:expr),* })*) => {
        $(impl<$($generics)*> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = stringify!($type).split('<').next().unwrap_or_default().trim_end();
                let mut shown = f.debug_struct(name);
                $(shown.field(stringify!($field), &($value)(self));)*
                shown.finish_non_exhaustive()
            }
        })*
    };
}

debug! {
    [] Job { rank: Job::rank, size: Job::size }
    [] Peer { rank: Peer::rank }
    [] LocalRegion { len: |region: &LocalRegion| region.len() }
    [] RegionSlice { len: RegionSlice::len }
    [] RemoteRegion {
        peer: |region: &RemoteRegion| region.peer().rank(), len: RemoteRegion::len
    }
    [T] RemoteWord<'_, T> {}
    [] RemoteFifo { peer: |fifo: &RemoteFifo| fifo.peer().rank() }
    [] Fifo { slots: Fifo::slots, longest: Fifo::longest }
    [T: Element] SharedArray<T> { len: SharedArray::<T>::len }
    [] LockGuard {}
    [] Counter { counts: Counter::counts }
    [] CompletionQueue {}
    [T: Outcome] Operation<T> { is_done: Operation::<T>::is_done }
    ['env] Scope<'_, '_, 'env> {}
}
