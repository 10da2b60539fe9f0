//! Tests that `oikaze run --hosts` takes itself and files to hosts that lack them (LAUNCH-8). A
//! script in place of ssh runs the remote side here, with a home directory of its own.

use crate::support::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tools that a host has at least.
const TOOLS: [&str; 18] = [
    "cat", "chmod", "df", "env", "find", "head", "id", "ls", "mkdir", "mv", "printf", "rm", "sh",
    "sleep", "touch", "tr", "uname", "wc",
];

/// Hosts that lack the command, and a launcher whose file they cannot see.
struct Site {
    root: PathBuf,
    shell: Shell,
}

impl Site {
    /// Makes hosts whose remote shell runs `begin` first. The script removes the launcher's own
    /// file, whose path exists on a real host only if Oikaze is installed there.
    fn new(name: &str, begin: &str) -> Site {
        let root =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        for tool in TOOLS {
            let from = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(tool));
            let from = from.into_iter().find(|path| path.exists()).unwrap();
            symlink(from, root.join("bin").join(tool)).unwrap();
        }
        let at = root.display();
        let script = format!(
            "host=$1; shift; rm -f {at}/oikaze; mkdir -p {at}/$host; {begin}\n\
             exec env -i HOME={at}/$host PATH={at}/bin TMPDIR={at}/tmp /bin/sh -c \"$*\""
        );
        Site { shell: Shell::new(&format!("ship-{name}"), &script), root }
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let own = self.root.join("oikaze");
        let _ = fs::remove_file(&own);
        fs::hard_link(OIKAZE, &own).unwrap();
        let mut command = Command::new(own);
        command.arg("run").args(options).arg("--").args(program);
        command.env_remove("OIKAZE_CACHE_DIR").env("OIKAZE_RSH", self.shell.command());
        command.current_dir(&self.root).stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    }

    /// Adds a tool, or replaces it.
    fn tool(&self, name: &str, script: &str) {
        let path = self.root.join("bin").join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns all files that hosts keep below `folder`.
    fn kept(&self, folder: &str) -> Vec<PathBuf> {
        let (mut kept, mut folders) = (Vec::new(), vec![self.root.join(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { kept.push(path) }
            }
        }
        kept
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// LAUNCH-8.1, LAUNCH-8.2.
#[test]
fn host_that_lacks_the_command_gets_it_once() {
    let site = Site::new("once", "echo Welcome to $host; printf 'OIKAZE'");
    let program = ["/bin/echo", "hello"];
    let (status, out, err) = finish(&mut site.run(&["--hosts", "a,b"], &program));
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(out.lines().filter(|line| line.ends_with("hello")).count(), 2, "{out}");
    for host in ["a", "b"] {
        let line = format!("oikaze: host {host}: sent this command (");
        assert_eq!(err.matches(&line).count(), 1, "{err}");
        let kept = site.kept(&format!("{host}/.cache/oikaze"));
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(err.contains(kept[0].to_str().unwrap()), "{err}");
        assert!(fs::read(&kept[0]).unwrap() == fs::read(OIKAZE).unwrap());
    }
    let again = finish(&mut site.run(&["--hosts", "a", "--no-ship"], &program));
    assert_eq!(again, (Some(0), "[0] hello\n".into(), String::new()));
}

/// LAUNCH-8.1: finding and sending the command changes neither umask nor variables of the nodes.
#[test]
fn nodes_have_the_umask_and_the_environment_of_their_host() {
    let site = Site::new("umask", "umask 027");
    let program = ["/bin/sh", "-c", "umask; env"];
    for said in ["sent this command", ""] {
        let (status, out, err) = finish(&mut site.run(&["--hosts", "a", "--no-prefix"], &program));
        assert!(status == Some(0) && err.contains(said), "{err}");
        assert!(out.starts_with("0027\n"), "{out}");
        // The launcher's own, and those by which an MPI library finds its server (LAUNCH-10.1).
        let own = ["OIKAZE_", "PMI_", "MPI_LOCAL"];
        let is_own = |line: &&str| own.iter().any(|prefix| line.starts_with(prefix));
        let lines = out.lines().skip(1).filter(|line| !is_own(line));
        let mut names: Vec<&str> = lines.filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["HOME", "PATH", "PWD", "TMPDIR"], "{out}");
    }
}

/// LAUNCH-8.2: hosts may share their home directory.
#[test]
fn hosts_with_one_home_directory_get_the_command_at_the_same_time() {
    let site = Site::new("home", "host=shared");
    let options = ["--hosts", "a,b,c,d"];
    let (status, out, err) = finish(&mut site.run(&options, &["/bin/echo", "hello"]));
    assert_eq!((status, out.matches("hello").count()), (Some(0), 4), "{err}");
    assert_eq!(site.kept("shared/.cache/oikaze").len(), 1);
}

/// LAUNCH-8.1.
#[test]
fn command_in_the_path_of_a_host_is_used_if_its_version_fits() {
    let site = Site::new("path", "");
    let program = ["/bin/echo", "hello"];
    let (_, version, _) = finish(&mut oikaze(&["agent", "--version"]));
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --version ] && {{ echo '{}'; exit; }}\n\
         echo used >&2; exec {OIKAZE} \"$@\"",
        version.trim()
    );
    site.tool("oikaze", &script);
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a", "--no-ship"], &program));
    assert_eq!((status, err.as_str()), (Some(0), "oikaze: a: used\n"));
    // Another protocol is another version, even in the same release.
    site.tool("oikaze", &script.replace("protocol ", "protocol 9"));
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a", "--no-ship"], &program));
    assert_eq!(status, Some(125));
    for words in ["on host a: there is no `oikaze` 0.", "--no-ship forbids", "--agent"] {
        assert!(err.contains(words), "{words} is not in:\n{err}");
    }
    assert_eq!(site.kept("a"), Vec::<PathBuf>::new());
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a"], &program));
    assert!(status == Some(0) && err.contains("sent this command"), "{err}");
}

