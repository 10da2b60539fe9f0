//! Every kind of operation with every mistake, on every path: to the node itself, over the network,
//! through rings, into mapped memory. Both sides learn what was refused and why, it is counted, and
//! no memory has changed (MEM-1.9).

use crate::support::{cluster_once, over_the_network};
use oikaze::atomic::Combine;
use oikaze::completion::Operation;
use oikaze::ffi::{Accumulation, AtomicOp, Change, NumberKind, Width};
use oikaze::memory::remote::{RefusalReason, RemoteId, RemoteRegion};
use oikaze::memory::{Block, LocalRegion, RefusedAccess, Region, RegionSlice, Rights};
use oikaze::{Job, Result};
use oikaze_launch::Settings;
use std::sync::Mutex;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const PAGE: u64 = 4096;
const LEN: u64 = 100 * PAGE;
/// Length of many fragments.
const LONG: u64 = 200_000;
/// Value of all memory at both ends, which must stay.
const UNTOUCHED: u8 = 0x5A;

/// Function that begins an operation at an offset there.
type Begin = dyn Fn(&Asker<'_>, &RemoteRegion, u64) -> Result<Operation<u64>> + Sync;

/// Kind of an operation.
struct Kind {
    /// Operation in the asker's error.
    verb: &'static str,
    /// Operation in the target's record.
    told: &'static str,
    /// Right that the operation needs at the target.
    right: Rights,
    /// Number of bytes that the operation moves. `hull` is the distance from the first to the last
    /// byte that needs the right.
    len: u64,
    hull: u64,
    /// Alignment of the operation's offset, in bytes.
    align: u64,
    offsets: Offsets,
    begin: Box<Begin>,
}

/// Offsets that an operation may have.
#[derive(Clone, Copy, PartialEq)]
enum Offsets {
    /// Any 64-bit number.
    Any,
    /// Offset of a block. The asker refuses an impossible offset.
    OfBlock,
    /// Offset of a signal. The data before the signal are valid.
    OfSignal,
    /// Only offset 0.
    Zero,
}

struct Asker<'j> {
    job: &'j Job,
    here: LocalRegion,
    /// Region in which all accesses are allowed.
    fine: RemoteRegion,
}

impl Asker<'_> {
    fn slice(&self, len: u64) -> RegionSlice {
        self.here.slice(0..len as usize).unwrap()
    }
}

/// Offset of the data of a put whose signal is wrong.
const DATA_AT: u64 = 3 * PAGE;

fn kind(
    (verb, told): (&'static str, &'static str),
    right: Rights,
    len: u64,
    begin: impl Fn(&Asker<'_>, &RemoteRegion, u64) -> Result<Operation<u64>> + Sync + 'static,
) -> Kind {
    Kind {
        verb,
        told,
        right,
        len,
        hull: len,
        align: 1,
        offsets: Offsets::Any,
        begin: Box::new(begin),
    }
}

fn kinds() -> Vec<Kind> {
    [transfers(), signals(), blocks(), numbers(), words()].into_iter().flatten().collect()
}

fn transfers() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for len in [0, 8, LONG] {
        kinds.push(kind(("put", "put"), Rights::WRITE, len, move |asker, there, at| {
            Ok(there.put(at, asker.slice(len)).into_bits())
        }));
        kinds.push(kind(("get", "get"), Rights::READ, len, move |asker, there, at| {
            Ok(there.get(at, asker.slice(len)).into_bits())
        }));
        kinds.push(kind(("put of a list", "put"), Rights::WRITE, len, move |asker, there, at| {
            Ok(there.put_list(&[(at, asker.slice(len))]).into_bits())
        }));
        kinds.push(kind(("get of a list", "get"), Rights::READ, len, move |asker, there, at| {
            Ok(there.get_list(&[(at, asker.slice(len))]).into_bits())
        }));
    }
    kinds.push(kind(("put", "put"), Rights::WRITE, 100, |_, there, at| {
        Ok(there.put_copy(at, &[1; 100])?.into_bits())
    }));
    let push = kind(("push", "push"), Rights::PUSH, 8, |asker, there, _| {
        let fifo = asker.job.remote_fifo(RemoteId { rights: Rights::ALL, ..there.remote_id() })?;
        Ok(fifo.post(&[1; 8]).into_bits())
    });
    kinds.push(Kind { offsets: Offsets::Zero, ..push });
    kinds
}

