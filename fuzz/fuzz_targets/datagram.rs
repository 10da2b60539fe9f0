//! Any bytes at all, read as a datagram: every frame, every range, every refusal (WIRE-2.6).
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_protocol::wire::{Acknowledgement, Frame, View};

fn walk(ack: &Acknowledgement<'_>) {
    let mut above = None;
    for range in ack.ranges() {
        assert!(range.start() <= range.end());
        assert!(above.is_none_or(|above| *range.end() < above));
        above = Some(*range.start());
    }
    ack.refusals().for_each(drop);
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(view) = View::parse(bytes) else { return };
    let _ = view.sender();
    assert_eq!(view.covered().len() + view.payload().len() + view.tag().len(), bytes.len());
    for frame in view.frames() {
        match frame {
            Ok(Frame::Acknowledge(ack)) => walk(&ack),
            Ok(Frame::GroupAcknowledge(group)) => walk(&group.ack),
            Ok(Frame::Group(group)) => {
                let members = (0..=u8::MAX).filter(|member| group.has(*member));
                let numbers = members.filter_map(|member| group.number_of(member)).count();
                assert_eq!(numbers == 0, group.is_probe());
            }
            _ => {}
        }
    }
});
