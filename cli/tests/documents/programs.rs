// Programs that the documents show, written by:
// OIKAZE_BLESS=1 cargo test -p oikaze-cli --test shown

mod readme_md_1 {
use oikaze::prelude::*;

#[oikaze::main] // joins the job; an error is printed first and ends the job for all nodes
fn main(job: &Job) -> oikaze::Result<()> {
    // Shared memory: the same array on every node, in blocks of pages with a home each.
    let squares = job.array::<u64>("squares", 1 << 20)?;
    let mine = squares.home_range(job.rank());
    for (i, value) in mine.clone().zip(squares.write(mine)?.iter_mut()) {
        *value = (i * i) as u64; // a plain store
    }
    job.barrier()?; // every node sees what the others have written
    let last = squares.read(squares.len() - 1..squares.len())?[0];

    // Remote memory: an atomic in the memory of the next node, which makes no call for it.
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    next.region("inbox")?.fetch_add(0, last).wait()?;

    // Messages: each arrives exactly once.
    next.send(Class::Ordered, 7, b"done").wait()?;
    let from = job.receive(None)?.from();
    println!("node {from} has sent; the inbox holds {}", inbox.load_u64(0)?);
    job.barrier()?; // before anyone withdraws its inbox
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_collectives_md_1 {
use oikaze::prelude::*;

fn main() -> oikaze::Result<()> {
    let job = oikaze::join()?;
    let (me, size) = (job.rank(), job.size());

    // Move: from one to all, from all to all, blocks for each.
    let table = job.broadcast(0, &[0.5, 1.5])?; // the argument counts at rank 0
    let ranks = job.all_gather(&[me])?;
    let blocks: Vec<u32> = (0..size).map(|to| 100 * me + to).collect();
    let mixed = job.all_to_all(&blocks)?;
    assert_eq!((table[1], ranks.len(), mixed[0]), (1.5, size as usize, me));

    // Combine: on all ranks, up to this rank, at one rank.
    let most = job.all_reduce(f64::from(me), Max)?;
    let before = job.scan(&[1_u32], Sum)?[0] - 1;
    let products = job.reduce(0, &[2_u64, 3], Product)?; // empty at other ranks
    assert_eq!((most, before), (f64::from(size - 1), me));
    assert!(me > 0 || products[0] == 2_u64.pow(size));

    // Let other work go on meanwhile.
    let pending = job.start().all_reduce(&vec![1_u32; 1000], Sum);
    let local: u32 = (0..1000).sum();
    assert_eq!(pending.wait()?[0] * local, size * local); // or: pending.await?

    // Teams: the even and the odd ranks.
    let half = job.split(Some(me % 2), 0)?.expect("every rank gave a color");
    assert_eq!(half.all_reduce(me % 2, Sum)?, half.size() * (me % 2));
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_collectives_md_2 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (me, size) = (u64::from(job.rank()), job.size() as usize);
    let key = |i: u64| (1000 * me + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000;
    let mut keys: Vec<u64> = (0..1000).map(key).collect();
    keys.sort_unstable();

    let samples: Vec<u64> = keys.iter().copied().step_by(20).collect();
    let mut samples = job.all_gather(&samples)?;
    samples.sort_unstable();

    let (mut parts, mut rest) = (Vec::new(), &keys[..]);
    for first in (1..size).map(|rank| samples[samples.len() * rank / size]) {
        let (part, next) = rest.split_at(rest.partition_point(|key| *key < first));
        parts.push(part.to_vec());
        rest = next;
    }
    parts.push(rest.to_vec());
    let mut mine = job.all_to_all_uneven(&parts)?.concat();
    mine.sort();

    // No key is lost, and the shares are in the order of ranks.
    let sums = [mine.len() as u64, mine.iter().sum(), keys.iter().sum()];
    let sums = job.start().all_reduce(&sums, Sum).wait()?;
    assert_eq!((sums[0], sums[1]), (1000 * size as u64, sums[2]));
    let lower = job.exclusive_scan(&[mine.last().copied().unwrap_or(0)], Max)?;
    assert!(mine.is_empty() || lower.first() <= mine.first());
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_collectives_md_3 {
use oikaze::prelude::*;

/// Makes a team of the living, and returns the earliest step of any of them.
fn resume(team: &mut Team, step: u64) -> oikaze::Result<u64> {
    loop {
        *team = team.shrink()?;
        match team.all_reduce(step, Min) {
            Err(error) if error.lost_peer().is_some() => {} // one more has died
            first => return first,
        }
    }
}

fn main() -> oikaze::Result<()> {
    let job = Job::builder().keep_going(true).join()?;
    let mut team = job.split(Some(0), 0)?.expect("a color was given");
    let mut step = 0;
    while step < 10 {
        match team.all_reduce(step, Max) {
            Ok(same) => step = same + 1,
            Err(error) if error.lost_peer().is_some() => step = resume(&mut team, step)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_getting_started_md_1 {
use oikaze::prelude::*;

const STEPS: u32 = 1_000_000;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let width = 1.0 / f64::from(STEPS);
    let mine = (job.rank()..STEPS).step_by(job.size() as usize);
    let height = |x: f64| 4.0 / (1.0 + x * x);
    let part: f64 = mine.map(|step| height((f64::from(step) + 0.5) * width) * width).sum();
    let pi = job.all_reduce(part, Sum)?; // all nodes call it, and all get the same bits
    assert!((pi - std::f64::consts::PI).abs() < 1e-9);
    if job.rank() == 0 {
        println!("π is {pi:.9}");
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_getting_started_md_2 {
use oikaze::prelude::*;

#[oikaze::main(nodes = 4)]
fn main(job: &Job) -> oikaze::Result<()> {
    println!("node {} of {}", job.rank(), job.size());
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_getting_started_md_3 {
use oikaze::prelude::*;
use oikaze::testing::cluster;

/// Returns the mean of the values of all nodes.
fn mean(job: &Job, value: f64) -> oikaze::Result<f64> {
    Ok(job.barrier_reduce(value, ReduceOp::Sum)? / f64::from(job.size()))
}

fn main() {
    // In your crate, this is the body of a test.
    let means = cluster(3, |job| Ok(mean(job, f64::from(job.rank()))?));
    assert_eq!(means, [1.0, 1.0, 1.0]);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_memory_model_md_1 {
use oikaze::prelude::*;

const SIGNAL: u64 = 4088; // offset of the word that counts

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;

    let line = job.register(Region::zeroed(64)?)?;
    line.write(0, format!("node {} was here", job.rank()).as_bytes())?;
    there.put_signal(0, line.all(), &there.signal(SIGNAL, 1)).wait()?;

    inbox.wait_until(SIGNAL, |count| count == 1)?; // the line is here, because the signal is
    let mut bytes = [0; 64];
    inbox.read(0, &mut bytes)?;
    println!("{}", String::from_utf8_lossy(&bytes).trim_end_matches('\0'));
    job.barrier() // before any node withdraws its inbox
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_memory_model_md_2 {
use oikaze::prelude::*;

const LOCK: u64 = 5; // any number

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let sum = job.array::<u64>("sum", 1)?;
    for _ in 0..10 {
        let lock = job.lock(LOCK)?;
        sum.write(0..1)?[0] += 1; // the guard ends with the statement
        lock.release()?;
    }
    job.barrier()?;
    assert_eq!(sum.read(0..1)?[0], 10 * u64::from(job.size()));
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_messages_md_1 {
use oikaze::prelude::*;

const TOKEN: u64 = 7; // a tag is the sender's to choose

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let next = job.peer((job.rank() + 1) % job.size())?;
    let previous = (job.rank() + job.size() - 1) % job.size();
    if job.rank() == 0 {
        next.send(Class::Ordered, TOKEN, &1u32.to_le_bytes()).wait()?;
    }
    let message = job.receive(Some(previous))?; // None: from any node
    assert_eq!((message.from(), message.tag()), (previous, TOKEN));
    let mut count = [0; 4];
    count.copy_from_slice(message.bytes());
    let count = u32::from_le_bytes(count);
    if job.rank() == 0 {
        assert_eq!(count, job.size()); // it has been everywhere
    } else {
        next.send(Class::Ordered, TOKEN, &(count + 1).to_le_bytes()).wait()?;
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_messages_md_2 {
use oikaze::prelude::*;

const HALO: u64 = 1 << 8; // kinds of messages in the upper bits, a step in the lower ones
const KIND: u64 = !0xff; // mask: any step
const EXACT: u64 = u64::MAX; // mask: this tag alone

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (me, size) = (job.rank(), job.size());
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let rows = job.register(Region::zeroed(2 * 4096)?)?;

    // Offered before the messages come: they are received into place.
    let first = job.post_receive(Some(previous), HALO | 3, EXACT, rows.slice(0..4096)?);
    let other = job.post_receive(None, HALO, KIND, rows.slice(4096..8192)?);
    let peer = job.peer(next)?;
    drop(peer.send(Class::Ordered, HALO | 2, &[2; 4096]));
    drop(peer.send(Class::Ordered, HALO | 3, &[3; 4096]));
    drop(peer.send(Class::Ordered, 1, b"not a halo"));

    assert_eq!(other.wait()?.tag, HALO | 2);
    let received = first.wait()?; // sender, tag and length
    assert_eq!((received.from, received.len), (previous, 4096));
    assert_eq!(rows.load_u64(0)?, 0x0303_0303_0303_0303);
    assert_eq!(job.receive(None)?.tag(), 1); // what no posted receive matches
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_messages_md_3 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let nodes = u64::from(job.size());
    if job.rank() == 0 {
        for rank in 1..job.size() {
            drop(job.peer(rank)?.send(Class::Unordered, u64::from(rank) * 100, b"square"));
        }
        let mut sum = 0;
        for _ in 1..job.size() {
            sum += job.receive(None)?.tag();
        }
        assert_eq!(sum, (1..nodes).map(|rank| (rank * 100) * (rank * 100)).sum::<u64>());
    } else {
        let question = job.receive(Some(0))?;
        assert_eq!(question.bytes(), b"square");
        let answer = question.tag() * question.tag();
        job.peer(0)?.send(Class::Unordered, answer, b"").wait()?;
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_messages_md_4 {
use oikaze::prelude::*;

const COUNT: u64 = 10_000;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let next = job.peer((job.rank() + 1) % job.size())?;
    let (sent, mut taken) = (job.counter(), 0);
    for first in (0..COUNT).step_by(100) {
        // A hundred messages leave together, in few datagrams.
        job.batch(|| {
            (first..first + 100)
                .try_for_each(|n| next.send(Class::Ordered, n, b"tick").count_in(&sent))
        })?;
        while let Some(message) = job.try_receive(None) {
            assert_eq!(message.tag(), taken); // in order, each once
            taken += 1;
        }
    }
    while taken < COUNT {
        assert_eq!(job.receive(None)?.tag(), taken);
        taken += 1;
    }
    assert_eq!(sent.wait(COUNT)?.failed, 0);
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_messages_md_5 {
use oikaze::prelude::*;

const EACH: u64 = 100;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    // 16 elements of up to 8 bytes, so that pushes have to wait now and then.
    let work = if job.rank() == 0 { Some(job.fifo("work", 16, 8)?) } else { None };
    let there = job.peer(0)?.fifo("work")?; // waits until node 0 has made it
    std::thread::scope(|threads| {
        let pushing = threads.spawn(|| {
            (0..EACH).try_for_each(|n| there.push(&n.to_le_bytes())) // waits for room
        });
        if let Some(work) = &work {
            let mut element = Vec::new();
            for _ in 0..EACH * u64::from(job.size()) {
                element.clear(); // pop appends
                work.pop(&mut element)?; // waits for an element
                assert_eq!(element.len(), 8);
            }
        }
        pushing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_mpi_md_1 {
use oikaze::prelude::*;

fn main() -> oikaze::Result<()> {
    let begin = std::time::Instant::now();
    let job = oikaze::join()?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    let previous = (job.rank() + job.size() - 1) % job.size();

    next.send(Class::Ordered, 7, b"ping").wait()?;
    let message = job.receive(Some(previous))?;
    assert_eq!((message.from(), message.tag(), message.bytes().len()), (previous, 7, 4));

    next.send(Class::Sync, 8, b"sync").wait()?;
    let seen = job.probe(Some(previous))?;
    assert_eq!((seen.from, seen.tag, seen.len), (previous, 8, 4));
    let any = job.receive(None)?;
    assert_eq!(any.tag(), 8);

    let page = job.register(Region::zeroed(64)?)?;
    let receive = job.post_receive(Some(previous), 7, u64::MAX, page.all());
    next.send(Class::Ordered, 7, b"into place").wait()?;
    assert_eq!(receive.wait()?.len, 10);

    let request = next.send(Class::Unordered, 9, b"later");
    while job.try_probe(None).is_none() {}
    assert_eq!(job.receive(None)?.bytes(), b"later");
    println!("already there: {}", request.is_done());
    request.wait()?;
    job.flush()?; // ends when all operations of this node have ended
    job.barrier()?;
    println!("{:?}", begin.elapsed());
    job.leave()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_mpi_md_2 {
use oikaze::prelude::*;

fn main() -> oikaze::Result<()> {
    let job = oikaze::join()?;
    job.abort("the input makes no sense") // every call of every node fails from now on
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_mpi_md_3 {
use oikaze::collective::commuting;
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (me, size) = (job.rank(), job.size());
    let mut x = vec![1.0_f64; 100];
    let all: Vec<u32> = (0..size).collect();
    let vectors: Vec<Vec<u32>> = all.iter().map(|&len| vec![me; 1 + len as usize]).collect();

    job.broadcast_into(0, &mut x)?;
    assert_eq!(job.scatter(0, &all)?, [me]);
    assert_eq!(job.scatter_uneven(0, &vectors)?.len(), 1 + me as usize);
    assert_eq!(job.gather(0, &[me])?.len(), if me == 0 { size as usize } else { 0 });
    job.gather_uneven(0, &vectors[0])?;
    assert_eq!(job.all_gather(&[me])?, all);
    assert_eq!(job.all_gather_uneven(&vectors[0])?.len(), size as usize);
    assert_eq!(job.all_to_all(&all)?, vec![me; size as usize]);
    assert_eq!(job.all_to_all_uneven(&vectors)?[0], vec![0; 1 + me as usize]);

    let sums = job.reduce(0, &x, Sum)?;
    assert!(me > 0 || sums[0] == f64::from(size));
    assert_eq!(job.all_reduce(me, Max)?, size - 1);
    job.all_reduce_into(&mut x, Sum)?;
    assert_eq!(x[99], f64::from(size));
    let [most, place] = job.all_reduce([0.5, f64::from(me)], MaxLocation)?;
    assert_eq!((most, place), (0.5, 0.0)); // the lowest place of the greatest value
    assert!(job.all_reduce(3.0, commuting(f64::hypot))? >= 3.0);
    assert_eq!(job.reduce_scatter(&all, Sum)?, [me * size]);
    assert_eq!(job.scan(&[1_u32], Sum)?, [me + 1]);
    let before = job.exclusive_scan(&[1_u32], Sum)?;
    assert!(me == 0 || before == [me]);

    let pending = job.start().all_reduce(&x, Sum);
    assert_eq!(pending.wait()?.len(), 100); // or: pending.await?
    let half = job.split(Some(me % 2), 0)?.expect("every rank gave a color");
    assert_eq!(half.rank(), me / 2);
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_mpi_md_4 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
    let mine = job.publish("window", Region::shared(4096)?, rights)?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    let window = next.region("window")?;

    window.put_copy(0, &1.5_f64.to_ne_bytes())?;
    next.flush()?;
    assert_eq!(window.get_copy(0, 8)?, 1.5_f64.to_ne_bytes());
    let x = [7; 1024];
    job.scope(|scope| scope.put(&window, 1024, &x).map(drop))?;

    let source = job.register(Region::zeroed(4096)?)?;
    let column = Block::new(2048, 8).rows(4, 64); // four rows of 8 bytes, 64 bytes apart
    window.put_block(column, source.all(), column)?;
    window.accumulate_copy(64, Combine::Sum, &[1_u64, 2])?;
    assert_eq!(window.fetch_add(128, 1).wait()?, 0);
    assert_eq!(window.compare_exchange(136, 0, 1).wait()?, 0);

    job.flush()?;
    job.barrier()?; // everybody's operations have ended
    let mut bytes = [0; 8];
    mine.read(1024, &mut bytes)?;
    assert_eq!(bytes, [7; 8]);

    let lock = job.lock(1)?;
    drop(lock);
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_observing_md_1 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let field = job.array::<f64>("field", 100_000)?;
    field.write(field.home_range(job.rank()))?.fill(1.0);
    job.barrier()?;

    let before = job.statistics();
    let sum: f64 = field.read(0..field.len())?.iter().sum();
    let after = job.statistics();
    println!(
        "the sum of {sum} took {} fetched pages and {} faults",
        after.pages_fetched - before.pages_fetched,
        after.read_faults - before.read_faults, // none: the guard has fetched them
    );
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_remote_memory_md_1 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let _inbox = job.publish("inbox", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
    let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;

    // From registered memory: not copied before it is sent.
    let source = job.register(Region::zeroed(1024)?)?;
    source.write(0, b"tailwind")?;
    there.put(128, source.slice(0..8)?).wait()?; // now visible there

    // Up to 4 KiB of any memory: copied before the call returns.
    there.put_copy(136, &7u64.to_ne_bytes())?.wait()?;

    // Any memory of any length: lent until the scope ends.
    let mut line = [0; 16];
    job.scope(|scope| scope.get(&there, 128, &mut line).map(drop))?;
    assert_eq!(&line[..8], b"tailwind");

    job.barrier() // before any node withdraws its inbox
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_remote_memory_md_2 {
use oikaze::prelude::*;

const ROUNDS: u64 = 10;
const SLOT: u64 = 1024; // bytes; two slots, so that the next round does not overwrite this one
const FULL: u64 = 4000; // word that counts the rounds that have come
const EMPTY: u64 = 4008; // word that counts the rounds that the next node has read

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (me, size) = (job.rank(), job.size());
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let next = job.peer((me + 1) % size)?.region("inbox")?;
    let previous = job.peer((me + size - 1) % size)?.region("inbox")?;
    let source = job.register(Region::zeroed(SLOT as usize)?)?;

    for round in 0..ROUNDS {
        inbox.wait_until(EMPTY, |read| read + 2 > round)?; // the slot is free there
        source.fill(0, SLOT, round as u8)?;
        let slot = SLOT * (round % 2);
        next.put_signal(slot, source.all(), &next.signal(FULL, 1)).wait()?;

        inbox.wait_until(FULL, |come| come > round)?;
        let mut bytes = [0; SLOT as usize];
        inbox.read(slot, &mut bytes)?;
        assert!(bytes.iter().all(|byte| u64::from(*byte) == round));
        previous.word::<u64>(EMPTY).add(1).wait()?; // gives the slot back
    }
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_remote_memory_md_3 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (me, size) = (job.rank(), job.size());
    let inbox = job.publish("inbox", Region::shared(size as usize * 1024)?, Rights::WRITE)?;
    let source = job.register(Region::zeroed(1024)?)?;
    source.fill(0, 1024, me as u8)?;
    for rank in 0..size {
        // Each node has a slot of its own at every node.
        let there = job.peer(rank)?.region("inbox")?;
        drop(there.put_notify(u64::from(me) * 1024, source.all(), 7));
    }
    for _ in 0..size {
        let arrival = job.arrivals().next()?; // or inbox.arrivals(), or next_async().await
        assert!(arrival.is_in(&inbox) && arrival.tag() == 7);
        let mut bytes = vec![0; arrival.len() as usize];
        inbox.read(arrival.offset(), &mut bytes)?;
        assert_eq!(bytes, vec![arrival.from() as u8; 1024]);
    }
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_remote_memory_md_4 {
use oikaze::prelude::*;

const TASKS: u64 = 100;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let board = job.publish("board", Region::shared(4096)?, Rights::ATOMIC)?;
    let there = job.peer(0)?.region("board")?; // all use that of node 0
    let (next_task, done) = (there.word::<u64>(0), there.word::<u64>(8));
    let mut count = 0;
    while next_task.fetch_add(1).wait()? < TASKS {
        count += 1; // here the work would be done
    }
    done.add(count).wait()?;
    println!("node {} did {count} tasks", job.rank());

    job.barrier()?;
    if job.rank() == 0 {
        assert_eq!(board.load_u64(8)?, TASKS);
    }
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_remote_memory_md_5 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let blocks = [5_u64, 0, 9]; // to be sent, in this order
    let cache = job.publish("cache", Region::shared(10 << 16)?, Rights::WRITE)?;
    job.barrier()?;
    if job.rank() == 0 {
        let source = job.register(Region::shared(3 << 16)?)?;
        let there = job.peer(job.size() - 1)?.region("cache")?;
        let mut list = Vec::new();
        for (number, block) in (0_u64..).zip(blocks) {
            list.push((block << 16, source.slice(number << 16..(number + 1) << 16)?));
        }
        there.put_list_notify(&list, 7).wait()?;
    }
    if job.rank() == job.size() - 1 {
        assert_eq!(cache.arrivals().next()?.tag(), 7); // all three blocks are here
    }
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_running_md_1 {
use oikaze::prelude::*;

/// Asks each other node, and returns the answers of those that live.
fn ask_all(job: &Job) -> oikaze::Result<Vec<u64>> {
    let mut answers = Vec::new();
    for rank in 1..job.size() {
        let asked = job.peer(rank)?.send(Class::Ordered, 0, b"how much?").wait();
        match asked.and_then(|()| job.receive(Some(rank))) {
            Ok(answer) => answers.push(answer.tag()),
            Err(why) if why.lost_peer().is_some() => eprintln!("without node {rank}: {why}"),
            Err(why) => return Err(why),
        }
    }
    Ok(answers)
}

fn main() -> oikaze::Result<()> {
    let job = Job::builder().keep_going(true).join()?;
    if job.rank() == 0 {
        let answers = ask_all(&job)?;
        println!("{} nodes answered, and these are lost: {:?}", answers.len(), job.lost());
    } else {
        job.receive(Some(0))?;
        job.peer(0)?.send(Class::Ordered, 42, b"").wait()?;
    }
    job.leave()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_1 {
use oikaze::prelude::*;

const N: usize = 64; // columns
const ROWS: usize = 64;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let plates = [job.array::<f64>("even", ROWS * N)?, job.array::<f64>("odd", ROWS * N)?];
    if job.rank() == 0 {
        for plate in &plates {
            plate.write(0..N)?.fill(100.0); // the first row is kept hot
        }
    }
    job.barrier()?;

    // Whole rows whose first element lies on this node; neither the first nor the last row.
    let home = plates[0].home_range(job.rank());
    let first = home.start.div_ceil(N).max(1);
    let end = home.end.div_ceil(N).min(ROWS - 1).max(first);
    let (mut step, mut change) = (0, f64::INFINITY);
    while change > 0.5 {
        let (old, new) = (&plates[step % 2], &plates[(step + 1) % 2]);
        change = 0.0;
        if first < end {
            let from = old.read((first - 1) * N..(end + 1) * N)?; // fetches what is elsewhere
            let mut to = new.write(first * N..end * N)?;
            for (at, to) in to.iter_mut().enumerate() {
                let here = at + N; // `from` begins one row earlier
                if (1..N - 1).contains(&(at % N)) {
                    let around = from[here - 1] + from[here + 1] + from[here - N] + from[here + N];
                    *to = around / 4.0;
                    change = f64::max(change, (*to - from[here]).abs());
                }
            }
        } // guards end before the collective
        change = job.barrier_reduce(change, ReduceOp::Max)?; // also a barrier: writes are visible now
        step += 1;
    }
    if job.rank() == 0 {
        println!("{step} steps");
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_2 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let mut old = job.array::<f32>("p0", [64, 32, 32])?;
    let mut new = job.array::<f32>("p1", [64, 32, 32])?;
    let mine = new.home_block(job.rank()); // planes; it never changes
    old.halo(mine, 1)?;
    new.halo(mine, 1)?; // the planes beside come with each barrier
    old.fill(1.0)?;
    for _ in 0..10 {
        {
            let halo = old.read(mine.grow(1))?;
            for part in [mine.first(1), mine.last(1), mine.inner(1)] {
                let mut to = new.write(part)?; // borders first: they are sent at once
                for i in part.range(0) {
                    let below = halo.get([i + 1, 0, 0]).map(|_| i + 1).unwrap_or(i);
                    for j in 0..32 {
                        let pairs = halo.row([i, j]).iter().zip(halo.row([below, j]));
                        for (to, (here, below)) in to.row_mut([i, j]).iter_mut().zip(pairs) {
                            *to = (here + below) / 2.0;
                        }
                    }
                }
            }
        } // no guard is alive at the barrier
        job.barrier()?;
        std::mem::swap(&mut old, &mut new);
    }
    assert_eq!(old.read(mine)?.iter().copied().fold(0.0, f32::max), 1.0);
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_3 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let plate = job.array::<f64>("plate", [200, 300])?;
    let mine = plate.home_block(job.rank());
    let mut rows = plate.write(mine)?;
    for i in mine.range(0) {
        rows.row_mut([i]).fill(i as f64);
    }
    drop(rows);

    // All nodes name the same file.
    let process = job.broadcast(0, &[std::process::id()])?[0];
    let path = std::env::temp_dir().join(format!("plate-{process}.npy"));
    plate.save(&path)?; // numpy.load(path) has the shape (200, 300) and the type float64
    let again = job.array::<f64>("again", [200, 300])?;
    again.load(&path)?; // also what numpy.save has written
    assert_eq!(again.read(again.whole())?[[199, 299]], 199.0);
    job.barrier()?;
    if job.rank() == 0 {
        let _ = std::fs::remove_file(&path);
    }
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_4 {
use oikaze::prelude::*;
use oikaze::shared::Homes;

const LEN: usize = 10_000;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    // Page after page on node after node: 512 elements of 8 bytes each.
    let table = job.array_with_homes::<u64>("table", LEN, Homes::Cyclic { pages: 1 })?;
    for first in (0..LEN).step_by(512) {
        if table.home_of(first) == Some(job.rank()) {
            let end = (first + 512).min(LEN);
            for (i, value) in (first..end).zip(table.write(first..end)?.iter_mut()) {
                *value = i as u64;
            }
        }
    }
    job.barrier()?;
    assert_eq!(table.read(0..LEN)?.iter().sum::<u64>(), (LEN * (LEN - 1) / 2) as u64);
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_5 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let (rank, nodes) = (job.rank() as usize, job.size() as usize);
    let counts = job.array::<u32>("counts", 1000)?;
    // A block for each node: the guard owns what it writes.
    let mine = 1000 * rank / nodes..1000 * (rank + 1) / nodes;
    counts.write(mine)?.fill(1);
    job.barrier()?;
    // Every n-th element for each node: the guards overlap, and what they write does not.
    for count in counts.write_merged(0..1000)?.iter_mut().skip(rank).step_by(nodes) {
        *count += 1;
    }
    job.barrier()?;
    assert!(counts.read(0..1000)?.iter().all(|count| *count == 2));
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_6 {
use oikaze::prelude::*;

const N: usize = 4096; // elements of a row: 32 KiB, whole pages
const STEPS: usize = 8;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let rows = job.array::<f64>("rows", STEPS * N)?;
    let others: Vec<_> = (0..job.size()).filter(|rank| *rank != job.rank()).collect();
    for step in 0..STEPS {
        let row = step * N..(step + 1) * N;
        if step % job.size() as usize == job.rank() as usize {
            let mut guard = rows.write(row.clone())?;
            guard.fill(step as f64);
            guard.push_to(&others)?; // all others read it in this step, and never again
        }
        job.barrier()?;
        assert_eq!(rows.read(row)?[N - 1], step as f64);
    }
    let fetched = rows.statistics().fetched_pages; // to write a row elsewhere, not to read one
    println!("node {} has fetched {fetched} pages", job.rank());
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_7 {
use oikaze::prelude::*;
use oikaze::shared::Homes;

const ROWS: usize = 64;
const N: usize = 1024; // elements of a row: 8 KiB

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    // Row after row on node after node.
    let matrix = job.array_with_homes::<f64>("matrix", ROWS * N, Homes::Cyclic { pages: 2 })?;
    let row = |number: usize| number * N..(number + 1) * N;
    for number in 0..ROWS {
        if matrix.home_of(number * N) == Some(job.rank()) {
            matrix.write(row(number))?.fill(number as f64);
        }
    }
    job.barrier()?;

    let blocks: Vec<_> =
        (0..ROWS / 4).map(|block| [0, 1, 2, 3].map(|i| row(4 * block + i))).collect();
    let mut sum = 0.0;
    for (number, block) in blocks.iter().enumerate() {
        let rows = matrix.read_many(block)?; // waits for the four rows together
        if let Some(next) = blocks.get(number + 1) {
            matrix.prefetch_many(next)?; // comes while this block is summed
        }
        sum += rows.iter().flat_map(|row| row.iter()).sum::<f64>();
    }
    assert_eq!(sum, (N * ROWS * (ROWS - 1) / 2) as f64);
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_shared_arrays_md_8 {
use oikaze::prelude::*;

const BINS: usize = 8;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let histogram = job.array::<u32>("histogram", BINS)?;
    let mut mine = [0u32; BINS]; // counted here first: one lock for all, not one for each value
    for value in 0..1000 {
        mine[value * 31 % BINS] += 1;
    }
    let lock = job.lock(1)?;
    for (sum, count) in histogram.write(0..BINS)?.iter_mut().zip(mine) {
        *sum += count;
    }
    lock.release()?;
    job.barrier()?;
    assert_eq!(histogram.read(0..BINS)?.iter().sum::<u32>(), 1000 * job.size());
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_tuning_md_1 {
use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let table = job.publish("table", Region::shared(4096)?, Rights::ATOMIC)?;
    let there = job.peer((job.rank() + 1) % job.size())?.region("table")?;

    let done = job.counter();
    job.batch(|| {
        (0..1000).try_for_each(|n| there.word::<u64>(8 * (n % 64)).add(1).count_in(&done))
    })?;
    assert_eq!(done.wait(1000)?.succeeded, 1000); // one wait, and one wakeup

    job.barrier()?; // the previous node has waited for its operations, too
    let sum: u64 = (0..64).map(|n| table.load_u64(8 * n)).sum::<Result<_, _>>()?;
    assert_eq!(sum, 1000);
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod docs_book_src_tuning_md_2 {
use oikaze::prelude::*;
use std::time::Duration;

fn main() -> oikaze::Result<()> {
    let job = Job::builder()
        .block_while_waiting() // more nodes than cores
        .failure_time(Duration::from_secs(30)) // a machine that stalls
        .time_limit(Duration::from_secs(600)) // of each wait that has none of its own
        .join()?;
    job.barrier()?;
    job.leave()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_atomic_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
let count = words.word::<i32>(4); // peers may change it at the same time
count.fetch_add(3)?;
assert_eq!(count.compare_exchange(3, -1)?, 3);
assert_eq!(count.load()?, -1);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_atomic_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let sums = job.publish("sums", Region::shared(64)?, Rights::ATOMIC)?;
let there = job.peer(0)?.region("sums")?;
there.accumulate_copy(0, Combine::Max, &[f64::from(job.rank())])?.wait()?;
job.barrier()?;
drop(sums);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_atomic_rs_3 {
use oikaze::atomic::Number;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn add<T: Number>(there: &RemoteRegion, numbers: &[T]) -> oikaze::Result<()> {
    there.accumulate_copy(0, Combine::Sum, numbers)?.wait()
}
let sums = job.publish("sums", Region::shared(64)?, Rights::ATOMIC)?;
add(&job.peer(0)?.region("sums")?, &[1.5_f32, 2.5])?;
job.barrier()?;
drop(sums);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_atomic_rs_4 {
use oikaze::atomic::Word;
use oikaze::completion::Outcome;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn ticket<T: Word + Outcome>(there: &RemoteRegion, one: T) -> oikaze::Result<T> {
    there.word::<T>(0).fetch_add(one).wait()
}
let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
assert!(ticket(&job.peer(0)?.region("words")?, 1_u32)? < job.size());
job.barrier()?;
drop(words);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_barrier_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let last = job.barrier_reduce(u64::from(job.rank()), ReduceOp::Max)?;
assert_eq!(last, u64::from(job.size()) - 1);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_barrier_rs_2 {
use oikaze::collective::Reducible;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn mean<T: Reducible + Into<f64>>(job: &Job, value: T) -> oikaze::Result<f64> {
    let sum = job.barrier_reduce(value, ReduceOp::Sum)?;
    Ok(sum.into() / f64::from(job.size()))
}
assert_eq!(mean(&job, 3.0)?, 3.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_calls_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let table = job.broadcast(0, &[1.5, 2.5])?; // the argument counts at rank 0
let ranks = job.all_gather(&[job.rank()])?;
let sum = job.all_reduce(table[0], Sum)?;
assert_eq!(sum, 1.5 * ranks.len() as f64);
let before_me = job.scan(&[1_u32], Sum)?[0] - 1;
assert_eq!(before_me, job.rank());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_calls_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mut ranks = vec![0; job.size() as usize];
job.all_gather_into(&[job.rank()], &mut ranks)?;
assert!(ranks.iter().copied().eq(0..job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_calls_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = [1e100, 0.1, -1e100]; // adding in this order would give 0
assert_eq!(job.sum_exact(&mine)?, 0.1 * f64::from(job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_calls_rs_4 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let lens = 1..=job.size() as usize; // one element for rank 0, two for rank 1, ...
let vectors: Vec<Vec<u32>> = lens.map(|len| vec![1; len]).collect();
let mine = job.reduce_scatter_uneven(&vectors, Sum)?;
assert_eq!(mine, vec![job.size(); job.rank() as usize + 1]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_calls_rs_5 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
// After an error with a lost peer:
let team = job.shrink()?;
assert_eq!(team.all_reduce(1, Sum)?, team.size());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_exact_rs_1 {
use oikaze::collective::Float;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn total<F: Float>(job: &Job, values: &[F]) -> oikaze::Result<F> {
    job.sum_exact(values)
}
assert_eq!(total(&job, &[1e300, 1.0, -1e300])?, f64::from(job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_notify_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let row = job.array::<f64>("row", 1000)?;
let (me, last) = (job.rank(), job.size() - 1);
if me > 0 {
    job.wait_notify(me - 1)?; // now the row is as the node before has left it
}
row.write(..)?.iter_mut().for_each(|value| *value += 1.0);
if me < last {
    job.notify(me + 1)?;
}
job.barrier()?;
assert_eq!(row.read(999..1000)?[0], f64::from(job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_1 {
use oikaze::collective::Item;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn first_of<T: Item>(job: &Job, value: T) -> oikaze::Result<T> {
    Ok(job.broadcast(0, &[value])?[0])
}
assert_eq!(first_of(&job, job.rank())?, 0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_2 {
use oikaze::collective::Operator;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn combine<O: Operator<u32>>(job: &Job, operator: O) -> oikaze::Result<u32> {
    job.all_reduce(job.rank() + 1, operator)
}
assert_eq!(combine(&job, Max)?, job.size());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_3 {
use oikaze::collective::{Function, commuting};
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let gcd: Function<fn(u64, u64) -> u64> = commuting(|mut a, mut b| {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
});
assert_eq!(job.all_reduce(12, gcd)?, 12);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_4 {
use oikaze::collective::commuting;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let longest = job.all_reduce(1.5_f64, commuting(f64::hypot))?;
assert!(longest >= 1.5);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_5 {
use oikaze::collective::ordered;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let last = job.all_reduce(job.rank(), ordered(|_, second| second))?;
assert_eq!(last, job.size() - 1);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_6 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let (sum, product) = (job.all_reduce(1, Sum)?, job.all_reduce(1, Product)?);
let (least, most) = (job.all_reduce(5, Min)?, job.all_reduce(5, Max)?);
let bits = [job.all_reduce(6, And)?, job.all_reduce(6, Or)?, job.all_reduce(0, Xor)?];
assert_eq!((sum, product, least, most, bits), (job.size(), 1, 5, 5, [6, 6, 0]));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_7 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = [7.5, f64::from(job.rank())];
assert_eq!(job.all_reduce(mine, MinLocation)?, [7.5, 0.0]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_operator_rs_8 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let rank = i64::from(job.rank());
let most = i64::from(job.size()) - 1;
assert_eq!(job.all_reduce([rank, rank], MaxLocation)?, [most, most]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_pending_rs_1 {
use oikaze::collective::Pending;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let sums: Pending<Vec<u32>> = job.start().all_reduce(&[1, 2], Sum);
// Other work goes here.
assert_eq!(sums.wait()?, [job.size(), 2 * job.size()]); // or: sums.await?
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_pending_rs_2 {
use oikaze::prelude::*;
use std::time::Duration;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let sums = job.start().all_reduce(&[1_u32], Sum);
sums.wait_ended(Duration::from_secs(10))?;
assert!(sums.is_done());
assert_eq!(sums.wait()?, [job.size()]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_pending_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let queue = job.completion_queue();
let sums: Vec<_> = (0..3).map(|n| job.start().all_reduce(&[n], Sum)).collect();
for (sum, context) in sums.iter().zip(0..) {
    sum.report_to(&queue, context)?;
}
let mut ended = Vec::new();
queue.wait(3, &mut ended)?;
for one in ended {
    one.outcome?;
    let sum = sums[one.context as usize].try_take().expect("it has ended")?;
    assert_eq!(sum, [one.context as u32 * job.size()]);
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_pending_rs_4 {
use oikaze::collective::PendingFuture;
use oikaze::prelude::*;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mut future: PendingFuture<Vec<u32>> = job.start().all_gather(&[job.rank()]).into_future();
let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
let ranks = loop {
    if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut context) {
        break outcome?;
    }
};
assert_eq!(ranks.len(), job.size() as usize);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_start_rs_1 {
use oikaze::collective::Start;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let start: Start<'_> = job.start();
let (sums, ranks) = (start.all_reduce(&[1_u32], Sum), start.all_gather(&[job.rank()]));
assert_eq!(sums.wait()?, [ranks.wait()?.len() as u32]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_team_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let row = job.split(Some(job.rank() / 2), 0)?.expect("a color was given");
let members = row.all_gather(&[job.rank()])?;
assert_eq!(members, row.ranks());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_team_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
assert_eq!(job.team().algorithm("all_reduce", 8), "recursive doubling");
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_team_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let seen = job.array::<u32>("seen", job.size() as usize)?;
let pair = job.split(Some(job.rank() / 2), 0)?.expect("a color was given");
let me = job.rank() as usize;
seen.write(me..me + 1)?[0] = 7;
pair.barrier()?;
let first = me / 2 * 2;
let both = first..first + pair.size() as usize;
assert!(seen.read(both)?.iter().all(|value| *value == 7));
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_untyped_mod_rs_1 {
use oikaze::ffi::{ElementKind, Untyped, UntypedOperator};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let numbers = Untyped::of(&job, ElementKind::U32);
let sum = numbers.all_reduce(&1_u32.to_ne_bytes(), UntypedOperator::Sum).wait()?;
assert_eq!(sum.into_vec(), job.size().to_ne_bytes());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_untyped_mod_rs_2 {
use oikaze::ffi::{ElementKind, Untyped, UntypedResult};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let all: UntypedResult =
    Untyped::of(&job, ElementKind::U8).all_gather(&[job.rank() as u8]).wait()?;
let mut ranks = vec![0; all.len()];
all.copy_to(&mut ranks)?;
assert_eq!(ranks.len(), job.size() as usize);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_untyped_mod_rs_3 {
use oikaze::ffi::{ElementKind, Untyped};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grids = Untyped::of(&job, ElementKind::U8).meaning("grid of 2 x 3");
assert_eq!(grids.all_gather(&[7; 6]).wait()?.len(), 6 * job.size() as usize);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_untyped_mod_rs_4 {
use oikaze::ffi::{CollectiveKind, ElementKind, Untyped};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let team = Untyped::of(&job, ElementKind::U8);
let refused = team.refused::<()>(CollectiveKind::Scan, "object of type set".to_owned());
let error = refused.wait().unwrap_err();
assert!(error.to_string().contains("object of type set"));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_collective_untyped_operator_rs_1 {
use oikaze::ffi::{ElementKind, UntypedOperator};
fn main() {
assert!(UntypedOperator::Sum.fits(ElementKind::F64).is_ok());
assert!(UntypedOperator::Xor.fits(ElementKind::F64).is_err());
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_counter_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let counter = job.counter();
let me = job.peer(job.rank())?;
for tag in 0..10 {
    me.send(Class::Ordered, tag, b"tick").count_in(&counter)?;
}
assert_eq!(counter.wait(10)?.succeeded, 10); // woken once, by the last
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_counter_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let counter = job.counter();
job.peer(job.rank())?.send(Class::Ordered, 0, b"tick").count_in(&counter)?;
let counts = counter.wait(1)?;
assert_eq!((counts.succeeded, counts.failed, counts.ended()), (1, 0, 1));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_mod_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
let job = oikaze::join()?;
let next = job.peer((job.rank() + 1) % job.size())?;
let sent: Vec<_> =
    job.batch(|| (0..64).map(|n| next.send(Class::Ordered, n, b"tick")).collect());
for n in 0..64 {
    assert_eq!(job.receive(None)?.tag(), n);
}
sent.into_iter().try_for_each(|message| message.wait())?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_operation_bits_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let page = job.register(Region::zeroed(64)?)?;
let receive = job.post_receive(Some(job.rank()), 0, 0, page.all()).into_bits();
assert!(receive.received().is_none());
job.peer(job.rank())?.send(Class::Ordered, 5, b"note").wait()?;
assert_eq!(receive.wait()?, 4); // the length
assert_eq!(receive.received().map(|message| message.tag), Some(5));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_operation_bits_rs_2 {
fn main() -> oikaze::Result<()> {
let done = oikaze::completion::Operation::ended(7);
assert!(done.is_done());
assert_eq!(done.wait()?, 7);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_operation_future_rs_1 {
use oikaze::completion::OperationFuture;
use oikaze::prelude::*;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(64)?, Rights::ATOMIC)?;
let there = job.peer(0)?.region("inbox")?;
let mut future: OperationFuture<u64> = there.fetch_add(0, 1).into_future();
let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
let before = loop {
    if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut context) {
        break outcome?;
    }
};
assert!(before < u64::from(job.size()));
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_operation_mod_rs_1 {
use oikaze::completion::Outcome;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn wait_all<T: Outcome>(operations: &[Operation<T>]) -> oikaze::Result<Vec<T>> {
    operations.iter().map(Operation::wait).collect()
}
let me = job.peer(job.rank())?;
wait_all(&[me.send(Class::Ordered, 1, b"a"), me.send(Class::Ordered, 2, b"b")])?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_operation_mod_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(64)?, Rights::ATOMIC)?;
let there = job.peer(0)?.region("inbox")?;
let operation = there.fetch_add(0, 1); // is under way
let before = operation.wait()?; // or operation.await?
assert!(before < u64::from(job.size()) && operation.is_done());
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_queue_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let queue = job.completion_queue();
let me = job.peer(job.rank())?;
me.send(Class::Ordered, 0, b"a").report_to(&queue, 17)?;
let mut ended = Vec::new();
queue.wait(1, &mut ended)?;
assert_eq!(ended[0].context, 17);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_completion_queue_rs_2 {
use oikaze::completion::Completed;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let queue = job.completion_queue();
job.peer(job.rank())?.send(Class::Ordered, 0, b"a").report_to(&queue, 3)?;
let mut ended = Vec::new();
queue.wait(1, &mut ended)?;
for Completed { context, outcome } in ended {
    assert!(context == 3 && outcome.is_ok());
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_error_rs_1 {
use oikaze::prelude::*;
use std::time::Duration;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(4096)?, Rights::ATOMIC)?;
let error = inbox.wait_until_for(0, Duration::from_millis(1), |word| word > 0).unwrap_err();
assert!(error.is_timeout() && error.lost_peer().is_none() && error.refusal().is_none());
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_calls_rs_1 {
use oikaze::ffi::CallCounter;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let before = job.call_counts()[&CallCounter::Job];
job.barrier()?;
assert_eq!(job.call_counts()[&CallCounter::Job], before + 1);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_calls_rs_2 {
fn main() -> oikaze::Result<()> {
use std::time::Duration;
let job = oikaze::join()?;
let counts = job.call_counts(); // of the node that has made most calls
job.catch_up(&counts, "the function has failed", Duration::from_secs(10))?;
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_class_rs_1 {
use oikaze::ffi::ErrorClass;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let error = job.peer(job.size()).unwrap_err();
assert_eq!(error.class(), ErrorClass::Invalid);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_handles_rs_1 {
use oikaze::ffi::{HandleTable, Keepable};
struct Window(u32);
impl Keepable for Window {
    const WHAT: &'static str = "window";
}
fn main() -> oikaze::Result<()> {
let table = HandleTable::new();
let handle = table.keep(Window(7))?;
assert_eq!(table.kept::<Window>(handle)?.0, 7);
table.release::<Window>(handle)?;
assert!(table.kept::<Window>(handle).is_err());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_handles_rs_2 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
use oikaze::ffi::Handle;
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE)?;
let there = job.peer(0)?.region("inbox")?;
let put = job.keep(there.put_copy(0, b"hello")?.into_bits())?.to_bits(); // a number, for C
// …
let handle = Handle::from_bits(put);
job.kept::<Operation<u64>>(handle)?.wait()?;
job.release(handle)?;
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_interruption_rs_1 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let word = job.register(oikaze::memory::Region::zeroed(8)?)?;
let check = std::rc::Rc::new(|| true); // a signal has arrived, for example
let waited = oikaze::ffi::interruptible(check, || word.wait_until(0, |word| word > 0));
assert!(waited.unwrap_err().is_timeout());
job.barrier()?; // nobody leaves before
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_jobs_rs_1 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let error = job.refuse_collective("reduce", "an object of type set");
assert!(error.to_string().contains("an object of type set"));
job.barrier()?; // the job goes on
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_jobs_rs_2 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let error = job.refuse_array("make an array", "dtype object");
assert!(error.to_string().contains("dtype object"));
assert_eq!(job.array::<u8>("array", 7)?.len(), 7); // the job goes on
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_jobs_rs_3 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
job.name_lock(5, "histogram");
let _held = job.lock(5)?;
let error = job.lock(5).unwrap_err(); // this thread would wait for itself
assert!(error.to_string().starts_with("lock \"histogram\": "));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_leave_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::ffi::ErrorClass;
let job = std::sync::Arc::new(oikaze::join()?);
job.leave_shared()?;
assert_eq!(job.barrier().unwrap_err().class(), ErrorClass::Left);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_leave_rs_2 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
job.end_with_reason("the input makes no sense");
assert!(job.barrier().unwrap_err().to_string().contains("makes no sense"));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_mod_rs_1 {
fn main() -> oikaze::Result<()> {
let answer = oikaze::ffi::change_fault_handlers(|| 42)?; // such as libc::sigaction
assert_eq!(answer, 42);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_parts_rs_1 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let error = job.peer(1_000_000).unwrap_err();
let parts = error.parts();
assert!(parts.operation.contains("node 1000000") && !parts.cause.is_empty());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_ffi_readiness_rs_1 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let fifo = job.fifo("tasks", 4, 8)?;
job.peer(job.rank())?.fifo("tasks")?.push(b"one")?;
fifo.wait_ready(None)?;
assert!(fifo.try_pop(&mut Vec::new())?);
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_1 {
use oikaze::prelude::*;
use std::time::Duration;
fn main() -> oikaze::Result<()> {
let job = Job::builder()
    .time_limit(Duration::from_secs(600))
    .failure_time(Duration::from_secs(30))
    .block_while_waiting()
    .join()?;
assert_eq!(job.time_limit(), Some(Duration::from_secs(600)));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_2 {
use std::time::Duration;
fn main() -> oikaze::Result<()> {
let every = Duration::from_micros(50);
let job = oikaze::Job::builder().poll_while_waiting(every).join()?;
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_3 {
fn main() -> Result<(), String> {
let builder = oikaze::Job::builder().wait_as("poll:10us")?;
assert!(builder.wait_as("poll:10").is_err());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_4 {
fn main() -> oikaze::Result<()> {
let job = oikaze::Job::builder().engine_thread_on_any_of([0]).join()?;
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_5 {
fn main() -> oikaze::Result<()> {
let job = oikaze::Job::builder().engine_process("default").join()?;
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_6 {
fn main() -> Result<(), Box<dyn std::error::Error>> {
let job = oikaze::Job::builder().engine_as("thread:0")?.join()?;
job.barrier()?;
assert!(oikaze::Job::builder().engine_as("thread:zero").is_err());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_7 {
fn main() -> Result<(), Box<dyn std::error::Error>> {
let builder = oikaze::Job::builder().engine_thread().engine_priority("nice:5")?;
assert!(oikaze::Job::builder().engine_priority("high").is_err());
builder.join()?.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_builder_rs_8 {
fn main() -> oikaze::Result<()> {
let job = oikaze::Job::builder().keep_going(true).join()?;
assert!(job.lost().is_empty());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_local_rs_1 {
use std::process::ExitCode;

fn main() -> ExitCode {
    oikaze::local(4, |job| {
        job.barrier()?;
        println!("node {} of {}", job.rank(), job.size());
        Ok(())
    })
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_mod_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
println!("node {} of {}", job.rank(), job.size());
job.barrier()?; // all nodes have come here
job.leave()?; // dropping the job does the same, but reports no error
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_mod_rs_2 {
fn main() -> oikaze::Result<()> {
let residual = f64::NAN;
let job = oikaze::join()?;
if residual.is_nan() {
    job.abort("the iteration diverges: choose a smaller step");
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_mod_rs_3 {
fn main() -> oikaze::Result<()> {
let input = "4";
let job = oikaze::join()?;
if input.is_empty() {
    job.abort_with(3, "the input is empty");
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_mod_rs_4 {
use oikaze::prelude::*;
use std::os::fd::{AsRawFd, BorrowedFd};
fn sleep_on(_: BorrowedFd<'_>) {} // poll(2)
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
job.peer(job.rank())?.send(Class::Ordered, 3, b"a note").wait()?;
let note = loop {
    if let Some(note) = job.try_receive(None) {
        break note;
    }
    if !job.progress() {
        sleep_on(job.descriptor());
        job.clear_descriptor();
    }
};
assert_eq!(note.tag(), 3);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_mod_rs_5 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
job.peer(job.rank())?.send(oikaze::message::Class::Ordered, 0, b"a note");
let note = loop {
    let _found = job.progress_of_loop(); // with `news` and `polls_on`
    if let Some(note) = job.try_receive(None) {
        break note;
    }
};
assert_eq!(note.bytes(), b"a note");
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_peer_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let next = job.peer((job.rank() + 1) % job.size())?;
next.send(Class::Ordered, 0, b"hello").wait()?;
assert_eq!(job.receive(None)?.bytes(), b"hello");
next.flush()?; // all operations to this peer have ended
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_run_rs_1 {
use std::process::ExitCode;
fn main() -> ExitCode {
    oikaze::run(|job| {
        job.barrier()?;
        println!("node {} of {}", job.rank(), job.size());
        Ok(())
    })
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_job_statistics_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let before = job.statistics();
job.barrier()?;
let after = job.statistics();
assert_eq!(after.barriers, before.barriers + 1);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_access_log_rs_1 {
use oikaze::memory::RefusalReason;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let closed = job.publish("closed", Region::shared(4096)?, Rights::READ)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("closed")?;
let error = there.put_copy(0, b"x")?.wait().unwrap_err();
assert_eq!(error.refusal(), Some(RefusalReason::NotPermitted));
job.barrier()?;
let refused = job.refused_accesses(); // what this node has refused to others
assert!(refused.iter().all(|access| access.reason == RefusalReason::NotPermitted));
job.barrier()?;
drop(closed);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_arrivals_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::zeroed(4096)?, Rights::WRITE)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
let page = job.register(Region::zeroed(1024)?)?;
there.put_notify(1024, page.all(), 7).wait()?;
let arrival = job.arrivals().next()?; // its bytes are in place
assert!(arrival.is_in(&inbox) && arrival.from() == (job.rank() + job.size() - 1) % job.size());
assert_eq!((arrival.offset(), arrival.len(), arrival.tag()), (1024, 1024, 7));
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_arrivals_rs_2 {
use oikaze::memory::NextArrival;
use oikaze::prelude::*;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::zeroed(64)?, Rights::WRITE)?;
let there = job.peer(job.rank())?.region("inbox")?;
there.put_notify_copy(0, b"a note", 1)?.wait()?;
let mut next: NextArrival = inbox.arrivals().next_async();
let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
let arrival = loop {
    if let Poll::Ready(arrival) = Pin::new(&mut next).poll(&mut context) {
        break arrival?;
    }
};
assert_eq!(arrival.len(), 6);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_exchange_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
use oikaze::memory::page_size;
let job = oikaze::join()?;
let one = job.register(Region::zeroed(8 * page_size())?)?;
let other = job.register(Region::zeroed(8 * page_size())?)?;
one.write(0, b"wind")?;
job.exchange(&one, 0, &other, 0, 8)?;
let mut bytes = [0; 4];
other.read(0, &mut bytes)?;
assert_eq!(&bytes, b"wind");
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_1 {
use oikaze::memory::AccessError;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let region = Region::zeroed(100)?;
let error: AccessError = region.write(99, b"too long").unwrap_err();
let error: oikaze::Error = error.into(); // as `?` does
assert!(error.to_string().contains("100"));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_2 {
use oikaze::memory::MemoryError;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let error: MemoryError = Region::private(usize::MAX).unwrap_err();
let error: oikaze::Error = error.into(); // as `?` does
assert!(!error.is_timeout());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_3 {
use oikaze::memory::PageSize;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let small = Region::shared_of(4 << 20, PageSize::Small)?; // no huge pages
assert_eq!(small.page_size(), PageSize::Small);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_4 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let shared = Region::shared(4096)?; // local peers can map it, if it is published
let private = Region::private(4096)?; // of this process alone
shared.write(8, b"bytes")?;
assert_eq!(private.load_u64(0)?, 0);
let shared = job.publish("shared", shared, Rights::ALL)?; // now peers can reach it
job.barrier()?;
drop(shared);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_5 {
use oikaze::memory::{Placed, page_size};
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let one = job.register(Region::zeroed(2 * page_size())?)?;
let other = job.register(Region::zeroed(2 * page_size())?)?;
let placed: Placed = job.exchange(&one, 0, &other, 0, 2)?;
assert_eq!(placed.moved + placed.copied, 2 * page_size() as u64);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_6 {
use oikaze::memory::page_size;
fn main() -> oikaze::Result<()> {
assert!(page_size().is_multiple_of(4096));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_7 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
// A column of 100 rows of doubles, 800 bytes apart, and two planes of such columns.
let column = Block::new(16, 8).rows(100, 800);
assert_eq!(column.len(), Some(800));
assert_eq!(column.planes(2, 80_000).len(), Some(1600));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_8 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(8192)?, Rights::READ | Rights::ATOMIC)?;
assert!(!inbox.rights().contains(Rights::WRITE));
inbox.set_rights(Rights::READ)?; // takes the right to change words away
inbox.protect(0..4096, Rights::ALL)?; // on some pages
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_mod_rs_9 {
use oikaze::memory::RefusalReason;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(64)?, Rights::WRITE)?;
let there = job.peer(0)?.region("inbox")?;
let error = there.put_copy(60, b"too long")?.wait().unwrap_err();
assert_eq!(error.refusal(), Some(RefusalReason::OutOfBounds));
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_range_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let page = job.register(Region::zeroed(4096)?)?;
let (block, len): (u64, usize) = (1024, 512);
assert_eq!(page.slice(block..2 * block)?.len(), 1024); // as offsets of peers' regions
assert_eq!(page.slice(len..)?.len(), 3584); // as lengths of memory
assert_eq!(page.slice(0..=7)?.len(), 8);
assert_eq!(page.slice(..)?.len(), 4096);
assert!(page.slice(-8..8).is_err());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_region_mod_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.publish("field", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
field.write(0, b"tailwind")?; // copied in
let mut bytes = [0; 8];
field.read(0, &mut bytes)?; // copied out
assert_eq!(&bytes, b"tailwind");
let memory = field.deregister()?; // peers cannot reach it any more
assert_eq!(memory.len(), 4096);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_region_mod_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let page = job.register(Region::zeroed(4096)?)?;
let slice = page.slice(1024..2048)?;
drop(page); // the slice keeps the registration
assert_eq!(slice.len(), 1024);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_region_remote_id_rs_1 {
use oikaze::memory::RemoteId;
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = job.expose(Region::shared(4096)?, Rights::READ)?; // no name, only an id
let next = job.peer((job.rank() + 1) % job.size())?;
next.send(Class::Ordered, 0, &mine.remote_id().to_bytes()).wait()?;
let id = RemoteId::from_bytes(job.receive(None)?.bytes()).expect("an id");
assert_eq!(job.remote(id)?.len(), 4096);
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_accumulate_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
let job = oikaze::join()?;
let sums = job.publish("sums", Region::shared(4096)?, Rights::ATOMIC)?;
let gradients = job.register(Region::zeroed(4096)?)?;
gradients.write(0, &1.5_f32.to_ne_bytes())?;
job.peer(0)?.region("sums")?.accumulate::<f32>(0, Combine::Sum, gradients.all())?.wait()?;
job.barrier()?;
if job.rank() == 0 {
    let mut sum = [0; 4];
    sums.read(0, &mut sum)?;
    assert_eq!(f32::from_ne_bytes(sum), 1.5 * job.size() as f32);
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_block_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
let job = oikaze::join()?;
let field = job.publish("field", Region::shared(100 * 100 * 8)?, Rights::WRITE)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("field")?;
// One column of 100 × 100 doubles here becomes another there: 100 rows of 8 bytes,
// 800 bytes apart.
let column = |x: u64| Block::new(8 * x, 8).rows(100, 800);
there.put_block(column(0), field.all(), column(99))?.wait()?;
job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_elements_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = job.publish("numbers", Region::shared(4096)?, Rights::READ)?;
mine.write(8, &7_u64.to_ne_bytes())?;
job.barrier()?;
let there = job.peer((job.rank() + 1) % job.size())?.region("numbers")?;
assert_eq!(there.get_copy(8, 8)?, 7_u64.to_ne_bytes());
assert_eq!(there.get_value::<u64>(8)?, 7);
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_elements_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = job.publish("point", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
job.barrier()?;
let there = job.peer(0)?.region("point")?;
if job.rank() == 0 {
    there.put_value(16, [1.5_f64, 2.5])?.wait()?;
    assert_eq!(there.get_value::<[f64; 2]>(16)?, [1.5, 2.5]);
}
job.barrier()?;
drop(mine);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_elements_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let region = Region::shared(1000 * size_of::<f64>())?;
let mine = job.publish("field", region, Rights::READ | Rights::WRITE | Rights::ATOMIC)?;
let next = job.peer((job.rank() + 1) % job.size())?.region("field")?;
let there = next.elements::<f64>();
there.put_copy(10, &[1.5, 2.5])?.wait()?;
there.accumulate_copy(11, Combine::Sum, &[1.0])?.wait()?;
assert_eq!(there.get(10..12)?, [1.5, 3.5]);
assert_eq!(there.get_value(11)?, 3.5);
job.barrier()?;
drop(mine);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_elements_rs_4 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mine = job.publish("words", Region::shared(4096)?, Rights::READ)?;
let there = job.peer(0)?.region("words")?;
assert_eq!(there.elements::<u32>().len(), 1024);
job.barrier()?;
drop(mine);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_exchange_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
use oikaze::memory::page_size;
const LEN: usize = 2 << 20;
let job = oikaze::join()?;
let full = job.publish("full", Region::shared(LEN)?, Rights::ALL)?;
full.write(0, b"wind")?;
job.barrier()?;
if job.rank() == 0 {
    let empty = job.register(Region::shared(LEN)?)?;
    let there = job.peer(job.size() - 1)?.region("full")?;
    there.exchange(0, &empty, 0, (LEN / page_size()) as u64)?;
    let mut bytes = [0; 4];
    empty.read(0, &mut bytes)?;
    assert_eq!(&bytes, b"wind");
}
job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_list_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let cache = job.publish("cache", Region::shared(8192)?, Rights::WRITE | Rights::ATOMIC)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("cache")?;
let blocks = job.register(Region::zeroed(2048)?)?;
let list = [(4096, blocks.slice(0..1024)?), (1024, blocks.slice(1024..2048)?)];
there.put_list_signal(&list, &there.signal(0, 1)).wait()?;
cache.wait_until(0, |count| count == 1)?; // all blocks of the previous node are here
job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_list_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let cache = job.publish("cache", Region::shared(8192)?, Rights::WRITE)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("cache")?;
let blocks = job.register(Region::zeroed(2048)?)?;
let list = [(4096, blocks.slice(0..1024)?), (1024, blocks.slice(1024..2048)?)];
let put = there.put_list_notify(&list, 7);
let arrival = cache.arrivals().next()?; // all blocks of the previous node are here
assert_eq!((arrival.tag(), arrival.offset(), arrival.len()), (7, 1024, 1024));
put.wait()?;
job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_put_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
let page = job.register(Region::zeroed(1024)?)?;
// 1 is added to the word at offset 0 once all bytes are in place.
there.put_signal(1024, page.all(), &there.signal(0, 1)).wait()?;
inbox.wait_until(0, |count| count == 1)?; // the bytes of the previous node are here
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_region_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
there.put_copy(0, b"from afar")?.wait()?; // now in the peer's memory, and visible there
let target = job.register(Region::zeroed(9)?)?;
there.get(0, target.all()).wait()?;
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_words_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
let there = job.peer(0)?.region("words")?;
let flags = there.word::<u32>(8);
flags.or(1 << (job.rank() % 32)).wait()?;
assert_ne!(flags.load().wait()? & 1 << (job.rank() % 32), 0);
job.barrier()?;
drop(words);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_remote_words_rs_2 {
fn main() -> oikaze::Result<()> {
use oikaze::prelude::*;
let job = oikaze::join()?;
let words = job.publish("words", Region::shared(4096)?, Rights::ATOMIC)?;
let there = job.peer(0)?.region("words")?;
let ticket = there.word::<u32>(64).fetch_add(1).wait()?;
assert!(ticket < job.size());
there.word::<i64>(72).max(-5).wait()?; // no answer but the acknowledgement
job.barrier()?;
drop(words);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_memory_scope_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let inbox = job.publish("inbox", Region::shared(1 << 20)?, Rights::WRITE)?;
let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
let numbers = vec![7_u8; 1 << 20]; // any memory of the program
job.scope(|scope| scope.put(&there, 0, &numbers).map(drop))?; // returns when it is done
job.barrier()?;
drop(inbox);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_fifo_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let fifo = job.fifo("tasks", 64, 8)?;
assert_eq!((fifo.slots(), fifo.longest()), (64, 8));
let mut task = Vec::new();
assert!(!fifo.try_pop(&mut task)?); // empty
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_fifo_rs_2 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let work = if job.rank() == 0 { Some(job.fifo("work", 1024, 64)?) } else { None };
job.peer(0)?.fifo("work")?.push(b"an item")?; // waits for room
if let Some(work) = work {
    for _ in 0..job.size() {
        let mut item = Vec::new();
        work.pop(&mut item)?; // waits for one
        assert_eq!(item, b"an item");
    }
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_mod_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let me = job.peer(job.rank())?;
me.send(Class::Ordered, 1, b"after all ordered ones before it").wait()?;
me.send(Class::Unordered, 2, b"as soon as it arrives").wait()?;
me.send(Class::Sync, 3, b"done when the peer has accepted it").wait()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_mod_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let (me, n) = (job.rank(), job.size());
let (next, before) = ((me + 1) % n, (me + n - 1) % n);
if job.rank() == 0 {
    job.peer(next)?.send(Class::Ordered, 1, &[7; 1000]).wait()?;
}
let message = job.receive(Some(before))?; // goes round once
if job.rank() != 0 {
    job.peer(next)?.forward(Class::Ordered, 1, message).wait()?;
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_mod_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let me = job.peer(job.rank())?;
assert_eq!(job.try_probe(None), None);
me.send(Class::Ordered, 7, &[1; 300]).wait()?;
let next = job.probe(None)?;
assert_eq!((next.from, next.tag, next.len), (job.rank(), 7, 300)); // len in bytes
assert_eq!(job.receive(Some(next.from))?.bytes(), [1; 300]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_posted_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let (me, n) = (job.rank(), job.size());
let page = job.register(Region::zeroed(4096)?)?;
let receive = job.post_receive(Some((me + n - 1) % n), 7, u64::MAX, page.all());
job.peer((me + 1) % n)?.send(Class::Ordered, 7, b"into place").wait()?;
let message = receive.wait()?; // or receive.await?
assert_eq!((message.tag, message.len), (7, 10));
let mut bytes = [0; 10];
page.read(0, &mut bytes)?;
assert_eq!(&bytes, b"into place");
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_received_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
job.peer(job.rank())?.send(Class::Ordered, 7, b"a note").wait()?;
let message = job.receive(None)?;
assert_eq!((message.from(), message.tag(), message.bytes()), (job.rank(), 7, &b"a note"[..]));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_message_remote_fifo_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let fifo = job.fifo("results", 64, 8)?;
let next = job.peer((job.rank() + 1) % job.size())?.fifo("results")?;
next.push(b"result")?; // waits for room
let mut element = Vec::new();
fifo.pop(&mut element)?;
assert_eq!(element, b"result");
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_node_waits_place_rs_1 {
fn main() {
oikaze::ffi::find_places_by(|| Some(Box::new("heat.py:40")));
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_prelude_rs_1 {
use oikaze::prelude::*;

fn main() -> oikaze::Result<()> {
    let job = oikaze::join()?;
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE)?;
    job.barrier()
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<f64>("field", 10_000)?;
let mine = field.home_range(job.rank());
field.write(mine)?.fill(f64::from(job.rank())); // plain stores
job.barrier()?; // everyone sees everyone's writes
assert_eq!(field.read(0..1)?[0], 0.0); // a plain load
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<f32>("field", [4, 8, 16])?;
assert_eq!(field.shape().as_slice(), [4, 8, 16]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<f32>("field", [12, 30])?;
let mine = field.home_block(job.rank());
field.write(mine)?.fill(job.rank() as f32);
job.barrier()?;
assert_eq!(field.read(field.whole())?[[11, 29]], (job.size() - 1) as f32);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_4 {
use oikaze::prelude::*;
use oikaze::shared::Distribution;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let dealt = job
    .array_builder::<u8>("dealt", [10, 4096])
    .distribution(Distribution::Cyclic { axis: 0, indices: 1 })
    .build()?;
let rows: usize = (0..job.size()).map(|rank| dealt.home_blocks(rank).len()).sum();
assert!(job.size() == 1 || rows == 10);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_5 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grid = job.array::<f64>("grid", 64 * 1024)?;
// The first 16 elements of rows 3, 17 and 40, which have 1024 elements each.
let rows = [3, 17, 40].map(|row| row * 1024..row * 1024 + 16);
let sum: f64 = grid.read_many(&rows)?.iter().flat_map(|row| row.iter()).sum();
assert_eq!(sum, 0.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_6 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let steps = job.array::<u64>("steps", 8 * 4096)?;
steps.prefetch(0..4096)?;
for step in 0..8 {
    let next = (step + 1).min(7) * 4096;
    steps.prefetch(next..next + 4096)?; // comes while this step computes
    let sum: u64 = steps.read(step * 4096..(step + 1) * 4096)?.iter().sum();
    assert_eq!(sum, 0);
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_7 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let table = job.array::<u32>("table", 100_000)?;
let wanted = [0..100, 50_000..50_100, 99_000..99_100];
table.prefetch_many(&wanted)?;
assert!(table.read_many(&wanted)?.iter().all(|part| part.len() == 100));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_8 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let marks = job.array::<u32>("marks", 1000)?;
marks.write_merged(0..1000)?[job.rank() as usize] = 1; // all nodes at once
job.barrier()?;
assert_eq!(marks.read(0..1000)?.iter().sum::<u32>(), job.size());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_array_rs_9 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let steps = job.array::<u64>("steps", 512)?;
steps.subscribe(0..512)?;
for step in 0..10 {
    assert_eq!(steps.read(0..512)?[100], step); // only the first one fetches
    job.barrier()?;
    if job.rank() == 0 {
        steps.write(0..512)?.fill(step + 1);
    }
    job.barrier()?; // brings the elements
}
assert!(steps.statistics().fetched_pages <= 2);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_block_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<f32>("field", [8, 100])?;
let block = field.block([2..6, 0..100])?;
assert_eq!(block.grow(1).range(0), 1..7);
assert_eq!(block.grow(50), field.whole()); // no further than the array
let parts = [block.first(1), block.last(1), block.inner(1)].map(|part| part.range(0));
assert_eq!(parts, [2..3, 5..6, 3..5]); // each row of the block once
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_block_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<u8>("field", [10, 10])?;
let halo = field.block([4..6, 0..10])?.border(1);
assert_eq!(halo.iter().map(|block| block.range(0)).collect::<Vec<_>>(), [3..4, 6..7]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_block_guard_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grid = job.array::<f32>("grid", [8, 8, 8])?;
let mine = grid.home_block(job.rank());
let halo = grid.read(mine.grow(1))?;
let mut sum = 0.0;
for i in mine.range(0) {
    for j in mine.range(1) {
        sum += halo.row([i, j]).iter().sum::<f32>() + halo[[i, j, 0]];
    }
}
assert_eq!(sum, 0.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_block_guard_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grid = job.array::<u32>("grid", [64, 64])?;
let n = job.size() as usize;
let columns = job.rank() as usize * 64 / n..(job.rank() as usize + 1) * 64 / n;
let mut guard = grid.write([0..64, columns.clone()])?; // other nodes write the other columns
for i in 0..64 {
    for j in columns.clone() {
        guard[[i, j]] = (i * j) as u32;
    }
}
drop(guard);
job.barrier()?;
assert_eq!(grid.read(grid.whole())?[[7, 9]], 63);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_builder_rs_1 {
use oikaze::prelude::*;
use oikaze::shared::{Delivery, Homes};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job
    .array_builder::<f64>("field", 10_000)
    .homes(Homes::Cyclic { pages: 1 })
    .delivery(Delivery::DirectDiffDecode)
    .build()?;
assert_eq!(field.len(), 10_000);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_distribution_rs_1 {
use oikaze::prelude::*;
use oikaze::shared::Distribution;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let columns = job
    .array_builder::<f64>("columns", [16, 1024])
    .distribution(Distribution::Block { axis: 1 })
    .build()?;
let mine = columns.home_block(job.rank());
assert_eq!(mine.range(0), 0..16); // all rows of some columns
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_element_rs_1 {
use oikaze::prelude::*;
use oikaze::Element;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
fn sum<T: Element + Into<f64>>(array: &SharedArray<T>) -> oikaze::Result<f64> {
    Ok(array.read(0..array.len())?.iter().map(|&element| element.into()).sum())
}
let ones = job.array::<f32>("ones", 100)?;
if job.rank() == 0 {
    ones.write(0..100)?.fill(1.0);
}
job.barrier()?;
assert_eq!(sum(&ones)?, 100.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_element_rs_2 {
use oikaze::prelude::*;
use oikaze::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    mass: f64,
}

fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let particles = job.array::<Particle>("particles", 1000)?;
let mut guard = particles.write(particles.home_range(job.rank()))?;
guard.fill(Particle { position: [0.5; 3], mass: 1.0 });
drop(guard);
job.barrier()?;
assert_eq!(particles.read(0..1)?[0].position[2], 0.5);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_element_rs_3 {
use oikaze::Element;
fn main() {
let mut fields = Vec::new();
<[f32; 3]>::describe("position", &mut fields);
assert_eq!((fields[0].name.as_str(), fields[0].kind.as_str()), ("position[3]", "f32"));
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_files_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let plate = job.array::<f32>("plate", [20, 30])?;
plate.fill(1.5)?;
let id = job.barrier_reduce(std::process::id() as u64, ReduceOp::Max)?;
let path = std::env::temp_dir().join(format!("oikaze-doc-{id}.npy"));
plate.save(&path)?; // numpy.load(path)
let again = job.array::<f32>("again", [20, 30])?;
again.load(&path)?;
assert_eq!(again.read(again.whole())?[[19, 29]], 1.5);
job.barrier()?;
let _ = std::fs::remove_file(&path);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_guard_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.array::<u64>("array", 1000)?;
let guard = array.read(0..10)?; // fetches what is not here
assert_eq!(guard.iter().sum::<u64>(), 0);
assert!(job.barrier().is_err()); // refused while a guard is alive
guard.release()?;
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_guard_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.array::<u64>("array", 1000)?;
if job.rank() == 0 {
    let mut guard = array.write(0..10)?;
    guard[3] = 7;
} // the guard ends before the barrier
job.barrier()?;
assert_eq!(array.read(0..10)?[3], 7);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_guard_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let row = job.array::<f64>("row", 512)?;
if job.rank() == 0 {
    let mut guard = row.write(0..512)?;
    guard.fill(1.5);
    guard.push_to(&(1..job.size()).collect::<Vec<_>>())?;
}
job.barrier()?; // brings the row
assert_eq!(row.read(0..512)?[511], 1.5); // no fetch
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_lifetime_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
for step in 0..10 {
    let scratch = job.array::<f64>("scratch", 1000)?; // the name is free again
    scratch.fill(f64::from(step))?;
    scratch.free()?;
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_lifetime_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let ones = job.array::<i32>("ones", [50, 50])?;
ones.fill(1)?;
assert_eq!(ones.read(ones.whole())?.iter().sum::<i32>(), 2500);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_lock_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let total = job.array::<u64>("total", 1)?;
{
    let _held = job.lock(5)?;
    total.write(0..1)?[0] += 1; // sees the writes of earlier holders
}
job.barrier()?;
assert_eq!(total.read(0..1)?[0], u64::from(job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_mod_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.array::<u8>("array", 100)?;
assert_eq!(array.statistics().fetched_pages, 0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_mod_rs_2 {
use oikaze::shared::Delivery;
fn main() {
assert_eq!(Delivery::from_name("direct_map"), Some(Delivery::DirectMap));
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_mod_rs_3 {
use oikaze::shared::Homes;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let dealt = job.array_with_homes::<u8>("dealt", 1 << 20, Homes::Cyclic { pages: 1 })?;
assert_eq!(dealt.home_of(0), Some(0));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_mod_rs_4 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let line = job.array::<u64>("line", 1000)?;
let field = job.array::<f32>("field", [10, 20, 30])?;
assert_eq!((line.len(), field.len()), (1000, 6000));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_part_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grid = job.array::<f64>("grid", [100, 200])?;
if job.rank() == 0 {
    let mut corner = grid.write([0..10, 190..200])?;
    corner[[3, 195]] = 1.5;
    corner.row_mut([4]).fill(2.0);
}
job.barrier()?;
assert_eq!(grid.read(3 * 200..4 * 200)?[195], 1.5);
assert_eq!(grid.read(grid.whole())?[[4, 199]], 2.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_replace_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mut table = job.array::<u64>("table", [4, 100])?;
table.fill(7)?;
table.resize([8, 50])?;
let all = table.read(table.whole())?;
assert_eq!((all[[3, 49]], all[[4, 0]]), (7, 0));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_replace_rs_2 {
use oikaze::prelude::*;
use oikaze::shared::Distribution;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let mut grid = job.array::<f64>("grid", [64, 64])?;
grid.redistribute(Distribution::Block { axis: 1 })?;
assert_eq!(grid.home_block(job.rank()).range(0), 0..64);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_replace_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let field = job.array::<f32>("field", [64, 64])?;
let mine = field.home_block(job.rank());
field.halo(mine, 1)?;
for _ in 0..3 {
    let mut sum = 0.0;
    field.read(mine.grow(1))?.iter().for_each(|value| sum += value); // no page is fetched
    job.barrier()?;
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_shape_rs_1 {
use oikaze::shared::{Extents, Shape};
fn main() {
let extents: Extents = [4, 3, 2].extents();
assert_eq!((extents.dimensions(), extents.len()), (3, 24));
assert_eq!(extents.as_slice(), [4, 3, 2]);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_shape_rs_2 {
use oikaze::shared::Shape;
fn main() {
assert_eq!(100.extents().as_slice(), [100]);
assert_eq!([10, 20].extents().len(), 200);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_shape_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let grid = job.array::<f32>("grid", [64, 64])?;
assert_eq!(grid.home_of([63, 63]), grid.home_of(64 * 64 - 1));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_targets_rs_1 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let table = job.array::<f64>("table", 10_000)?;
if job.rank() == 0 {
    table.put(5000, &[1.5, 2.5])?;
}
job.barrier()?;
assert_eq!(table.get(5000..5002)?, [1.5, 2.5]);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_targets_rs_2 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let tickets = job.array::<u64>("tickets", [4, 4])?;
let mine = tickets.fetch_add([1, 2], 1)?;
assert!(mine < u64::from(job.size()));
job.barrier()?;
assert_eq!(tickets.read(tickets.whole())?[[1, 2]], u64::from(job.size()));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_targets_rs_3 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let owner = job.array::<u32>("owner", 1)?;
let is_first = owner.compare_exchange(0, 0, job.rank() + 1)? == 0; // true on one node
job.barrier()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_targets_rs_4 {
use oikaze::prelude::*;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let sums = job.array::<f32>("sums", 1000)?;
sums.accumulate(500, Combine::Sum, &[0.5; 10])?; // all nodes at once
job.barrier()?;
assert_eq!(sums.read(500..501)?[0], 0.5 * job.size() as f32);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_element_rs_1 {
use oikaze::ffi::ElementKind;
fn main() {
assert_eq!((ElementKind::F32.name(), ElementKind::F32.size()), ("f32", 4));
assert_eq!(ElementKind::from_name("c128"), Some(ElementKind::Complex128));
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_element_rs_2 {
use oikaze::ffi::{ElementKind, ElementType};
use oikaze::shared::ElementField;
fn main() -> oikaze::Result<()> {
let field = |name: &str, kind: &str| ElementField { name: name.into(), kind: kind.into() };
let fields = vec![field("position[3]", "f64"), field("mass", "f64")];
let particle = ElementType::structure(32, fields)?;
assert_eq!((particle.size(), particle.kind()), (32, None));
assert_eq!(ElementType::from(ElementKind::F32).size(), 4);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_guard_rs_1 {
use oikaze::ffi::{ElementKind, PlainMemory};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.untyped_array("field", &[512], ElementKind::F64.into()).build()?;
let plain: PlainMemory = array.plain()?;
assert_eq!(plain.len(), 4096);
// SAFETY: aligned and mapped, and no other node writes it.
assert_eq!(unsafe { plain.address().cast::<f64>().read() }, 0.0);
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_guard_rs_2 {
use oikaze::ffi::{ElementKind, UntypedReadGuard};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.untyped_array("grid", &[10, 20], ElementKind::I32.into()).build()?;
let guard: UntypedReadGuard = array.read(&[2..5, 0..20])?;
assert_eq!((guard.shape(), guard.strides()), (vec![3, 20], vec![80, 4]));
guard.release()?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_guard_rs_3 {
use oikaze::ffi::{ElementKind, UntypedWriteGuard};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array = job.untyped_array("words", &[1000], ElementKind::U64.into()).build()?;
if job.rank() == 0 {
    let guard: UntypedWriteGuard = array.write(&[3..4])?;
    // SAFETY: the guard lends eight aligned bytes there.
    unsafe { guard.address().cast::<u64>().write(7) };
}
job.barrier()?;
assert_eq!(array.get(3..4)?, 7_u64.to_ne_bytes());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_mod_rs_1 {
use oikaze::ffi::{ElementKind, UntypedArrayBuilder};
use oikaze::shared::Homes;
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let element = ElementKind::F32.into();
let builder: UntypedArrayBuilder = job.untyped_array("field", &[100, 20], element);
let field = builder.homes(Homes::Cyclic { pages: 1 }).build()?;
assert_eq!((field.len(), field.element().size()), (2000, 4));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_shared_untyped_mod_rs_2 {
use oikaze::ffi::{ElementKind, UntypedArray};
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let array: UntypedArray = job.untyped_array("field", &[10], ElementKind::F64.into()).build()?;
array.fill(&1.5_f64.to_ne_bytes())?;
assert_eq!(array.get(9..10)?, 1.5_f64.to_ne_bytes());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_testing_mod_rs_1 {
use oikaze::prelude::*;

fn main() {
let sums = oikaze::testing::cluster(4, |job| {
    Ok(job.barrier_reduce(u64::from(job.rank()), ReduceOp::Sum)?)
});
assert_eq!(sums, [6; 4]);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_testing_mod_rs_2 {
use oikaze::{Job, testing};
use std::time::Duration;

fn main() {
let settings = Job::builder().without("shm").time_limit(Duration::from_secs(30)); // over UDP
let sizes = testing::cluster_with(2, settings, |job| {
    job.barrier()?;
    Ok(job.size())
});
assert_eq!(sizes, [2, 2]);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_testing_mod_rs_3 {
use oikaze::prelude::*;
use oikaze::testing;

fn main() {
let sums = testing::cluster_on(&[0, 0, 1, 1, 1], Job::builder(), |job| {
    assert_eq!(job.team().algorithm("all_reduce", 8), "hierarchical");
    Ok(job.all_reduce(job.rank(), Sum)?)
});
assert_eq!(sums, [10; 5]);
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

/// Name, start, and whether the program aborts the job.
pub const PROGRAMS: &[(&str, fn() -> std::process::ExitCode, bool)] = &[
    ("README.md 1", readme_md_1::start, false),
    ("docs/book/src/collectives.md 1", docs_book_src_collectives_md_1::start, false),
    ("docs/book/src/collectives.md 2", docs_book_src_collectives_md_2::start, false),
    ("docs/book/src/collectives.md 3", docs_book_src_collectives_md_3::start, false),
    ("docs/book/src/getting-started.md 1", docs_book_src_getting_started_md_1::start, false),
    ("docs/book/src/getting-started.md 2", docs_book_src_getting_started_md_2::start, false),
    ("docs/book/src/getting-started.md 3", docs_book_src_getting_started_md_3::start, false),
    ("docs/book/src/memory-model.md 1", docs_book_src_memory_model_md_1::start, false),
    ("docs/book/src/memory-model.md 2", docs_book_src_memory_model_md_2::start, false),
    ("docs/book/src/messages.md 1", docs_book_src_messages_md_1::start, false),
    ("docs/book/src/messages.md 2", docs_book_src_messages_md_2::start, false),
    ("docs/book/src/messages.md 3", docs_book_src_messages_md_3::start, false),
    ("docs/book/src/messages.md 4", docs_book_src_messages_md_4::start, false),
    ("docs/book/src/messages.md 5", docs_book_src_messages_md_5::start, false),
    ("docs/book/src/mpi.md 1", docs_book_src_mpi_md_1::start, false),
    ("docs/book/src/mpi.md 2", docs_book_src_mpi_md_2::start, true),
    ("docs/book/src/mpi.md 3", docs_book_src_mpi_md_3::start, false),
    ("docs/book/src/mpi.md 4", docs_book_src_mpi_md_4::start, false),
    ("docs/book/src/observing.md 1", docs_book_src_observing_md_1::start, false),
    ("docs/book/src/remote-memory.md 1", docs_book_src_remote_memory_md_1::start, false),
    ("docs/book/src/remote-memory.md 2", docs_book_src_remote_memory_md_2::start, false),
    ("docs/book/src/remote-memory.md 3", docs_book_src_remote_memory_md_3::start, false),
    ("docs/book/src/remote-memory.md 4", docs_book_src_remote_memory_md_4::start, false),
    ("docs/book/src/remote-memory.md 5", docs_book_src_remote_memory_md_5::start, false),
    ("docs/book/src/running.md 1", docs_book_src_running_md_1::start, false),
    ("docs/book/src/shared-arrays.md 1", docs_book_src_shared_arrays_md_1::start, false),
    ("docs/book/src/shared-arrays.md 2", docs_book_src_shared_arrays_md_2::start, false),
    ("docs/book/src/shared-arrays.md 3", docs_book_src_shared_arrays_md_3::start, false),
    ("docs/book/src/shared-arrays.md 4", docs_book_src_shared_arrays_md_4::start, false),
    ("docs/book/src/shared-arrays.md 5", docs_book_src_shared_arrays_md_5::start, false),
    ("docs/book/src/shared-arrays.md 6", docs_book_src_shared_arrays_md_6::start, false),
    ("docs/book/src/shared-arrays.md 7", docs_book_src_shared_arrays_md_7::start, false),
    ("docs/book/src/shared-arrays.md 8", docs_book_src_shared_arrays_md_8::start, false),
    ("docs/book/src/tuning.md 1", docs_book_src_tuning_md_1::start, false),
    ("docs/book/src/tuning.md 2", docs_book_src_tuning_md_2::start, false),
    ("crates/oikaze/src/atomic.rs 1", crates_oikaze_src_atomic_rs_1::start, false),
    ("crates/oikaze/src/atomic.rs 2", crates_oikaze_src_atomic_rs_2::start, false),
    ("crates/oikaze/src/atomic.rs 3", crates_oikaze_src_atomic_rs_3::start, false),
    ("crates/oikaze/src/atomic.rs 4", crates_oikaze_src_atomic_rs_4::start, false),
    ("crates/oikaze/src/collective/barrier.rs 1", crates_oikaze_src_collective_barrier_rs_1::start, false),
    ("crates/oikaze/src/collective/barrier.rs 2", crates_oikaze_src_collective_barrier_rs_2::start, false),
    ("crates/oikaze/src/collective/calls.rs 1", crates_oikaze_src_collective_calls_rs_1::start, false),
    ("crates/oikaze/src/collective/calls.rs 2", crates_oikaze_src_collective_calls_rs_2::start, false),
    ("crates/oikaze/src/collective/calls.rs 3", crates_oikaze_src_collective_calls_rs_3::start, false),
    ("crates/oikaze/src/collective/calls.rs 4", crates_oikaze_src_collective_calls_rs_4::start, false),
    ("crates/oikaze/src/collective/calls.rs 5", crates_oikaze_src_collective_calls_rs_5::start, false),
    ("crates/oikaze/src/collective/exact.rs 1", crates_oikaze_src_collective_exact_rs_1::start, false),
    ("crates/oikaze/src/collective/notify.rs 1", crates_oikaze_src_collective_notify_rs_1::start, false),
    ("crates/oikaze/src/collective/operator.rs 1", crates_oikaze_src_collective_operator_rs_1::start, false),
    ("crates/oikaze/src/collective/operator.rs 2", crates_oikaze_src_collective_operator_rs_2::start, false),
    ("crates/oikaze/src/collective/operator.rs 3", crates_oikaze_src_collective_operator_rs_3::start, false),
    ("crates/oikaze/src/collective/operator.rs 4", crates_oikaze_src_collective_operator_rs_4::start, false),
    ("crates/oikaze/src/collective/operator.rs 5", crates_oikaze_src_collective_operator_rs_5::start, false),
    ("crates/oikaze/src/collective/operator.rs 6", crates_oikaze_src_collective_operator_rs_6::start, false),
    ("crates/oikaze/src/collective/operator.rs 7", crates_oikaze_src_collective_operator_rs_7::start, false),
    ("crates/oikaze/src/collective/operator.rs 8", crates_oikaze_src_collective_operator_rs_8::start, false),
    ("crates/oikaze/src/collective/pending.rs 1", crates_oikaze_src_collective_pending_rs_1::start, false),
    ("crates/oikaze/src/collective/pending.rs 2", crates_oikaze_src_collective_pending_rs_2::start, false),
    ("crates/oikaze/src/collective/pending.rs 3", crates_oikaze_src_collective_pending_rs_3::start, false),
    ("crates/oikaze/src/collective/pending.rs 4", crates_oikaze_src_collective_pending_rs_4::start, false),
    ("crates/oikaze/src/collective/start.rs 1", crates_oikaze_src_collective_start_rs_1::start, false),
    ("crates/oikaze/src/collective/team.rs 1", crates_oikaze_src_collective_team_rs_1::start, false),
    ("crates/oikaze/src/collective/team.rs 2", crates_oikaze_src_collective_team_rs_2::start, false),
    ("crates/oikaze/src/collective/team.rs 3", crates_oikaze_src_collective_team_rs_3::start, false),
    ("crates/oikaze/src/collective/untyped/mod.rs 1", crates_oikaze_src_collective_untyped_mod_rs_1::start, false),
    ("crates/oikaze/src/collective/untyped/mod.rs 2", crates_oikaze_src_collective_untyped_mod_rs_2::start, false),
    ("crates/oikaze/src/collective/untyped/mod.rs 3", crates_oikaze_src_collective_untyped_mod_rs_3::start, false),
    ("crates/oikaze/src/collective/untyped/mod.rs 4", crates_oikaze_src_collective_untyped_mod_rs_4::start, false),
    ("crates/oikaze/src/collective/untyped/operator.rs 1", crates_oikaze_src_collective_untyped_operator_rs_1::start, false),
    ("crates/oikaze/src/completion/counter.rs 1", crates_oikaze_src_completion_counter_rs_1::start, false),
    ("crates/oikaze/src/completion/counter.rs 2", crates_oikaze_src_completion_counter_rs_2::start, false),
    ("crates/oikaze/src/completion/mod.rs 1", crates_oikaze_src_completion_mod_rs_1::start, false),
    ("crates/oikaze/src/completion/operation/bits.rs 1", crates_oikaze_src_completion_operation_bits_rs_1::start, false),
    ("crates/oikaze/src/completion/operation/bits.rs 2", crates_oikaze_src_completion_operation_bits_rs_2::start, false),
    ("crates/oikaze/src/completion/operation/future.rs 1", crates_oikaze_src_completion_operation_future_rs_1::start, false),
    ("crates/oikaze/src/completion/operation/mod.rs 1", crates_oikaze_src_completion_operation_mod_rs_1::start, false),
    ("crates/oikaze/src/completion/operation/mod.rs 2", crates_oikaze_src_completion_operation_mod_rs_2::start, false),
    ("crates/oikaze/src/completion/queue.rs 1", crates_oikaze_src_completion_queue_rs_1::start, false),
    ("crates/oikaze/src/completion/queue.rs 2", crates_oikaze_src_completion_queue_rs_2::start, false),
    ("crates/oikaze/src/error.rs 1", crates_oikaze_src_error_rs_1::start, false),
    ("crates/oikaze/src/ffi/calls.rs 1", crates_oikaze_src_ffi_calls_rs_1::start, false),
    ("crates/oikaze/src/ffi/calls.rs 2", crates_oikaze_src_ffi_calls_rs_2::start, false),
    ("crates/oikaze/src/ffi/class.rs 1", crates_oikaze_src_ffi_class_rs_1::start, false),
    ("crates/oikaze/src/ffi/handles.rs 1", crates_oikaze_src_ffi_handles_rs_1::start, false),
    ("crates/oikaze/src/ffi/handles.rs 2", crates_oikaze_src_ffi_handles_rs_2::start, false),
    ("crates/oikaze/src/ffi/interruption.rs 1", crates_oikaze_src_ffi_interruption_rs_1::start, false),
    ("crates/oikaze/src/ffi/jobs.rs 1", crates_oikaze_src_ffi_jobs_rs_1::start, false),
    ("crates/oikaze/src/ffi/jobs.rs 2", crates_oikaze_src_ffi_jobs_rs_2::start, false),
    ("crates/oikaze/src/ffi/jobs.rs 3", crates_oikaze_src_ffi_jobs_rs_3::start, false),
    ("crates/oikaze/src/ffi/leave.rs 1", crates_oikaze_src_ffi_leave_rs_1::start, false),
    ("crates/oikaze/src/ffi/leave.rs 2", crates_oikaze_src_ffi_leave_rs_2::start, true),
    ("crates/oikaze/src/ffi/mod.rs 1", crates_oikaze_src_ffi_mod_rs_1::start, false),
    ("crates/oikaze/src/ffi/parts.rs 1", crates_oikaze_src_ffi_parts_rs_1::start, false),
    ("crates/oikaze/src/ffi/readiness.rs 1", crates_oikaze_src_ffi_readiness_rs_1::start, false),
    ("crates/oikaze/src/job/builder.rs 1", crates_oikaze_src_job_builder_rs_1::start, false),
    ("crates/oikaze/src/job/builder.rs 2", crates_oikaze_src_job_builder_rs_2::start, false),
    ("crates/oikaze/src/job/builder.rs 3", crates_oikaze_src_job_builder_rs_3::start, false),
    ("crates/oikaze/src/job/builder.rs 4", crates_oikaze_src_job_builder_rs_4::start, false),
    ("crates/oikaze/src/job/builder.rs 5", crates_oikaze_src_job_builder_rs_5::start, false),
    ("crates/oikaze/src/job/builder.rs 6", crates_oikaze_src_job_builder_rs_6::start, false),
    ("crates/oikaze/src/job/builder.rs 7", crates_oikaze_src_job_builder_rs_7::start, false),
    ("crates/oikaze/src/job/builder.rs 8", crates_oikaze_src_job_builder_rs_8::start, false),
    ("crates/oikaze/src/job/local.rs 1", crates_oikaze_src_job_local_rs_1::start, false),
    ("crates/oikaze/src/job/mod.rs 1", crates_oikaze_src_job_mod_rs_1::start, false),
    ("crates/oikaze/src/job/mod.rs 2", crates_oikaze_src_job_mod_rs_2::start, true),
    ("crates/oikaze/src/job/mod.rs 3", crates_oikaze_src_job_mod_rs_3::start, false),
    ("crates/oikaze/src/job/mod.rs 4", crates_oikaze_src_job_mod_rs_4::start, false),
    ("crates/oikaze/src/job/mod.rs 5", crates_oikaze_src_job_mod_rs_5::start, false),
    ("crates/oikaze/src/job/peer.rs 1", crates_oikaze_src_job_peer_rs_1::start, false),
    ("crates/oikaze/src/job/run.rs 1", crates_oikaze_src_job_run_rs_1::start, false),
    ("crates/oikaze/src/job/statistics.rs 1", crates_oikaze_src_job_statistics_rs_1::start, false),
    ("crates/oikaze/src/memory/access_log.rs 1", crates_oikaze_src_memory_access_log_rs_1::start, false),
    ("crates/oikaze/src/memory/arrivals.rs 1", crates_oikaze_src_memory_arrivals_rs_1::start, false),
    ("crates/oikaze/src/memory/arrivals.rs 2", crates_oikaze_src_memory_arrivals_rs_2::start, false),
    ("crates/oikaze/src/memory/exchange.rs 1", crates_oikaze_src_memory_exchange_rs_1::start, false),
    ("crates/oikaze/src/memory/mod.rs 1", crates_oikaze_src_memory_mod_rs_1::start, false),
    ("crates/oikaze/src/memory/mod.rs 2", crates_oikaze_src_memory_mod_rs_2::start, false),
    ("crates/oikaze/src/memory/mod.rs 3", crates_oikaze_src_memory_mod_rs_3::start, false),
    ("crates/oikaze/src/memory/mod.rs 4", crates_oikaze_src_memory_mod_rs_4::start, false),
    ("crates/oikaze/src/memory/mod.rs 5", crates_oikaze_src_memory_mod_rs_5::start, false),
    ("crates/oikaze/src/memory/mod.rs 6", crates_oikaze_src_memory_mod_rs_6::start, false),
    ("crates/oikaze/src/memory/mod.rs 7", crates_oikaze_src_memory_mod_rs_7::start, false),
    ("crates/oikaze/src/memory/mod.rs 8", crates_oikaze_src_memory_mod_rs_8::start, false),
    ("crates/oikaze/src/memory/mod.rs 9", crates_oikaze_src_memory_mod_rs_9::start, false),
    ("crates/oikaze/src/memory/range.rs 1", crates_oikaze_src_memory_range_rs_1::start, false),
    ("crates/oikaze/src/memory/region/mod.rs 1", crates_oikaze_src_memory_region_mod_rs_1::start, false),
    ("crates/oikaze/src/memory/region/mod.rs 2", crates_oikaze_src_memory_region_mod_rs_2::start, false),
    ("crates/oikaze/src/memory/region/remote_id.rs 1", crates_oikaze_src_memory_region_remote_id_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/accumulate.rs 1", crates_oikaze_src_memory_remote_accumulate_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/block.rs 1", crates_oikaze_src_memory_remote_block_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/elements.rs 1", crates_oikaze_src_memory_remote_elements_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/elements.rs 2", crates_oikaze_src_memory_remote_elements_rs_2::start, false),
    ("crates/oikaze/src/memory/remote/elements.rs 3", crates_oikaze_src_memory_remote_elements_rs_3::start, false),
    ("crates/oikaze/src/memory/remote/elements.rs 4", crates_oikaze_src_memory_remote_elements_rs_4::start, false),
    ("crates/oikaze/src/memory/remote/exchange.rs 1", crates_oikaze_src_memory_remote_exchange_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/list.rs 1", crates_oikaze_src_memory_remote_list_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/list.rs 2", crates_oikaze_src_memory_remote_list_rs_2::start, false),
    ("crates/oikaze/src/memory/remote/put.rs 1", crates_oikaze_src_memory_remote_put_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/region.rs 1", crates_oikaze_src_memory_remote_region_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/words.rs 1", crates_oikaze_src_memory_remote_words_rs_1::start, false),
    ("crates/oikaze/src/memory/remote/words.rs 2", crates_oikaze_src_memory_remote_words_rs_2::start, false),
    ("crates/oikaze/src/memory/scope.rs 1", crates_oikaze_src_memory_scope_rs_1::start, false),
    ("crates/oikaze/src/message/fifo.rs 1", crates_oikaze_src_message_fifo_rs_1::start, false),
    ("crates/oikaze/src/message/fifo.rs 2", crates_oikaze_src_message_fifo_rs_2::start, false),
    ("crates/oikaze/src/message/mod.rs 1", crates_oikaze_src_message_mod_rs_1::start, false),
    ("crates/oikaze/src/message/mod.rs 2", crates_oikaze_src_message_mod_rs_2::start, false),
    ("crates/oikaze/src/message/mod.rs 3", crates_oikaze_src_message_mod_rs_3::start, false),
    ("crates/oikaze/src/message/posted.rs 1", crates_oikaze_src_message_posted_rs_1::start, false),
    ("crates/oikaze/src/message/received.rs 1", crates_oikaze_src_message_received_rs_1::start, false),
    ("crates/oikaze/src/message/remote_fifo.rs 1", crates_oikaze_src_message_remote_fifo_rs_1::start, false),
    ("crates/oikaze/src/node/waits/place.rs 1", crates_oikaze_src_node_waits_place_rs_1::start, false),
    ("crates/oikaze/src/prelude.rs 1", crates_oikaze_src_prelude_rs_1::start, false),
    ("crates/oikaze/src/shared/array.rs 1", crates_oikaze_src_shared_array_rs_1::start, false),
    ("crates/oikaze/src/shared/array.rs 2", crates_oikaze_src_shared_array_rs_2::start, false),
    ("crates/oikaze/src/shared/array.rs 3", crates_oikaze_src_shared_array_rs_3::start, false),
    ("crates/oikaze/src/shared/array.rs 4", crates_oikaze_src_shared_array_rs_4::start, false),
    ("crates/oikaze/src/shared/array.rs 5", crates_oikaze_src_shared_array_rs_5::start, false),
    ("crates/oikaze/src/shared/array.rs 6", crates_oikaze_src_shared_array_rs_6::start, false),
    ("crates/oikaze/src/shared/array.rs 7", crates_oikaze_src_shared_array_rs_7::start, false),
    ("crates/oikaze/src/shared/array.rs 8", crates_oikaze_src_shared_array_rs_8::start, false),
    ("crates/oikaze/src/shared/array.rs 9", crates_oikaze_src_shared_array_rs_9::start, false),
    ("crates/oikaze/src/shared/block.rs 1", crates_oikaze_src_shared_block_rs_1::start, false),
    ("crates/oikaze/src/shared/block.rs 2", crates_oikaze_src_shared_block_rs_2::start, false),
    ("crates/oikaze/src/shared/block_guard.rs 1", crates_oikaze_src_shared_block_guard_rs_1::start, false),
    ("crates/oikaze/src/shared/block_guard.rs 2", crates_oikaze_src_shared_block_guard_rs_2::start, false),
    ("crates/oikaze/src/shared/builder.rs 1", crates_oikaze_src_shared_builder_rs_1::start, false),
    ("crates/oikaze/src/shared/distribution.rs 1", crates_oikaze_src_shared_distribution_rs_1::start, false),
    ("crates/oikaze/src/shared/element.rs 1", crates_oikaze_src_shared_element_rs_1::start, false),
    ("crates/oikaze/src/shared/element.rs 2", crates_oikaze_src_shared_element_rs_2::start, false),
    ("crates/oikaze/src/shared/element.rs 3", crates_oikaze_src_shared_element_rs_3::start, false),
    ("crates/oikaze/src/shared/files.rs 1", crates_oikaze_src_shared_files_rs_1::start, false),
    ("crates/oikaze/src/shared/guard.rs 1", crates_oikaze_src_shared_guard_rs_1::start, false),
    ("crates/oikaze/src/shared/guard.rs 2", crates_oikaze_src_shared_guard_rs_2::start, false),
    ("crates/oikaze/src/shared/guard.rs 3", crates_oikaze_src_shared_guard_rs_3::start, false),
    ("crates/oikaze/src/shared/lifetime.rs 1", crates_oikaze_src_shared_lifetime_rs_1::start, false),
    ("crates/oikaze/src/shared/lifetime.rs 2", crates_oikaze_src_shared_lifetime_rs_2::start, false),
    ("crates/oikaze/src/shared/lock.rs 1", crates_oikaze_src_shared_lock_rs_1::start, false),
    ("crates/oikaze/src/shared/mod.rs 1", crates_oikaze_src_shared_mod_rs_1::start, false),
    ("crates/oikaze/src/shared/mod.rs 2", crates_oikaze_src_shared_mod_rs_2::start, false),
    ("crates/oikaze/src/shared/mod.rs 3", crates_oikaze_src_shared_mod_rs_3::start, false),
    ("crates/oikaze/src/shared/mod.rs 4", crates_oikaze_src_shared_mod_rs_4::start, false),
    ("crates/oikaze/src/shared/part.rs 1", crates_oikaze_src_shared_part_rs_1::start, false),
    ("crates/oikaze/src/shared/replace.rs 1", crates_oikaze_src_shared_replace_rs_1::start, false),
    ("crates/oikaze/src/shared/replace.rs 2", crates_oikaze_src_shared_replace_rs_2::start, false),
    ("crates/oikaze/src/shared/replace.rs 3", crates_oikaze_src_shared_replace_rs_3::start, false),
    ("crates/oikaze/src/shared/shape.rs 1", crates_oikaze_src_shared_shape_rs_1::start, false),
    ("crates/oikaze/src/shared/shape.rs 2", crates_oikaze_src_shared_shape_rs_2::start, false),
    ("crates/oikaze/src/shared/shape.rs 3", crates_oikaze_src_shared_shape_rs_3::start, false),
    ("crates/oikaze/src/shared/targets.rs 1", crates_oikaze_src_shared_targets_rs_1::start, false),
    ("crates/oikaze/src/shared/targets.rs 2", crates_oikaze_src_shared_targets_rs_2::start, false),
    ("crates/oikaze/src/shared/targets.rs 3", crates_oikaze_src_shared_targets_rs_3::start, false),
    ("crates/oikaze/src/shared/targets.rs 4", crates_oikaze_src_shared_targets_rs_4::start, false),
    ("crates/oikaze/src/shared/untyped/element.rs 1", crates_oikaze_src_shared_untyped_element_rs_1::start, false),
    ("crates/oikaze/src/shared/untyped/element.rs 2", crates_oikaze_src_shared_untyped_element_rs_2::start, false),
    ("crates/oikaze/src/shared/untyped/guard.rs 1", crates_oikaze_src_shared_untyped_guard_rs_1::start, false),
    ("crates/oikaze/src/shared/untyped/guard.rs 2", crates_oikaze_src_shared_untyped_guard_rs_2::start, false),
    ("crates/oikaze/src/shared/untyped/guard.rs 3", crates_oikaze_src_shared_untyped_guard_rs_3::start, false),
    ("crates/oikaze/src/shared/untyped/mod.rs 1", crates_oikaze_src_shared_untyped_mod_rs_1::start, false),
    ("crates/oikaze/src/shared/untyped/mod.rs 2", crates_oikaze_src_shared_untyped_mod_rs_2::start, false),
    ("crates/oikaze/src/testing/mod.rs 1", crates_oikaze_src_testing_mod_rs_1::start, false),
    ("crates/oikaze/src/testing/mod.rs 2", crates_oikaze_src_testing_mod_rs_2::start, false),
    ("crates/oikaze/src/testing/mod.rs 3", crates_oikaze_src_testing_mod_rs_3::start, false),
];
