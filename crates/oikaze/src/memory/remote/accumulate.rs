//! Arrays of numbers combined with those in a peer's region. Each number is combined at most once,
//! whatever the network does.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::memory::region::RegionSlice;
use crate::memory::remote::put::COPY_MAX;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_engine::{Keep, Request};
use oikaze_protocol::rma::{Accumulation, Combine, Number, Rights, Width};
use oikaze_protocol::wind::Body;

impl RemoteRegion {
    /// Combines the numbers in a counted slice with those from `offset` of the region on. The peer
    /// adds them, or keeps the smaller or the greater one of each pair. Each pair is combined
    /// atomically with respect to atomics of its width and to other accumulates, in any order.
    ///
    /// If the operation fails because the peer was lost, some numbers may have been combined, none
    /// of them twice (MEM-12.5).
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// let job = oikaze::join()?;
    /// let sums = job.publish("sums", Region::shared(4096)?, Rights::ATOMIC)?;
    /// let gradients = job.register(Region::zeroed(4096)?)?;
    /// gradients.write(0, &1.5_f32.to_ne_bytes())?;
    /// job.peer(0)?.region("sums")?.accumulate::<f32>(0, Sum, gradients.all())?.wait()?;
    /// job.barrier()?;
    /// if job.rank() == 0 {
    ///     let mut sum = [0; 4];
    ///     sums.read(0, &mut sum)?;
    ///     assert_eq!(f32::from_ne_bytes(sum), 1.5 * job.size() as f32);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The slice does not hold whole numbers.
    pub fn accumulate<T: Number>(
        &self,
        offset: u64,
        operator: impl Into<Combine>,
        from: RegionSlice,
    ) -> Result<Operation<()>> {
        self.accumulate_slice(
            offset,
            Accumulation { element: T::ELEMENT, combine: operator.into() },
            from,
        )
    }

    pub(crate) fn accumulate_slice(
        &self,
        offset: u64,
        how: Accumulation,
        from: RegionSlice,
    ) -> Result<Operation<()>> {
        let segment = from.segment(Rights::READ);
        let (width, len) = (how.width().bytes(), segment.len);
        if !len.is_multiple_of(width) {
            return Err(Error::invalid(
                self.what(OperationKind::Accumulate, offset, len).to_string(),
                format!(
                    "{len} bytes are not a whole number of elements of {width} bytes; take a slice that is"
                ),
            ));
        }
        Ok(self.accumulate_body(offset, how, Body::Segment(segment), Some(from.keep())))
    }

    /// Combines up to [`COPY_MAX`] bytes of numbers as [`RemoteRegion::accumulate`] does, copied
    /// before the call returns.
    ///
    /// # Errors
    /// `numbers` is longer than [`COPY_MAX`] bytes.
    pub fn accumulate_copy<T: Number>(
        &self,
        offset: u64,
        operator: impl Into<Combine>,
        numbers: &[T],
    ) -> Result<Operation<()>> {
        let width = size_of::<T>();
        let len = size_of_val(numbers);
        if len > COPY_MAX {
            return Err(Error::invalid(
                self.what(OperationKind::Accumulate, offset, len as u64).to_string(),
                format!(
                    "accumulate_copy takes up to {COPY_MAX} bytes; use a registered region (accumulate) or a scope for more"
                ),
            ));
        }
        let how = Accumulation { element: T::ELEMENT, combine: operator.into() };
        let body = Body::filled(len, |bytes| {
            for (place, number) in bytes.chunks_exact_mut(width).zip(numbers) {
                let bits = number.bits();
                match how.width() {
                    Width::W32 => place.copy_from_slice(&(bits as u32).to_ne_bytes()),
                    Width::W64 => place.copy_from_slice(&bits.to_ne_bytes()),
                }
            }
            true
        });
        Ok(self.accumulate_body(offset, how, body.unwrap_or(Body::Empty), None))
    }

    fn accumulate_body(
        &self,
        offset: u64,
        how: Accumulation,
        body: Body,
        keep: Keep,
    ) -> Operation<()> {
        let len = body.len();
        let request =
            Request::Accumulate { to: self.peer.rank, key: self.published.key, offset, how, body };
        self.peer.begin(request, keep, self.what(OperationKind::Accumulate, offset, len))
    }
}
