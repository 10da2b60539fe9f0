//! Collectives and teams on several nodes of this process, in all ways of exchange.

use crate::everywhere::{LIMIT, everywhere};
use crate::ways::ExchangeWay::{self, OneWithout, Rings, TwoMachines};
use crate::ways::ways;
use oikaze::collective::Pending;
use oikaze::collective::operator::{commuting, ordered};
use oikaze::ffi::interruptible;
use oikaze::prelude::*;
use oikaze::testing::{self, cluster};
use std::error::Error;
use std::future::{Future, IntoFuture};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

fn value(rank: u32, n: usize) -> u64 {
    u64::from(rank) << 32 | n as u64
}

/// Values of a rank.
fn values(rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|n| value(rank, n)).collect()
}

fn check_all(job: &Job, len: usize) -> Result<(), Box<dyn Error>> {
    let (me, size) = (job.rank(), job.size());
    let root = size / 2;
    let mine = values(me, len);
    let all: Vec<u64> = (0..size).flat_map(|rank| values(rank, len)).collect();
    let sum = |ranks: std::ops::Range<u32>| -> Vec<u64> {
        (0..len).map(|n| ranks.clone().map(|rank| value(rank, n)).sum()).collect()
    };
    assert_eq!(job.broadcast(root, if me == root { &mine } else { &[] })?, values(root, len));
    let mut there = mine.clone();
    job.broadcast_into(root, &mut there)?;
    assert_eq!(there, values(root, len));
    let gathered = job.gather(root, &mine)?;
    assert_eq!(gathered, if me == root { all.clone() } else { Vec::new() });
    assert_eq!(job.all_gather(&mine)?, all);
    let scattered = job.scatter(root, if me == root { &all } else { &[] })?;
    assert_eq!(scattered, mine);
    let reduced = job.reduce(root, &mine, Sum)?;
    assert_eq!(reduced, if me == root { sum(0..size) } else { Vec::new() });
    there.clone_from(&mine);
    job.all_reduce_into(&mut there, Sum)?;
    assert_eq!(there, sum(0..size));
    assert_eq!(job.scan(&mine, Sum)?, sum(0..me + 1));
    let before = job.exclusive_scan(&mine, Sum)?;
    assert_eq!(before, if me == 0 { Vec::new() } else { sum(0..me) });
    let blocks: Vec<u64> = (0..size).flat_map(|to| values(me * 1000 + to, len)).collect();
    let exchanged = job.all_to_all(&blocks)?;
    let expected: Vec<u64> = (0..size).flat_map(|from| values(from * 1000 + me, len)).collect();
    assert_eq!(exchanged, expected);
    let block = job.reduce_scatter(&all, Max)?;
    assert_eq!(block, mine);
    Ok(())
}

fn check_uneven(job: &Job) -> Result<(), Box<dyn Error>> {
    let (me, size) = (job.rank(), job.size());
    let len = |from: u32, to: u32| ((3 * from + to) % 5) as usize;
    let mine = values(me, len(me, 0));
    let all: Vec<Vec<u64>> = (0..size).map(|rank| values(rank, len(rank, 0))).collect();
    assert_eq!(job.all_gather_uneven(&mine)?, all);
    let gathered = job.gather_uneven(1, &mine)?;
    assert_eq!(gathered, if me == 1 { all } else { Vec::new() });
    let vectors: Vec<Vec<u64>> = (0..size).map(|to| values(me, len(me, to))).collect();
    let exchanged = job.all_to_all_uneven(&vectors)?;
    let expected: Vec<Vec<u64>> = (0..size).map(|from| values(from, len(from, me))).collect();
    assert_eq!(exchanged, expected);
    assert_eq!(job.scatter_uneven(1, &vectors)?, values(1, len(1, me)));
    Ok(())
}

/// COLL-2.1, COLL-2.5: all collectives, short and long.
#[test]
fn all_collectives_move_and_combine_what_they_say() {
    for (nodes, further) in [(2, Rings), (4, TwoMachines), (5, OneWithout)] {
        everywhere(nodes, further, |job| {
            for len in [0, 1, 1000, 50_000] {
                check_all(job, len)?;
            }
            check_uneven(job)?;
            Ok(())
        });
    }
}

#[test]
fn a_job_of_one_node_has_collectives() {
    cluster(1, |job| {
        check_all(job, 3)?;
        assert_eq!(job.all_gather_uneven(&[7])?, [[7]]);
        Ok(())
    });
}

