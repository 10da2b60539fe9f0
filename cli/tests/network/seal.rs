//! Tests of `oikaze run --seal` and `--secret-file`.

use crate::support::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// SEAL-1.1, SEAL-1.3, SEAL-1.4: hosts are network namespaces, which share no memory.
#[test]
fn job_says_once_that_it_is_not_fully_sealed() {
    if !rustix::process::getuid().is_root() {
        return skip("it needs root, to make network namespaces");
    }
    let run = |options: &[&str]| {
        let mut command = oikaze(&["run", "-n", "3"]);
        finish(command.args(options).args(["--", OIKAZE, "hello"]))
    };
    for (seal, weakness) in [
        ("full", None),
        ("integrity", Some("can read it")),
        ("crc", Some("can read and change it")),
        ("header", Some("can read and change it")),
    ] {
        let (status, _, err) = run(&["--netns", "--seal", seal]);
        assert_eq!(status, Some(0), "{err}");
        let said = err.matches("not fully sealed").count();
        assert_eq!(said, usize::from(weakness.is_some()), "{seal}: {err}");
        assert!(weakness.is_none_or(|weakness| err.contains(weakness)), "{err}");
    }
    let (status, _, err) = run(&["--netns"]);
    assert!(status == Some(0) && !err.contains("sealed"), "the default is full: {err}");
    let (status, _, err) = run(&["--seal", "crc"]);
    assert!(status == Some(0) && !err.contains("sealed"), "nothing leaves this machine: {err}");
    let (status, _, err) = run(&["--seal", "wax"]);
    assert!(status == Some(2) && err.contains("full, integrity, crc or header"), "{err}");
}

/// LAUNCH-6.4: the secret of a file is the job's, and nobody else gets to see it.
#[test]
fn secret_of_a_file_is_used_and_not_shown() {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("secret-{}", std::process::id()));
    let secret = "5f".repeat(32);
    let run = |mode: u32, content: &str| {
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let script = "env; tr '\\0' ' ' </proc/self/cmdline; tr '\\0' ' ' </proc/$PPID/cmdline";
        let file = path.to_str().unwrap();
        let found =
            finish(&mut oikaze(&["run", "--secret-file", file, "--", "/bin/sh", "-c", script]));
        fs::remove_file(&path).unwrap();
        found
    };
    let (status, out, err) = run(0o600, &secret);
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("--secret-file") && !(out + &err).contains("5f5f"));
    for (mode, content, why) in [
        (0o644, secret.as_str(), "chmod 600"),
        (0o600, "", "it is empty"),
        (0o600, "secret", "64 hexadecimal digits"),
    ] {
        let (status, out, err) = run(mode, content);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(why) && err.contains("secret file"), "{err}");
    }
}

/// SEAL-1.2, WIND-1.5, LAUNCH-6.3: nodes that do not fit end at once. Each
/// says why, and what to do.
#[test]
fn nodes_that_do_not_fit_end_with_an_error_at_both() {
    let Some(_turn) = namespaces() else { return };
    const ALIKE: &str = "set OIKAZE_SEAL alike on all nodes";
    const ENDED: &str = "node 1 ended with status 1";
    // The other end of the pair may find the misfit first, and end the job with its view of it.
    let misfit = |theirs: &str| {
        let told = |here: &str, there: &str| {
            format!("datagrams are sealed by {here} here, by {there} at the peer")
        };
        [told("full", theirs), told(theirs, "full")]
    };
    let either = |one: &str| [one.to_owned(), one.to_owned()];
    for (differs, first, second) in [
        ("OIKAZE_SEAL=crc", [misfit("crc"), either(ALIKE)], [misfit("crc"), either(ALIKE)]),
        (
            "OIKAZE_SEAL=integrity",
            [misfit("integrity"), either(ALIKE)],
            [misfit("integrity"), either(ALIKE)],
        ),
        (
            "OIKAZE_SECRET=$(printf %064d 7)",
            [either("oikaze hello"), either(ENDED)],
            [either("does not know this job's secret"), either("OIKAZE_SECRET is of another job")],
        ),
        (
            "OIKAZE_SECRET=",
            [either("oikaze hello"), either(ENDED)],
            [either("OIKAZE_SECRET is not usable"), either("64 hexadecimal digits")],
        ),
    ] {
        let script = format!("[ $OIKAZE_RANK = 1 ] && export {differs}; exec {OIKAZE} hello");
        let begun = std::time::Instant::now();
        let (status, _, err) = finish(&mut run_script(
            &["-n", "2", "--netns", "--failure-time", "50000", "--timeout", "60"],
            &script,
        ));
        assert_eq!(status, Some(1), "{differs}: {err}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(50), "{differs}: {err}");
        for (rank, words) in [(0, first), (1, second)] {
            let told =
                err.lines().find(|line| line.starts_with(&format!("[{rank}] oikaze hello:")));
            let told = told.unwrap_or_else(|| panic!("node {rank} says nothing: {err}"));
            let has = |[one, other]: &[String; 2]| told.contains(one) || told.contains(other);
            assert!(words.iter().all(has), "{differs}: {told}");
        }
    }
}
