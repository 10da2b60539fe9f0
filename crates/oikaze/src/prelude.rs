//! Names that most programs use: `use oikaze::prelude::*;`.
//!
//! ```
//! use oikaze::prelude::*;
//!
//! fn main() -> oikaze::Result<()> {
//!     let job = oikaze::join()?;
//!     let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE)?;
//!     job.barrier()
//! }
//! ```

pub use crate::collective::operator::{
    And, Max, MaxLocation, Min, MinLocation, Or, Product, Sum, Xor,
};
#[doc(no_inline)]
pub use crate::collective::{Collectives, Team};
#[doc(no_inline)]
pub use crate::completion::{CompletionQueue, Counter, Operation};
#[doc(no_inline)]
pub use crate::job::{Job, Peer};
pub use crate::memory::remote::RemoteRegion;
#[doc(no_inline)]
pub use crate::memory::{Block, LocalRegion, Region, Rights};
#[doc(no_inline)]
pub use crate::message::{Class, Fifo, Message, RemoteFifo};
#[doc(no_inline)]
pub use crate::shared::{Element, SharedArray};