/// COLL-2.2: operators of the program, in the order of ranks, and the same bits everywhere.
#[test]
fn operators_of_the_program_get_their_operands_in_order() {
    everywhere(5, TwoMachines, |job| {
        let mine = [u64::from(job.rank()), u64::from(job.rank())];
        // Of two ranges, the first must end where the second begins.
        let join = |first: [u64; 2], second: [u64; 2]| {
            if first[1] + 1 == second[0] { [first[0], second[1]] } else { [u64::MAX; 2] }
        };
        let range = job.all_reduce(mine, ordered(join))?;
        assert_eq!(range, [0, u64::from(job.size()) - 1]);
        let root = job.reduce(3, &[mine], ordered(join))?;
        assert!(job.rank() != 3 || root == [range]);
        let biggest = job.all_reduce(job.rank(), commuting(u32::max))?;
        assert_eq!(biggest, 4);
        let third = 1.0 / (3.0 + f64::from(job.rank()));
        let mut sums = vec![third; 5000];
        job.all_reduce_into(&mut sums, Sum)?;
        let bits = [job.all_reduce(third, Sum)?.to_bits(), sums[4999].to_bits()];
        let of_all = job.all_gather(&bits)?;
        assert!(of_all.chunks(2).all(|of_rank| of_rank == bits), "{of_all:?}");
        Ok(())
    });
}

/// The sum does not depend on how the elements are spread.
#[test]
fn exact_sums_have_the_same_bits_for_any_number_of_nodes() {
    let all: Vec<f64> = (0..120).map(|n| f64::from(n).sin() * 10f64.powi(n % 60 - 30)).collect();
    let mut bits = Vec::new();
    for nodes in [1, 3, 4] {
        for way in ways(Rings) {
            bits.extend(way.run(nodes, &Job::builder(), |job| {
                let each = all.len() / job.size() as usize;
                let mine = &all[job.rank() as usize * each..][..each];
                Ok(job.sum_exact(mine)?.to_bits())
            }));
        }
    }
    assert!(bits.iter().all(|sum| *sum == bits[0]), "{bits:?}");
}

/// COLL-4.1: several non-blocking collectives at once, also as futures.
#[test]
fn pending_collectives_advance_while_others_are_waited_for() {
    everywhere(3, OneWithout, |job| {
        let start = job.start();
        let sums: Vec<Pending<Vec<u32>>> =
            (0..100).map(|n| start.all_reduce(&[n + job.rank()], Sum)).collect();
        let last = start.all_gather(&[job.rank()]);
        assert_eq!(last.wait()?, [0, 1, 2]);
        for (n, sum) in (0..).zip(sums) {
            // They come before the last one, and are done.
            assert!(sum.is_done());
            assert_eq!(sum.wait_for(LIMIT)?, [3 * n + 3]);
            assert!(sum.wait_for(LIMIT).is_err(), "the result is returned once");
        }
        Ok(())
    });
}

/// COLL-1.1, COLL-1.3, COLL-1.4: parcels wait for the call, and hold back no message.
#[test]
fn a_long_broadcast_before_the_call_holds_back_no_message() {
    everywhere(2, TwoMachines, |job| {
        let long = vec![7_u8; 24 << 20];
        if job.rank() == 0 {
            let all: Vec<_> = (0..3).map(|_| job.start().broadcast(0, &long)).collect();
            job.peer(1)?.send(Class::Ordered, 1, b"go").wait()?;
            for one in all {
                one.wait()?;
            }
        } else {
            assert_eq!(job.receive(Some(0))?.tag(), 1);
            for _ in 0..3 {
                assert!(job.broadcast::<u8>(0, &[])? == long);
            }
        }
        Ok(())
    });
}

/// COLL-1.3: unread messages hold back no parcel.
#[test]
fn unread_messages_hold_back_no_collective() {
    everywhere(2, Rings, |job| {
        let other = job.peer(1 - job.rank())?;
        let sent: Vec<_> =
            (0..40).map(|tag| other.send(Class::Ordered, tag, &vec![1; 1 << 20])).collect();
        assert_eq!(job.all_reduce(1, Sum)?, 2);
        for _ in 0..40 {
            job.receive(Some(1 - job.rank()))?;
        }
        sent.iter().try_for_each(|one| one.wait())?;
        Ok(())
    });
}

/// COLL-5.1.
#[test]
fn teams_work_at_the_same_time_and_are_released() {
    everywhere(4, OneWithout, |job| {
        let me = job.rank();
        let row = job.split(Some(me / 2), 0)?.ok_or("a team")?;
        let column = job.split(Some(me % 2), -i64::from(me))?.ok_or("a team")?;
        assert_eq!(row.ranks(), [me / 2 * 2, me / 2 * 2 + 1]);
        assert_eq!(column.ranks(), [2 + me % 2, me % 2]);
        assert_eq!((row.rank(), column.rank(), row.size()), (me % 2, 1 - me / 2, 2));
        assert!(job.split(None, 0)?.is_none());
        std::thread::scope(|scope| {
            let rows = scope.spawn(|| (0..200).map(|n| row.all_reduce(n + me, Sum)).collect());
            let columns =
                scope.spawn(|| (0..200).map(|n| column.all_reduce(n * me, Max)).collect());
            let rows: Result<Vec<u32>, oikaze::Error> = rows.join().unwrap();
            let columns: Result<Vec<u32>, oikaze::Error> = columns.join().unwrap();
            let pair = me / 2 * 4 + 1;
            assert_eq!(rows.unwrap(), Vec::from_iter((0..200).map(|n| 2 * n + pair)));
            assert_eq!(columns.unwrap(), Vec::from_iter((0..200).map(|n| n * (2 + me % 2))));
        });
        for n in 0..50 {
            let team = job.split(Some(n % 2), 0)?.ok_or("a team")?;
            assert_eq!(team.all_reduce(1, Sum)?, 4);
        }
        let nested = row.split(Some(0), 0)?.ok_or("a team")?;
        nested.barrier()?;
        Ok(())
    });
}