fn signals() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for len in [0, 8, LONG] {
        // The data are wrong.
        kinds.push(kind(
            ("put", "put with signal"),
            Rights::WRITE,
            len,
            move |asker, there, at| {
                Ok(there.put_signal(at, asker.slice(len), &asker.fine.signal(0, 1)).into_bits())
            },
        ));
        // The signal is wrong.
        let signal =
            kind(("put", "put with signal"), Rights::ATOMIC, len, move |asker, there, at| {
                Ok(asker
                    .fine
                    .put_signal(DATA_AT, asker.slice(len), &there.signal(at, 1))
                    .into_bits())
            });
        kinds.push(Kind { hull: 8, align: 8, offsets: Offsets::OfSignal, ..signal });
    }
    kinds
}

fn blocks() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for block in [
        Block::new(0, 16).rows(8, 32),
        Block::new(0, 16).rows(8, 32).planes(3, 1000),
        Block::new(0, 1500).rows(100, 2000),
        Block::new(0, 100).rows(40, 200).planes(20, 10_000),
    ] {
        let (len, hull) = (block.len().unwrap(), block.hull().unwrap());
        let mut push = |told,
                        right,
                        begin: fn(
            &Asker<'_>,
            &RemoteRegion,
            Block,
            Block,
        ) -> Result<Operation<u64>>| {
            let begin = move |asker: &Asker<'_>, there: &RemoteRegion, at| {
                begin(asker, there, Block { offset: at, ..block }, Block::new(0, len as u32))
            };
            kinds.push(Kind { hull, offsets: Offsets::OfBlock, ..kind(told, right, len, begin) });
        };
        push(("put of a block", "put of a block"), Rights::WRITE, |asker, there, far, near| {
            Ok(there.put_block(far, asker.here.all(), near)?.into_bits())
        });
        push(("get of a block", "get of a block"), Rights::READ, |asker, there, far, near| {
            Ok(there.get_block(far, asker.here.all(), near)?.into_bits())
        });
        push(
            ("put of a block", "put of a block with signal"),
            Rights::WRITE,
            |asker, there, far, near| {
                Ok(there
                    .put_block_signal(far, asker.here.all(), near, &asker.fine.signal(0, 1))?
                    .into_bits())
            },
        );
        let told = ("put of a block", "put of a block with signal");
        let signal = kind(told, Rights::ATOMIC, len, move |asker, there, at| {
            let (far, near) = (Block { offset: DATA_AT, ..block }, Block::new(0, len as u32));
            Ok(asker
                .fine
                .put_block_signal(far, asker.here.all(), near, &there.signal(at, 1))?
                .into_bits())
        });
        kinds.push(Kind { hull: 8, align: 8, offsets: Offsets::OfSignal, ..signal });
    }
    kinds
}

fn numbers() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (element, combine, align) in [
        (NumberKind::I32, Combine::Sum, 4),
        (NumberKind::U64, Combine::Max, 8),
        (NumberKind::F32, Combine::Min, 4),
        (NumberKind::F64, Combine::Sum, 8),
    ] {
        for len in [0, 8, LONG] {
            let accumulate =
                kind(("accumulate", "accumulate"), Rights::ATOMIC, len, move |asker, there, at| {
                    Ok(there
                        .accumulate_as(at, Accumulation { element, combine }, asker.slice(len))?
                        .into_bits())
                });
            kinds.push(Kind { align, ..accumulate });
        }
    }
    kinds
}

fn words() -> Vec<Kind> {
    let changes = [
        Change::Add(1),
        Change::CompareSwap { expected: 0x5A5A_5A5A, new: 1 },
        Change::Swap(7),
        Change::And(1),
        Change::Or(4),
        Change::Xor(1),
        Change::Min(0),
        Change::Max(u64::MAX >> 33),
    ];
    let mut kinds = Vec::new();
    for (width, align) in [(Width::W32, 4), (Width::W64, 8)] {
        for (change, fetch) in
            changes.into_iter().flat_map(|change| [(change, true), (change, false)])
        {
            let verb = if fetch { "fetching change" } else { "change" };
            let word = kind((verb, "atomic"), Rights::ATOMIC, align, move |_, there, at| {
                Ok(there.change(at, AtomicOp::new(width, change), fetch))
            });
            kinds.push(Kind { align, ..word });
        }
    }
    kinds
}

/// Fault of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    JustBeyond,
    FarBeyond,
    /// The sum of offset and length exceeds 2^64.
    Overflow,
    Misaligned,
    NoRight,
    NoRightOnOnePage,
    ForgedKey,
    RegionGone,
}

