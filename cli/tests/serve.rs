//! The server of a machine (spec/serve.md), with real processes.

mod support;

use oikaze_os::net::{Arrival, Bind, Link, Outgoing, ReceiveEach};
use oikaze_protocol::random::Random;
use oikaze_protocol::wire::Lane;
use oikaze_serve::ServedLink;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Variable of a client process: the name of its server.
const CLIENT: &str = "SERVE_CLIENT";
/// Kills of a client in the test; the soak makes more.
const KILLS: usize = 40;
const KILLS_VARIABLE: &str = "OIKAZE_SERVE_KILLS";
/// Kills of a server in the test, and the variable by which the soak makes more.
const SERVER_KILLS: usize = 4;
const SERVER_KILLS_VARIABLE: &str = "OIKAZE_SERVER_KILLS";

/// Variable of a node: the file whose appearance ends its exchange.
const END: &str = "SERVE_END";
/// Variable of a node: it waits, instead of exchanging messages.
const BARRIER: &str = "SERVE_BARRIER";

/// A server under a name that no other test has.
struct Server {
    name: String,
    running: Running,
}

/// Returns how often a test repeats something.
fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// Returns the abstract name of a server's socket (SERVE-1.1).
fn socket_of(user: u32, name: &str) -> String {
    format!("@oikaze-serve-{user}-{name}")
}

/// Returns `true` while a server of this user and name accepts clients.
fn is_served_for(user: u32, name: &str) -> bool {
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    names.lines().any(|line| line.ends_with(&socket_of(user, name)))
}

/// Returns `true` while a server of this name accepts clients.
fn is_served(name: &str) -> bool {
    is_served_for(user(), name)
}

