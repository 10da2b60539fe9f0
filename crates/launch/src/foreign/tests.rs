//! Jobs of other launchers: processes are threads here, and a launcher's server is a thread, too.

use super::pmi::{Pmi, PmiPlace};
use super::store_here::serve_at;
use super::table::{ForeignLauncher, Started};
use super::*;
use crate::environment;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Long enough for any machine. A test waits for so long only if it fails.
const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for a process that never comes.
const SHORT: Duration = Duration::from_millis(300);

/// A PMI-1 server of `size` processes, as simple as can be.
struct PmiServer {
    values: Mutex<HashMap<String, String>>,
    barrier: LimitedBarrier,
    finalized: AtomicU32,
}

/// A barrier at which a failing test does not wait for ever.
struct LimitedBarrier {
    missing: Mutex<u32>,
    changed: Condvar,
}

impl LimitedBarrier {
    fn new(size: u32) -> LimitedBarrier {
        LimitedBarrier { missing: Mutex::new(size), changed: Condvar::new() }
    }

    /// Waits until all are here, once.
    fn wait(&self) {
        let mut missing = self.missing.lock().unwrap();
        *missing -= 1;
        self.changed.notify_all();
        let (missing, _) =
            self.changed.wait_timeout_while(missing, LONG, |missing| *missing > 0).unwrap();
        assert_eq!(*missing, 0, "others have not come");
    }
}

impl PmiServer {
    fn new(size: u32) -> PmiServer {
        PmiServer {
            values: Mutex::default(),
            barrier: LimitedBarrier::new(size),
            finalized: AtomicU32::new(0),
        }
    }

    /// Serves one process until it closes its end.
    fn serve(&self, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            let words: HashMap<&str, &str> =
                line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let answer = match words["cmd"] {
                "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=40".to_owned(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0".to_owned(),
                "barrier_in" => {
                    self.barrier.wait();
                    "cmd=barrier_out rc=0".to_owned()
                }
                "put" => {
                    assert_eq!(words["kvsname"], "kvs_1_0");
                    assert!(words["value"].len() < 40);
                    let (key, value) = (words["key"].to_owned(), words["value"].to_owned());
                    self.values.lock().unwrap().insert(key, value);
                    "cmd=put_result rc=0 msg=success".to_owned()
                }
                "get" => match self.values.lock().unwrap().get(words["key"]) {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => "cmd=get_result rc=-1 msg=not_found".to_owned(),
                },
                "finalize" => {
                    self.finalized.fetch_add(1, Ordering::Relaxed);
                    "cmd=finalize_ack".to_owned()
                }
                other => panic!("unknown request {other}"),
            };
            writer.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    }
}

/// Uses a job as its nodes do: a value of each, a fence, and the end.
fn use_job(job: &dyn Bootstrap) {
    job.report_joined();
    job.put(&format!("word/{}", job.rank()), &[u8::try_from(job.rank()).unwrap()]).unwrap();
    for rank in 0..job.size() {
        let value = job.get(&format!("word/{rank}"), LONG).unwrap();
        assert_eq!(value, [u8::try_from(rank).unwrap()]);
    }
    job.fence("all", LONG).unwrap();
    assert!(!job.reports_ends());
    assert_eq!((job.local_rank(), job.local_size()), (job.rank(), job.size()), "one host");
    job.report_left();
}

/// Runs `join` as each rank of a job in a thread of its own, and uses the jobs.
fn run(size: u32, join: impl Fn(u32) -> Result<Box<dyn Bootstrap>, JobError> + Sync) {
    std::thread::scope(|scope| {
        for rank in 0..size {
            let join = &join;
            scope.spawn(move || {
                let job = join(rank).unwrap();
                assert_eq!((job.rank(), job.size()), (rank, size));
                use_job(&*job);
            });
        }
    });
}

/// LAUNCH-9.3.
#[test]
fn processes_of_a_pmi_server_meet_in_short_values() {
    let server = PmiServer::new(4);
    std::thread::scope(|scope| {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..4).map(|_| UnixStream::pair().unwrap()).unzip();
        let server = &server;
        theirs.into_iter().for_each(|stream| _ = scope.spawn(move || server.serve(stream)));
        let ours: Vec<Mutex<Option<UnixStream>>> =
            ours.into_iter().map(|stream| Mutex::new(Some(stream))).collect();
        run(4, |rank| {
            let stream = ours[rank as usize].lock().unwrap().take().unwrap();
            let pmi = Pmi::over(stream.into(), PmiPlace::Known((rank, 4)))?;
            join_by(pmi, Settings::default(), |pmi| Some(Box::new(pmi)))
        });
    });
    assert_eq!(server.finalized.load(Ordering::Relaxed), 4);
}

/// LAUNCH-9.3: a server that is reached by a port tells the place.
#[test]
fn place_that_a_server_tells_is_taken() {
    let place = |lines: &str| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let rest =
            "cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname kvsname=k\n";
        theirs.write_all(format!("cmd=initack\n{lines}\n{rest}").as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        Pmi::over(ours.into(), PmiPlace::Asked("3")).map(|pmi| (pmi.rank(), pmi.size()))
    };
    let told = place("cmd=set size=4\ncmd=set rank=3\ncmd=set debug=0");
    assert_eq!(told.unwrap(), (3, 4));
    let why = place("cmd=set size=3\ncmd=set rank=3\ncmd=set debug=0").unwrap_err().to_string();
    assert!(why.contains("process Some(3) of Some(3)"), "{why}");
}