/// COH-15.2, COH-15.3: writes are visible to the members, and later to all.
#[test]
fn a_team_barrier_makes_writes_visible_to_its_members() {
    everywhere(4, TwoMachines, |job| {
        let me = job.rank() as usize;
        let array = job.array::<u64>("shared", 4 * 1024)?;
        let pair = job.split(Some(job.rank() / 2), 0)?.ok_or("a team")?;
        let other = (me ^ 1) * 1024;
        for n in 1..20 {
            // A copy of the old page is here, so that forgetting to invalidate it would show.
            assert_eq!(array.read(other..other + 1)?[0], n - 1);
            pair.barrier()?;
            array.write(me * 1024..me * 1024 + 1)?[0] = n;
            pair.barrier()?;
            assert_eq!(array.read(other..other + 1)?[0], n);
            if n % 5 == 0 {
                job.barrier()?;
                let all = (0..4).map(|rank| Ok(array.read(rank * 1024..rank * 1024 + 1)?[0]));
                assert_eq!(all.collect::<oikaze::Result<Vec<u64>>>()?, [n; 4]);
                job.barrier()?;
            }
        }
        let guard = array.read(0..1)?;
        assert!(pair.barrier().unwrap_err().to_string().contains("guard"));
        drop(guard);
        Ok(())
    });
}

/// Runs a program whose collective must fail, and returns the texts of all ways.
fn texts(
    nodes: u32,
    further: ExchangeWay,
    call: impl Fn(&Job) -> oikaze::Result<()> + Sync,
) -> Vec<String> {
    let settings = Job::builder().time_limit(LIMIT);
    let run = |way: ExchangeWay| {
        way.run(nodes, &settings, |job| {
            // A rank whose part was done gets the error from the next collective.
            let failed = call(job).err().or_else(|| job.all_reduce(0_u8, Or).err());
            let text = failed.map_or_else(|| "no error".to_owned(), |error| error.to_string());
            Ok(text)
        })
    };
    ways(further).into_iter().flat_map(run).collect()
}

fn all_say(texts: &[String], parts: &[&str]) {
    for text in texts {
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {texts:#?}");
    }
}

/// COLL-3.1.
#[test]
fn calls_that_differ_fail_everywhere_and_name_two_ranks() {
    let lens = texts(3, TwoMachines, |job| {
        let len = if job.rank() == 1 { 5 } else { 4 };
        job.start().all_reduce(&vec![1_u32; len], Sum).wait().map(drop)
    });
    all_say(&lens, &["rank 1 calls all_reduce of 5 u32 with Sum", "all_reduce of 4 u32"]);
    let kinds = texts(3, Rings, |job| {
        if job.rank() == 2 {
            job.all_gather(&[1_u32]).map(drop)
        } else {
            job.all_reduce(1_u32, Sum).map(drop)
        }
    });
    all_say(&kinds, &["rank 2 calls all_gather of 1 u32", "calls all_reduce of 1 u32 with Sum"]);
    let types = texts(2, OneWithout, |job| {
        if job.rank() == 0 {
            job.all_reduce(1_u32, Sum).map(drop)
        } else {
            job.all_reduce(1_i32, Sum).map(drop)
        }
    });
    all_say(&types, &["rank 0 calls all_reduce of 1 u32", "rank 1 calls all_reduce of 1 i32"]);
    let operators = texts(2, TwoMachines, |job| {
        if job.rank() == 0 {
            job.all_reduce(1, Sum).map(drop)
        } else {
            job.all_reduce(1, Max).map(drop)
        }
    });
    all_say(&operators, &["with Sum", "with Max"]);
}

/// COLL-3.1, COLL-3.3, COLL-3.5: both wait for each other, or both have sent.
#[test]
fn roots_that_differ_fail_everywhere() {
    let each_waits = texts(2, Rings, |job| job.broadcast::<u8>(1 - job.rank(), &[]).map(drop));
    all_say(&each_waits, &["rank 0 calls broadcast of u8 with root 1", "rank 1 calls"]);
    let each_sends = texts(2, OneWithout, |job| job.broadcast::<u8>(job.rank(), &[1]).map(drop));
    all_say(&each_sends, &["rank 0 calls broadcast of 1 u8 with root 0", "with root 1"]);
    let reduced = texts(3, TwoMachines, |job| job.reduce(job.rank(), &[1], Sum).map(drop));
    all_say(&reduced, &["calls reduce of 1 i32 with root"]);
}

/// How a program learns of the end of a collective.
#[derive(Clone, Copy, Debug)]
enum Learns {
    Waits,
    Awaits,
    Polls,
    /// Waits for a later collective only.
    WaitsForLater,
}

/// Runs a future on this thread, which sleeps until it is woken.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // Nobody may wake this thread if the job hangs.
            Poll::Pending => std::thread::park_timeout(LIMIT),
        }
    }
}

