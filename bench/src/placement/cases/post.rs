//! Case `post`: what a put costs its caller, in each mode, and a `send` of Linux beside it.

use crate::lab::Lab;
use crate::placement::collected::{Collected, Key};
use crate::placement::modes::Mode;
use crate::placement::programs::{Setup, node, options, role, sockets};
use crate::placement::{Extent, PLACE};
use crate::suite::case::{KIB, MIB};

/// Sizes of puts: small, the paper's largest, and bulk.
pub const SIZES: [usize; 3] = [8, 8 * KIB, 64 * MIB];
/// Sizes that a datagram holds.
const DATAGRAMS: [usize; 2] = [8, 8 * KIB];
/// Puts of a burst, as paper 000 sends packets.
const BURST: usize = 128;

/// Returns single posts, posts of a burst, and bursts for a size.
fn amounts(size: usize, quick: bool) -> [(&'static str, usize); 3] {
    let (singles, burst, bursts) = match (size > MIB, quick) {
        (true, _) => (20, 2, 4),
        (false, true) => (300, BURST, 10),
        (false, false) => (2000, BURST, 30),
    };
    [("singles", singles), ("burst", burst), ("bursts", bursts)]
}

/// Measures one round.
pub fn round(lab: &Lab, modes: &[&'static Mode], extent: Extent, all: &mut Collected) {
    let wire = |case, size, system| Key {
        mtu: PLACE.wire().map(|(mtu, _)| mtu),
        ..Key::new(case, size, system, "us")
    };
    for size in SIZES {
        let amounts = amounts(size, extent.quick);
        let settings: Vec<_> = [("size", size)].into_iter().chain(amounts).collect();
        let cases = |system| {
            move |values: crate::placement::programs::Values| {
                Ok(vec![
                    (wire("post", size, system), values.get("post")?),
                    (wire("post_cpu", size, system), values.get("processor")?),
                ])
            }
        };
        for mode in modes {
            for (waits, system) in
                [("adaptive,block", mode.system), ("spin,block", mode.systems[0])]
            {
                // Inline there is no engine that could be awake or asleep.
                if mode.name == "inline" && system != mode.system {
                    continue;
                }
                let setup = Setup { engines: mode.apart, waits, without: None };
                let found = node(lab, &setup, &role("post", &settings)).and_then(cases(system));
                all.add_all(&format!("post of {size} bytes, {system}"), found);
            }
        }
        if DATAGRAMS.contains(&size) {
            let found =
                sockets(lab, "post", &[options(&settings), vec!["--block".into()]].concat());
            all.add_all(&format!("UDP send of {size} bytes"), found.and_then(cases("udp")));
        }
    }
}
