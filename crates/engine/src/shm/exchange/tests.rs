//! Two engines that exchange pages step by step, and the state that is left if one of them ends in
//! between.

mod descriptors;

use super::super::socket_messages::OFFER_LEN;
use super::*;
use crate::Request;
use crate::shm::tests::Two;
use crate::tests::Node;
use oikaze_os::memory::{Registered, huge_page};
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::{Body, Death, Refusal, Segment};
use std::io::Write;
use std::time::Duration;

const UNITS: u64 = 3;

struct Place {
    region: Region,
    registered: Registered,
    unit: u64,
}

impl Place {
    /// Makes a region of pages to exchange, each of which begins with this word.
    fn new(node: &mut Node, word: u64) -> Option<Place> {
        let Some(unit) = huge_page() else {
            // The test harness captures the output of `print`.
            let _ = writeln!(std::io::stdout(), "\nskipped: there are no huge pages here");
            return None;
        };
        let region = Region::shared(UNITS as usize * unit).unwrap();
        let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
        let place = Place { region, registered, unit: unit as u64 };
        place.write(word);
        Some(place)
    }

    fn write(&self, word: u64) {
        (0..UNITS * self.unit)
            .step_by(4096)
            .for_each(|at| self.region.store_u64(at, word).unwrap());
    }

    /// Returns the word at the beginning of all pages of each unit.
    fn words(&self) -> [u64; UNITS as usize] {
        core::array::from_fn(|index| {
            let first = index as u64 * self.unit;
            let word = self.region.load_u64(first).unwrap();
            assert!(
                (first..first + self.unit)
                    .step_by(4096)
                    .all(|at| self.region.load_u64(at) == Ok(word)),
                "a unit is one content"
            );
            word
        })
    }

    /// Returns a request to exchange all of this region with all of `there`.
    fn swap_with(&self, there: &Place, at: Rank) -> Request {
        let (key, own) = (there.registered.key, self.registered.slot);
        self.region.leave_file();
        Request::Swap(Box::new(Swap {
            at,
            key,
            offset: 0,
            own,
            own_offset: 0,
            len: UNITS * self.unit,
        }))
    }
}

fn two() -> Option<(Two, Place, Place)> {
    let mut two = Two::new();
    let (here, there) = (Place::new(&mut two.a, 1)?, Place::new(&mut two.b, 2)?);
    Some((two, here, there))
}

const ONES: [u64; UNITS as usize] = [1; UNITS as usize];
const TWOS: [u64; UNITS as usize] = [2; UNITS as usize];

/// MEM-20.1: afterwards peers reach the pages that are behind the region now, also by puts through
/// the ring.
#[test]
fn both_have_what_the_other_had_and_peers_reach_it() {
    let Some((mut two, here, there)) = two() else { return };
    for round in 0..3 {
        let asked = two.a.ask(here.swap_with(&there, 1));
        assert_eq!(two.outcome(&asked), Ok(Value::Swapped(UNITS * here.unit)));
        let (first, second) = if round % 2 == 0 { (TWOS, ONES) } else { (ONES, TWOS) };
        assert_eq!((here.words(), there.words()), (first, second));
        let body = Body::Segment(Segment { region: here.registered.slot, offset: 0, len: 4096 });
        let put =
            Request::Put { to: 1, key: there.registered.key, offset: 8192, body, signal: None };
        let put = two.a.ask(put);
        assert_eq!(two.outcome(&put), Ok(Value::Done));
        assert_eq!(there.region.load_u64(8192), Ok(first[0]));
        there.region.store_u64(8192, second[0]).unwrap();
    }
    assert!(!here.region.pages_are_locked() && !there.region.pages_are_locked());
}

