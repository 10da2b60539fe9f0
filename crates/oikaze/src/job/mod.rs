//! The job of this process. [`Job`] is the object from which a program gets everything else.

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod join;
pub(crate) mod local;
mod meeting;
pub(crate) mod membership;
pub(crate) mod peer;
pub(crate) mod run;
mod statistics;

pub use builder::JobBuilder;
pub use handle::Job;
pub use oikaze_launch::Seal;
pub use oikaze_os::cpu::Priority;
pub use oikaze_os::features::Feature;
pub use oikaze_protocol::wind::FlowCount;
pub use oikaze_protocol::wind::congestion::Algorithm as CongestionControl;
pub use oikaze_runtime::node::LoopProgress;
pub use oikaze_runtime::node::{EngineMode, WaitMode};
pub use peer::Peer;
pub use statistics::NodeStatistics;
