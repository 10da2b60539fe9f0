//! Node with its threads: runs of the engine's turns, waits, and the handover between threads.
//!
//! *A waiting thread drives*: it runs turns itself if no other thread does. A helper thread serves
//! the socket only while there is no driver, and page faults always. Any thread that submits runs
//! one turn at once, so that nothing waits to be sent. A thread that finds the engine taken leaves
//! the work to its holder ([`driver::lock`]). In thread mode all of this is the work of the
//! engine's own thread ([`parts::engine_thread`]).

mod coherence;
mod collectives;
mod cork;
mod declaring;
mod driver;
mod fast_messages;
mod job_end;
mod leave;
mod locks;
mod mail;
mod outcomes;
mod parts;
mod regions;
mod shm_route;
mod start;
mod submitting;
mod turns;
mod waits;

pub use crate::sync::lock;
pub use collectives::registry::{RegisteredTeam, Registry, WORLD};
pub use collectives::{AwaitedParcels, ParcelMemory, ParcelPlace};
pub use driver::helper::Helper;
pub use driver::mode::EngineMode;
pub use driver::mode::NoLink;
pub use driver::spin::WordPolls;
pub use driver::task::LoopProgress;
pub use driver::task::{TaskWait, pending};
pub use driver::wait_policy::{WaitMode, WaitPolicy, WaitSettings};
pub use driver::waiters::Waiters;
pub use locks::AcquiredLock;
pub use mail::mailbox::next_or_end;
pub use mail::{PostedReceive, ReceiveMemory, RegisteredMemory};
pub use parts::Node;
pub use parts::access::{check_not_forked, note_joined};
pub use parts::departures::Needs;
pub use parts::engine::RealEngine;
pub use shm_route::ShmRoute;
pub use submitting::LEFT_MAX;
pub use waits::faults::Faults;
pub use waits::{CallPlace, LongWait, WaitSubject, Waits, line_of};
pub use waits::{InterruptionCheck, PlaceFinder, find_places_by, interruptible};