/// Returns the error of a collective that must fail, or of the next one.
fn failure_of<T: oikaze::collective::operator::Item>(
    job: &Job,
    learns: Learns,
    pending: Pending<Vec<T>>,
) -> oikaze::Result<()> {
    match learns {
        Learns::Waits => pending.wait().map(drop),
        Learns::Awaits => block_on(pending).map(drop),
        Learns::Polls => {
            let begun = Instant::now();
            loop {
                match pending.try_take() {
                    Some(outcome) => return outcome.map(drop),
                    None if begun.elapsed() > LIMIT => panic!("{pending:?} hangs"),
                    None => std::thread::yield_now(),
                }
            }
        }
        Learns::WaitsForLater => {
            let later = job.start().all_gather(&[job.rank()]).wait();
            pending.wait().and(later).map(drop)
        }
    }
}

/// COLL-3.1, COLL-3.3: mistakes are found however programs wait. Before, notices left only while a
/// thread waited.
#[test]
fn mistakes_are_found_however_programs_wait() {
    let all_learn = [Learns::Waits, Learns::Awaits, Learns::Polls, Learns::WaitsForLater];
    let settings = Job::builder().time_limit(LIMIT);
    let cases = (0..).zip(all_learn).flat_map(|(number, learns)| {
        ways(ExchangeWay::of_number(number)).into_iter().map(move |way| (learns, way))
    });
    for (learns, way) in cases {
        let texts = way.run(2, &settings, |job| {
            let (me, start) = (job.rank(), job.start());
            let is_first = me == 0;
            // Each waits for the other.
            let roots = failure_of(job, learns, start.broadcast::<u8>(1 - me, &[]));
            let counts = failure_of(job, learns, start.all_reduce(&vec![1; 3 + me as usize], Sum));
            let types = if is_first {
                failure_of(job, learns, start.all_gather(&[1_u32]))
            } else {
                failure_of(job, learns, start.all_gather(&[1_f32]))
            };
            let operators = if is_first {
                failure_of(job, learns, start.scan(&[1], Max))
            } else {
                failure_of(job, learns, start.scan(&[1], Min))
            };
            // Neither sends before it has received.
            let kinds = if is_first {
                failure_of(job, learns, start.gather(0, &[1]))
            } else {
                failure_of(job, learns, start.scan(&[1], Sum))
            };
            let last = job.all_reduce(1, Sum);
            let outcomes = [roots, counts, types, operators, kinds, last.map(drop)];
            Ok(outcomes.map(|one| one.err().map(|error| error.to_string())))
        });
        let said = [
            [
                "rank 0 calls broadcast of u8 with root 1",
                "rank 1 calls broadcast of u8 with root 0",
            ],
            ["rank 0 calls all_reduce of 3 i32", "rank 1 calls all_reduce of 4 i32"],
            ["rank 0 calls all_gather of 1 u32", "rank 1 calls all_gather of 1 f32"],
            ["rank 0 calls scan of 1 i32 with Max", "rank 1 calls scan of 1 i32 with Min"],
            ["rank 0 calls gather of 1 i32 with root 0", "rank 1 calls scan of 1 i32 with Sum"],
        ];
        for (rank, texts) in texts.iter().enumerate() {
            // A rank whose part was done gets the error from its next collective.
            let all = texts.iter().flatten().cloned().collect::<Vec<_>>().join("\n");
            for two in said {
                let told = two.iter().all(|words| all.contains(words));
                assert!(told, "{learns:?}, {way:?}, rank {rank}: {two:?} in {texts:#?}");
            }
        }
    }
}

