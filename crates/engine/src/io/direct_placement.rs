//! Direct placement: predicts which bulk datagrams come next, so that the kernel copies them
//! straight to their destination (MEM-3.7).
//!
//! Bench cases: `placed_cpu` beside `placed_copy_cpu` (`bench remote`).

use crate::layers::Layers;
use crate::peers::Peers;
use oikaze_os::net::{Predicted, Scattered};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{BULK_FRAME_LEN, DATAGRAM_MAX, HEADER_LEN};
use oikaze_protocol::wind::{Expected, Lane};
use oikaze_protocol::wire::View;
use std::net::SocketAddr;

/// State from which the next fragment is predicted.
#[derive(Debug, Default)]
pub(crate) struct DirectPlacement {
    /// Sender of the latest fragment.
    pub peer: Option<Rank>,
    /// Latest prediction that the link was given.
    predicted: Option<(Rank, Expected)>,
}

impl DirectPlacement {
    /// Predicts the next fragments of the message whose fragment arrived last, and the place of
    /// their bytes: as many as one call of the link receives. Only bytes that are admitted,
    /// permitted and not yet received are predicted. `tag` is the length of a seal's tag in bytes.
    pub fn predict<P: Pages>(
        &mut self,
        peers: &Peers,
        layers: &mut Layers<P>,
        tag: usize,
    ) -> Option<Predicted> {
        let rank = self.peer?;
        let expected = peers.get(rank)?.connection.expected(DATAGRAM_MAX)?;
        let Expected { message, offset, .. } = expected;
        let len = expected.bytes();
        let Layers { rma, coherence, pages, memory, placing, .. } = layers;
        let place = if let Some(placement) = placing.get(&(rank, message)) {
            placement.scatter(offset, len)?
        } else if let Some(segment) = rma.place_of(rank, message, offset, len, memory) {
            memory.scatter(segment)?
        } else {
            memory.scatter_pages(coherence.place_of(rank, message, offset, len, pages)?)?
        };
        self.predicted = Some((rank, expected));
        Some(Predicted {
            head: HEADER_LEN + BULK_FRAME_LEN + expected.opening,
            payload: expected.piece,
            tag,
            place,
        })
    }

    /// Returns `true` if the datagram is the fragment that was expected at this place, from that
    /// peer, and nothing else. Its seal is verified later.
    pub fn confirm(&self, peers: &mut Peers, index: usize, scattered: &Scattered<'_>) -> bool {
        let Some((rank, expected)) = self.predicted else { return false };
        let Scattered { from, head, payload, tag, .. } = *scattered;
        View::parse_parts(head, payload, tag).is_ok_and(|view| {
            // Datagrams that the kernel has joined (GRO) have one sender, so the first one's path
            // is checked for all.
            expected.is(index, &view)
                && peers.of_connection(view.header().connection) == Some(rank)
                && (index > 0
                    || peers
                        .get(rank)
                        .is_some_and(|peer| peer.path_from(from, Lane::Bulk).is_some()))
        })
    }