/// Returns the processes of the servers of this name.
fn servers_of(name: &str) -> Vec<u32> {
    let command = format!("serve\0{name}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let its = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("cmdline")).is_ok_and(|text| text.contains(&command))
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    processes.filter(|entry| its(&entry.path())).filter_map(number).collect()
}

impl Server {
    fn start(name: &str, options: &[&str]) -> Server {
        let name = format!("{name}-{}", std::process::id());
        let mut command = oikaze(&[&["serve", &name], options].concat());
        let mut running = Running::start(command.stdin(Stdio::null()));
        running.line("serves nodes as");
        Server { name, running }
    }

    fn connect(&self) -> ServedLink {
        let ask = Bind { addresses: vec![HERE], ..Bind::default() };
        ServedLink::connect(&self.name, &ask).unwrap()
    }

    fn pid(&self) -> u32 {
        self.running.child.id()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    fn resident_pages(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// Sends a datagram from one link to another, and waits until it has come.
fn carry(from: &mut ServedLink, to: &mut ServedLink, number: u64) {
    let at = SocketAddr::new(HERE, to.properties().port);
    let body = number.to_le_bytes();
    assert_eq!(from.send(&[Outgoing::new(&at, Lane::Small, &body)]).unwrap(), 1);
    let mut came = false;
    until("the datagram comes", || {
        to.receive(&mut |arrival: Arrival<'_>| came |= arrival.bytes == body).unwrap();
        came
    });
}

/// Runs a client that sends as fast as it can, until it is killed. Not a test.
#[test]
#[ignore = "a client of the other tests"]
fn client() {
    let Ok(name) = std::env::var(CLIENT) else { return };
    let ask = Bind { addresses: vec![HERE], ..Bind::default() };
    let mut link = ServedLink::connect(&name, &ask).unwrap();
    let at = SocketAddr::new(HERE, link.properties().port);
    println!("\nconnected");
    let body = vec![1; 3000];
    let batch: Vec<Outgoing<'_>> = (0..8).map(|_| Outgoing::new(&at, Lane::Bulk, &body)).collect();
    while link.send(&batch).is_ok() && link.receive(&mut |_| {}).is_ok() {}
}

/// Runs a node that talks with the others until its server has ended. Not a test.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    if std::env::var_os("SERVE_NODE").is_none() {
        return;
    }
    let code = oikaze::run(|job| {
        job.barrier()?;
        if job.rank() == 0 {
            (1..job.size()).try_for_each(|_| job.receive(None).map(drop))?;
            println!("\nall have met");
        } else {
            // The server may end before the acknowledgement comes.
            drop(job.peer(0)?.send(oikaze::message::Class::Ordered, 0, b"met").wait());
        }
        let failed = match std::env::var_os(BARRIER).is_some_and(|waits| !waits.is_empty()) {
            // Rank 0 never comes to the barrier of the others.
            true if job.rank() == 0 => job.receive(None).map(drop),
            true => job.barrier(),
            false => exchange(job),
        };
        if let Err(failed) = failed {
            println!("\nfailed: {}", failed.to_string().replace('\n', " "));
        }
        Ok(())
    });
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

/// Exchanges messages with the other node, until the file of [`END`] is there.
fn exchange(job: &oikaze::Job) -> oikaze::Result<()> {
    let end = std::env::var_os(END).map(std::path::PathBuf::from);
    let next = job.peer((job.rank() + 1) % job.size())?;
    let mut ends = false;
    loop {
        ends |= job.rank() == 0 && end.as_ref().is_some_and(|end| end.exists());
        let sent = next.send(
            oikaze::message::Class::Ordered,
            1,
            &[vec![u8::from(ends)], vec![1; 3000]].concat(),
        );
        let came = job.receive(None)?;
        sent.wait()?;
        let is_told = came.bytes().first() == Some(&1);
        if ends && is_told {
            return Ok(());
        }
        ends |= is_told;
    }
}

fn client_of(server: &Server) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "client", "--ignored", "--nocapture"]);
    command.env(CLIENT, &server.name).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// SERVE-5.1: clients that are killed at random points leave nothing, and others go on.
#[test]
fn killed_clients_leave_nothing_and_disturb_nobody() {
    let kills = times(KILLS_VARIABLE, KILLS);
    let server = Server::start("kills", &[]);
    let (mut one, mut two) = (server.connect(), server.connect());
    carry(&mut one, &mut two, 0);
    let before = server.descriptors();
    let mut random = Random::new(33);
    let mut pages = 0;
    for number in 0..kills as u64 {
        let mut client = Running::start(client_of(&server).stdout(Stdio::piped()));
        // Half of the clients die while they connect, the others at work.
        if random.below(2) == 0 {
            client.line("connected");
        }
        let begun = Instant::now();
        let pause = Duration::from_micros(random.below(8000) as u64);
        while begun.elapsed() < pause {
            carry(&mut one, &mut two, number);
        }
        client.signal(9);
        client.finish();
        carry(&mut one, &mut two, number);
        if number == kills as u64 / 4 {
            pages = server.resident_pages();
        }
    }
    // The server opens some sockets more for the most active peers of the two.
    until("the server has closed all", || server.descriptors() <= before + 8);
    // A client that leaks would leave its rings, of 130 pages, and its buffers.
    let more = server.resident_pages().saturating_sub(pages);
    assert!(more < 130 * kills / 8, "{more} pages more");
}

/// Returns the command that runs two nodes of [`node`] with this server. A word in front of each
/// node's program, such as one that sets a variable, is in `before`.
fn job_of(server: &str, options: &[&str], before: &[&str]) -> Command {
    let engine = format!("OIKAZE_ENGINE=process:{server}");
    let mut command = oikaze(&["run", "-n", "2", "--fault", "seed=1", "--env", &engine]);
    command.args(options).args(["--env", "SERVE_NODE=1", "--"]).args(before);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "node"]);
    command.args(["--ignored", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command
}

/// Words in front of a node's program, which then can start no server.
const WITHOUT_COMMAND: [&str; 2] = ["env", "OIKAZE_COMMAND=/does/not/exist"];

/// SERVE-5.2: each node of a server that is killed, and that has no successor, fails at once and
/// names it.
#[test]
fn nodes_of_a_killed_server_without_successor_fail_and_name_it() {
    let server = Server::start("killed", &[]);
    let mut command = job_of(&server.name, &["--failure-time", "60000"], &WITHOUT_COMMAND);
    let mut job = Running::start(&mut command);
    job.line("[0] all have met");
    let begun = Instant::now();
    server.running.signal(9);
    let (_, out) = job.finish();
    assert!(begun.elapsed() < Duration::from_secs(60), "the failure time is 60 s: {out}");
    for rank in 0..2 {
        let told = out.lines().find(|line| line.starts_with(&format!("[{rank}] failed")));
        let told = told.unwrap_or_else(|| panic!("node {rank} says nothing: {out}"));
        assert!(told.contains(&server.name) && told.contains("has ended"), "{told}");
    }
}

/// SERVE-5.2: nodes end, whenever their server is killed: while they join, and at work. The next
/// server of the name finds nothing of the killed one.
#[test]
fn nodes_end_whenever_their_server_is_killed() {
    let mut random = Random::new(34);
    for number in 0..times(SERVER_KILLS_VARIABLE, SERVER_KILLS) {
        let server = Server::start("anytime", &[]);
        let mut job = Running::start(&mut job_of(&server.name, &[], &WITHOUT_COMMAND));
        let works = random.below(2) == 0;
        if works {
            job.line("[0] all have met");
        }
        std::thread::sleep(Duration::from_micros(random.below(50_000) as u64));
        server.running.signal(9);
        let (status, out) = job.finish();
        if works {
            assert!(out.contains("has ended"), "kill {number}: {out}");
        } else {
            assert_ne!(status, 0, "kill {number}: {out}");
        }
        let name = server.name.clone();
        server.running.finish();
        until("nobody has the server's name", || !is_served(&name));
    }
}

/// SERVE-1.1: a second server of the name, a core that does not exist, a name that is none.
#[test]
fn what_the_server_refuses_has_a_reason() {
    let server = Server::start("refuses", &[]);
    let (status, out, err) = finish(&mut oikaze(&["serve", &server.name]));
    assert_eq!((status, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("runs already") && err.contains("another name"), "{err}");
    ends(&mut oikaze(&["serve", "x", "--cores", "100000"]), 2, &["no core 100000"]);
    ends(&mut oikaze(&["serve", "no name"]), 2, &["names no server"]);
}

/// Returns the user of this process.
fn user() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

/// SERVE-5.3: a server is started by the first node that needs it, once, and ends after the last.
#[test]
fn missing_server_is_started_and_ends_after_its_nodes() {
    let name = format!("demand-{}", std::process::id());
    let engine = format!("OIKAZE_ENGINE=process:{name}");
    let script = "exec $OIKAZE_COMMAND hello";
    for _ in 0..3 {
        let (status, out, err) =
            finish(&mut run_script(&["-n", "3", "--fault", "seed=1", "--env", &engine], script));
        assert_eq!(status, Some(0), "{out}\n{err}");
        assert!(out.contains("reaches node"), "{out}");
    }
    until("the server has ended", || !is_served(&name));
    // A command that does not exist cannot start it.
    let mut hello = oikaze(&["hello"]);
    hello.env("OIKAZE_ENGINE", format!("process:{name}")).env("OIKAZE_COMMAND", "/does/not/exist");
    ends(&mut hello, 1, &[&format!("start one (oikaze serve {name})")]);
}

/// SERVE-5.3, SERVE-5.4: a server that a bound node starts runs on all permitted cores, and with
/// all descriptors that it may have.
#[test]
fn server_on_demand_has_the_cores_and_descriptors_of_the_machine() {
    let permitted = oikaze_os::cpu::permitted_cpus().unwrap();
    let name = format!("bound-{}", std::process::id());
    // An end of 20 s: it is to live until it was looked at.
    let script = format!(
        "ulimit -Sn 200 && exec taskset -c {} {OIKAZE} serve {name} --on-demand --idle-time 20000",
        permitted[0]
    );
    let (status, out, err) = finish(Command::new("sh").args(["-c", &script]));
    assert_eq!(status, Some(0), "{out}\n{err}");
    let pid = *servers_of(&name).first().expect("the server lives");
    let server = std::path::Path::new("/proc").join(pid.to_string());
    let read = |file: &str| std::fs::read_to_string(server.join(file)).unwrap();
    let (threads, limits) = (std::fs::read_dir(server.join("task")).unwrap(), read("limits"));
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let cores = format!("Cpus_allowed_list:\t{}\n", oikaze_os::cpu::cpulist(&permitted));
        assert!(status.contains(&cores), "{status}");
    }
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    kill(pid, 15);
}

/// SERVE-1.1: the manager of services passes the socket.
#[test]
fn socket_of_a_service_manager_is_used() {
    let name = format!("activated-{}", std::process::id());
    let place = socket_of(user(), &name);
    let script = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0" + sys.argv[1][1:])
s.listen(8)
s.fileno() == 3 or os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_FDS"] = "1"
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], [sys.argv[2], "serve", "activated"])
"#;
    let mut python = Command::new("python3");
    python.args(["-c", script, &place, OIKAZE]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut python);
    running.line("serves nodes as");
    let mut hello = oikaze(&["run", "-n", "2", "--fault", "seed=1", "--env"]);
    hello.args([&format!("OIKAZE_ENGINE=process:{name}"), "--", OIKAZE, "hello"]);
    let (status, out, err) = finish(&mut hello);
    assert_eq!(status, Some(0), "{out}\n{err}");
    running.signal(9);
    running.finish();
}

