//! Captures of the wire format: datagrams as each version writes them, and what they mean.
//!
//! The files of a version stand in `captures/VERSION`. Their bytes never change, so a program that
//! speaks the version must read them as their texts say (WIRE-6.6). A run with `OIKAZE_CAPTURE=1`
//! writes those of the highest version that are missing. It writes the texts anew, too, because
//! they have names of fields, and changes no bytes.

use crate::block::Block;
use crate::coherence::KIND;
use crate::coherence::codec::{Headline, samples};
use crate::collective::{
    CollectiveCall, CollectiveKind, ElementCode, Operator, ParcelHead, ParcelPurpose,
};
use crate::limits::{DATAGRAM_MIN, WIRE_VERSION};
use crate::rma::{
    Accumulation, AtomicOp, Change, Combine, NumberKind, Operation, Published, Rights, Signal,
    StreamOffer, StreamRefusal, StreamStep, TicketId, Width,
};
use crate::seal::{CipherKind, FIRST_LEN, KeyStep, SECOND_LEN, StreamSecret};
use crate::wind::{Class, Refusal};
use crate::wire::group::GroupAcknowledgement;
use crate::wire::*;
use std::collections::BTreeMap;
use std::format;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

/// Environment variable by which a run writes files.
const WRITE: &str = "OIKAZE_CAPTURE";
/// Bytes in a line of a file.
const LINE_BYTES: usize = 48;
/// Columns of a line of text.
const LINE_TEXT: usize = 98;
/// Number of the message in captured datagrams.
const NUMBER: u64 = 0x1234_5678_9abc;

/// Datagrams of one file, in order: what each shows, and its bytes.
type Captures = Vec<(String, Vec<u8>)>;

/// Builds a datagram. Its tag is of zeros, because captures need no keys.
fn datagram(
    (connection, seal, limit): (u64, SealKind, usize),
    payload: &[u8],
    write: impl FnOnce(&mut Builder<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, connection, 0x0102_0304, seal, limit);
    write(&mut builder);
    builder.finish(Some(payload).filter(|payload| !payload.is_empty()));
    bytes.resize(bytes.len() + seal.tag_len(), 0);
    bytes
}