const FAULTS: [Fault; 8] = [
    Fault::JustBeyond,
    Fault::FarBeyond,
    Fault::Overflow,
    Fault::Misaligned,
    Fault::NoRight,
    Fault::NoRightOnOnePage,
    Fault::ForgedKey,
    Fault::RegionGone,
];

impl Fault {
    /// Returns the offset of a request with this fault, or `None` if this kind cannot have it.
    fn offset(self, kind: &Kind) -> Option<u64> {
        let any = kind.offsets != Offsets::Zero;
        match self {
            Fault::JustBeyond => {
                any.then(|| (LEN - kind.hull + kind.align).next_multiple_of(kind.align))
            }
            Fault::FarBeyond => any.then_some(1 << 40),
            Fault::Overflow => {
                (any && kind.offsets != Offsets::OfBlock && kind.len > 0).then_some(u64::MAX - 7)
            }
            Fault::Misaligned => (kind.align > 1).then_some(2 * PAGE + kind.align / 2),
            Fault::NoRightOnOnePage => any.then_some(2 * PAGE),
            Fault::NoRight | Fault::ForgedKey | Fault::RegionGone => Some(0),
        }
    }

    fn refusal(self) -> RefusalReason {
        match self {
            Fault::JustBeyond | Fault::FarBeyond | Fault::Overflow => RefusalReason::OutOfBounds,
            Fault::Misaligned => RefusalReason::Misaligned,
            Fault::NoRight | Fault::NoRightOnOnePage => RefusalReason::NotPermitted,
            Fault::ForgedKey | Fault::RegionGone => RefusalReason::UnknownKey,
        }
    }

    fn advice(self) -> &'static str {
        match self.refusal() {
            RefusalReason::OutOfBounds => "Compare with the length of the region",
            RefusalReason::Misaligned => "Use an offset that is a multiple of",
            RefusalReason::NotPermitted => "Its owner decides",
            _ => "Ask the peer for the region again",
        }
    }

    /// Returns the name of the target's region for a request with this fault.
    fn region(self, kind: &Kind) -> String {
        match self {
            Fault::NoRight => without(kind.right),
            Fault::NoRightOnOnePage => without(kind.right) + " on a page",
            Fault::RegionGone => "gone".to_owned(),
            _ => "fine".to_owned(),
        }
    }
}

const RIGHTS: [Rights; 4] = [Rights::READ, Rights::WRITE, Rights::ATOMIC, Rights::PUSH];

fn without(right: Rights) -> String {
    format!("without {right}")
}

fn all_but(right: Rights) -> Rights {
    Rights(Rights::ALL.0 & !right.0)
}

/// Returns the regions of a target, by name.
fn regions(
    job: &Job,
    make: fn(usize) -> std::result::Result<Region, oikaze::Error>,
) -> Vec<(String, LocalRegion)> {
    let publish = |name: &str, rights| {
        let region = job.publish(name, make(LEN as usize).unwrap(), rights).unwrap();
        region.fill(0, LEN, UNTOUCHED).unwrap();
        (name.to_owned(), region)
    };
    let mut regions = vec![publish("gone", Rights::ALL), publish("fine", Rights::ALL)];
    for right in RIGHTS {
        regions.push(publish(&without(right), all_but(right)));
        let partly = publish(&(without(right) + " on a page"), Rights::ALL);
        partly.1.protect(2 * PAGE..3 * PAGE, all_but(right)).unwrap();
        regions.push(partly);
    }
    regions
}

#[track_caller]
fn assert_untouched(region: &Region) {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    assert_eq!(bytes.iter().position(|byte| *byte != UNTOUCHED), None);
}

