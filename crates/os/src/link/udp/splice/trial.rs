//! Do datagrams that are spliced arrive as they are?

use super::{Splice, WORTH_IT};
use crate::link::Outgoing;
use crate::link::udp::send::Sent;
use crate::link::udp::socket::Socket;
use crate::memory::{Gather, Region, RegionTable};
use crate::without::Without;
use oikaze_protocol::wind::Segment;
use oikaze_protocol::wire::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::net::Ipv4Addr;

/// On the way nothing waits for anybody.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const HEAD: [u8; 40] = [0x5a; 40];
const TAG: [u8; 4] = [0xa5; 4];

pub(super) fn passes(splice: &mut Splice) -> bool {
    tried(splice).unwrap_or(false)
}

fn tried(splice: &mut Splice) -> Option<bool> {
    let page = rustix::param::page_size();
    // Each is to come by itself.
    let apart = Without { gro: true, ..Without::default() };
    let open = || Socket::open((Ipv4Addr::LOCALHOST, 0).into(), false, 1 << 18, &apart).ok();
    let (mut from, to) = (open()?, open()?);
    rustix::net::connect(&from.fd, &to.local).ok()?;
    from.peer = Some(to.local);
    let region = Region::zeroed(WORTH_IT * page).ok()?;
    for at in 0..WORTH_IT {
        region.fill((at * page) as u64, page as u64, at as u8 + 1).ok()?;
    }
    let mut table = RegionTable::new();
    let region = table.insert_local(region).ok()?;
    let payload = |at| table.gather(&Segment { region, offset: (at * page) as u64, len: page as u64 });
    let payloads: Vec<Gather> = (0..WORTH_IT).filter_map(payload).collect();
    let out = |payload| Outgoing { to: &to.local, lane: Lane::Bulk, head: &HEAD, payload, tag: &TAG };
    let run: Vec<Outgoing<'_>> = payloads.iter().map(out).collect();
    let Some((WORTH_IT, Sent::Whole)) = splice.send(&mut from, &run) else { return Some(false) };
    Some((0..WORTH_IT).all(|at| {
        let mut bytes = vec![0; 2 * page];
        let ready = poll(&mut [PollFd::new(&to.fd, PollFlags::IN)], Some(&PATIENCE));
        let (Ok(1..), Ok((len, _))) = (ready, recv(&to.fd, &mut bytes, RecvFlags::DONTWAIT)) else { return false };
        let want = HEAD.into_iter().chain(vec![at as u8 + 1; page]).chain(TAG);
        bytes.into_iter().take(len).eq(want)
    }))
}
