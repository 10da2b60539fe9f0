//! Operations on many ranges in one call, which end as one (spec/memory.md, MEM-27).

use crate::completion::operation::{Begun, Operation};
use crate::memory::region::RegionSlice;
use crate::memory::remote::put::RemoteSignal;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_engine::{Completion, Compound, Failure, Request, tracked_by};
use oikaze_protocol::limits::LIST_MAX;
use oikaze_protocol::rma::{Rights, RmaError, Signal};
use oikaze_protocol::wind::{Body, Refusal};
use std::sync::Arc;

/// News for the target once all of a list is in place.
#[derive(Clone, Copy)]
enum ListEnd {
    Nothing,
    Signal(Signal),
    Notice { tag: u64 },
}

/// An entry of a list: an offset of the peer's region, and a slice of this node.
type ListEntry = (u64, RegionSlice);

impl RemoteRegion {
    /// Writes each of at most [`LIST_MAX`](crate::limits::LIST_MAX) slices (16,384) to its offset.
    /// The operation is done when all slices are in the peer's memory and visible. It fails, after
    /// all have ended, if one of them has failed. The slices leave together
    /// ([`crate::Job::batch`]), in no order among them. Slices for a
    /// [mapped](RemoteRegion::is_mapped) region are copied by the calling thread.
    ///
    /// The list is checked as a whole first. If it is too long, if an entry is not inside the
    /// region as it was looked up, or if a slice is not registered any more, nothing takes place
    /// and [`Operation::wait`] returns the error.
    pub fn put_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        self.put_list_then(list, ListEnd::Nothing)
    }

    /// Writes slices as [`RemoteRegion::put_list`] does, and adds to a word of a region of the same
    /// peer once *all* of them are in place. If one of them fails, the word stays as it is.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let cache = job.publish("cache", Region::shared(8192)?, Rights::WRITE | Rights::ATOMIC)?;
    /// let there = job.peer((job.rank() + 1) % job.size())?.region("cache")?;
    /// let blocks = job.register(Region::zeroed(2048)?)?;
    /// let list = [(4096, blocks.slice(0..1024)?), (1024, blocks.slice(1024..2048)?)];
    /// there.put_list_signal(&list, &there.signal(0, 1)).wait()?;
    /// cache.wait_until(0, |count| count == 1)?; // all blocks of the previous node are here
    /// # job.barrier()
    /// # }
    /// ```
    pub fn put_list_signal(
        &self,
        list: &[(u64, RegionSlice)],
        signal: &RemoteSignal,
    ) -> Operation<()> {
        self.put_list_then(list, ListEnd::Signal(signal.0))
    }

    /// Writes slices as [`RemoteRegion::put_list`] does. Once *all* of them are in place, an entry
    /// with this tag appears in the peer's [`Arrivals`](crate::memory::arrivals::Arrivals), with
    /// offset and length of the last slice of the list. If one of them fails, there is no entry.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let cache = job.publish("cache", Region::shared(8192)?, Rights::WRITE)?;
    /// let there = job.peer((job.rank() + 1) % job.size())?.region("cache")?;
    /// let blocks = job.register(Region::zeroed(2048)?)?;
    /// let list = [(4096, blocks.slice(0..1024)?), (1024, blocks.slice(1024..2048)?)];
    /// let put = there.put_list_notify(&list, 7);
    /// let arrival = cache.arrivals().next()?; // all blocks of the previous node are here
    /// assert_eq!((arrival.tag(), arrival.offset(), arrival.len()), (7, 1024, 1024));
    /// put.wait()?;
    /// # job.barrier()
    /// # }
    /// ```
    pub fn put_list_notify(&self, list: &[(u64, RegionSlice)], tag: u64) -> Operation<()> {
        self.put_list_then(list, ListEnd::Notice { tag })
    }

    /// Reads each slice from its offset. It is the counterpart of [`RemoteRegion::put_list`].
    pub fn get_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        let verb = OperationKind::GetList;
        if let Err(failure) = self.check_list(list, RmaError::DestinationGone) {
            return self.refused_list(verb, list, failure);
        }
        if list.iter().all(|(offset, into)| self.get_direct(*offset, into).is_some()) {
            return Operation::done(());
        }
        let (from, key) = (self.peer.rank, self.published.key);
        self.list(verb, list, |offset, into| Request::Get {
            from,
            key,
            offset,
            into: into.segment(Rights::WRITE),
        })
    }

    fn put_list_then(&self, list: &[ListEntry], end: ListEnd) -> Operation<()> {
        let verb = OperationKind::PutList;
        let checked =
            self.check_list(list, RmaError::SourceGone).and_then(|()| self.check_list_signal(end));
        if let Err(failure) = checked {
            return self.refused_list(verb, list, failure);
        }
        let Some(((offset, last), others)) = list.split_last() else {
            return self.end_of_list(0, None, end);
        };
        // A put that is repeated changes nothing, so a region that is taken back in the middle of
        // the list is reached by messages.
        if others.iter().all(|(offset, from)| self.put_direct(*offset, from, None)) {
            return self.end_of_list(*offset, Some(last), end);
        }
        let put =
            |offset, from: &RegionSlice| self.put_request(offset, Some(from), ListEnd::Nothing);
        if let ListEnd::Nothing = end {
            return self.list(verb, list, put);
        }
        let node = &self.peer.node;
        let whole = self.begun_list(verb, list);
        let (joined, gate) = Compound::before(others.len(), &whole);
        node.batch(|| {
            for (offset, slice) in others {
                node.push(joined.part(put(*offset, slice), Some(slice.clone().keep())));
            }
            let request = Box::new(self.put_request(*offset, Some(last), end));
            let after = Request::After { gate, request };
            node.push(tracked_by(Arc::clone(&whole), after, Some(last.clone().keep())));
        });
        Operation::begun(Begun::new(node, whole, self.peer.limit))
    }

    /// Puts the last slice of a list whose other slices are in place, and tells the target.
    fn end_of_list(&self, offset: u64, last: Option<&RegionSlice>, end: ListEnd) -> Operation<()> {
        let signal = match end {
            ListEnd::Nothing => None,
            ListEnd::Signal(signal) => Some(signal),
            // The owner puts the entry into its queue (MEM-25.3).
            ListEnd::Notice { .. } => return self.begin_end_of_list(offset, last, end),
        };
        match last {
            Some(last) if self.put_direct(offset, last, signal) => Operation::done(()),
            None if signal.is_none() => Operation::done(()),
            _ => self.begin_end_of_list(offset, last, end),
        }
    }

    fn begin_end_of_list(
        &self,
        offset: u64,
        last: Option<&RegionSlice>,
        end: ListEnd,
    ) -> Operation<()> {
        let len = last.map_or(0, |last| last.len() as u64);
        self.peer.begin(
            self.put_request(offset, last, end),
            last.map(|last| last.clone().keep()),
            self.what(OperationKind::PutList, offset, len),
        )
    }

    fn put_request(&self, offset: u64, from: Option<&RegionSlice>, end: ListEnd) -> Request {
        let (to, key) = (self.peer.rank, self.published.key);
        let body = from.map_or(Body::Empty, |from| Body::Segment(from.segment(Rights::READ)));
        match end {
            ListEnd::Nothing => Request::Put { to, key, offset, body, signal: None },
            ListEnd::Signal(signal) => Request::Put { to, key, offset, body, signal: Some(signal) },
            ListEnd::Notice { tag } => Request::PutNotice { to, key, offset, body, tag },
        }
    }

    /// Checks all of a list, also its length (MEM-27.1), before anything takes place (MEM-27.2).
    fn check_list(&self, list: &[ListEntry], gone: RmaError) -> Result<(), Failure> {
        if list.len() > LIST_MAX {
            return Err(RmaError::ListTooLong { count: list.len(), max: LIST_MAX }.into());
        }
        for (offset, slice) in list {
            let end = offset.checked_add(slice.len() as u64);
            if end.is_none_or(|end| end > self.len()) {
                return Err(RmaError::Refused(Refusal::OutOfBounds).into());
            }
            if !slice.is_registered() {
                return Err(gone.into());
            }
        }
        Ok(())
    }

    fn check_list_signal(&self, end: ListEnd) -> Result<(), Failure> {
        let ListEnd::Signal(Signal { key, offset, .. }) = end else { return Ok(()) };
        if !offset.is_multiple_of(8) {
            return Err(RmaError::Refused(Refusal::Misaligned).into());
        }
        let is_outside = offset.checked_add(8).is_none_or(|end| end > self.len());
        if key == self.published.key && is_outside {
            return Err(RmaError::Refused(Refusal::OutOfBounds).into());
        }
        Ok(())
    }

    /// Makes the operation of a list that was refused as a whole.
    fn refused_list(
        &self,
        verb: OperationKind,
        list: &[ListEntry],
        failure: Failure,
    ) -> Operation<()> {
        let whole = self.begun_list(verb, list);
        whole.settle(Err(failure));
        Operation::begun(Begun::new(&self.peer.node, whole, self.peer.limit))
    }

    fn begun_list(&self, verb: OperationKind, list: &[ListEntry]) -> Arc<Completion> {
        let first = list.first().map_or(0, |(offset, _)| *offset);
        let len =
            list.iter().fold(0, |sum: u64, (_, slice)| sum.saturating_add(slice.len() as u64));
        Completion::begun(self.what(verb, first, len), &self.peer.node.requests.untaken)
    }

    fn list(
        &self,
        verb: OperationKind,
        list: &[ListEntry],
        request: impl Fn(u64, &RegionSlice) -> Request,
    ) -> Operation<()> {
        let node = &self.peer.node;
        let whole = self.begun_list(verb, list);
        let joined = Compound::new(list.len(), &whole);
        node.batch(|| {
            for (offset, slice) in list {
                node.push(joined.part(request(*offset, slice), Some(slice.clone().keep())));
            }
        });
        Operation::begun(Begun::new(node, whole, self.peer.limit))
    }
}