/// A user who is not root, and another one.
const USERS: [&str; 2] = ["65531", "65532"];

/// Returns a command that runs `words` as this user.
fn as_user(user: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups", "env", "-i"]);
    command.arg("PATH=/usr/bin:/bin").args(words).current_dir("/").stdin(Stdio::null());
    command
}

/// SERVE-1.1, SERVE-1.3: each user has a server of its own under one name, and that of root, which
/// does not serve the users, is in nobody's way.
#[test]
fn users_of_one_machine_have_servers_of_their_own() {
    if user() != 0 {
        return skipped("other users are tried by root only");
    }
    let server = Server::start("users", &[]);
    let engine = format!("OIKAZE_ENGINE=process:{}", server.name);
    // Other users may not read the directory of the build.
    let directory = std::env::temp_dir().join(format!("oikaze-users-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let command = directory.join("oikaze");
    std::fs::copy(OIKAZE, &command).unwrap();
    for path in [&directory, &command] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, open).unwrap();
    }
    let command = command.to_str().unwrap();
    for user in USERS {
        let words =
            [&engine, command, "run", "-n", "2", "--fault", "seed=1", "--", command, "hello"];
        let (status, out, err) = finish(&mut as_user(user, &words));
        assert_eq!(status, Some(0), "user {user}: {out}\n{err}");
        assert!(out.contains("reaches node"), "{out}");
    }
    // A server that root starts for a user is found by that user, who then starts none.
    let both = Server::start("for-both", &["--user", USERS[0]]);
    let engine = format!("OIKAZE_ENGINE=process:{}", both.name);
    let words = [&engine, "OIKAZE_COMMAND=/does/not/exist", command, "hello"];
    let (status, out, err) = finish(&mut as_user(USERS[0], &words));
    assert_eq!(status, Some(0), "{out}\n{err}");
    // The other one is told why the server of root does not do.
    let (status, out, err) = finish(&mut as_user(USERS[1], &words));
    assert_eq!(status, Some(1), "{out}\n{err}");
    let told = format!("root has one, and it serves user 0, not user {}", USERS[1]);
    assert!(err.contains(&told), "{err}");
    std::fs::remove_dir_all(&directory).unwrap();
    for user in USERS.map(|user| user.parse().unwrap()) {
        until("the servers of users have ended", || !is_served_for(user, &server.name));
    }
}