/// LAUNCH-8.2: hosts that share a home directory replace the command of one another.
#[test]
fn command_that_is_replaced_while_it_runs_goes_on() {
    let site = Site::new("replaced", "");
    let own = site.root.join("there");
    fs::hard_link(OIKAZE, &own).unwrap();
    let own = own.display();
    // The launcher sends no order before it has seen the first line.
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --version ] && exec {own} \"$@\"\n\
         {own} \"$@\" | {{ read -r line; rm {own}; printf '%s\\n' \"$line\"; exec cat; }}"
    );
    site.tool("oikaze", &script);
    let options = ["--hosts", "a", "--no-ship"];
    let finished = finish(&mut site.run(&options, &["/bin/echo", "hello"]));
    assert_eq!(finished, (Some(0), "[0] hello\n".into(), String::new()));
}

/// LAUNCH-8.2: what is kept is verified before each use.
#[test]
fn damaged_command_is_replaced() {
    let site = Site::new("damaged", "");
    let program = ["/bin/echo", "hello"];
    assert_eq!(finish(&mut site.run(&["--hosts", "a"], &program)).0, Some(0));
    let kept = site.kept("a/.cache/oikaze").remove(0);
    let mut bytes = fs::read(&kept).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&kept, &bytes).unwrap();
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a"], &program));
    assert!(status == Some(0) && err.contains("sent this command"), "{err}");
    assert!(fs::read(&kept).unwrap() == fs::read(OIKAZE).unwrap());
}

/// LAUNCH-8.3.
#[test]
fn four_versions_are_kept() {
    let site = Site::new("prune", "");
    let cache = site.root.join("a/.cache/oikaze");
    let others = ["a", "b", "c", "d", "e"].map(|digit| digit.repeat(64));
    for name in others.iter().map(String::as_str).chain(["mine", "f"]) {
        fs::create_dir_all(cache.join(name)).unwrap();
        fs::write(cache.join(name).join("oikaze"), "").unwrap();
    }
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a"], &["/bin/echo", "hello"]));
    assert_eq!(status, Some(0), "{err}");
    let left = others.iter().filter(|name| cache.join(name).exists()).count();
    assert_eq!(left, 3);
    assert!(cache.join("mine").exists() && cache.join("f").exists());
}

