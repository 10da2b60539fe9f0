//! A recorder that writes a line of text for each datagram: its meaning, not its bytes.

use super::recorder::{CapturedDatagram, Recorder};
use oikaze_protocol::limits::GROUP_MEMBERS_MAX;
use oikaze_protocol::wire::{Acknowledgement, CloseReason, Flags, Frame, SealKind, View};
use std::fmt::{self, Write as _};
use std::time::Duration;

/// Writes one line per datagram: seconds since the first datagram, `>` for sent or `<` for
/// received, the peer, the connection id or `handshake`, `#number`, and the frames.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    begun: Option<Duration>,
    bytes: Vec<u8>,
    line: String,
}

impl Recorder for Trace {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn record(&mut self, datagram: &CapturedDatagram<'_>, into: &mut Vec<u8>) {
        let Self { begun, bytes, line } = self;
        bytes.clear();
        datagram.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let since = datagram.at.saturating_sub(*begun.get_or_insert(datagram.at));
        let (arrow, peer) = if datagram.sent { ('>', datagram.to) } else { ('<', datagram.from) };
        line.clear();
        // Writing to a string cannot fail.
        let _ = write!(line, "{:.6} {arrow} {peer} ", since.as_secs_f64());
        let _ = match View::parse(bytes) {
            Ok(view) => write_view(line, &view),
            Err(why) => write!(line, "{} bytes: {why}", bytes.len()),
        };
        if datagram.congested {
            line.push_str(" congested");
        }
        line.push('\n');
        into.extend_from_slice(line.as_bytes());
    }
}

fn write_view(line: &mut String, view: &View<'_>) -> fmt::Result {
    let header = view.header();
    if view.is_handshake() {
        write!(line, "handshake #{}", header.number)?;
    } else {
        write!(line, "{:016x} #{}", header.connection, header.number)?;
    }
    if header.flags.has(Flags::ACK_NOW) {
        line.push('!');
    }
    if header.seal == SealKind::Encrypted {
        return write!(line, " encrypted");
    }
    for frame in view.frames() {
        match frame {
            Ok(frame) => write_frame(line, &frame, view.payload().len())?,
            Err(why) => write!(line, " ({why})")?,
        }
    }
    Ok(())
}

fn write_acknowledgement(line: &mut String, ack: &Acknowledgement<'_>) -> fmt::Result {
    for range in ack.ranges() {
        match range.start() == range.end() {
            true => write!(line, " {}", range.end())?,
            false => write!(line, " {}-{}", range.start(), range.end())?,
        }
    }
    for refused in ack.refusals() {
        write!(line, " refuses {} ({})", refused.number, refused.refusal)?;
    }
    Ok(())
}

fn write_frame(line: &mut String, frame: &Frame<'_>, payload: usize) -> fmt::Result {
    match frame {
        Frame::Ping => write!(line, " PING"),
        Frame::Close(CloseReason::Goodbye) => write!(line, " CLOSE"),
        Frame::Close(reason) => write!(line, " CLOSE {reason:?}"),
        Frame::Pad => write!(line, " PAD"),
        Frame::Acknowledge(ack) => {
            write!(line, " ACK")?;
            write_acknowledgement(line, ack)
        }
        Frame::Message(message) => {
            let (number, class) = (message.number, message.class);
            write!(
                line,
                " MESSAGE {number} {class:?} {}+{}",
                message.head.len(),
                message.body.len()
            )
        }
        Frame::Open(open) => {
            write!(line, " OPEN {} {:?} {}+{}", open.number, open.class, open.head.len(), open.len)
        }
        Frame::Fragment(fragment) => {
            let from = fragment.offset;
            write!(
                line,
                " FRAGMENT {} {from}..{}",
                fragment.message_low,
                from.saturating_add(payload as u64)
            )
        }
        Frame::Withdraw(withdrawal) => write!(line, " WITHDRAW {}", withdrawal.number),
        Frame::Hello(hello) => {
            write!(line, " HELLO rank {} of {}", hello.mine.rank, hello.mine.nodes)?;
            hello.to.map_or(Ok(()), |to| write!(line, " to {to}"))?;
            hello.yours.map_or(Ok(()), |yours| write!(line, ", knows {:016x}", yours.connection))
        }
        Frame::Cookie(reply) => write!(line, " COOKIE for HELLO {}", reply.number),
        Frame::Group(group) => {
            line.push_str(if group.is_probe() { " GROUP probe of" } else { " GROUP for" });
            (0..GROUP_MEMBERS_MAX as u8)
                .filter(|member| group.has(*member))
                .try_for_each(|member| write!(line, " {member}"))
        }
        Frame::Settled(number) => write!(line, " SETTLED below {number}"),
        Frame::GroupAcknowledge(group) => {
            write!(line, " GROUP_ACK of {:016x}", group.stream)?;
            write_acknowledgement(line, &group.ack)
        }
        Frame::Refuse(refuse) => {
            write!(line, " REFUSE {:?} mine {} yours {}", refuse.misfit, refuse.mine, refuse.yours)
        }
    }
}
