//! Memory of this node, and memory of other nodes.
//!
//! A [`Region`] is memory. An operation uses a region once it is registered, and then it is a
//! [`LocalRegion`]. A peer reaches it as a [`RemoteRegion`], if the owner grants [`Rights`].
//!
//! | call | memory | for operations of this node | for peers |
//! |---|---|---|---|
//! | [`Job::register`] | a [`Region`] | yes | no |
//! | [`Job::publish`] | a [`Region`] | yes | by name: [`Peer::region`] |
//! | [`Job::expose`] | a [`Region`] | yes | by id: [`LocalRegion::remote_id`], [`Job::remote`] |
//! | [`Job::scope`] | any memory of the program, borrowed | until the scope ends | no |
//! | [`Job::fifo`] | its own | no | pushes only: [`Peer::fifo`] |
//! | [`Job::array`] | its own, on all nodes | by guards | by guards |
//!
//! Up to [`COPY_MAX`] bytes need no registration: [`RemoteRegion::put_copy`] copies them. Messages
//! are copied, too ([`Peer::send`]).
//!
//! | region | made by |
//! |---|---|
//! | memory that local peers can map, with huge pages from 2 MiB on | [`Region::shared`] |
//! | memory of this process | [`Region::private`], or [`Region::zeroed`] for short |
//! | the contents of a file | [`Region::of_file`] |
//! | memory of another language (unsafe) | [`Region::lent`] |
//!
//! [`Peer::region`]: crate::Peer::region
//! [`Peer::fifo`]: crate::Peer::fifo
//! [`Peer::send`]: crate::Peer::send
//! [`COPY_MAX`]: remote::COPY_MAX
//! [`RemoteRegion`]: remote::RemoteRegion
//! [`RemoteRegion::put_copy`]: remote::RemoteRegion::put_copy

mod access_log;
pub mod arrivals;
mod exchange;
mod range;
pub(crate) mod region;
pub mod remote;
pub(crate) mod scope;

pub use access_log::RefusedAccess;
/// Error of an access to a region of this node.
///
/// ```
/// use oikaze::memory::AccessError;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let region = Region::zeroed(100)?;
/// let error: AccessError = region.write(99, b"too long").unwrap_err();
/// let error: oikaze::Error = error.into(); // as `?` does
/// assert!(error.to_string().contains("100"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::AccessError;
/// Error of memory that could not be had.
///
/// ```
/// use oikaze::memory::MemoryError;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let error: MemoryError = Region::private(usize::MAX).unwrap_err();
/// let error: oikaze::Error = error.into(); // as `?` does
/// assert!(!error.is_timeout());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::MemoryError;
/// Size of the pages of a region.
///
/// ```
/// use oikaze::memory::PageSize;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let small = Region::shared_of(4 << 20, PageSize::Small)?; // no huge pages
/// assert_eq!(small.page_size(), PageSize::Small);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::PageSize;
/// Memory of this node, reference-counted.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let shared = Region::shared(4096)?; // local peers can map it, if it is published
/// let private = Region::private(4096)?; // of this process alone
/// shared.write(8, b"bytes")?;
/// assert_eq!(private.load_u64(0)?, 0);
/// let shared = job.publish("shared", shared, Rights::ALL)?; // now peers can reach it
/// # job.barrier()?;
/// # drop(shared);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::Region;
/// Numbers of bytes that an exchange has moved and copied.
///
/// ```
/// use oikaze::memory::{Placed, page_size};
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let one = job.register(Region::zeroed(2 * page_size())?)?;
/// let other = job.register(Region::zeroed(2 * page_size())?)?;
/// let placed: Placed = job.exchange(&one, 0, &other, 0, 2)?;
/// assert_eq!(placed.moved + placed.copied, 2 * page_size() as u64);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::placement::Placed;
/// Returns the size of a page of memory.
///
/// ```
/// use oikaze::memory::page_size;
/// # fn main() -> oikaze::Result<()> {
/// assert!(page_size().is_multiple_of(4096));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_os::memory::placement::page_size;
/// Rows of a region, at equal distances.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// // A column of 100 rows of doubles, 800 bytes apart, and two planes of such columns.
/// let column = Block::new(16, 8).rows(100, 800);
/// assert_eq!(column.len(), Some(800));
/// assert_eq!(column.planes(2, 80_000).len(), Some(1600));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::block::Block;
/// Rights of peers to a region.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(8192)?, Rights::READ | Rights::ATOMIC)?;
/// assert!(!inbox.rights().contains(Rights::WRITE));
/// inbox.set_rights(Rights::READ)?; // takes the right to change words away
/// inbox.protect(0..4096, Rights::ALL)?; // on some pages
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::rma::Rights;
pub use range::OffsetRange;
pub use region::{LocalRegion, RegionSlice};
pub use scope::Scope;

use crate::error::Result;
use crate::job::handle::Job;
use oikaze_protocol::rma::Published;

impl Job {
    /// Registers memory as source and destination of this node's operations. Peers cannot reach the
    /// memory.
    ///
    /// # Errors
    /// The table of regions is full.
    pub fn register(&self, region: Region) -> Result<LocalRegion> {
        LocalRegion::new(&self.node, region, Rights::NONE, None, self.limit)
    }

    /// Registers memory without a name, and makes it reachable for peers that know its id
    /// ([`LocalRegion::remote_id`]).
    ///
    /// # Errors
    /// The memory is lent and cannot grant these rights; the table of regions is full.
    pub fn expose(&self, region: Region, rights: Rights) -> Result<LocalRegion> {
        LocalRegion::new(&self.node, region, rights, None, self.limit)
    }

    /// Registers memory under a name of up to 48 bytes, and makes it reachable for peers.
    ///
    /// # Errors
    /// The name is taken, or too long; the table of regions is full.
    pub fn publish(&self, name: &str, region: Region, rights: Rights) -> Result<LocalRegion> {
        let len = region.len() as u64;
        let local =
            LocalRegion::new(&self.node, region, rights, Some(name.to_owned()), self.limit)?;
        let published = Published { key: local.key(), len, rights };
        // Published at once: a request left to another thread could publish the region after the
        // caller has given it up.
        match self.node.publish(name, published) {
            Ok(()) => Ok(local),
            Err(failure) => {
                local.forget_name();
                Err(self
                    .node
                    .departures
                    .failure(&format_args!("publishing region \"{name}\""), failure))
            }
        }
    }
}
