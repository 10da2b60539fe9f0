//! Memory of this node that operations may use, and that peers may reach if it is published.

mod exchange;
mod registration;
pub(crate) mod remote_id;
mod waiting;

use crate::error::{Error, Result};
use crate::memory::range::{OffsetRange, resolve};
use oikaze_os::memory::{Holder, Region, RegionKind, Registered};
use oikaze_os::sync::Rundown;
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::{Rows, Segment};
use oikaze_runtime::node::{Node, RealEngine, ReceiveMemory, RegisteredMemory};
use std::any::Any;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A region that the engine knows. Regions are counted, and operations keep them alive. When the
/// last user drops a region, peers can no longer reach it.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let field = job.publish("field", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
/// field.write(0, b"tailwind")?; // copied in
/// let mut bytes = [0; 8];
/// field.read(0, &mut bytes)?; // copied out
/// assert_eq!(&bytes, b"tailwind");
/// let memory = field.deregister()?; // peers cannot reach it any more
/// assert_eq!(memory.len(), 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LocalRegion {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) node: Arc<Node>,
    region: Region,
    pub(crate) registered: Registered,
    /// Time limit of the job at the registration.
    pub(crate) limit: Option<Duration>,
    /// Name under which the region is published.
    name: Mutex<Option<String>>,
    /// Set when a call has closed the region and could not end the registration, because a local
    /// peer still used the memory. The next call goes on from there.
    is_left_closed: AtomicBool,
    /// Threads that access the memory directly, for operations that are done when their call
    /// returns. The engine does not know of these threads, and the end of the registration waits
    /// for them.
    direct: Rundown,
}

impl Inner {
    fn take_name(&self) -> Option<String> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets this thread touch the memory. Returns `false` if the region is no longer registered, or
    /// `act` returns `false`.
    #[inline]
    fn touch(&self, act: impl FnOnce(&Region) -> bool) -> bool {
        if self.node.enter().is_none() {
            return false;
        }
        let Some(_inside) = self.direct.enter() else { return false };
        act(&self.region)
    }
}

impl RegisteredMemory for Inner {
    fn use_directly(&self, act: &mut dyn FnMut(&Region) -> bool) -> bool {
        self.touch(act)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The lock of the name may be held for ever in a child of fork.
        if self.node.enter().is_none() {
            return;
        }
        let name = self.take_name();
        self.node.forget_region(self.registered.id, name);
    }
}

/// Refuses tracked memory. No thread enters a turn with memory still to be faulted in, because a
/// page fault there would wait for a turn.
fn check_untracked(engine: &mut RealEngine, region: &Region) -> Result<()> {
    if region.kind() != RegionKind::Borrowed {
        return Ok(());
    }
    // Memory whose loan is over is refused for every use.
    let addresses = region.addresses().unwrap_or_default();
    match engine.pages().tracks(&addresses).map(|memory| memory.name().to_owned()) {
        Some(array) => Err(Error::invalid(
            format!("lending {} bytes", region.len()),
            format!(
                "they belong to the shared array \"{array}\", whose pages may be elsewhere; copy them into other memory first"
            ),
        )),
        None => Ok(()),
    }
}

impl LocalRegion {
    pub(crate) fn new(
        node: &Arc<Node>,
        region: Region,
        rights: Rights,
        name: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let registered = |engine: &mut RealEngine| {
            check_untracked(engine, &region)?;
            let registered = engine.memory().insert(region.clone(), rights)?;
            let (node, name) = (Arc::clone(node), Mutex::new(name));
            Ok(Self::hold(
                engine,
                Inner {
                    node,
                    region,
                    registered,
                    limit,
                    name,
                    is_left_closed: AtomicBool::new(false),
                    direct: Rundown::default(),
                },
            ))
        };
        node.check_process(|| "registering a region".into())?;
        node.with_engine(registered)
    }

    /// Tells the table who keeps the registration.
    fn hold(engine: &mut RealEngine, inner: Inner) -> Self {
        let slot = inner.registered.slot;
        let inner = Arc::new(inner);
        let holder: Holder = inner.clone();
        engine.memory().set_holder(slot, &holder);
        Self { inner }
    }

    /// Returns the key by which peers name the region ([`RemoteId`](super::remote::RemoteId)), and
    /// entries of the arrival queue ([`Arrival::key`](super::arrivals::Arrival::key)).
    #[must_use]
    pub fn key(&self) -> u64 {
        self.inner.registered.key
    }

