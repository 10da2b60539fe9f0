//! Counters of a link.

/// State of a mechanism that handles many datagrams at a low cost each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Is in use.
    On,
    /// Switched off by the user.
    #[default]
    Off,
    /// Refused by the kernel or the device; reported once by [`super::Link::notice`].
    Refused,
}

impl Offload {
    /// State of a mechanism that the user may have switched off and that works here or not.
    pub(super) fn of(off: bool, works: bool) -> Offload {
        match (off, works) {
            (true, _) => Offload::Off,
            (false, true) => Offload::On,
            (false, false) => Offload::Refused,
        }
    }
}

/// Counters since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Datagrams that the kernel accepted.
    pub datagrams_out: u64,
    /// Those sent as frames, past the kernel's IP stack. Included in `datagrams_out`.
    pub frames_out: u64,
    /// Those whose payload pages were spliced instead of copied, at least by the kernel. Included
    /// in `datagrams_out`.
    pub spliced: u64,
    /// Bytes of all datagrams that the kernel accepted.
    pub bytes_out: u64,
    /// System calls that sent them.
    pub calls_out: u64,
    /// Datagrams that arrived.
    pub datagrams_in: u64,
    /// Those received directly into their place. Included in `datagrams_in`.
    pub in_place: u64,
    /// Those received before the kernel's IP stack. Included in `datagrams_in`.
    pub by_tcx: u64,
    /// Bytes of all datagrams that arrived.
    pub bytes_in: u64,
    /// System calls that received them.
    pub calls_in: u64,
    /// Times that there was no room to send.
    pub would_block: u64,
    /// Datagrams lost because their peer could not be reached (no route, refused, forbidden).
    pub unreachable: u64,
    /// Datagrams lost because they were larger than their path carries.
    pub too_big: u64,
    /// Buffers dropped because they were truncated or malformed.
    pub truncated: u64,
    /// Datagrams that the kernel dropped because a receive buffer of the link was full. A group
    /// that came as one buffer counts once.
    pub overflowed: u64,
    /// Peers that are received from by the plain socket only, because nothing came by a fast path
    /// (WIND-8.13).
    pub receive_paths_avoided: u64,
    /// Times that the server of this link did not run for long (SERVE-4.3).
    pub server_stalls: u64,
    /// Bytes of a socket's send buffer in the kernel; the smallest if they differ.
    pub send_buffer: usize,
    /// Bytes of a socket's receive buffer in the kernel; the smallest if they differ.
    pub receive_buffer: usize,
    /// Sending several datagrams by one call.
    pub gso: Offload,
    /// Receiving several datagrams as one buffer.
    pub gro: Offload,
    /// Receiving small datagrams before the kernel's IP stack. Also refused where it is not
    /// permitted.
    pub tcx_receive: Offload,
    /// Sending bulk without a copy.
    pub splice: Offload,
}