/// SERVE-5.2: a job whose server is killed goes on with another one, which its nodes start.
#[test]
fn job_whose_server_is_killed_goes_on_with_another() {
    let server = Server::start("followed", &[]);
    let name = server.name.clone();
    let end = std::env::temp_dir().join(format!("oikaze-end-{}", std::process::id()));
    let mut command = job_of(&name, &["--failure-time", "20000"], &[]);
    let mut job = Running::start(command.env(END, &end));
    job.line("[0] all have met");
    server.running.signal(9);
    server.running.finish();
    // Each node starts a server, and those that find the name taken end.
    until("one server is left, and serves", || is_served(&name) && servers_of(&name).len() == 1);
    std::fs::write(&end, "").unwrap();
    let (status, out) = job.finish();
    std::fs::remove_file(&end).unwrap();
    assert_eq!(status, 0, "{out}");
    until("the server has ended", || servers_of(&name).is_empty());
}

/// SERVE-5.3: a server that a job starts has the priority of the job's communication.
#[test]
fn server_on_demand_has_the_priority_of_its_job() {
    let name = format!("prior-{}", std::process::id());
    let end = std::env::temp_dir().join(format!("oikaze-prior-end-{}", std::process::id()));
    let mut command = job_of(&name, &["--priority", "nice:5"], &[]);
    let mut job = Running::start(command.env(END, &end));
    job.line("[0] all have met");
    let servers = servers_of(&name);
    let tasks = format!("/proc/{}/task", servers.first().expect("a server runs"));
    let workers: Vec<String> = std::fs::read_dir(tasks)
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap())
        .filter(|stat| stat.contains("(oikaze-serve)"))
        .collect();
    std::fs::write(&end, "").unwrap();
    let (status, out) = job.finish();
    std::fs::remove_file(&end).unwrap();
    assert_eq!(status, 0, "{out}");
    // proc_pid_stat(5): nice is the 19th field, the 17th after the name.
    let nice = |stat: &String| stat.rsplit(") ").next()?.split(' ').nth(16).map(str::to_owned);
    let nices: Vec<_> = workers.iter().filter_map(nice).collect();
    assert_eq!(nices, ["5"], "{workers:?}");
    until("the server has ended", || servers_of(&name).is_empty());
}