/// COLL-3.2.
#[test]
fn arguments_that_do_not_fit_fail_everywhere() {
    let roots = texts(2, Rings, |job| job.broadcast(5, &[1]).map(drop));
    all_say(&roots, &["root 5 is not a rank of this team of 2", "ranks are 0 to 1"]);
    let one = texts(3, OneWithout, |job| {
        job.scatter(0, &vec![1_u8; if job.rank() == 0 { 7 } else { 0 }]).map(drop)
    });
    all_say(&one, &["on rank 0: 7 elements cannot be divided among 3 ranks equally"]);
    let vectors = texts(2, TwoMachines, |job| job.scatter_uneven(1, &[vec![1_u8]]).map(drop));
    all_say(&vectors, &["1 vectors are given for 2 ranks"]);
}

/// COLL-3.2: and the team goes on afterwards.
#[test]
fn an_operator_that_panics_fails_everywhere() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let texts = texts(3, Rings, |job| {
        let bad = commuting(|first: u32, second: u32| {
            assert!(first + second < 3, "too much");
            first + second
        });
        job.all_reduce(job.rank(), bad).map(drop)
    });
    std::panic::set_hook(hook);
    all_say(&texts, &["the operator panicked on rank", "too much"]);
}

/// COLL-3.2: a mistake concerns one collective.
#[test]
fn a_team_goes_on_after_a_mistake_of_all_ranks() {
    everywhere(3, Rings, |job| {
        for _ in 0..3 {
            assert!(job.broadcast(9, &[1]).is_err());
            assert_eq!(job.all_reduce(1, Sum)?, 3);
        }
        Ok(())
    });
}

/// COLL-3.4.
#[test]
fn a_node_that_leaves_ends_the_wait_for_it() {
    everywhere(3, OneWithout, |job| {
        if job.rank() != 2 {
            let text = job.all_gather(&[job.rank()]).unwrap_err().to_string();
            assert!(text.contains("node 2 is leaving"), "{text}");
        }
        Ok(())
    });
}

/// COLL-3.4: survivors go on, and their teams without the lost node work.
#[test]
fn a_lost_node_fails_the_collectives_of_its_teams_alone() {
    for way in ways(TwoMachines) {
        lose_a_node(way);
    }
}

fn lose_a_node(way: ExchangeWay) {
    let seen = std::sync::Mutex::new(Vec::new());
    let settings = Job::builder().time_limit(LIMIT).keep_going(true);
    let run = || {
        way.run(4, &settings, |job| {
            let pair = job.split(Some(job.rank() / 2), 0)?.ok_or("a team")?;
            if job.rank() == 3 {
                // All ranks have the team.
                for rank in 0..3 {
                    job.receive(Some(rank))?;
                }
                return Err("it fails".into());
            }
            // Node 3 may fail before it acknowledges this.
            let _ = job.peer(3)?.send(Class::Ordered, 0, b"").wait();
            let waiting = job.start().all_gather(&[1]);
            let text = |lost: Option<u32>| format!("{} lost {lost:?}", job.rank());
            let lost = job.all_reduce(1, Sum).err().and_then(|error| error.lost_peer());
            seen.lock().unwrap().push(text(lost));
            assert_eq!(waiting.wait().err().and_then(|error| error.lost_peer()), Some(3));
            let of_pair = pair.all_reduce(1, Sum);
            match job.rank() {
                2 => assert_eq!(of_pair.err().and_then(|error| error.lost_peer()), Some(3)),
                _ => assert_eq!(of_pair?, 2),
            }
            // A node that leaves before others know of the loss would end their waits.
            let others = || (0..3).filter(|rank| *rank != job.rank());
            for rank in others() {
                job.peer(rank)?.send(Class::Ordered, 1, b"").wait()?;
            }
            for rank in others() {
                job.receive(Some(rank))?;
            }
            Ok(())
        })
    };
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    let said = failed.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("node 3 of 4 failed: it fails"), "{said}");
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    assert_eq!(seen, ["0 lost Some(3)", "1 lost Some(3)", "2 lost Some(3)"]);
}

#[test]
fn a_time_limit_ends_the_wait_and_not_the_collective() {
    everywhere(2, Rings, |job| {
        if job.rank() == 0 {
            let pending = job.start().all_reduce(&[1], Sum);
            assert!(pending.wait_for(Duration::from_millis(20)).unwrap_err().is_timeout());
            job.peer(1)?.send(Class::Ordered, 1, b"").wait()?;
            assert_eq!(pending.wait_for(LIMIT)?, [2]);
        } else {
            job.receive(Some(0))?;
            assert_eq!(job.all_reduce(1, Sum)?, 2);
        }
        Ok(())
    });
}

