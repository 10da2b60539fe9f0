//! Tests `oikaze run --hosts` with a real ssh and sshd, as an ordinary user. `cargo xtask test-all`
//! builds the static command and runs these tests.
//!
//! Two network namespaces have an sshd each. Both see another /etc/passwd, in which the user
//! exists, and do not see the launcher's command. Nothing of the machine is changed.

mod support;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::*;

/// Number of the user, which the machine's own users hardly have.
const USER: u32 = 61_234;
const ADDRESSES: [&str; 2] = ["10.96.0.1", "10.96.0.2"];

/// Two hosts with an sshd each, and the launcher's host, which is the first of them.
struct Site {
    root: PathBuf,
    cable: Cable,
    daemons: Vec<Child>,
}

impl Site {
    /// Starts both. `shell` is the login shell of the user.
    fn new(name: &str, shell: &str) -> Site {
        let cable = Cable::new(
            name,
            ["1500"; 2],
            ADDRESSES.map(|at| format!("{at}/24")).each_ref().map(String::as_str),
        );
        let root = std::env::temp_dir().join(format!("oikaze-sshd-{}-{name}", std::process::id()));
        for folder in ["launcher", "home", "run"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let dist: PathBuf = std::env::var_os("OIKAZE_TEST_DIST")
            .expect("cargo xtask test-all runs this test")
            .into();
        fs::copy(dist.join("oikaze"), root.join("launcher/oikaze")).unwrap();
        let mut site = Site { root, cable, daemons: Vec::new() };
        let at = site.root.display().to_string();
        let line = format!("oikt:x:{USER}:{USER}::{at}/home:{shell}\n");
        site.write("passwd", &(fs::read_to_string("/etc/passwd").unwrap() + &line));
        site.write(
            "shadow",
            &(fs::read_to_string("/etc/shadow").unwrap() + "oikt:*:19000:0:99999:7:::\n"),
        );
        for key in ["key", "host_key"] {
            let mut generate = Command::new("ssh-keygen");
            generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(site.root.join(key));
            assert!(generate.status().unwrap().success());
        }
        site.write(
            "sshd_config",
            &format!(
                "HostKey {at}/host_key\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\n\
                 PasswordAuthentication no\nPidFile none\nUsePAM no\n"
            ),
        );
        // ssh alone knows these names.
        let [a, b] = ADDRESSES;
        site.write(
            "ssh_config",
            &format!(
                "Host alpha\n HostName {a}\nHost beta\n HostName {b}\nHost gone\n HostName 10.96.0.9\n\
                 Host *\n User oikt\n IdentityFile {at}/key\n UserKnownHostsFile {at}/home/known\n\
                 StrictHostKeyChecking accept-new\n BatchMode yes\n ConnectTimeout 2\n LogLevel ERROR\n"
            ),
        );
        for path in ["home", "key"] {
            chown(site.root.join(path), Some(USER), Some(USER)).unwrap();
        }
        for (end, address) in site.cable.0.clone().iter().zip(ADDRESSES) {
            let listen = format!(
                "mount -t tmpfs none {at}/launcher; mount -t tmpfs none /run; mkdir -m 755 /run/sshd; \
                 exec /usr/sbin/sshd -D -e -f {at}/sshd_config -o ListenAddress={address}"
            );
            let mut sshd = site.inside(end, &listen);
            let daemon = sshd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            site.daemons.push(daemon);
            let keyscan = || {
                let mut scan = Command::new("ip");
                scan.args(["netns", "exec", end, "ssh-keyscan", "-T", "1", address]);
                scan.stderr(Stdio::null()).output().is_ok_and(|output| !output.stdout.is_empty())
            };
            until("sshd listens", keyscan);
        }
        site
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root.join(name), text).unwrap();
        fs::set_permissions(self.root.join(name), Permissions::from_mode(0o644)).unwrap();
    }