/// SERVE-5.5: a server on demand is started in a scope of the service manager, and without one
/// where the manager refuses.
#[test]
fn server_on_demand_asks_the_service_manager_for_a_scope() {
    let directory = std::env::temp_dir().join(format!("oikaze-scope-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (fake, log) = (directory.join("systemd-run"), directory.join("log"));
    for (is_granted, last) in [(true, "shift; exec \"$@\""), (false, "exit 1")] {
        let script = format!(
            "#!/bin/sh\nprintf '%s ' \"$@\" > {}\nwhile [ \"$1\" != -- ]; do shift; done\n{last}\n",
            log.display()
        );
        std::fs::write(&fake, script).unwrap();
        let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&fake, may_run).unwrap();
        let name = format!("scope-{is_granted}-{}", std::process::id());
        let path = std::env::var("PATH").unwrap();
        let mut command = oikaze(&["serve", &name, "--on-demand", "--idle-time", "20000"]);
        command.env("PATH", format!("{}:{path}", directory.display()));
        command.env("XDG_RUNTIME_DIR", &directory);
        let (status, out, err) = finish(&mut command);
        assert_eq!(status, Some(0), "{out}\n{err}");
        let words = std::fs::read_to_string(&log).unwrap();
        assert!(words.contains("--scope --collect") && words.contains(&name), "{words}");
        assert_eq!(words.contains("--user"), user() != 0, "{words}");
        let servers = servers_of(&name);
        assert_eq!(servers.len(), 1, "{servers:?}");
        kill(servers[0], 15);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// SERVE-4.3: nodes whose server is stopped say within the failure time that it does not run, and
/// then end with its name. They blame no other node.
#[test]
fn nodes_of_a_stopped_server_name_it_and_the_delay() {
    for waits in ["", "1"] {
        let server = Server::start("stopped", &[]);
        let options = ["--failure-time", "2000", "--timeout", "60"];
        let mut command = job_of(&server.name, &options, &[]);
        let mut job = Running::start(command.env(BARRIER, waits).stderr(Stdio::piped()));
        job.line("[0] all have met");
        stop(server.pid());
        let (_, out) = job.finish();
        kill(server.pid(), 9);
        for rank in 0..2 {
            let told = out.lines().find(|line| line.starts_with(&format!("[{rank}] failed")));
            let told = told.unwrap_or_else(|| panic!("node {rank} says nothing: {out}"));
            let named =
                format!("the server {:?} (oikaze serve, process {}", server.name, server.pid());
            assert!(told.contains(&named) && told.contains("has taken nothing for "), "{told}");
            assert!(!told.contains("is lost"), "{told}");
        }
    }
}
