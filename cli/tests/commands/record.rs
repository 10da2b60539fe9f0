//! Tests `OIKAZE_PCAP` and `OIKAZE_TRACE` on a real job, and the dissector on the files that they
//! wrote.

use crate::support::{OIKAZE, ends, finish, oikaze, skipped, text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Runs a sealed job that records its datagrams and keys, without AES on node 1 if `has_aes` is
/// false. Returns what node 0 said on standard error.
fn record_sealed(directory: &Directory, has_aes: bool) -> String {
    let without = if has_aes { "" } else { "aes" };
    let script =
        format!("[ \"$OIKAZE_RANK\" = 0 ] || export OIKAZE_WITHOUT={without}; exec {OIKAZE} hello");
    let mut job = oikaze(&["run", "-n", "2", "--", "/bin/sh", "-c", &script]);
    job.env("OIKAZE_PCAP", directory.path("x.pcapng"));
    let (status, _, err) = finish(job.env("OIKAZE_KEY_LOG", directory.path("keys")));
    assert_eq!(status, Some(0), "{err}");
    err
}

/// SEAL-2.6, SEAL-6.1, SEAL-6.2: Python's `cryptography` opens what a job has sent, with the log
/// that each node says it writes.
#[test]
fn captures_are_opened_with_the_log_of_keys() {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/open_capture.py");
    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output();
    if !python(&["-c", "import cryptography"]).is_ok_and(|output| output.status.success()) {
        return skipped("Python's cryptography is not installed (package python3-cryptography)");
    }
    for (has_aes, cipher) in [(true, "AES-128-GCM"), (false, "ChaCha20-Poly1305")] {
        let directory = Directory::new(&format!("opened-{has_aes}"));
        let said = record_sealed(&directory, has_aes);
        for rank in [0, 1] {
            assert!(said.contains(&format!("node {rank} writes its keys to")), "{said}");
        }
        let log = directory.path("keys");
        let keys = std::fs::read_to_string(&log).unwrap();
        assert!(keys.lines().all(|line| line.split(' ').nth(1) == Some(cipher)), "{keys}");
        // Two directions of two lanes, which both nodes write.
        assert_eq!(keys.lines().collect::<BTreeSet<_>>().len(), 4, "{keys}");
        for rank in [0, 1] {
            let sealed = directory.path(&format!("x.{rank}.pcapng"));
            let opened = directory.path("opened.pcapng");
            let run = |keys: &str| {
                python(&[tool.to_str().unwrap(), "--keys", keys, &sealed, &opened]).unwrap()
            };
            let output = run(&log);
            assert!(output.status.success(), "{output:?}");
            let (sealed, opened) = (packets(&sealed), packets(&opened));
            assert_eq!(sealed.len(), opened.len());
            let of_kind = |packets: &[(bool, Vec<u8>)], kind: u8| {
                packets.iter().filter(|(_, bytes)| bytes[17] == kind).count()
            };
            let count = of_kind(&sealed, 3);
            assert!(count > 2 && of_kind(&opened, 3) == 0 && of_kind(&opened, 4) == count);
            assert_eq!(
                text(&output.stdout),
                format!("{count} of {count} sealed datagrams opened\n")
            );
            // Each opened datagram is one that the receiver could have parsed.
            for (_, bytes) in &opened {
                oikaze_protocol::wire::View::parse(bytes).unwrap();
            }
            let other = directory.path("other");
            std::fs::write(&other, keys.replace(" 0 ", " 1 ")).unwrap();
            assert_eq!(run(&other).status.code(), Some(1), "wrong keys open less");
        }
    }
}

/// SEAL-6.2.
#[test]
fn log_of_keys_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new("key-log");
    let log = directory.path("keys");
    std::fs::write(&log, "").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut job = oikaze(&["run", "-n", "1", "--", OIKAZE, "hello"]);
    let (status, _, err) = finish(job.env("OIKAZE_KEY_LOG", &log));
    assert_ne!(status, Some(0));
    assert!(err.contains("OIKAZE_KEY_LOG") && err.contains("chmod 600"), "{err}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
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
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("Lua"), "{}", text(&output.stderr));
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
    let words = ["could not write /nowhere/at/all.0"];
    ends(oikaze(&["hello"]).env("OIKAZE_PCAP", "/nowhere/at/all"), 0, &words);
    let (status, _, err) = finish(
        oikaze(&["hello"]).env("OIKAZE_PCAP", "/nowhere/at/all").env("OIKAZE_PCAP_LIMIT", "much"),
    );
    assert_eq!(status, Some(1));
    assert!(err.contains("OIKAZE_PCAP_LIMIT=much"), "{err}");
}
