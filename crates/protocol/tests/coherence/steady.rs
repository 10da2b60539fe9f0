//! Counts of messages and traps in a steady state: the cost model of COH-3 and COH-5.

use crate::cluster::Cluster;
use crate::cluster::threads::{Cell, Op, Thread};
use oikaze_protocol::coherence::{Access, CoherenceStatistics, Homes};
use oikaze_protocol::limits::PAGE;

fn statistics(cluster: &Cluster, rank: usize) -> CoherenceStatistics {
    *cluster.nodes[rank].coherence.statistics()
}

/// COH-3.5: pages that only their home uses are trapped once (the first touch of 2 MiB), never
/// again.
#[test]
fn private_pages_are_never_trapped() {
    let mut cluster = Cluster::with_array(2, 1, 64);
    let before = cluster.network.delivered;
    let ops: Vec<Op> = (0..3)
        .flat_map(|round| (0..32).map(move |page| Op::Store(Cell::word(page, 1), round)))
        .collect();
    cluster.run(vec![Thread::new(0, ops)]);
    let s = statistics(&cluster, 0);
    assert_eq!(
        (s.read_faults + s.write_faults, s.notices, s.diffs, cluster.network.delivered),
        (1, 0, 0, before)
    );
}

/// COH-3.5, COH-10.10, COH-10.19: the home's store to a page traps once per round while another
/// node reads the page each round. The store no longer traps once no node reads the page.
#[test]
fn home_pages_go_back_to_untracked() {
    let mut cluster = Cluster::with_array(2, 2, 2);
    let (mut writer, mut reader) = (vec![], vec![]);
    for round in 1..6 {
        writer.extend([
            Op::Store(Cell::word(0, 0), round),
            Op::Store(Cell::word(0, 1), round),
            Op::Barrier,
            Op::Barrier,
        ]);
        reader.extend([Op::Barrier, Op::Expect(Cell::word(0, 0), round), Op::Barrier]);
    }
    for round in 10..100 {
        writer.extend([Op::Store(Cell::word(0, 0), round), Op::Barrier]);
        reader.push(Op::Barrier);
    }
    cluster.run(vec![Thread::new(0, writer), Thread::new(1, reader)]);
    let (home, other) = (statistics(&cluster, 0), statistics(&cluster, 1));
    // The reader demanded the page after the first two changes, and never again.
    assert_eq!((home.served_pages, other.fetched_pages), (2, 2));
    // The 64th update is a probe. The page is invalid from then on, and an update after it ends
    // the subscription.
    // The home may send one more before it hears of that.
    assert_eq!(home.updates_sent, other.updates_received);
    assert!((65..=67).contains(&home.updates_sent), "{home:?}");
    assert!(home.read_faults + home.write_faults < 80, "{home:?}");
}

/// COH-3.4: a thread that walks through pages fetches ever longer runs, of one home each.
#[test]
fn sequential_faults_fetch_in_growing_runs() {
    let mut cluster = Cluster::with_array(2, 3, 256);
    let ops: Vec<Op> = (0..256).map(|page| Op::Load(Cell::word(page, 3))).collect();
    cluster.run(vec![Thread::new(1, ops)]);
    let s = statistics(&cluster, 1);
    // 1 + 2 + 4 + 8 + 16 + 32 + 32 + 32 + 1 = 128: nothing is fetched beyond the home's pages.
    assert_eq!((s.fetches, s.fetched_pages, s.stale_pages), (9, 128, 0));
    let mut cluster = Cluster::with_array(2, 3, 256);
    let ops: Vec<Op> =
        (0..128).rev().step_by(2).map(|page| Op::Load(Cell::word(page, 3))).collect();
    cluster.run(vec![Thread::new(1, ops)]);
    assert_eq!(statistics(&cluster, 1).fetched_pages, 64, "no sequence, no fetching ahead");
}

/// An explicit touch asks for its whole range at once, and for no page beyond it.
#[test]
fn a_touch_fetches_its_range_and_no_more() {
    for (access, seed) in [(Access::Read, 4), (Access::Write, 5)] {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 300, Homes::Cyclic { pages: 10 });
        let token = cluster.call(2, |c, token, m| c.touch(0, 5..295, access, token, m));
        assert!(cluster.take(2, token).is_none());
        cluster.run_until_quiet();
        assert!(matches!(cluster.take(2, token), Some(Ok(_))));
        assert!(cluster.nodes[2].coherence.holds(0, 5..295, access));
        assert_eq!(statistics(&cluster, 2).fetched_pages, 195);
        let token = cluster.call(2, |c, token, m| c.touch(0, 7..7, access, token, m));
        assert!(cluster.take(2, token).is_some(), "an empty range is valid at once");
    }
}

