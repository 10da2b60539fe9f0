//! Posted receives: memory of the program that waits for a message (MEM-26).

use oikaze_engine::{Arrived, Completion, Failure, Value};
use oikaze_os::memory::{Region, Scatter};
use oikaze_protocol::rma::{Rights, RmaError};
use std::sync::Arc;

/// Memory of this node that a thread may touch while it is registered.
pub trait RegisteredMemory: Send + Sync {
    /// Calls `act` with the memory. Returns `false` if the memory is no longer registered, or `act`
    /// returns `false`.
    fn use_directly(&self, act: &mut dyn FnMut(&Region) -> bool) -> bool;
}

/// Part of registered memory, for a message.
#[derive(Clone)]
pub struct ReceiveMemory {
    pub memory: Arc<dyn RegisteredMemory>,
    pub offset: u64,
    pub len: u64,
}

impl ReceiveMemory {
    /// Returns `true` if the part is of this registration.
    pub fn is_of(&self, memory: &Arc<dyn RegisteredMemory>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    /// Returns `true` if the memory is registered and can be written.
    pub fn may_be_written(&self) -> bool {
        self.memory.use_directly(&mut |region| {
            region.rights().contains(Rights::WRITE) && !region.is_closed()
        })
    }

    /// Returns a part for a link to receive into, if the memory is registered and the part fits.
    pub fn scatter(&self, offset: u64, len: u64) -> Option<Scatter> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let mut part = None;
        self.memory.use_directly(&mut |region| {
            if end.is_some() && !region.may_be_absent() {
                part = region.scatter(self.offset + offset, len);
            }
            part.is_some()
        });
        part
    }

    /// Writes bytes, if the memory is registered and they fit.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let end = offset.checked_add(bytes.len() as u64);
        let fits = end.is_some_and(|end| end <= self.len);
        self.memory
            .use_directly(&mut |region| fits && region.write(self.offset + offset, bytes).is_ok())
    }
}

/// A posted receive, which waits for a message.
#[derive(Clone)]
pub struct PostedReceive {
    pub into: ReceiveMemory,
    pub completion: Arc<Completion>,
}

impl PostedReceive {
    /// Copies a message to the posted memory, and leaves the bytes behind it (MEM-26.3).
    pub fn fill(&self, arrived: &Arrived) -> Result<Value, Failure> {
        let (from, tag, len) = (arrived.from, arrived.tag, arrived.body.len() as u64);
        let room = self.into.len;
        if len > room {
            return Err(Failure::NoRoomForMessage { from, tag, len, room });
        }
        if self.into.write(0, &arrived.body) {
            Ok(Value::Received { from, tag, len })
        } else {
            Err(RmaError::DestinationGone.into())
        }
    }
}
