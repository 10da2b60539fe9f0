// Programs that the documents show, written by:
// OIKAZE_BLESS=1 cargo test -p oikaze-cli --test shown

mod readme_md_1 {
use oikaze::{Class, Job, Region, Rights};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    oikaze::run(program) // joins the job; prints an error first and ends the job for all nodes
}

fn program(job: &Job) -> Result<(), Box<dyn Error>> {
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
    let from = job.receive(None, None)?.from;
    println!("node {from} has sent; the inbox holds {}", inbox.load_u64(0)?);
    job.barrier()?; // before anyone withdraws its inbox
    Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_builder_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::OnDeath;
let job = oikaze::Job::builder().on_death(OnDeath::Continue).join()?;
assert!(job.lost().is_empty());
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_exchange_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Region, page_size};
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

mod crates_oikaze_src_handle_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Handle, Operation, Region, Rights};
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

mod crates_oikaze_src_member_rs_1 {
fn main() -> oikaze::Result<()> {
let job = oikaze::join()?;
let work = if job.rank() == 0 { Some(job.fifo("work", 1024, 64)?) } else { None };
job.peer(0)?.fifo("work")?.push(b"an item", None)?; // waits for room
if let Some(work) = work {
    for _ in 0..job.size() {
        let mut item = Vec::new();
        work.pop(&mut item, None)?; // waits for one
        assert_eq!(item, b"an item");
    }
}
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_member_rs_2 {
fn main() -> oikaze::Result<()> {
use oikaze::Class;
let job = oikaze::join()?;
let next = job.peer((job.rank() + 1) % job.size())?;
let sent: Vec<_> =
    job.batch(|| (0..64).map(|n| next.send(Class::Ordered, n, b"tick")).collect());
for n in 0..64 {
    assert_eq!(job.receive(None, None)?.tag, n);
}
sent.into_iter().try_for_each(|message| message.wait())?;
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_member_rs_3 {
fn main() -> oikaze::Result<()> {
let residual = f64::NAN;
let job = oikaze::join()?;
if residual.is_nan() {
    job.abort("the iteration diverges: choose a smaller step");
}
let error = job.barrier().unwrap_err(); // so on every node
assert!(error.to_string().contains("the iteration diverges"));
Ok(())
}
pub fn start() -> std::process::ExitCode {
std::process::Termination::report(main())
}
}

mod crates_oikaze_src_remote_accumulate_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Combine, Region, Rights};
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

mod crates_oikaze_src_remote_block_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Block, Region, Rights};
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

mod crates_oikaze_src_remote_exchange_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Region, Rights, page_size};
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

mod crates_oikaze_src_remote_words_rs_1 {
fn main() -> oikaze::Result<()> {
use oikaze::{Region, Rights};
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

mod crates_oikaze_src_run_rs_1 {
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

/// Name, start, and whether the program aborts the job.
pub const PROGRAMS: &[(&str, fn() -> std::process::ExitCode, bool)] = &[
    ("README.md 1", readme_md_1::start, false),
    ("crates/oikaze/src/builder.rs 1", crates_oikaze_src_builder_rs_1::start, false),
    ("crates/oikaze/src/exchange.rs 1", crates_oikaze_src_exchange_rs_1::start, false),
    ("crates/oikaze/src/handle.rs 1", crates_oikaze_src_handle_rs_1::start, false),
    ("crates/oikaze/src/member.rs 1", crates_oikaze_src_member_rs_1::start, false),
    ("crates/oikaze/src/member.rs 2", crates_oikaze_src_member_rs_2::start, false),
    ("crates/oikaze/src/member.rs 3", crates_oikaze_src_member_rs_3::start, true),
    ("crates/oikaze/src/remote/accumulate.rs 1", crates_oikaze_src_remote_accumulate_rs_1::start, false),
    ("crates/oikaze/src/remote/block.rs 1", crates_oikaze_src_remote_block_rs_1::start, false),
    ("crates/oikaze/src/remote/exchange.rs 1", crates_oikaze_src_remote_exchange_rs_1::start, false),
    ("crates/oikaze/src/remote/words.rs 1", crates_oikaze_src_remote_words_rs_1::start, false),
    ("crates/oikaze/src/run.rs 1", crates_oikaze_src_run_rs_1::start, false),
];