fn handshake(write: impl FnOnce(&mut Builder<'_>)) -> Vec<u8> {
    datagram((0, SealKind::Handshake, DATAGRAM_MIN), &[], write)
}

fn data(write: impl FnOnce(&mut Builder<'_>)) -> Vec<u8> {
    data_of(DATAGRAM_MIN, &[], write)
}

fn data_of(limit: usize, payload: &[u8], write: impl FnOnce(&mut Builder<'_>)) -> Vec<u8> {
    datagram((0x1122_3344_5566_7788, SealKind::EndToEnd, limit), payload, write)
}

/// Builds a datagram with a message of this head.
fn headed(head: &[u8], body: &[u8]) -> Vec<u8> {
    let class = Class::Ordered;
    data(|builder| {
        builder.message(&SmallMessage { number: NUMBER, class, credited: false, head, body });
    })
}

fn named<const N: usize>(all: [(&str, Vec<u8>); N]) -> Captures {
    all.map(|(name, bytes)| (name.to_string(), bytes)).into()
}

fn handshakes() -> Captures {
    let mine = Introduction {
        versions: Versions::SPOKEN,
        rank: 2,
        nodes: 5,
        incarnation: 0x0a0b_0c0d,
        connection: 0x1122_3344_5566_7788,
        page_size: 4096,
        byte_order: 1,
        architecture: 1,
        datagram_max: 8972,
        receive_buffer: 1 << 22,
        credit: 1 << 20,
        bulk_port: 7001,
        seal: 3,
    };
    let shown = Shown { connection: 0x99aa_bbcc_ddee_ff00, incarnation: 7, path: 1 };
    let hello = |yours, answer_wanted, key, cookie| {
        let (to, path) = (Some(3), 2);
        let hello = Hello { mine, to, path, yours, answer_wanted, key, cookie };
        handshake(|builder| builder.hello(&hello))
    };
    let (first, second) = (KeyStep::First([0x51; FIRST_LEN]), KeyStep::Second([0x52; SECOND_LEN]));
    let reply =
        CookieReply { rank: 3, incarnation: 0x0a0b_0c0d, number: 0x0102_0304, cookie: [0xc0; 16] };
    let mut all = named([
        ("hello", hello(None, true, KeyStep::Nothing, None)),
        ("hello with a first message and a cookie", hello(None, true, first, Some([0xc0; 16]))),
        ("hello with a second message", hello(Some(shown), true, second, None)),
        ("hello of an end that has the second message", {
            hello(Some(shown), false, KeyStep::Done, None)
        }),
        ("cookie", handshake(|builder| builder.cookie(&reply))),
    ]);
    all.extend((0..=u8::MAX).filter_map(Misfit::from_code).map(|misfit| {
        let (mine, yours) = if misfit == Misfit::Version { (0x000d_000b, 10) } else { (2, 5) };
        let refuse = Refuse { rank: 3, misfit, mine, yours, incarnation: 0x0a0b_0c0d };
        (format!("refuse: {misfit:?}"), handshake(|builder| builder.refuse(&refuse)))
    }));
    all
}

fn frames() -> Captures {
    let message = |class, credited, head: &[u8], body: &[u8]| {
        data(|builder| {
            builder.message(&SmallMessage { number: NUMBER, class, credited, head, body });
        })
    };
    let told =
        AckFields { lane: Lane::Bulk, credit: 1 << 33, delay: 1500, marked: 3, share: 70_000 };
    let refusals = [(9, Refusal::Malformed), (11, Refusal::NotPermitted)]
        .map(|(number, refusal)| RefusedMessage { number, refusal });
    let ranges = || [1000..=1004, 990..=995, 7..=7].into_iter();
    let fragment = Fragment { message_low: 0x5678_9abc, offset: 1 << 33 };
    let open = |class, credited| {
        data(|builder| {
            builder.open(&Open { number: NUMBER, class, credited, head: b"head", len: 1 << 34 });
        })
    };
    let mut all = named([
        ("ping", data(|builder| builder.ping())),
        ("ping in the bulk lane that asks for an acknowledgement", {
            data(|builder| {
                builder.flag(Flags::ACK_NOW);
                builder.flag(Flags::BULK_LANE);
                builder.ping();
            })
        }),
        ("acknowledgement", data(|builder| builder.acknowledge(ranges(), told, &refusals))),
        ("acknowledgement of nothing", {
            data(|builder| builder.acknowledge([].into_iter(), AckFields::default(), &[]))
        }),
        ("message, ordered", message(Class::Ordered, false, b"head", b"body")),
        ("message, unordered and credited", message(Class::Unordered, true, b"head", b"")),
        ("message, synchronous", message(Class::Sync, false, b"", b"body")),
        ("open, ordered", open(Class::Ordered, false)),
        ("open, unordered and credited", open(Class::Unordered, true)),
        ("fragment, and settled messages", {
            data_of(DATAGRAM_MIN, b"bytes", |builder| {
                builder.fragment(fragment, 5);
                builder.settled(NUMBER - 1);
            })
        }),
        ("withdraw", {
            let withdrawal = Withdrawal { number: NUMBER, charged: true, len: 99 };
            data(|builder| builder.withdraw(withdrawal))
        }),
        ("padded ping", {
            data_of(64, &[], |builder| {
                builder.ping();
                builder.pad();
            })
        }),
        ("group datagram", {
            data_of(DATAGRAM_MIN, b"bytes", |builder| {
                builder.fragment(Fragment { message_low: 0, ..fragment }, 5);
                builder.group(0b1_0010, [5, 6].into_iter());
                builder.open(&Open {
                    number: 0,
                    class: Class::Unordered,
                    credited: false,
                    head: b"head",
                    len: 1 << 34,
                });
            })
        }),
        ("probe of a group", {
            data(|builder| {
                builder.group(0b111, [].into_iter());
                builder.ping();
            })
        }),
        ("acknowledgement of group datagrams", {
            data(|builder| builder.group_acknowledge(77, ranges(), told, &refusals))
        }),
    ]);
    all.extend(
        (0..=u8::MAX)
            .filter_map(CloseReason::from_code)
            .map(|reason| (format!("close: {reason:?}"), data(|builder| builder.close(reason)))),
    );
    all.extend((0..=u8::MAX).filter_map(Refusal::from_code).map(|refusal| {
        let refused = [RefusedMessage { number: 9, refusal }];
        let bytes = data(|builder| builder.acknowledge([5..=5].into_iter(), told, &refused));
        (format!("refusal: {refusal:?}"), bytes)
    }));
    all
}

/// Names captures by the kinds with which their texts begin, and numbers those of one kind. A new
/// one behind the others of its kind changes no name.
fn numbered(all: Captures) -> Captures {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let name = |(text, bytes): (String, Vec<u8>)| {
        let kind = text.split([' ', '(']).next().unwrap_or_default().to_string();
        let count = counts.entry(kind.clone()).or_default();
        *count += 1;
        (format!("{kind} {count}"), bytes)
    };
    all.into_iter().map(name).collect()
}

/// Messages of one-sided operations, of programs and of collectives (MEM-2).
fn operations() -> Captures {
    let (key, offset, ticket) = (0x00c0_ffee, 0x4000, TicketId { token: 3, serial: 4 });
    let signal = Some(Signal { key: 0x00ba_11ad, offset: 8, add: 1 });
    let block =
        Block { offset, row: 256, rows: 3, planes: 2, row_stride: 4096, plane_stride: 65_536 };
    let changes = [
        Change::Add(1),
        Change::CompareSwap { expected: 1, new: 2 },
        Change::Swap(3),
        Change::And(4),
        Change::Or(5),
        Change::Xor(6),
        Change::Min(7),
        Change::Max(8),
        Change::MinSigned(9),
        Change::MaxSigned(10),
    ];
    let published = Published { key, len: 1 << 20, rights: Rights::ALL };
    let call = CollectiveCall {
        kind: CollectiveKind::AllReduce,
        uneven: false,
        element: ElementCode::new("u64", 8),
        operator: Operator::Sum,
        root: 0,
        count: Some(5),
    };
    let parcel =
        |purpose| Operation::Parcel(ParcelHead { purpose, team: 1, number: 2, round: 3, call });
    let mut all: Vec<Operation> = [
        Operation::Put { key, offset, signal: None },
        Operation::Put { key, offset, signal },
        Operation::PutNotice { key, offset, tag: 9 },
        Operation::Get { ticket, key, offset, len: 1 << 20 },
        Operation::PutBlock { key, block, signal: None },
        Operation::PutBlock { key, block, signal },
        Operation::GetBlock { ticket, key, block },
        Operation::Push { key, offset },
        Operation::Lookup { ticket },
        Operation::User { tag: 9 },
        Operation::Data { ticket },
        Operation::Old { ticket, old: 7 },
        Operation::Found { ticket, published },
        Operation::Missing { ticket, count: 2 },
        Operation::Gone { ticket, refusal: Refusal::NotPermitted },
    ]
    .into();
    for width in [Width::W32, Width::W64] {
        all.extend(changes.map(|change| {
            let op = AtomicOp::new(width, change);
            Operation::Atomic { ticket, key, offset, op }
        }));
    }
    for element in (0..=u8::MAX).filter_map(NumberKind::from_code) {
        let combines = (0..=u8::MAX).filter_map(Combine::from_code);
        all.extend(combines.map(|combine| {
            let how = Accumulation { element, combine };
            Operation::Accumulate { key, offset, how }
        }));
    }
    all.extend((0..=u8::MAX).filter_map(ParcelPurpose::from_code).map(parcel));
    let of = |operation: &Operation| (format!("{operation:?}"), headed(&operation.encode(), &[]));
    let mut all: Captures = all.iter().map(of).collect();
    let offer = StreamOffer {
        member: 3,
        cipher: CipherKind::Aes128Gcm,
        group: "239.1.2.3:7000".parse().unwrap(),
        secret: StreamSecret::from_bytes([0x5e; StreamSecret::LEN]),
    };
    let refusals = (0..=u8::MAX).filter_map(StreamRefusal::from_code).map(StreamStep::Refused);
    let steps = [StreamStep::Open(offer), StreamStep::Joined, StreamStep::Close];
    all.extend(steps.into_iter().chain(refusals).map(|step| {
        let message = step.message(0x0102_0304_0506_0708);
        (format!("Stream{step:?}"), headed(&message.head, message.body.bytes()))
    }));
    numbered(all)
}

/// Messages of shared arrays (COH-9).
fn coherence() -> Captures {
    let of = |head: Headline| (format!("{head:?}"), headed(&head.write(), &[]));
    numbered(samples().into_iter().map(|(head, _)| of(head)).collect())
}

/// Returns the captures of the highest version, by the names of their files.
fn all() -> [(&'static str, Captures); 4] {
    [
        ("handshakes", handshakes()),
        ("frames", frames()),
        ("operations", operations()),
        ("shared-arrays", coherence()),
    ]
}

/// Describes a datagram as this program reads it, a line for each part.
fn describe(bytes: &[u8]) -> Vec<String> {
    let view = match View::parse(bytes) {
        Ok(view) => view,
        Err(why) => return [why.to_string()].into(),
    };
    let mut text: Vec<String> = [format!("{:?}", view.header())].into();
    for frame in view.frames() {
        text.push(match frame {
            Err(why) => why.to_string(),
            Ok(Frame::Acknowledge(ack)) => describe_ack(&ack),
            Ok(Frame::GroupAcknowledge(GroupAcknowledgement { stream, ack })) => {
                format!("stream {stream}: {}", describe_ack(&ack))
            }
            Ok(Frame::Group(group)) => {
                let members = (0..32).filter(|member| group.has(*member));
                let numbers = members.map(|member| (member, group.number_of(member)));
                format!("group {:?}", numbers.collect::<Vec<_>>())
            }
            Ok(frame) => format!("{frame:?}"),
        });
        if let Ok(Frame::Message(message)) = frame {
            text.extend(describe_head(message.head, message.body));
        }
    }
    if !view.payload().is_empty() {
        text.push(format!("payload {:?}", view.payload()));
    }
    text
}

fn describe_ack(ack: &Acknowledgement<'_>) -> String {
    let (ranges, refusals): (Vec<_>, Vec<_>) = (ack.ranges().collect(), ack.refusals().collect());
    format!("acknowledges {ranges:?}, {:?}, refuses {refusals:?}", ack.fields)
}

/// Describes the head of a message of an upper layer.
fn describe_head(head: &[u8], body: &[u8]) -> Option<String> {
    if head.first() == Some(&KIND) {
        return Some(format!("{:?}", Headline::read(head)));
    }
    let stream = || StreamStep::read(head, body).ok().map(|step| format!("{step:?}"));
    Operation::decode(head).map(|operation| format!("{operation:?}")).or_else(stream)
}

/// Writes a text in lines of a file.
fn put_text(text: &str, out: &mut String) {
    let mut line = String::from(">");
    for word in text.split(' ') {
        if line.len() > 1 && line.len() + 1 + word.len() > LINE_TEXT {
            *out += &(core::mem::replace(&mut line, String::from("> ")) + "\n");
        }
        line += " ";
        line += word;
    }
    *out += &(line + "\n");
}

/// Returns a file with these captures, and what this program reads in them.
fn file_of(captures: &Captures) -> String {
    let mut out = String::new();
    for (name, bytes) in captures {
        out += &format!("= {name}\n");
        for line in bytes.chunks(LINE_BYTES) {
            line.iter().for_each(|byte| out += &format!("{byte:02x}"));
            out += "\n";
        }
        describe(bytes).iter().for_each(|text| put_text(text, &mut out));
        out += "\n";
    }
    out
}

/// Reads the captures of a file.
fn captures_of(file: &str) -> Captures {
    let mut all = Captures::new();
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('>')) {
        match (line.strip_prefix("= "), all.last_mut()) {
            (Some(name), _) => all.push((name.to_string(), Vec::new())),
            (None, Some((_, bytes))) => bytes.extend((0..line.len() / 2).map(|at| {
                u8::from_str_radix(&line[2 * at..2 * at + 2], 16).expect("a byte in hexadecimal")
            })),
            (None, None) => panic!("bytes without a name: {line}"),
        }
    }
    all
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Returns all files of captures, by version and name.
fn files() -> BTreeMap<(u16, String), String> {
    let mut found = BTreeMap::new();
    for version in folder().read_dir().into_iter().flatten().map(Result::unwrap) {
        let number = version.file_name().to_str().unwrap().parse().expect("a folder's version");
        for file in version.path().read_dir().unwrap().map(Result::unwrap) {
            let name = file.file_name().to_str().unwrap().trim_end_matches(".txt").to_string();
            found.insert((number, name), std::fs::read_to_string(file.path()).unwrap());
        }
    }
    found
}

/// Writes the captures of the highest version that are missing, and all texts.
fn write_files() {
    let mut captures: BTreeMap<(u16, String), Captures> =
        files().into_iter().map(|(key, file)| (key, captures_of(&file))).collect();
    for (name, new) in all() {
        let known = captures.entry((WIRE_VERSION, name.to_string())).or_default();
        for one in new {
            if !known.iter().any(|(name, _)| *name == one.0) {
                known.push(one);
            }
        }
    }
    for ((version, name), captures) in captures {
        let folder = folder().join(version.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name + ".txt"), file_of(&captures)).unwrap();
    }
}

/// WIRE-6.6: what this program writes in its highest version is what the captures of the version
/// have. A difference is a new version.
#[test]
fn highest_version_is_written_as_captured() {
    if std::env::var_os(WRITE).is_some() {
        write_files();
    }
    let files = files();
    for (name, written) in all() {
        let key = (WIRE_VERSION, name.to_string());
        let file = files.get(&key).unwrap_or_else(|| panic!("{key:?}: write it by {WRITE}=1"));
        let captured: BTreeMap<String, Vec<u8>> = captures_of(file).into_iter().collect();
        for (what, bytes) in written {
            let found = captured.get(&what);
            let found = found.unwrap_or_else(|| panic!("{key:?}, {what}: write it by {WRITE}=1"));
            assert_eq!(
                *found, bytes,
                "{key:?}, {what}: datagrams of this version must not change; raise WIRE_VERSION"
            );
        }
    }
}

/// WIRE-6.1, WIRE-6.2, WIRE-6.6: captures of all versions that this program speaks mean what they
/// meant. Of older versions, it reads which versions their HELLOs tell.
#[test]
fn captures_of_all_versions_are_read_as_before() {
    for ((version, name), file) in files() {
        let captures = captures_of(&file);
        assert!(!captures.is_empty(), "{version}/{name}");
        if (Versions::SPOKEN.lowest..=Versions::SPOKEN.highest).contains(&version) {
            let read = file_of(&captures);
            let line = file.lines().zip(read.lines()).find(|(was, is)| was != is);
            assert!(file == read, "{version}/{name} was read as, and is read as: {line:#?}");
            continue;
        }
        for (what, bytes) in captures.iter().filter(|(what, _)| what.starts_with("hello")) {
            let frame = View::parse(bytes).unwrap().frames().next().unwrap();
            let Ok(Frame::Hello(hello)) = frame else { panic!("{version}, {what}: {frame:?}") };
            let Versions { lowest, highest } = hello.mine.versions;
            assert!((lowest..=highest).contains(&version), "{version}, {what}");
        }
    }
}
