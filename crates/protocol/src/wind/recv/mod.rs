//! Messages on their way in: the receive queue, reassembly, credit and refusals.

pub(crate) mod credit;
pub(crate) mod prediction;
pub(crate) mod queue;
pub(crate) mod reassembly;
pub(crate) mod refusals;
