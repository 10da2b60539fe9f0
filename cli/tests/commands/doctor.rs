//! Tests of `oikaze doctor`.

use crate::support::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

type Line = BTreeMap<String, String>;

fn lines(out: &str, err: &str) -> Vec<Line> {
    serde_json::from_str(out).unwrap_or_else(|why| panic!("{why}: {out}{err}"))
}

#[test]
fn it_speaks_json() {
    let (_, out, err) = finish(&mut oikaze(&["doctor", "--json"]));
    let lines = lines(&out, &err);
    assert!(lines.len() > 5);
    for line in lines {
        assert!(["what", "found", "needed", "ok", "fix"].iter().all(|key| line.contains_key(*key)));
        assert!(line["ok"] == "good" || !line["fix"].is_empty(), "{line:?}");
    }
}

/// SEAL-2.6: the cipher, its speed and the processor, and what to do without AES.
#[test]
fn cipher_of_this_machine_is_named_and_measured() {
    for (without, cipher) in [("", None), ("aes", Some("ChaCha20-Poly1305"))] {
        let mut command = oikaze(&["doctor", "--json"]);
        let (_, out, err) = finish(command.env("OIKAZE_WITHOUT", without));
        let lines = lines(&out, &err);
        let line = lines.iter().find(|line| line["what"] == "sealing").unwrap();
        let expected = cipher.unwrap_or(oikaze_os::secrets::seal::preferred_cipher().name());
        assert!(line["found"].starts_with(&format!("{expected} at ")), "{line:?}");
        assert!(line["found"].contains(" GB/s a core: "), "{line:?}");
        assert_eq!(line["ok"] == "good", expected == "AES-128-GCM", "{line:?}");
        assert_eq!(line["fix"].contains("OIKAZE_WITHOUT"), cipher.is_some(), "{line:?}");
    }
}

/// Issue 33: advice on where applications and communication run.
#[test]
fn it_knows_cores_and_recommends_a_placement_that_run_takes() {
    let (_, out, err) = finish(&mut oikaze(&["doctor", "--json"]));
    let lines = lines(&out, &err);
    let found =
        |what: &str| lines.iter().find(|line| line["what"] == what).unwrap()["found"].clone();
    assert!(found("cores").contains("this process may use"), "{out}");
    for what in ["caches", "NUMA nodes", "network interrupts"] {
        assert!(!found(what).is_empty());
    }
    let placement = found("placement");
    let advice = placement.split("--bind ").nth(1).and_then(|rest| rest.split(' ').next());
    if let Some(bind) = advice {
        let (status, out, err) =
            finish(&mut oikaze(&["run", "--bind", bind, "--", "sh", "-c", "echo started"]));
        assert!(status == Some(0) && out.contains("started"), "{bind}: {out}{err}");
    }
}

/// COH-16.1, COH-16.5: what nodes need to map one memory for an array, with the remedy for what is
/// not there.
#[test]
fn means_of_sharing_arrays_are_found_and_remedies_named() {
    let rows = |limits: &str, without: &str| {
        let mut shell = Command::new("sh");
        let doctor = format!("{limits} exec \"$0\" doctor --json");
        shell.args(["-c", &doctor, env!("CARGO_BIN_EXE_oikaze")]).env("OIKAZE_WITHOUT", without);
        let (_, out, err) = finish(shell.stdin(Stdio::null()));
        let lines = lines(&out, &err);
        move |what: &str| {
            let line = lines.iter().find(|line| line["what"] == what);
            line.unwrap_or_else(|| panic!("no line {what}: {out}")).clone()
        }
    };
    let found = rows("", "");
    assert_eq!(found("memory of several processes")["found"], "passed and mapped (tried)");
    assert!(found("huge pages of memory files")["found"].contains("shmem_enabled is"));
    for what in ["vm.max_map_count", "open files (ulimit -n)"] {
        assert!(found(what)["needed"].contains("each array"), "{:?}", found(what));
    }
    let limited = rows("ulimit -n 100; ulimit -f 1000;", "segment");
    for (what, told, remedy) in [
        ("memory of several processes", "OIKAZE_WITHOUT=segment", "Remove segment"),
        ("open files (ulimit -n)", "100 (ulimit -Hn: 100)", "ulimit -n 4096"),
        ("length of a file (ulimit -f)", " KiB", "ulimit -f unlimited"),
    ] {
        let line = limited(what);
        assert_eq!(line["ok"], "degraded", "{line:?}");
        assert!(line["found"].contains(told) && line["fix"].contains(remedy), "{line:?}");
    }
}

/// Output that cannot be written is an error like others, unless the reader has closed the pipe.
#[test]
fn output_that_nobody_takes() {
    for json in [&["doctor"][..], &["doctor", "--json"], &["hello"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (status, _, err) = finish(oikaze(json).stdout(full));
        assert!(status == Some(1) && err.contains("No space left"), "{json:?} {status:?} {err}");
        assert!(!err.contains("panicked"), "{json:?} {status:?} {err}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (status, _, err) = finish(oikaze(json).stdout(writer));
        assert!(status.is_some_and(|status| status <= 1), "{json:?} {status:?} {err}");
        assert!(err.is_empty(), "{json:?} {status:?} {err}");
    }
}

/// Damage of any kind to the file that keeps measurements of this machine is reported and does no
/// harm.
#[test]
fn a_damaged_measurement_is_told_and_harms_nothing() {
    let cache = std::env::temp_dir().join(format!("oikaze-test-{}-doctor", std::process::id()));
    let file = cache.join("oikaze").join("placement");
    fs::create_dir_all(cache.join("oikaze")).unwrap();
    let look = || {
        let (status, out, err) =
            finish(oikaze(&["doctor", "--json"]).env("XDG_CACHE_HOME", &cache));
        let mut lines = lines(&out, &err);
        // Other jobs of this machine may begin and end meanwhile.
        lines.retain(|line| !line["what"].starts_with("job "));
        (status, lines)
    };
    let found =
        |lines: &[Line], what: &str| lines.iter().find(|line| line["what"] == what).cloned();
    let (sound, before) = look();
    for damage in [&b"oikaze placement 4\nhalf"[..], b"", &[0xff; 5000]] {
        fs::write(&file, damage).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let (status, now) = look();
        assert_eq!((status, now.len()), (sound, before.len() + 1));
        let told = found(&now, "what was measured before").unwrap();
        assert!(told["ok"] == "degraded", "{told:?}");
        assert!(told["found"].contains(file.to_str().unwrap()), "{told:?}");
        assert!(told["found"].contains("it is damaged"), "{told:?}");
        assert!(told["fix"].contains("remove the file"), "{told:?}");
        // The measurement was repeated all the same.
        assert_eq!(
            found(&now, "moving pays, alone").is_some(),
            found(&before, "moving pays, alone").is_some()
        );
    }
    fs::remove_dir_all(&cache).unwrap();
}

/// A closed standard output is an error for each command that prints, help texts included.
#[test]
fn output_to_a_closed_descriptor_is_an_error() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["doctor"],
        &["hello"],
        &["digest"],
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_oikaze")]).args(arguments);
        let (status, _, err) = finish(shell.stdin(Stdio::null()));
        assert!(
            status == Some(1) && err.contains("Bad file descriptor") && !err.contains("panicked"),
            "{arguments:?} {status:?} {err}"
        );
    }
}
