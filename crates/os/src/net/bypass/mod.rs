//! Paths around the kernel's UDP stack: tcx receive, raw Ethernet frames, zero-copy sending.

pub(crate) mod bpf;
pub mod ip;
pub(crate) mod raw_tx;
pub(crate) mod splice;
pub(crate) mod tcx;
