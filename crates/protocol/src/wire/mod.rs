//! Datagram and frame formats (spec/wire.md): a checked view of bytes, and the owned meaning that moves up.
