//! Paths around the kernel's UDP stack, each a wrapper around a plain
//! [`UdpLink`](super::UdpLink): tcx receive, raw Ethernet frames, zero-copy sending.
//!
//! A wrapper takes what it can and leaves the rest to the link that it wraps. [`super::open`]
//! stacks all of them. Each does nothing where it is switched off or not permitted.

pub(crate) mod bpf;
pub(crate) mod raw_tx;
mod socket_link;
pub(crate) mod splice;
pub(crate) mod tcx;
#[cfg(test)]
pub(in crate::net) mod tests;