/// LAUNCH-8.2: `TOOLS` has neither sha256sum nor shasum nor openssl, and every other test here
/// works so. This one has sha256sum.
#[test]
fn host_with_sha256sum_verifies_by_it() {
    let site = Site::new("sha256sum", "");
    let used = site.root.join("used");
    site.tool(
        "sha256sum",
        &format!("#!/bin/sh\necho >>{}\nexec /usr/bin/sha256sum", used.display()),
    );
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a"], &["/bin/echo", "hello"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(used.exists());
    site.tool("sha256sum", "#!/bin/sh\necho 00  -");
    let words = ["what arrived is not what was sent"];
    ends(&mut site.run(&["--hosts", "b"], &["/bin/echo", "hello"]), 125, &words);
    assert_eq!(site.kept("b"), Vec::<PathBuf>::new());
}

/// LAUNCH-8.4.
#[test]
fn host_of_another_machine_is_refused() {
    let site = Site::new("machine", "");
    site.tool("uname", "#!/bin/sh\n[ $1 = -s ] && echo Linux || echo pdp11");
    let words = ["that host is Linux pdp11", "install Oikaze"];
    ends(&mut site.run(&["--hosts", "a"], &["/bin/echo", "hello"]), 125, &words);
}

/// LAUNCH-8.4: a command that cannot run there is not kept.
#[test]
fn command_that_does_not_run_there_is_refused() {
    // As many bytes arrive as were sent, but the file begins with the wrong ones.
    let site = Site::new("unfit", "");
    site.tool("sha256sum", &format!("#!/bin/sh\nexec /usr/bin/sha256sum {OIKAZE}"));
    site.tool("cat", "#!/bin/sh\nexec /usr/bin/tr E F");
    let (status, _, err) = finish(&mut site.run(&["--hosts", "a"], &["/bin/echo", "hello"]));
    assert_eq!(status, Some(125));
    for words in ["does not run there (", "cargo xtask dist"] {
        assert!(err.contains(words), "{words} is not in:\n{err}");
    }
    assert_eq!(site.kept("a/.cache"), Vec::<PathBuf>::new());
}

/// LAUNCH-8.4: a directory without room, or where no program may run, is not an obstacle while
/// there is another.
#[test]
fn next_directory_is_tried() {
    if !rustix::process::getuid().is_root() {
        return skip("it needs root, to mount file systems");
    }
    for (name, options, why) in [
        ("noexec", "noexec", "no program may be executed there"),
        ("full", "size=64k", "KiB of free space"),
    ] {
        let mount = format!(
            "[ $UNSHARED ] || UNSHARED=1 exec unshare -m /bin/sh $0 $host \"$@\"\n\
             mkdir -p $ROOT/$host/.cache $ROOT/tmp; mount -t tmpfs -o {options} none $ROOT/$host/.cache"
        );
        let site = Site::new(name, &mount);
        let run = |options: &[&str]| {
            let mut command = site.run(options, &["/bin/echo", "hello"]);
            command.env("ROOT", &site.root);
            command
        };
        let (status, _, err) = finish(&mut run(&["--hosts", "a"]));
        assert_eq!(status, Some(0), "{err}");
        let kept = site.kept("tmp");
        assert!(kept.len() == 1 && err.contains(kept[0].to_str().unwrap()), "{err}");
        let mode = fs::metadata(kept[0].ancestors().nth(2).unwrap()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);

        let named = site.root.join("a/.cache/here");
        let mut command = run(&["--hosts", "a"]);
        let (status, _, err) = finish(command.env("OIKAZE_CACHE_DIR", named));
        assert_eq!(status, Some(125));
        for words in [why, "let OIKAZE_CACHE_DIR name a directory of that host"] {
            assert!(err.contains(words), "{words} is not in:\n{err}");
        }
    }
}

/// LAUNCH-8.3: another user may have made the directory to plant a command there.
#[test]
fn directory_in_which_others_may_write_is_not_used() {
    let site = Site::new("planted", "");
    let cache = site.root.join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    let mut command = site.run(&["--hosts", "a"], &["/bin/echo", "hello"]);
    let words = ["not a directory that only this user can write"];
    ends(command.env("OIKAZE_CACHE_DIR", &cache), 125, &words);
    assert_eq!(site.kept("cache"), Vec::<PathBuf>::new());
}