/// COH-5.3: a page that was mapped for stores but has not changed costs no message and no notice.
#[test]
fn unchanged_pages_give_no_diff() {
    let mut cluster = Cluster::with_array(2, 6, 2);
    let ops = vec![
        Op::Store(Cell::word(0, 0), 0),
        Op::Store(Cell::word(0, 9), 5),
        Op::Barrier,
        Op::Store(Cell::word(0, 9), 5),
        Op::Barrier,
    ];
    cluster.run(vec![Thread::new(1, ops), Thread::new(0, vec![Op::Barrier, Op::Barrier])]);
    let s = statistics(&cluster, 1);
    assert_eq!((s.write_faults, s.diffs, s.notices), (3 - 1, 1, 1));
    assert!(s.diff_bytes < 16);
}

/// Many changed pages of one home share messages.
#[test]
fn diffs_of_many_pages_are_packed() {
    let mut cluster = Cluster::with_array(2, 7, 512);
    let token = cluster.call(1, |c, token, m| c.touch(0, 0..256, Access::Write, token, m));
    cluster.run_until_quiet();
    assert!(cluster.take(1, token).is_some());
    let before = cluster.network.delivered;
    let mut ops: Vec<Op> =
        (0..256).map(|page| Op::Store(Cell { array: 0, at: page * PAGE, len: 1 }, 9)).collect();
    ops.push(Op::Barrier);
    cluster.run(vec![Thread::new(1, ops), Thread::new(0, vec![Op::Barrier])]);
    assert_eq!(statistics(&cluster, 1).diffs, 256);
    assert!(cluster.network.delivered - before <= 3, "one diff, one arrival, one departure");
}

/// A lock-only program keeps a bounded number of intervals (COH-4.5): the last unlock tells no more
/// than the first.
#[test]
fn a_program_of_locks_alone_stays_bounded() {
    let mut cluster = Cluster::with_array(2, 8, 2);
    let ops: Vec<Op> = (0..3000)
        .flat_map(|_| [Op::Lock(1), Op::Add(Cell::word(0, 0), 1), Op::Unlock(1)])
        .collect();
    let late = vec![Op::Lock(1), Op::Load(Cell::word(0, 0)), Op::Unlock(1)];
    cluster.run(vec![Thread::new(1, ops)]);
    let read = cluster.run(vec![Thread::new(0, late)]);
    assert_eq!(read, [[3000]]);
}

/// Each array counts its own fetches, pages and diffs.
#[test]
fn arrays_count_their_own_transfers() {
    let mut cluster = Cluster::new(2, 4);
    cluster.declare("read", 64, Homes::Block);
    cluster.declare("written", 64, Homes::Block);
    let written = |page: usize| Cell { array: 1, at: page * PAGE, len: 8 };
    // Node 1 reads three pages that are far apart, and writes two, all homed on node 0.
    let mut ops: Vec<Op> = [0, 10, 20].map(|page| Op::Load(Cell::word(page, 0))).to_vec();
    ops.extend([Op::Store(written(1), 7), Op::Store(written(9), 8), Op::Barrier]);
    cluster.run(vec![Thread::new(0, vec![Op::Barrier]), Thread::new(1, ops)]);
    let of = |rank: usize, array| {
        *cluster.nodes[rank].coherence.array_statistics(array).expect("an array")
    };
    let (read, changed) = (of(1, 0), of(1, 1));
    assert_eq!((read.fetches, read.fetched_pages, read.diffs_sent), (3, 3, 0));
    // Both changes have one home, and fit into one message.
    assert_eq!((changed.fetches, changed.fetched_pages, changed.diffs_sent), (2, 2, 1));
    // A byte of each has changed.
    assert!((2..100).contains(&changed.diff_bytes), "{changed:?}");
    assert_eq!((of(0, 0).served_pages, of(0, 1).served_pages, of(0, 1).fetches), (3, 2, 0));
}