/// MEM-20.5: whichever node ends, and whenever, the other node has one of the two contents as a
/// whole, and does not wait.
#[test]
fn whoever_ends_in_between_the_other_one_has_one_content() {
    // Number of turns of each node before one of them ends, in this order.
    for (turns, first_ends) in
        [(0, false), (1, false), (2, false), (3, false), (0, true), (1, true), (2, true), (3, true)]
    {
        let Some((two, here, there)) = two() else { return };
        let Two { mut a, mut b, mut now } = two;
        let asked = a.ask(here.swap_with(&there, 1));
        for turn in 0..turns {
            let next = if turn % 2 == 0 { &mut a } else { &mut b };
            next.turn(now);
        }
        let left = if first_ends {
            drop(a);
            (&mut b, &there)
        } else {
            drop(b);
            (&mut a, &here)
        };
        for _ in 0..3 {
            now += Duration::from_millis(2);
            left.0.turn(now);
        }
        let words = left.1.words();
        assert!(words == ONES || words == TWOS, "{turns} {first_ends} {words:?}");
        if first_ends {
            assert_eq!(words == ONES, turns >= 2, "who asked and is gone gets no answer");
        } else {
            let outcome = asked.outcome().unwrap();
            let expected =
                if words == TWOS { Value::Swapped(UNITS * here.unit) } else { Value::Done };
            assert_eq!(outcome, Ok(expected), "{turns}");
            assert_eq!(
                words == TWOS,
                turns >= 2,
                "what was given is taken, also from one that is gone"
            );
        }
        assert!(!left.1.region.pages_are_locked());
    }
}

/// MEM-20.5: an owner is given up while it is stopped between the question and its *swapped*, and
/// goes on later. Whatever it had done, no page is then behind both regions.
#[test]
fn who_is_given_up_in_between_and_goes_on_shares_no_pages() {
    // The peer stops at three points: before it has done anything, after it has named its pages,
    // and after it has taken the other pages.
    for done in 0..3 {
        let Some((mut two, here, there)) = two() else { return };
        let asked = two.a.ask(here.swap_with(&there, 1));
        two.a.turn(two.now);
        two.b.poll_local_peers(two.now);
        let mut lock = there.region.lock_pages().unwrap();
        let owner = two.b.engine.shm.get_mut(0).unwrap();
        let number = owner.next_swap().unwrap();
        let offer = receive_offer(owner, false, number).unwrap();
        let pages = offer.pages.clone();
        if done > 0 {
            // The same line carries wakeups, as if the owner slept in between and were woken more
            // than once.
            (0..100).for_each(|_| owner.pair.line.wake());
            offer_pages(owner, ANSWER, [number, 0, 0], &lock.pages(0).unwrap().until(pages.len))
                .unwrap();
        }
        if done > 1 {
            lock.take(0, pages.clone()).unwrap();
        }
        two.a.detach_local_peer(1, Death::Silent);
        match done {
            0 => {
                assert!(give(owner, &mut lock, offer).is_none(), "what cannot be said is not taken")
            }
            1 => lock.take(0, pages).unwrap(),
            _ => {}
        }
        let (expected, words) = match done {
            0 => (Value::Done, (ONES, TWOS)),
            _ => (Value::Swapped(UNITS * here.unit), (TWOS, ONES)),
        };
        assert_eq!(asked.outcome().unwrap(), Ok(expected), "{done}");
        assert_eq!((here.words(), there.words()), words, "{done}");
        here.write(7);
        there.write(8);
        assert_eq!(here.words(), [7; UNITS as usize], "{done}");
        assert_eq!(there.words(), [8; UNITS as usize], "{done}");
        assert!(!here.region.pages_are_locked());
    }
}