/// Refusal that the target must have recorded, without its number.
type Noted = (&'static str, Option<String>, u64, u64, u64, Rights, RefusalReason);

fn noted(of: &RefusedAccess) -> Noted {
    (of.operation, of.region.clone(), of.key, of.offset, of.len, of.right, of.reason)
}

/// Begins every kind of operation with this fault. Returns the refusals that the target must have
/// recorded.
fn ask(asker: &Asker<'_>, found: &[(String, RemoteRegion)], fault: Fault) -> Vec<Noted> {
    let target = asker.fine.peer().rank();
    let (mut begun, mut expected) = (Vec::new(), Vec::new());
    let kinds = kinds();
    for kind in &kinds {
        let Some(at) = fault.offset(kind) else { continue };
        let name = fault.region(kind);
        let mut there = found.iter().find(|(of, _)| *of == name).unwrap().1.clone();
        if fault == Fault::ForgedKey {
            let forged = RemoteId { key: !there.remote_id().key, ..there.remote_id() };
            there = asker.job.remote(forged).unwrap().mapped();
        }
        begun.push((kind, at, (kind.begin)(asker, &there, at).unwrap()));
        // The asker checks the bounds of a list itself (MEM-27.2).
        if kind.verb.ends_with("of a list") && fault.refusal() == RefusalReason::OutOfBounds {
            continue;
        }
        let named = (fault.refusal() != RefusalReason::UnknownKey).then_some(name);
        expected.push((
            kind.told,
            named,
            there.remote_id().key,
            at,
            kind.hull,
            kind.right,
            fault.refusal(),
        ));
    }
    for (kind, at, operation) in begun {
        let error = operation.wait_for(PATIENCE).expect_err(kind.told);
        let text = error.to_string();
        assert_eq!(error.refusal(), Some(fault.refusal()), "{fault:?}: {text}");
        let at = if kind.offsets == Offsets::OfSignal { DATA_AT } else { at };
        let what = format!("{} of {} bytes at offset {at} of region \"", kind.verb, kind.len);
        for words in [what, format!("on node {target}: "), fault.advice().to_owned()] {
            assert!(text.contains(&words), "{fault:?}: \"{words}\" is not in: {text}");
        }
    }
    expected
}

/// Runs a job of `nodes` nodes, whose first node asks the last one.
fn all_is_refused(
    nodes: u32,
    settings: &Settings,
    make: fn(usize) -> std::result::Result<Region, oikaze::Error>,
) {
    let expected = Mutex::new(Vec::new());
    cluster_once(nodes, settings, |job| {
        let mut regions = regions(&job, make);
        let (asks, serves) = (job.rank() == 0, job.rank() == nodes - 1);
        job.barrier().unwrap();
        let asker = asks.then(|| {
            let peer = job.peer(nodes - 1).unwrap();
            let find =
                |(name, _): &(String, LocalRegion)| (name.clone(), peer.region(name).unwrap());
            let found: Vec<_> = regions.iter().map(find).collect();
            let fine = found.iter().find(|(name, _)| name == "fine").unwrap().1.clone();
            let here = job.register(Region::zeroed(LONG as usize).unwrap()).unwrap();
            here.fill(0, LONG, UNTOUCHED).unwrap();
            (Asker { job: &job, here, fine }, found)
        });
        job.barrier().unwrap();
        drop(regions.remove(0));
        job.barrier().unwrap();
        let mut before = 0;
        for fault in FAULTS {
            if let Some((asker, found)) = &asker {
                *expected.lock().unwrap() = ask(asker, found, fault);
            }
            job.barrier().unwrap();
            if serves {
                let mut expected = std::mem::take(&mut *expected.lock().unwrap());
                let refusals = job.refused_accesses();
                let (count, last) = (expected.len(), refusals.last().map_or(0, |last| last.serial));
                assert_eq!(last - before, count as u64, "{fault:?}: each is counted once");
                before = last;
                let mut seen: Vec<Noted> =
                    refusals[refusals.len() - count..].iter().map(noted).collect();
                assert!(refusals.iter().all(|one| one.from == 0));
                seen.sort_by_key(|one| format!("{one:?}"));
                expected.sort_by_key(|one| format!("{one:?}"));
                assert_eq!(seen, expected, "{fault:?}");
                regions.iter().for_each(|(_, region)| assert_untouched(region));
            }
            job.barrier().unwrap();
        }
        if let Some((asker, _)) = asker {
            assert_untouched(&asker.here);
        }
        job.barrier().unwrap();
    });
}

fn private(len: usize) -> std::result::Result<Region, oikaze::Error> {
    Ok(Region::zeroed(len)?)
}

fn shared(len: usize) -> std::result::Result<Region, oikaze::Error> {
    Ok(Region::shared(len)?)
}

#[test]
fn what_is_asked_of_oneself() {
    all_is_refused(1, &Settings::default(), private);
}

#[test]
fn what_is_asked_over_the_network() {
    all_is_refused(2, &over_the_network(&Settings::default()), private);
}

#[test]
fn what_is_asked_through_rings() {
    all_is_refused(2, &Settings::default(), private);
}

#[test]
fn what_is_asked_of_mapped_memory() {
    all_is_refused(2, &Settings::default(), shared);
}