/// COLL-1.5: the memory of a caller that waits no more is its own again, and its values count.
#[test]
fn a_caller_that_is_interrupted_gets_its_memory_back_and_the_collective_goes_on() {
    const LEN: usize = 200_000;
    type Call = fn(&Job, &[u64], &mut [u64]) -> oikaze::Result<()>;
    let calls: [Call; 3] = [
        |job, given, result| {
            result.copy_from_slice(given);
            job.all_reduce_into(result, Sum)
        },
        |job, given, result| job.all_to_all_into(given, result),
        |job, given, result| job.all_gather_into(&given[..LEN / 2], result),
    ];
    let whole = |rank: u32| values(rank, LEN);
    everywhere(2, TwoMachines, |job| {
        for (call, number) in calls.iter().zip(0..) {
            let (mut given, mut result) = (whole(job.rank()), vec![0; LEN]);
            if job.rank() == 0 {
                let called = || call(job, &given, &mut result);
                assert!(interruptible(Rc::new(|| true), called).is_err());
                given.fill(u64::MAX);
                result.fill(u64::MAX);
                job.peer(1)?.send(Class::Ordered, number, b"").wait()?;
            } else {
                assert_eq!(job.receive(Some(0))?.tag(), number);
                call(job, &given, &mut result)?;
                let (first, mine) = (whole(0), whole(1));
                let expected: Vec<u64> = match number {
                    0 => first.iter().zip(&mine).map(|(one, other)| one + other).collect(),
                    1 => [&first[LEN / 2..], &mine[LEN / 2..]].concat(),
                    _ => [&first[..LEN / 2], &mine[..LEN / 2]].concat(),
                };
                assert!(result == expected, "call {number}");
            }
            assert_eq!(job.all_reduce(1, Sum)?, 2);
            assert!(job.rank() == 1 || result.iter().all(|word| *word == u64::MAX));
        }
        Ok(())
    });
}

/// COLL-1.5: the memory of a caller whose collective has failed is its own again, whatever parcels
/// are still under way.
#[test]
fn a_caller_whose_collective_fails_gets_its_memory_back() {
    const LEN: usize = 200_000;
    everywhere(3, TwoMachines, |job| {
        let mine = vec![1_u64; LEN];
        let mut result = vec![0; 3 * LEN];
        for _ in 0..10 {
            let called = match job.rank() {
                2 => job.all_reduce_into(&mut [0; LEN], Sum),
                _ => job.all_gather_into(&mine, &mut result),
            };
            assert!(called.is_err(), "the calls do not fit together");
            result.fill(u64::MAX);
            assert_eq!(job.all_reduce(1, Sum)?, 3);
            assert!(result.iter().all(|word| *word == u64::MAX));
        }
        Ok(())
    });
}

/// COLL-3.5: both ranks have sent a long vector and ended well before they see the mistake. They
/// hear of it, and what they sent counts against nobody for ever.
#[test]
fn roots_that_differ_in_long_started_broadcasts_are_told() {
    const LEN: usize = 1 << 17;
    everywhere(2, TwoMachines, |job| {
        for _ in 0..10 {
            let mine = vec![u64::from(job.rank()); LEN];
            let sent = job.start().broadcast(job.rank(), &mine).wait();
            let next = job.all_reduce(1, Sum);
            assert!(sent.is_err() || next.is_err(), "nobody told this rank");
            let mut shared = vec![1; LEN];
            job.all_reduce_into(&mut shared, Sum)?;
            assert!(shared.iter().all(|word| *word == 2));
        }
        Ok(())
    });
}

/// COLL-1.5: parts of long vectors are sent while later steps write to them.
#[test]
fn long_collectives_one_after_another_use_the_same_memory() {
    const LEN: usize = 60_000;
    everywhere(3, TwoMachines, |job| {
        let size = u64::from(job.size());
        let (mut sums, mut all) = (vec![1; LEN], vec![0; 3 * LEN]);
        for round in 0..20 {
            job.all_reduce_into(&mut sums, Sum)?;
            assert!(sums.iter().all(|sum| *sum == size), "round {round}");
            job.all_gather_into(&sums, &mut all)?;
            assert!(all.iter().all(|word| *word == size), "round {round}");
            let pending = job.start().all_reduce(&all, Max);
            sums.fill(u64::from(job.rank()) + round);
            job.broadcast_into(round as u32 % 3, &mut sums)?;
            assert!(sums.iter().all(|word| *word == round % 3 + round), "round {round}");
            assert!(pending.wait()?.iter().all(|word| *word == size), "round {round}");
            sums.fill(1);
        }
        Ok(())
    });
}

/// A rank waits for its parent in the tree, and not for the root, which may have left by then. It
/// does not know the length of the vector yet.
#[test]
fn root_that_has_done_its_part_may_leave() {
    everywhere(4, OneWithout, |job| {
        let word = [job.rank() + 7];
        let pending = match job.rank() {
            // The parent of rank 3. Rank 3 knows that the root has left before this rank comes.
            2 => {
                job.receive(Some(3))?;
                job.start().broadcast(0, &word)
            }
            _ => job.start().broadcast(0, &word),
        };
        if job.rank() == 3 {
            assert!(job.receive(Some(0)).is_err(), "the root leaves and sends no message");
            job.peer(2)?.send(Class::Ordered, 1, b"the root has left").wait()?;
        }
        assert_eq!(pending.wait()?, [7]);
        Ok(())
    });
}

