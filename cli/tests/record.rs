//! Tests `OIKAZE_PCAP` and `OIKAZE_TRACE` on a real job, and the dissector on the files that they
//! wrote.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{OIKAZE, finish, oikaze, skipped, text};

/// Directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("oikaze-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the packets of a capture: `true` if its node sent it, and the bytes after the UDP
/// header. Checks the structure of the blocks.
fn packets(path: &str) -> Vec<(bool, Vec<u8>)> {
    let file = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (0, Vec::new());
    while at < file.len() {
        let len = word(at + 4) as usize;
        assert_eq!(word(at + len - 4) as usize, len);
        if word(at) == 6 {
            let packet = &file[at + 28..at + 28 + word(at + 20) as usize];
            let headers = if packet[0] >> 4 == 4 { 28 } else { 48 };
            // The last eight bytes of the options are the direction and the end of the options.
            packets.push((word(at + len - 12) == 2, packet[headers..].to_vec()));
        } else {
            assert_eq!(word(at), if at == 0 { 0x0a0d_0d0a } else { 1 });
        }
        at += len;
    }
    packets
}

/// Runs `oikaze run -n 2 -- oikaze hello`, which records into `directory`.
fn record(directory: &Directory) {
    let (pcap, trace) = (directory.path("x.pcapng"), directory.path("x.txt"));
    let mut job = oikaze(&["run", "-n", "2", "--seal", "integrity", "--", OIKAZE, "hello"]);
    let (status, _, err) = finish(job.env("OIKAZE_PCAP", pcap).env("OIKAZE_TRACE", trace));
    assert_eq!(status, Some(0), "{err}");
}

#[test]
fn what_one_node_received_the_other_sent() {
    let directory = Directory::new("record");
    record(&directory);
    let captures = [0, 1].map(|rank| packets(&directory.path(&format!("x.{rank}.pcapng"))));
    for (rank, packets) in captures.iter().enumerate() {
        let sent: BTreeSet<&[u8]> = captures[1 - rank]
            .iter()
            .filter(|(sent, _)| *sent)
            .map(|(_, bytes)| bytes.as_slice())
            .collect();
        let received: Vec<&[u8]> =
            packets.iter().filter(|(sent, _)| !*sent).map(|(_, bytes)| bytes.as_slice()).collect();
        assert!(received.len() > 3, "a handshake, a barrier and a goodbye");
        assert!(
            received.iter().all(|bytes| sent.contains(bytes)),
            "no byte is changed on the way into the file"
        );
        let trace = std::fs::read_to_string(directory.path(&format!("x.{rank}.txt"))).unwrap();
        assert_eq!(trace.lines().count(), packets.len(), "a line for each datagram");
        for word in [" > ", " < ", "HELLO rank 1 of 2", "MESSAGE", "ACK", "CLOSE"] {
            assert!(trace.contains(word), "no {word} in:\n{trace}");
        }
    }
}

/// SEAL-3.1: of an encrypted datagram, the trace shows the header.
#[test]
fn what_is_encrypted_is_recorded_encrypted() {
    let directory = Directory::new("encrypted");
    let trace = directory.path("x.txt");
    let mut job = oikaze(&["run", "-n", "2", "--", OIKAZE, "hello"]);
    let (status, _, err) = finish(job.env("OIKAZE_TRACE", trace));
    assert_eq!(status, Some(0), "{err}");
    let trace = std::fs::read_to_string(directory.path("x.0.txt")).unwrap();
    assert!(trace.contains("HELLO rank 1 of 2") && trace.contains(" encrypted"), "{trace}");
    assert!(!trace.contains("MESSAGE") && !trace.contains("CLOSE"), "{trace}");
}

#[test]
fn the_dissector_understands_all_of_it() {
    if Command::new("tshark").arg("--version").output().is_err() {
        // tshark is large, so no machine must have it.
        return skipped("tshark is not installed (package tshark)");
    }
    let directory = Directory::new("dissect");
    record(&directory);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/wireshark/oikaze.lua");
    let capture = directory.path("x.0.pcapng");
    let tshark = |arguments: &[&str]| {
        let mut command = Command::new("tshark");
        // The user's settings of tshark must not apply.
        command.env("HOME", &directory.0).args([
            "-X",
            &format!("lua_script:{}", script.display()),
            "-r",
            &capture,
        ]);
        let output = command.args(arguments).output().unwrap();
        assert!(
            output.status.success() && !text(&output.stderr).contains("Lua"),
            "{}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    assert_eq!(tshark(&["-Y", "!oikaze"]), "", "every datagram is recognised");
    assert_eq!(tshark(&["-Y", "oikaze.malformed || _ws.malformed || _ws.lua.error"]), "");
    let kinds = tshark(&["-T", "fields", "-e", "oikaze.kind"]);
    assert_eq!(kinds.lines().count(), packets(&capture).len());
    let found: BTreeSet<&str> = kinds.split([',', '\n']).collect();
    assert!(["2", "3", "7", "8"].iter().all(|kind| found.contains(kind)), "{found:?}");
    assert!(tshark(&[]).contains("HELLO rank 0 of 2 to 1"));
}

#[test]
fn a_record_that_cannot_be_made_keeps_nobody_from_running() {
    let (status, _, err) = finish(oikaze(&["hello"]).env("OIKAZE_PCAP", "/nowhere/at/all"));
    assert_eq!(status, Some(0));
    assert!(err.contains("could not write /nowhere/at/all.0"), "{err}");
    let (status, _, err) = finish(
        oikaze(&["hello"]).env("OIKAZE_PCAP", "/nowhere/at/all").env("OIKAZE_PCAP_LIMIT", "much"),
    );
    assert_eq!(status, Some(1));
    assert!(err.contains("OIKAZE_PCAP_LIMIT=much"), "{err}");
}