/// LAUNCH-8.4: a disk that becomes full while the command arrives.
#[test]
fn write_that_fails_is_reported_for_each_directory() {
    let site = Site::new("limit", "ulimit -f 64; trap '' XFSZ");
    let cache = site.root.join("kept");
    let mut command = site.run(&["--hosts", "a"], &["/bin/echo", "hello"]);
    ends(command.env("OIKAZE_CACHE_DIR", &cache), 125, &["/kept: ", "File too large"]);
    assert_eq!(site.kept("kept"), Vec::<PathBuf>::new());
}

/// LAUNCH-8.5.
#[test]
fn program_and_files_go_with_the_job() {
    let site = Site::new("files", "");
    let script = "#!/bin/sh\necho $(pwd) $(cat data/in) $(cat \"$1\") $1 $2 ${2:+$PPID}\n\
                  [ -z \"$2\" ] || sleep 1000";
    fs::create_dir_all(site.root.join("data/deep")).unwrap();
    fs::write(site.root.join("data/in"), "input").unwrap();
    fs::write(site.root.join("data/deep/er"), "").unwrap();
    fs::write(site.root.join("elsewhere"), "more").unwrap();
    fs::write(site.root.join("program"), script).unwrap();
    fs::set_permissions(site.root.join("program"), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(site.root.join("tmp")).unwrap();
    let elsewhere = site.root.join("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    let options = ["--hosts", "a,b", "--ship", "program", "data", elsewhere];
    for program in ["./program", "program"] {
        let (status, out, err) = finish(&mut site.run(&options, &[program, elsewhere]));
        assert_eq!(status, Some(0), "{err}");
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        for (rank, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [front, directory, "input", "more", there] = words[..] else { panic!("{out}") };
            assert_eq!(front, format!("[{rank}]"));
            assert_eq!(there, format!("{directory}/elsewhere"));
            let host = if rank == 0 { "a" } else { "b" };
            let said = format!("oikaze: host {host}: sent 4 files to {directory}\n");
            assert!(err.contains(&said), "{err}");
            assert!(directory.starts_with(site.root.join("tmp").to_str().unwrap()), "{directory}");
        }
        assert_eq!(lines.len(), 2);
        // The directories are gone, and the command is kept elsewhere.
        assert!(!site.root.join("tmp").read_dir().unwrap().any(|_| true));
    }
    // Neither a killed launcher nor a killed agent leaves anything.
    for kills_agents in [false, true] {
        let mut command = site.run(&options, &["./program", elsewhere, "stay"]);
        let mut job = Running::start(&mut command);
        let lines = [job.line("["), job.line("[")];
        assert!(lines.iter().all(|line| line.contains("/tmp/oikaze-job-")), "{lines:?}");
        assert_eq!(site.root.join("tmp").read_dir().unwrap().count(), 2);
        if kills_agents {
            let agents = lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap());
            agents.into_iter().for_each(|agent| kill(agent, 9));
        } else {
            job.signal(9);
        }
        job.finish();
        until("files of a killed job are gone", || {
            !site.root.join("tmp").read_dir().unwrap().any(|_| true)
        });
    }
}

/// LAUNCH-8.5.
#[test]
fn file_that_is_not_there_is_named() {
    let site = Site::new("absent", "");
    let options = ["--hosts", "a", "--ship", "no-such-file"];
    let words = ["no-such-file (--ship) cannot be sent: No such file"];
    ends(&mut site.run(&options, &["./no-such-file"]), 2, &words);
}

/// LAUNCH-8.1.
#[test]
fn agent_of_another_release_is_refused() {
    let site = Site::new("release", "");
    site.tool("old", "#!/bin/sh\necho OIKAZE-AGENT 1");
    let old = site.root.join("bin/old");
    let options = ["--hosts", "a", "--agent", old.to_str().unwrap()];
    let words = ["not an `oikaze agent` of this release"];
    ends(&mut site.run(&options, &["/bin/echo", "hello"]), 125, &words);
}