/// MEM-20.2, MEM-20.3: an exchange that is not allowed, or not now, is reported as done without a
/// page. The copy that follows finds the cause.
#[test]
fn what_cannot_be_exchanged_is_told() {
    let Some((mut two, here, there)) = two() else { return };
    let ask = |two: &mut Two, change: &dyn Fn(&mut Swap)| {
        let Request::Swap(mut swap) = here.swap_with(&there, 1) else { panic!() };
        change(&mut swap);
        let asked = two.a.ask(Request::Swap(swap));
        two.outcome(&asked)
    };
    let small = two.a.engine.memory().insert(Region::shared(4096).unwrap(), Rights::ALL).unwrap();
    let refused: [&dyn Fn(&mut Swap); 8] = [
        &|swap| swap.key ^= 1,
        &|swap| swap.at = 0,
        &|swap| swap.offset = 4096,
        &|swap| swap.offset = here.unit,
        &|swap| swap.offset = u64::MAX - here.unit + 1,
        &|swap| swap.len -= 4096,
        &|swap| swap.own_offset = UNITS * here.unit,
        &|swap| swap.own = small.slot,
    ];
    for (which, change) in refused.into_iter().enumerate() {
        assert_eq!(ask(&mut two, change), Ok(Value::Done), "{which}");
        assert_eq!((here.words(), there.words()), (ONES, TWOS), "{which}");
    }
    let slot = there.registered.slot;
    for (pages, rights) in
        [(None, Rights::READ), (None, Rights::WRITE), (Some(0..4096), Rights::READ)]
    {
        two.b.engine.set_rights(slot, None, Rights::ALL).unwrap();
        two.b.engine.set_rights(slot, pages, rights).unwrap();
        assert_eq!(ask(&mut two, &|_| ()), Ok(Value::Done));
    }
    two.b.engine.set_rights(slot, None, Rights::ALL).unwrap();
    // Another exchange holds the pages, at either end.
    for region in [&here.region, &there.region] {
        let lock = region.lock_pages().unwrap();
        assert_eq!(ask(&mut two, &|_| ()), Ok(Value::Done));
        drop(lock);
    }
    assert_eq!((here.words(), there.words()), (ONES, TWOS));
    assert_eq!(ask(&mut two, &|_| ()), Ok(Value::Swapped(UNITS * here.unit)));
}

/// MEM-20.4: a local peer that has mapped the region no longer reaches it by itself, and cannot map
/// it again.
#[test]
fn who_has_mapped_the_region_is_shut_out() {
    let Some((mut two, here, there)) = two() else { return };
    let map = |two: &mut Two| {
        let asked = two.a.ask(Request::Map { at: 1, key: there.registered.key });
        two.outcome(&asked)
    };
    let Ok(Value::Mapped(mapped)) = map(&mut two) else { panic!("it can be mapped") };
    assert!(mapped.write(0, &1_u64.to_ne_bytes(), None));
    assert_eq!(there.region.load_u64(0), Ok(1));
    there.region.store_u64(0, 2).unwrap();
    let asked = two.a.ask(here.swap_with(&there, 1));
    assert_eq!(two.outcome(&asked), Ok(Value::Swapped(UNITS * here.unit)));
    assert!(!mapped.write(0, &7_u64.to_ne_bytes(), None));
    drop(mapped);
    assert_eq!(map(&mut two), Ok(Value::Done));
    assert_eq!((here.words(), there.words()), (TWOS, ONES));
}

/// A peer whose socket message is invalid or carries no pages is no longer a local peer, and no
/// page has changed.
#[test]
fn nonsense_in_the_socket_ends_the_pair() {
    let message = |len: usize, word: &[u8; 4], descriptor: bool, pages: u64| {
        let Some((mut two, here, there)) = two() else { return };
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(word);
        if let Some(last) = bytes.get_mut(36..44) {
            last.copy_from_slice(&pages.to_le_bytes());
        }
        let file = here.region.lock_pages().unwrap().pages(0).unwrap();
        let local_peer = two.b.engine.shm.get_mut(0).unwrap();
        local_peer.pair.line.say(&bytes, descriptor.then(|| file.file())).unwrap();
        local_peer.ask_to_swap(0);
        two.turn_until(|two| !two.a.engine.shm().contains(1));
        assert_eq!((here.words(), there.words()), (ONES, TWOS));
    };
    message(OFFER_LEN, ANSWER, false, 4096);
    message(OFFER_LEN - 1, QUESTION, false, 4096);
    message(OFFER_LEN, QUESTION, true, 0);
    message(OFFER_LEN, ANSWER, true, u64::MAX);
    message(OFFER_LEN - 1, QUESTION, true, 4096);
    message(OFFER_LEN + 1, ANSWER, true, 4096);
}