/// Results of collectives go to queues and counters as those of puts do.
#[test]
fn queues_and_counters_are_told_of_collectives() {
    everywhere(3, TwoMachines, |job| {
        let (queue, counter) = (job.completion_queue(), job.counter());
        let start = job.start();
        let early = start.all_reduce(&[1], Sum);
        early.report_to(&queue, 100)?;
        assert!(early.report_to(&queue, 1).unwrap_err().to_string().contains("told already"));
        assert!(early.count_in(&counter).is_err());
        assert_eq!(early.wait_for(LIMIT)?, [3]);
        // Each rank waits for the next one, so this fails.
        let wrong = start.broadcast::<u8>((job.rank() + 1) % 3, &[]);
        wrong.report_to(&queue, 101)?;
        // The queue is told also of handles that are dropped.
        start.all_gather(&[job.rank()]).report_to(&queue, 102)?;
        let peer = job.peer((job.rank() + 1) % 3)?;
        peer.send(Class::Ordered, 0, b"and a message").report_to(&queue, 103)?;
        let mut ended = Vec::new();
        queue.wait_for(4, LIMIT, &mut ended)?;
        ended.sort_by_key(|one| one.context);
        assert_eq!(Vec::from_iter(ended.iter().map(|one| one.context)), [100, 101, 102, 103]);
        let said = ended[1].outcome.as_ref().unwrap_err().to_string();
        assert!(said.contains("calls broadcast of u8 with root"), "{said}");
        assert!(ended[0].outcome.is_ok() && ended[3].outcome.is_ok(), "{ended:?}");
        // The wait also names its line.
        let waited = wrong.wait_for(LIMIT).unwrap_err().to_string();
        let (call, mistake) = said.split_once(": ").unwrap();
        assert!(waited.starts_with(call) && waited.ends_with(&format!(": {mistake}")), "{waited}");
        let sums: Vec<_> = (0..10).map(|n| start.all_reduce(&[n], Sum)).collect();
        sums.iter().try_for_each(|sum| sum.count_in(&counter))?;
        let outside = start.broadcast::<u8>(3, &[]);
        outside.count_in(&counter)?;
        let counts = counter.wait_for(11, LIMIT)?;
        assert_eq!((counts.succeeded, counts.failed), (10, 1));
        // Attaching to one that has ended misses nothing.
        outside.wait_for(LIMIT).unwrap_err();
        let late = job.counter();
        let last = start.all_gather(&[1]);
        last.wait_for(LIMIT)?;
        last.count_in(&late)?;
        assert_eq!(late.counts().succeeded, 1);
        assert!(last.try_take().is_some_and(|again| again.is_err()));
        job.receive(None)?;
        Ok(())
    });
}

/// COLL-2.5: blocks of any lengths, empty ones among them, with operators of both kinds.
#[test]
fn blocks_of_reduce_scatter_may_differ() {
    everywhere(5, Rings, |job| {
        let (me, size) = (job.rank(), u64::from(job.size()));
        for each in [1, 3000] {
            let lens: Vec<usize> = (0..5).map(|rank| each * ((rank * 2) % 5)).collect();
            let vectors: Vec<Vec<u64>> =
                lens.iter().map(|len| vec![u64::from(me) + 1; *len]).collect();
            let mine = lens[me as usize];
            let sum = job.reduce_scatter_uneven(&vectors, Sum)?;
            assert_eq!(sum, vec![size * (size + 1) / 2; mine]);
            let last = job.reduce_scatter_uneven(&vectors, ordered(|_, last| last))?;
            assert_eq!(last, vec![size; mine]);
        }
        assert_eq!(job.reduce_scatter_uneven(&vec![vec![1_u8]; 5], Max)?, [1]);
        Ok(())
    });
}

/// COLL-2.1: the ranks of a machine combine first. Machines have one rank or several, in any order.
#[test]
fn hierarchy_of_several_machines_gives_the_same_results() {
    for machines in [&[0, 0, 1, 1, 1][..], &[0, 1, 0, 2, 1, 2], &[3, 3, 3, 1], &[0, 1, 2]] {
        let settings = Job::builder().time_limit(LIMIT);
        testing::cluster_on(machines, settings, |job| {
            let is_mixed = machines.len() > 3;
            let by = job.team().algorithm("all_reduce", 8);
            assert_eq!(by == "hierarchical", is_mixed, "{machines:?}: {by}");
            for len in [0, 1, 1000, 50_000] {
                check_all(job, len)?;
            }
            check_uneven(job)?;
            let joined = job.all_reduce(job.rank(), ordered(|_, last| last))?;
            assert_eq!(joined, job.size() - 1);
            // A team of one machine, and one of several.
            let mine = machines[job.rank() as usize];
            let here = job.split(Some(mine), 0)?.ok_or("a team")?;
            let same = machines.iter().filter(|machine| **machine == mine).count() as u32;
            assert_eq!((here.size(), here.all_reduce(1, Sum)?), (same, same));
            let odd = job.split(Some(job.rank() % 2), 0)?.ok_or("a team")?;
            assert_eq!(odd.all_reduce(1, Sum)?, odd.size());
            assert_eq!(odd.broadcast(0, &[odd.ranks()[0]])?, [job.rank() % 2]);
            job.barrier()?;
            Ok(())
        });
    }
}