    /// Returns `true` if this address is one to which the predicted peer is sent, too.
    pub fn is_first_flow(&self, peers: &Peers, from: SocketAddr) -> bool {
        let peer = self.predicted.and_then(|(rank, _)| peers.get(rank));
        peer.is_some_and(|peer| peer.path_of(from).is_some())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{Node, open, pair, step};
    use crate::{MessagePlacement, ParcelBody, PostedMemory, Request, Value};
    use oikaze_os::features::DisabledFeatures;
    use oikaze_os::memory::tracking::{SharedMemory, choose};
    use oikaze_os::memory::{Region, Registered, Scatter};
    use oikaze_protocol::Rank;
    use oikaze_protocol::coherence::{Access, Declaration, Element, Homes};
    use oikaze_protocol::collective::{CollectiveCall, ParcelHead, ParcelPurpose};
    use oikaze_protocol::limits::PAGE;
    use oikaze_protocol::random::Random;
    use oikaze_protocol::rma::Rights;
    use oikaze_protocol::time::Time;
    use oikaze_protocol::wind::{Body, Segment};
    use std::sync::Arc;

    const LEN: u64 = 200_000;
    /// Value of the bytes that no put may change.
    const UNTOUCHED: u8 = 0xEE;

    fn byte(at: u64, which: u64) -> u8 {
        (at.wrapping_mul(31) ^ (at >> 8) ^ which.wrapping_mul(77)) as u8
    }

    fn region(node: &mut Node, len: u64, fill: impl Fn(u64) -> u8) -> (Region, Registered) {
        let region = Region::zeroed(len as usize).unwrap();
        region.write(0, &(0..len).map(fill).collect::<Vec<u8>>()).unwrap();
        let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
        (region, registered)
    }

    fn bytes(region: &Region, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        region.read(offset, &mut bytes).unwrap();
        bytes
    }

    fn random(seed: u64) -> impl FnMut(usize) -> usize {
        let mut random = Random::new(seed);
        move |below| random.below(below)
    }

    /// Damages, repeats, reorders or drops datagrams that came to `b` since the last poll, or
    /// injects old ones.
    fn harm(b: &mut Node, old: &mut Vec<Vec<u8>>, mut random: impl FnMut(usize) -> usize) {
        let mut queue = open(&b.engine.link_mut().from);
        let mut now: Vec<Vec<u8>> = queue.drain(..).collect();
        old.extend(now.iter().take(3).cloned());
        let count = now.len();
        if count > 0 && random(3) == 0 {
            match random(6) {
                0 => now.swap(random(count), random(count)),
                1 => drop(now.remove(random(count))),
                2 => now.insert(random(count), now[random(count)].clone()),
                3 => {
                    let (which, at) = (random(count), random(60));
                    let len = now[which].len();
                    now[which][at.min(len - 1)] ^= 1 << random(8);
                }
                4 => now.insert(random(count), old[random(old.len())].clone()),
                // Garbage of the length of a fragment.
                _ => now.insert(random(count), vec![0x5a; now[random(count)].len()]),
            }
        }
        queue.extend(now);
    }

    /// Reorders, drops or repeats datagrams that came to `b` since the last poll, and leaves their
    /// content unchanged.
    fn disorder(b: &mut Node, old: &mut Vec<Vec<u8>>, mut random: impl FnMut(usize) -> usize) {
        let mut now = open(&b.engine.link_mut().from);
        old.extend(now.iter().take(3).cloned());
        let count = now.len();
        if count > 0 {
            match random(4) {
                0 => now.swap(random(count), random(count)),
                1 => drop(now.remove(random(count))),
                2 => now.insert(random(count), old[random(old.len())].clone()),
                _ => {}
            }
        }
    }

    fn run(
        a: &mut Node,
        b: &mut Node,
        mut now: Time,
        mut until: impl FnMut(&mut Node, usize) -> bool,
    ) -> Time {
        for round in 0..200_000 {
            now = step(now);
            a.engine.turn(now);
            if until(b, round) {
                return now;
            }
            b.engine.turn(now);
        }
        panic!("it never ended");
    }

    /// MEM-3.7: successive puts, some to overlapping ranges, over a wire that damages, repeats,
    /// reorders, drops and injects datagrams.
    #[test]
    fn whatever_comes_each_put_is_whole_and_no_other_byte_changes() {
        let mut in_place = 0;
        for seed in 0..40 {
            let (mut a, mut b, mut now) = pair();
            b.engine.link_mut().scatters = true;
            let mut random = random(seed);
            let (target, there) = region(&mut b, 3 * LEN, |_| UNTOUCHED);
            let mut expected = vec![UNTOUCHED; 3 * LEN as usize];
            let mut old = Vec::new();
            for which in 0..4 {
                let (_, source) = region(&mut a, LEN, |at| byte(at, which));
                // Each put may overlap the previous one.
                let (offset, len) =
                    (which * 60_000 + random(1000) as u64, 1 + random(LEN as usize) as u64);
                let body = Body::Segment(Segment { region: source.slot, offset: 0, len });
                let put = a.ask(Request::Put { to: 1, key: there.key, offset, body, signal: None });
                let range = offset as usize..(offset + len) as usize;
                now = run(&mut a, &mut b, now, |b, _| {
                    harm(b, &mut old, &mut random);
                    let bytes = bytes(&target, 0, 3 * LEN);
                    assert!(bytes[..range.start] == expected[..range.start], "{seed} {which}");
                    assert!(bytes[range.end..] == expected[range.end..], "{seed} {which}");
                    put.is_done()
                });
                assert_eq!(put.outcome(), Some(Ok(Value::Done)));
                range.zip(0..).for_each(|(at, from)| expected[at] = byte(from, which));
                assert!(bytes(&target, 0, 3 * LEN) == expected, "{seed} {which}");
                // Old datagrams of completed puts change nothing.
                open(&b.engine.link_mut().from).extend(old.iter().cloned());
                b.turn(now);
                assert!(bytes(&target, 0, 3 * LEN) == expected, "{seed} {which}: old datagrams");
            }
            in_place += b.engine.link_mut().in_place;
        }
        assert!(in_place > 1000, "{in_place} datagrams came to their place");
    }

    /// MEM-3.7: several puts in flight at once, whose datagrams interleave.
    #[test]
    fn puts_under_way_together_are_whole_and_no_other_byte_changes() {
        let (mut in_place, puts) = (0, 3);
        for seed in 0..25 {
            let (mut a, mut b, now) = pair();
            b.engine.link_mut().scatters = true;
            let mut random = random(seed);
            // Behind each put lies a gap of 100 bytes that no put may touch.
            let (target, there) = region(&mut b, puts * (LEN + 100), |_| UNTOUCHED);
            let sent: Vec<_> = (0..puts)
                .map(|which| {
                    let (_, source) = region(&mut a, LEN, |at| byte(at, which));
                    let body = Body::Segment(Segment { region: source.slot, offset: 0, len: LEN });
                    a.ask(Request::Put {
                        to: 1,
                        key: there.key,
                        offset: which * (LEN + 100),
                        body,
                        signal: None,
                    })
                })
                .collect();
            let mut old = Vec::new();
            run(&mut a, &mut b, now, |b, _| {
                harm(b, &mut old, &mut random);
                sent.iter().all(|put| put.is_done())
            });
            for (which, put) in (0..puts).zip(&sent) {
                assert_eq!(put.outcome(), Some(Ok(Value::Done)));
                let right: Vec<u8> =
                    (0..LEN).map(|at| byte(at, which)).chain([UNTOUCHED; 100]).collect();
                assert!(bytes(&target, which * (LEN + 100), LEN + 100) == right, "{seed} {which}");
            }
            in_place += b.engine.link_mut().in_place;
        }
        assert!(in_place > 1000, "{in_place} datagrams came to their place");
    }

    /// MEM-3.7: two concurrent puts to overlapping ranges, by one key or by two keys of the same
    /// memory, and a third put to other memory. A datagram that is out of order or repeated does
    /// not match the prediction. The link received it into predicted memory, from which the engine
    /// takes it out as it was sent, whatever arrived behind it.
    #[test]
    fn puts_over_one_another_damage_nothing_that_comes_between_them() {
        let mut in_place = 0;
        for seed in 0..20 {
            let (mut a, mut b, now) = pair();
            b.engine.link_mut().scatters = true;
            let mut random = random(seed);
            // Offset beyond the bytes that the first put has sent when the second put begins to
            // send.
            let second = 20_000 + random(40_000) as u64;
            let (target, there) = region(&mut b, LEN + second, |_| UNTOUCHED);
            let again = b.engine.memory().insert(target.clone(), Rights::ALL).unwrap();
            let (beside, elsewhere) = region(&mut b, LEN, |_| UNTOUCHED);
            let key = if seed % 2 == 0 { there.key } else { again.key };
            let asked = [(there.key, 0), (key, second), (elsewhere.key, 0)];
            let sent: Vec<_> = asked
                .into_iter()
                .zip(0..)
                .map(|((key, offset), which)| {
                    let (_, source) = region(&mut a, LEN, |at| byte(at, which));
                    let body = Body::Segment(Segment { region: source.slot, offset: 0, len: LEN });
                    a.ask(Request::Put { to: 1, key, offset, body, signal: None })
                })
                .collect();
            let mut old = Vec::new();
            run(&mut a, &mut b, now, |b, _| {
                disorder(b, &mut old, &mut random);
                sent.iter().all(|put| put.is_done())
            });
            assert!(sent.iter().all(|put| put.outcome() == Some(Ok(Value::Done))));
            assert_eq!(b.engine.counters().bad_seal, 0, "{seed}: a datagram was damaged here");
            assert!(
                bytes(&beside, 0, LEN) == (0..LEN).map(|at| byte(at, 2)).collect::<Vec<_>>(),
                "{seed}"
            );
            for (at, found) in (0..).zip(bytes(&target, 0, LEN + second)) {
                let first = at < LEN && found == byte(at, 0);
                assert!(first || (at >= second && found == byte(at - second, 1)), "{seed} {at}");
            }
            in_place += b.engine.link_mut().in_place;
        }
        assert!(in_place > 1000, "{in_place} datagrams came to their place");
    }

    /// The region is removed in the middle of a put. From then on nothing is predicted in the
    /// region, and its memory does not change.
    #[test]
    fn nothing_is_received_into_a_region_that_is_gone() {
        let (mut a, mut b, now) = pair();
        b.engine.link_mut().scatters = true;
        let (target, there) = region(&mut b, LEN, |_| UNTOUCHED);
        let (_, source) = region(&mut a, LEN, |at| byte(at, 1));
        let body = Body::Segment(Segment { region: source.slot, offset: 0, len: LEN });
        let put = a.ask(Request::Put { to: 1, key: there.key, offset: 0, body, signal: None });
        let mut kept = None;
        run(&mut a, &mut b, now, |b, _| {
            if kept.is_none() && b.engine.link_mut().in_place > 5 {
                b.engine.memory().remove(there.slot);
                kept = Some(bytes(&target, 0, LEN));
            }
            put.is_done()
        });
        assert!(matches!(put.outcome(), Some(Err(_))));
        assert!(kept.is_some_and(|kept| kept == bytes(&target, 0, LEN)));
    }

    /// The answer to a get is received directly into its destination.
    #[test]
    fn a_get_is_received_into_its_destination() {
        let (mut a, mut b, now) = pair();
        a.engine.link_mut().scatters = true;
        let (into, here) = region(&mut a, LEN + 20, |_| UNTOUCHED);
        let (_, there) = region(&mut b, LEN, |at| byte(at, 5));
        let into_segment = Segment { region: here.slot, offset: 10, len: LEN };
        let get = a.ask(Request::Get { from: 1, key: there.key, offset: 0, into: into_segment });
        run(&mut a, &mut b, now, |_, _| get.is_done());
        assert_eq!(get.outcome(), Some(Ok(Value::Done)));
        assert!(bytes(&into, 10, LEN) == (0..LEN).map(|at| byte(at, 5)).collect::<Vec<_>>());
        assert!(
            bytes(&into, 0, 10)
                .iter()
                .chain(&bytes(&into, LEN + 10, 10))
                .all(|byte| *byte == UNTOUCHED)
        );
        assert!(a.engine.link_mut().in_place > 20);
    }

    /// Declares an array of these pages on both nodes, all with their home on `b`. Returns its
    /// memory on each.
    fn declare(a: &mut Node, b: &mut Node, pages: u64, now: &mut Time) -> [Arc<SharedMemory>; 2] {
        let tracker = choose(&DisabledFeatures::default()).unwrap().tracker;
        let declaration = Declaration {
            name: "fetched".to_owned(),
            bytes: pages * PAGE as u64,
            element: Element { kind: 1, size: 8 },
            homes: Homes::Explicit(vec![1; pages as usize]),
            ..Declaration::default()
        };
        let len = pages as usize * PAGE;
        let declared = [&mut *a, &mut *b].map(|node| {
            let memory = SharedMemory::new(0, "fetched", len, Arc::clone(&tracker)).unwrap();
            let memory = Arc::new(memory);
            let slot = node.engine.memory().insert_local(memory.alias_region()).unwrap();
            node.engine.coherence().set_alias_region(0, slot);
            node.engine.pages().insert(Arc::clone(&memory));
            (memory, node.ask(Request::Declare(declaration.clone())))
        });
        crate::tests::run(a, b, now, |_| declared.iter().all(|(_, done)| done.is_done()));
        declared.map(|(memory, _)| memory)
    }

    /// MEM-3.7, COH-3.3: pages that are on their way, over a wire that damages, repeats, reorders,
    /// drops and injects datagrams.
    #[test]
    fn pages_are_received_into_their_place_and_are_right_once_they_are_valid() {
        const PAGES: u64 = 150;
        let mut in_place = 0;
        for seed in 0..20 {
            let (mut a, mut b, mut now) = pair();
            let [here, home] = declare(&mut a, &mut b, PAGES, &mut now);
            let expected: Vec<u8> = (0..PAGES * PAGE as u64).map(|at| byte(at, seed)).collect();
            home.alias_region().write(0, &expected).unwrap();
            a.engine.link_mut().scatters = true;
            let mut random = random(seed);
            let mut old = Vec::new();
            let first = random(PAGES as usize / 2) as u64;
            // The second touch joins the first one, and asks for pages on both sides of it.
            let touch = |pages| Request::Touch { array: 0, pages, access: Access::Read };
            let touches = [a.ask(touch(first..first + 70)), a.ask(touch(0..PAGES))];
            let alias = here.alias_region();
            // Node `a` receives, so it is the second one of this wire.
            now = run(&mut b, &mut a, now, |a, _| {
                harm(a, &mut old, &mut random);
                let bytes = bytes(&alias, 0, PAGES * PAGE as u64);
                for (page, (is, was)) in (0..).zip(bytes.chunks(PAGE).zip(expected.chunks(PAGE))) {
                    let is_valid = a.engine.coherence().holds(0, page..page + 1, Access::Read);
                    assert!(!is_valid || is == was, "{seed}: page {page}");
                }
                touches.iter().all(|touch| touch.is_done())
            });
            assert!(touches.iter().all(|touch| touch.outcome() == Some(Ok(Value::Done))));
            assert!(a.engine.coherence().holds(0, 0..PAGES, Access::Read), "{seed}");
            // Old datagrams change nothing in valid pages.
            open(&a.engine.link_mut().from).extend(old.iter().cloned());
            a.turn(now);
            assert!(bytes(&alias, 0, PAGES * PAGE as u64) == expected, "{seed}: old datagrams");
            in_place += a.engine.link_mut().in_place;
        }
        assert!(in_place > 1000, "{in_place} datagrams came to their place");
    }

    struct Waiting(Region);

    impl PostedMemory for Waiting {
        fn begin(&self, _: Rank, _: u64, _: u64) -> Option<Box<dyn MessagePlacement>> {
            None
        }

        fn begin_parcel(
            &self,
            _: Rank,
            _: &ParcelHead,
            _: u64,
        ) -> Option<Box<dyn MessagePlacement>> {
            Some(Box::new(Waiting(self.0.clone())))
        }
    }

    impl MessagePlacement for Waiting {
        fn scatter(&self, offset: u64, len: u64) -> Option<Scatter> {
            self.0.scatter(offset, len)
        }

        fn write(&mut self, offset: u64, bytes: &[u8]) {
            self.0.write(offset, bytes).unwrap();
        }

        fn finish(self: Box<Self>) -> bool {
            true
        }

        fn abort(self: Box<Self>) {}
    }

    /// COLL-1.5: a parcel is received into the memory that waits for it.
    #[test]
    fn a_parcel_is_received_into_the_memory_that_waits_for_it() {
        let (mut a, mut b, now) = pair();
        b.engine.link_mut().scatters = true;
        let into = Region::zeroed(LEN as usize).unwrap();
        b.engine.set_posted(Arc::new(Waiting(into.clone())));
        let sent: Vec<u8> = (0..LEN).map(|at| byte(at, 3)).collect();
        let (purpose, call) = (ParcelPurpose::Data, CollectiveCall::SHRINK);
        let head = ParcelHead { purpose, team: 0, number: 0, round: 0, call };
        let parcel = a.ask(Request::Parcel { to: 1, head, body: Body::Inline(sent.clone()) });
        run(&mut a, &mut b, now, |_, _| parcel.is_done());
        let came = b.engine.inbox().take_parcel().unwrap();
        assert_eq!((came.from, came.head, came.body), (0, head, ParcelBody::Placed(LEN)));
        assert!(bytes(&into, 0, LEN) == sent);
        assert!(b.engine.link_mut().in_place > 20);
    }
}
