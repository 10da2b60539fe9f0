//! What happened on a link.

/// A mechanism that makes many datagrams cheap, and whether it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// In use.
    On,
    /// Switched off by the user.
    #[default]
    Off,
    /// Refused by the kernel or the device; told once by [`super::Link::notice`].
    Refused,
}

/// Counters since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Datagrams taken by the kernel.
    pub datagrams_out: u64,
    /// Of these, how many went past the kernel's IP, as frames.
    pub frames_out: u64,
    /// Likewise, how many had the pages of their payloads taken instead of copied, by the kernel at
    /// least.
    pub spliced: u64,
    /// Bytes of all that were taken.
    pub bytes_out: u64,
    /// System calls that took them.
    pub calls_out: u64,
    /// Datagrams that arrived.
    pub datagrams_in: u64,
    /// Of these, how many were received directly into their place.
    pub in_place: u64,
    /// Likewise, before the kernel's IP.
    pub early: u64,
    /// Bytes of all that arrived.
    pub bytes_in: u64,
    /// System calls that brought them.
    pub calls_in: u64,
    /// Times there was no room to send.
    pub would_block: u64,
    /// Datagrams lost because their peer could not be reached (no route, refused, forbidden).
    pub unreachable: u64,
    /// Datagrams lost because their path carries less.
    pub too_big: u64,
    /// Buffers dropped because they were cut short or made no sense.
    pub truncated: u64,
    /// Datagrams the kernel dropped because our receive buffer was full (a group that came as one
    /// buffer counts once).
    pub overflowed: u64,
    /// Peers that are received from by the plain socket only, because nothing came otherwise
    /// (WIND-8.13).
    pub receive_paths_avoided: u64,
    /// Bytes of a socket's send buffer in the kernel, the smallest if they differ.
    pub send_buffer: usize,
    /// Bytes of a socket's receive buffer in the kernel, the smallest if they differ.
    pub receive_buffer: usize,
    /// Several datagrams sent by one call.
    pub gso: Offload,
    /// Several datagrams received as one buffer.
    pub gro: Offload,
    /// Small datagrams received before the kernel's IP. Refused also where it is not permitted.
    pub early_receive: Offload,
    /// Bulk sent without a copy.
    pub splice: Offload,
}