    /// Returns the name under which the region is published.
    fn name(&self) -> Option<String> {
        self.inner.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the name, which could not be given to this region.
    pub(crate) fn forget_name(&self) {
        self.inner.take_name();
    }

    /// Returns a counted slice, the source or destination of an operation. The range is of any
    /// integers, such as `u64` for offsets that peers know, and `usize` for lengths here.
    ///
    /// # Errors
    /// The range is not inside the region.
    pub fn slice(&self, range: impl OffsetRange) -> Result<RegionSlice> {
        let range = resolve(range, self.len() as u64, || "slice of a region".into())?;
        match (usize::try_from(range.start), usize::try_from(range.end)) {
            (Ok(start), Ok(end)) if end <= self.len() => {
                Ok(RegionSlice { region: self.clone(), range: start..end })
            }
            _ => Err(Error::invalid(
                format!("slice {}..{} of a region", range.start, range.end),
                format!("the region has {} bytes; stay inside", self.len()),
            )),
        }
    }

    /// Returns the whole region as a slice.
    #[must_use]
    pub fn all(&self) -> RegionSlice {
        RegionSlice { region: self.clone(), range: 0..self.len() }
    }
}

impl Deref for LocalRegion {
    type Target = Region;
    fn deref(&self) -> &Region {
        &self.inner.region
    }
}

/// A part of a registered region. A slice keeps its region alive.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let page = job.register(Region::zeroed(4096)?)?;
/// let slice = page.slice(1024..2048)?;
/// drop(page); // the slice keeps the registration
/// assert_eq!(slice.len(), 1024);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RegionSlice {
    region: LocalRegion,
    range: Range<usize>,
}

impl RegionSlice {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if the slice has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns a part of this slice, which has it.
    pub(crate) fn part(&self, part: Range<usize>) -> RegionSlice {
        let (start, end) = (self.range.start + part.start, self.range.start + part.end);
        let range = start.min(self.range.end)..end.min(self.range.end);
        RegionSlice { region: self.region.clone(), range }
    }

    /// Returns the slice's memory, for a message.
    pub(crate) fn receive_memory(&self) -> ReceiveMemory {
        ReceiveMemory {
            memory: Arc::<Inner>::clone(&self.region.inner),
            offset: self.range.start as u64,
            len: self.range.len() as u64,
        }
    }

    /// Faults the memory in, because no thread may enter a turn with memory still to be faulted in
    /// (MEM-1.12). For memory of a file, the thread that begins an operation waits for the disk. If
    /// this attempt fails, the operation fails when it begins.
    fn make_present(&self, right: Rights) {
        if self.region.inner.region.may_be_absent() {
            let _ = self.region.inner.region.make_present(
                self.range.start as u64,
                self.range.len() as u64,
                right,
            );
        }
    }

    /// Returns the memory that an operation reads or writes.
    pub(crate) fn segment(&self, right: Rights) -> Segment {
        self.make_present(right);
        Segment {
            region: self.region.inner.registered.slot,
            offset: self.range.start as u64,
            len: self.range.len() as u64,
        }
    }

    /// Copies the slice's bytes by this thread; `act` gets region, offset and length. Returns
    /// `false` if the region is no longer registered, or `act` returns `false`.
    #[inline]
    pub(crate) fn use_directly(&self, act: impl FnOnce(&Region, u64, u64) -> bool) -> bool {
        self.region
            .inner
            .touch(|region| act(region, self.range.start as u64, self.range.len() as u64))
    }

    /// Returns `true` if the region is still registered. In a child of fork, the operation fails
    /// for another reason.
    pub(crate) fn is_registered(&self) -> bool {
        self.region.inner.node.enter().is_none() || self.use_directly(|_, _, _| true)
    }

    /// Returns rows of this slice. The block's offset counts from the slice's start.
    ///
    /// # Errors
    /// The rows reach past the slice's end, or further than any memory.
    pub(crate) fn rows(&self, block: Block, right: Rights) -> Result<Rows> {
        let end = block.hull().and_then(|hull| block.offset.checked_add(hull));
        if end.is_none_or(|end| end > self.range.len() as u64) {
            return Err(Error::invalid(
                format!("{block} of a slice"),
                format!("the slice has {} bytes, and the last row ends after it", self.range.len()),
            ));
        }
        let block = Block { offset: block.offset + self.range.start as u64, ..block };
        self.make_present(right);
        Ok(Rows { region: self.region.inner.registered.slot, block })
    }

    pub(crate) fn keep(self) -> Arc<dyn Any + Send + Sync> {
        self.region.inner
    }
}