/// MEM-20.3: a region that cannot take one more piece neither asks for an exchange nor gives pages.
/// The node knows this before it sends anything.
#[test]
fn who_cannot_take_neither_asks_nor_answers() {
    let Some((mut two, here, there)) = two() else { return };
    let (pieces, free) = in_pieces(&mut two.a, &here);
    let Request::Swap(swap) = pieces.swap_with(&there, 1) else { panic!() };
    let asked =
        two.a.ask(Request::Swap(Box::new(Swap { own_offset: free, len: here.unit, ..*swap })));
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    assert_eq!((pieces.region.load_u64(free), there.words()), (Ok(7), TWOS));
    assert!(!pieces.region.pages_are_locked());
    let (pieces, free) = in_pieces(&mut two.b, &there);
    let Request::Swap(swap) = here.swap_with(&pieces, 1) else { panic!() };
    let asked = two.a.ask(Request::Swap(Box::new(Swap { offset: free, len: here.unit, ..*swap })));
    two.a.turn(two.now);
    two.b.turn(two.now);
    let asker = two.a.engine.shm.get_mut(1).unwrap();
    assert!(receive_messages(asker) && asker.offers.is_empty(), "nothing was said");
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    assert_eq!((pieces.region.load_u64(free), here.words()), (Ok(7), ONES));
    assert!(!pieces.region.pages_are_locked());
}

/// Makes a region of the maximum number of pieces, in which every second unit comes from
/// `elsewhere`. Returns the offset of a unit that cannot be replaced and begins with 7.
fn in_pieces(node: &mut Node, elsewhere: &Place) -> (Place, u64) {
    const PLACES: usize = 300;
    let unit = elsewhere.unit;
    let region = Region::shared(PLACES * unit as usize).unwrap();
    let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    let (lock, from) = (
        region.lock_pages().unwrap(),
        elsewhere.region.lock_pages().unwrap().pages(0).unwrap().until(unit),
    );
    let mut places = (1..PLACES as u64 - 1).step_by(2).map(|at| at * unit);
    let Some(free) = places.find(|&at| lock.take(at, from.clone()).is_err()) else {
        panic!("there is no bound")
    };
    drop(lock);
    region.store_u64(free, 7).unwrap();
    (Place { region, registered, unit }, free)
}

/// MEM-20.3: no peer reaches a torn region, under any number and over any transport.
#[test]
fn who_is_torn_grants_nothing_any_more() {
    let Some((mut two, here, there)) = two() else { return };
    let again = two.b.engine.memory().insert(there.region.clone(), Rights::ALL).unwrap();
    let map = two.a.ask(Request::Map { at: 1, key: there.registered.key });
    let Ok(Value::Mapped(mapped)) = two.outcome(&map) else { panic!("it can be mapped") };
    let asked = two.a.ask(here.swap_with(&there, 1));
    assert!(matches!(two.outcome(&asked), Ok(Value::Swapped(_))));
    assert!(two.b.engine.shm.take_torn().is_none(), "all were looked at");
    two.b.shut(&there.region);
    for key in [there.registered.key, again.key] {
        let put = two.a.ask(Request::Put {
            to: 1,
            key,
            offset: 0,
            body: Body::copy_of(b"late"),
            signal: None,
        });
        assert!(matches!(
            two.outcome(&put),
            Err(Failure::Remote(RmaError::Refused(Refusal::NotPermitted)))
        ));
    }
    assert!(!mapped.write(0, b"late", None));
    assert_eq!(there.words(), ONES);
}

/// MEM-20.5: a region that is being deregistered does not change any more.
#[test]
fn a_closed_region_asks_for_nothing() {
    let Some((mut two, here, there)) = two() else { return };
    assert!(two.a.engine.close_region(here.registered.slot));
    let asked = two.a.ask(here.swap_with(&there, 1));
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    assert_eq!((here.words(), there.words()), (ONES, TWOS));
}

/// Requests and answers of a local peer are stored side by side, each up to the maximum number in
/// flight.
#[test]
fn as_many_may_be_under_way_in_each_direction() {
    let Some((mut two, here, _there)) = two() else { return };
    let pages = here.region.lock_pages().unwrap().pages(0).unwrap();
    let mut says = |word, number| {
        offer_pages(two.b.engine.shm.get_mut(0).unwrap(), word, [number, 0, 0], &pages).unwrap();
        receive_messages(two.a.engine.shm.get_mut(1).unwrap())
    };
    for number in 0..EXCHANGES_MAX as u64 {
        assert!(says(QUESTION, number) && says(ANSWER, number), "{number}");
    }
    assert!(!says(QUESTION, EXCHANGES_MAX as u64));
}