    /// Returns a command that runs a script inside a host's namespace, where the user exists.
    fn inside(&self, end: &str, script: &str) -> Command {
        let at = self.root.display();
        let begin = format!(
            "set -e; mount --bind {at}/passwd /etc/passwd; mount --bind {at}/shadow /etc/shadow; {script}"
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", end, "unshare", "-m", "/bin/sh", "-c", &begin]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the command `oikaze run ARGUMENTS`, started by the user on the first host.
    fn run(&self, arguments: &str) -> Command {
        let at = self.root.display();
        self.inside(
            &self.cable.0[0],
            &format!(
                "cd {at}/home; exec setpriv --reuid {USER} --regid {USER} --clear-groups env -i \
                 PATH=/usr/bin:/bin HOME={at}/home OIKAZE_RSH='ssh -T -F {at}/ssh_config' \
                 {at}/launcher/oikaze run {arguments}"
            ),
        )
    }

    fn kept(&self) -> Vec<PathBuf> {
        let folder = self.root.join("home/.cache/oikaze");
        let versions = fs::read_dir(folder).into_iter().flatten();
        versions.map(|entry| entry.unwrap().path().join("oikaze")).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// LAUNCH-8.1, LAUNCH-8.2, LAUNCH-8.5.
#[test]
#[ignore = "cargo xtask test-all builds the command first"]
fn command_and_program_reach_hosts_by_ssh() {
    let Some(_turn) = namespaces() else { return };
    if !Path::new("/usr/sbin/sshd").exists() {
        return skip("it needs sshd (package openssh-server)");
    }
    for shell in ["/bin/sh", "/bin/bash", "/bin/csh", "/usr/bin/fish"] {
        if !Path::new(shell).exists() {
            skipped(&format!("{shell} is not installed"));
            continue;
        }
        let site = Site::new(shell.rsplit('/').next().unwrap(), shell);
        // The program is the command under another name, so that the host has no other.
        let program = site.root.join("home/program");
        fs::copy(site.root.join("launcher/oikaze"), &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        chown(&program, Some(USER), Some(USER)).unwrap();
        let arguments = "--hosts alpha,beta --ship program -- ./program hello";
        let (status, out, err) = finish(&mut site.run(arguments));
        assert_eq!(status, Some(0), "{shell}: {out}{err}");
        assert!(out.contains("[0] node 0 reaches node 1 at 10.96.0.2:"), "{shell}: {out}{err}");
        for host in ["alpha", "beta"] {
            let said = format!("oikaze: host {host}: sent this command (");
            assert_eq!(err.matches(&said).count(), 1, "{shell}: {err}");
            assert!(
                err.contains(&format!("oikaze: host {host}: sent 1 file to ")),
                "{shell}: {err}"
            );
        }
        assert!(!err.contains("linked dynamically"), "{err}");
        let kept = site.kept();
        assert!(kept.len() == 1 && kept[0].exists(), "{kept:?}");

        // The second job sends nothing.
        let arguments = "--hosts alpha,beta --no-ship -- id -un";
        let again = finish(&mut site.run(arguments));
        assert!(again.0 == Some(0) && again.2.is_empty(), "{shell}: {again:?}");
        assert_eq!(again.1.matches("oikt").count(), 2, "{shell}: {again:?}");
    }
}

/// LAUNCH-8.4: a host that is down.
#[test]
#[ignore = "cargo xtask test-all builds the command first"]
fn host_that_is_down_is_named_with_the_reason_of_ssh() {
    let Some(_turn) = namespaces() else { return };
    if !Path::new("/usr/sbin/sshd").exists() {
        return skip("it needs sshd (package openssh-server)");
    }
    let site = Site::new("down", "/bin/sh");
    let arguments = "--hosts alpha,gone --failure-time 1 -- id -un";
    let (status, _, err) = finish(&mut site.run(arguments));
    assert_eq!(status, Some(125), "{err}");
    for words in ["remote shell on host gone ended", "10.96.0.9", "works without a password"] {
        assert!(err.contains(words), "{words} is not in:\n{err}");
    }
}