/// Data goes from machine to machine once: only the leaders of machines use the network.
#[test]
fn hierarchy_uses_the_network_between_leaders_alone() {
    let settings = Job::builder().time_limit(LIMIT);
    let datagrams = testing::cluster_on(&[0, 0, 0, 1, 1, 1], settings, |job| {
        let values = vec![1_u8; 2_400_000];
        job.barrier()?;
        let before = job.statistics();
        // The data must not come before its receiver counts.
        match job.rank() {
            0 => drop(job.receive(Some(3))?),
            3 => job.peer(0)?.send(Class::Ordered, 0, &[]).wait()?,
            _ => {}
        }
        assert_eq!(job.broadcast(0, &values)?, values);
        // Nobody passes the barrier before all have the data.
        job.barrier()?;
        let after = job.statistics();
        let received = after.datagrams_received - before.datagrams_received;
        Ok((after.datagrams_sent - before.datagrams_sent, received))
    });
    // A datagram has at most 9,000 bytes. The others send and receive some for the barriers, and
    // more on a busy machine, but not half of the data.
    assert!(datagrams[0].0 >= 266 && datagrams[3].1 >= 266, "{datagrams:?}");
    let others = [1, 2, 4, 5].map(|rank| datagrams[rank]);
    assert!(others.iter().all(|(sent, received)| sent + received < 133), "{datagrams:?}");
}

/// COLL-6.1: the living make a team, also if a node has left in order.
#[test]
fn ranks_that_stay_make_a_team_without_those_that_leave() {
    everywhere(4, OneWithout, |job| {
        if job.rank() == 1 {
            return Ok(());
        }
        assert!(job.receive(Some(1)).is_err(), "node 1 leaves and sends no message");
        assert!(job.split(Some(0), 0).is_err());
        let team = job.shrink()?;
        assert_eq!(team.ranks(), [0, 2, 3]);
        assert_eq!(team.all_gather(&[job.rank()])?, [0, 2, 3]);
        let again = team.shrink()?;
        assert_eq!(again.all_reduce(1, Sum)?, 3);
        Ok(())
    });
}

/// COLL-2.6: in all algorithms, whichever rank has the NaN, all ranks get the same bits.
#[test]
fn extremes_with_a_nan_are_the_same_nan_on_all_ranks() {
    macro_rules! check {
        ($job:ident, $type:ty, $len:expr) => {
            let quiet = <$type as oikaze_protocol::extremes::Comparable>::QUIET_NAN.to_bits();
            let size = $job.size() as usize;
            for with_nan in 0..$job.size() {
                let mut mine = vec![$job.rank() as $type; $len * size];
                if $job.rank() == with_nan {
                    mine.fill(-<$type>::NAN);
                }
                let is_quiet = |all: &[$type]| all.iter().all(|value| value.to_bits() == quiet);
                for all in
                    [$job.start().all_reduce(&mine, Min), $job.start().all_reduce(&mine, Max)]
                {
                    assert!(is_quiet(&all.wait()?));
                }
                assert!(is_quiet(&$job.reduce(0, &mine, Max)?));
                assert!(is_quiet(&$job.reduce_scatter(&mine, Min)?));
                let scanned = $job.scan(&mine, Max)?;
                assert_eq!(scanned.iter().all(|value| value.is_nan()), with_nan <= $job.rank());
                let first = $job.all_reduce([mine[0], $job.rank() as $type], MaxLocation)?;
                assert!(first[0].is_nan() && first[1] == with_nan as $type);
            }
        };
    }
    for (nodes, further) in [(2, Rings), (3, OneWithout), (5, TwoMachines)] {
        everywhere(nodes, further, |job| {
            for len in [1, 300, 20_000] {
                check!(job, f32, len);
                check!(job, f64, len);
            }
            let mine = if job.rank() == 1 { -f64::NAN } else { 1.0 };
            let quiet = <f64 as oikaze_protocol::extremes::Comparable>::QUIET_NAN.to_bits();
            assert_eq!(job.barrier_reduce(mine, Max)?.to_bits(), quiet);
            assert_eq!(job.barrier_reduce(mine, Min)?.to_bits(), quiet);
            Ok(())
        });
    }
}