/// LAUNCH-9.3: what MPI reads from the same socket is left to it.
#[test]
fn nothing_beyond_an_answer_is_read() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let answers =
        "cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname kvsname=k\nrest";
    theirs.write_all(answers.as_bytes()).unwrap();
    let kept = ours.try_clone().unwrap();
    let pmi = Pmi::over(ours.into(), PmiPlace::Known((0, 2))).unwrap();
    let mut rest = [0; 4];
    std::io::Read::read_exact(&mut &kept, &mut rest).unwrap();
    assert_eq!(&rest, b"rest");
    // So that nobody waits for the last answer.
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    drop(pmi);
}

#[test]
fn server_of_another_kind_and_one_that_ends_are_named() {
    for (answers, text) in [
        ("HTTP/1.1 400 Bad Request\n", "in place of response_to_init"),
        ("cmd=response_to_init rc=-1 msg=version\n", "error -1 (version)"),
        ("cmd=response_to_init rc=0\n", "closed the connection"),
        ("\u{fffd}\n", "in place of"),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answers.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let why =
            Pmi::over(ours.into(), PmiPlace::Known((0, 2))).map(drop).unwrap_err().to_string();
        assert!(why.contains("PMI") && why.contains(text), "{why}");
    }
}

/// LAUNCH-9.2.
#[test]
fn processes_meet_by_a_function_of_the_program() {
    let (barrier, told) = (LimitedBarrier::new(3), Mutex::new(vec![Vec::new(); 3]));
    run(3, |rank| {
        join_gathering(rank, 3, Settings::default(), &mut |bytes| {
            told.lock().unwrap()[rank as usize] = bytes.to_vec();
            barrier.wait();
            Ok(told.lock().unwrap().clone())
        })
    });
    let alone = join_gathering(0, 1, Settings::default(), &mut |_| panic!("needs nobody"));
    assert_eq!(alone.unwrap().size(), 1);
    let join = |size, gathered: Result<Vec<Vec<u8>>, &'static str>| {
        let mut gather = |_: &[u8]| gathered.clone().map_err(Into::into);
        join_gathering(1, size, Settings::default(), &mut gather).map(drop).unwrap_err().to_string()
    };
    assert!(join(1, Ok(Vec::new())).contains("no process 1 of 1"));
    assert!(join(2, Ok(vec![Vec::new()])).contains("1 processes of 2"));
    assert!(join(2, Ok(vec![vec![0xff], Vec::new()])).contains("changed"));
    assert!(join(2, Ok(vec![b"x".to_vec(), Vec::new()])).contains("form"));
    assert!(join(2, Err("actor died")).contains("actor died"));
}

/// Returns variables as torchrun sets them, for a store at these ports.
fn torchrun(port: u16, secret: Option<&'static str>) -> impl Fn(&str) -> Option<String> + Sync {
    move |name| match name {
        "MASTER_ADDR" => Some("127.0.0.1".into()),
        "MASTER_PORT" => Some(port.to_string()),
        environment::SECRET => secret.map(str::to_owned),
        _ => None,
    }
}

/// Returns a port with free ports behind it, and keeps the one behind it taken.
fn taken_port() -> (u16, TcpListener) {
    loop {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if port < 60_000 {
            return (port - 1, listener);
        }
    }
}

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// LAUNCH-9.4: the store takes the next port if one is taken by a service that says nothing.
#[test]
fn processes_without_a_server_meet_at_rank_0() {
    let (port, _taken) = taken_port();
    let lookup = torchrun(port, Some(SECRET));
    run(3, |rank| {
        let started = Started { by: ForeignLauncher::Torchrun, rank: Some(rank), size: Some(3) };
        join_started(&started, Settings::default(), &lookup)
    });
}

/// LAUNCH-9.5: rank 0 names a process that does not come, and all hear it.
#[test]
fn process_that_does_not_come_is_named_to_all() {
    let secret = crate::Secret::from_bytes([5; 32]);
    let (server, port) = serve_at(&[0], 3, &secret).unwrap();
    let client = |rank| {
        let (store, secret) = (format!("127.0.0.1:{port}"), secret.clone());
        let (local_rank, local_size, incarnation) = (0, 1, 1);
        let place = NodePlace { store, rank, size: 3, local_rank, local_size, secret, incarnation };
        Client::connect(place, Settings::default()).unwrap()
    };
    let (first, second) = (client(0), client(1));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| hosts::find(&second, LONG).unwrap_err().to_string());
        let why = hosts::find(&first, SHORT).unwrap_err();
        // Rank 1 may not have been in time, either.
        assert!(matches!(why, JobError::NotJoined { rank: 1 | 2, .. }), "{why}");
        let heard = waits.join().unwrap();
        assert!(heard.contains(&why.to_string()), "{heard}");
    });
    drop(server);
}
