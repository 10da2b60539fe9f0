//! Kills a process of a job while all nodes work on a whole array: they save and load it, give it
//! other shapes and homes, fill it, or make and free arrays. The others get the loss of that node,
//! none hangs, and a saved file is whole.

use crate::process_job::ProcessJob;
use oikaze::prelude::*;
use oikaze::shared::builder::Distribution;
use oikaze_launch::Settings;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const NODES: u32 = 3;
/// Set in a node: what it does, and the folder of its files.
const WORK: &str = "OIKAZE_TEST_WORK";
const FOLDER: &str = "OIKAZE_TEST_FOLDER";
/// Time after which a node hangs.
const HANG: Duration = Duration::from_secs(60);
/// Time limit of each call of a node. A call that reaches it has not noticed the loss.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const SHAPE: [usize; 2] = [300, 500];

#[derive(Clone, Copy, Debug)]
enum Work {
    Save,
    Load,
    Replace,
    Free,
}

const WORKS: [Work; 4] = [Work::Save, Work::Load, Work::Replace, Work::Free];

/// Runs a node of a job that the other test starts. Not a test by itself.
#[test]
fn plays_its_role() {
    let Ok(work) = std::env::var(WORK) else { return };
    let work = WORKS.into_iter().find(|known| format!("{known:?}") == work).unwrap();
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let job = Job::builder().time_limit(CALL_LIMIT).join().unwrap();
    let mut array = job.array::<u64>("array", SHAPE).unwrap();
    let path = folder.join("a.npy");
    if matches!(work, Work::Load) {
        array.save(&path).unwrap();
    }
    for step in 1.. {
        let done = one_step(&job, work, &mut array, step, &path);
        let line = match &done {
            Ok(()) => "step".to_owned(),
            Err(error) => format!("lost {:?}: {error}", error.lost_peer()),
        };
        println!("\n{MARK}{line}");
        if done.is_err() {
            break;
        }
    }
}

const MARK: &str = "array_kills: ";

fn one_step(
    job: &Job,
    work: Work,
    array: &mut SharedArray<u64>,
    step: u64,
    path: &Path,
) -> oikaze::Result<()> {
    match work {
        Work::Save => {
            array.fill(step)?;
            array.save(path)
        }
        Work::Load => array.load(path),
        Work::Replace => {
            let odd = step as usize % 2;
            array.resize([SHAPE[0] + 100 * odd, SHAPE[1]])?;
            array.redistribute(Distribution::Block { axis: odd })
        }
        Work::Free => {
            let other = job.array::<u64>("other", SHAPE)?;
            other.read(other.whole())?;
            if step.is_multiple_of(2) { other.free() } else { Ok(()) }
        }
    }
}

/// Folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Kills node `victim` when node 0 has made `steps` steps, on nodes without a mechanism.
fn round(work: Work, victim: u32, steps: usize, without: &str) {
    let what =
        format!("{work:?}, node {victim} is killed after {steps} steps, without \"{without}\"");
    let folder = std::env::temp_dir().join(format!("oikaze-array-kills-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let (sender, inbox) = channel();
    let mut nodes = ProcessJob::new(NODES);
    for rank in 0..NODES {
        let node = nodes.start("array_kills::plays_its_role", &Settings::default(), |command| {
            command.env(WORK, format!("{work:?}")).env(FOLDER, &folder.0);
            command.env("OIKAZE_WITHOUT", without);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
        });
        let (lines, sender) = (BufReader::new(node.stdout.take().unwrap()).lines(), sender.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    let _ = sender.send((rank, line.to_owned()));
                }
            }
        });
    }
    let next = |inbox: &Receiver<(u32, String)>| {
        inbox.recv_timeout(HANG).unwrap_or_else(|_| panic!("{what}: a node hangs"))
    };
    let mut made = 0;
    while made < steps {
        let (rank, line) = next(&inbox);
        assert_eq!(line, "step", "{what}: node {rank}");
        made += usize::from(rank == 0);
    }
    nodes.kill(victim);
    let mut survivors: Vec<u32> = (0..NODES).filter(|rank| *rank != victim).collect();
    while !survivors.is_empty() {
        let (rank, line) = next(&inbox);
        if line != "step" {
            let lost = format!("lost Some({victim}): ");
            assert!(line.starts_with(&lost), "{what}: node {rank}: {line}");
            survivors.retain(|survivor| *survivor != rank);
        }
    }
    check_files(&folder.0, &what, victim != 0);
}

/// Checks that a saved file is whole. The first node removes the unfinished one if it lives.
fn check_files(folder: &Path, what: &str, is_first_alive: bool) {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let parts: Vec<_> = entries.filter(|name| name != "a.npy").collect();
    assert!(!is_first_alive || parts.is_empty(), "{what}: {parts:?} was left");
    let Ok(bytes) = std::fs::read(folder.join("a.npy")) else { return };
    let elements = &bytes[bytes.len() - SHAPE[0] * SHAPE[1] * 8..];
    assert!(elements.chunks(8).all(|element| *element == elements[..8]), "{what}: a torn file");
}

#[test]
fn work_on_whole_arrays_ends_when_a_node_is_killed() {
    for (number, work) in (1..).zip(WORKS) {
        for victim in [0, 2] {
            // The nodes map the memory of all, or keep pages for themselves.
            for without in ["", "segment"] {
                round(work, victim, number * 3 + victim as usize, without);
            }
        }
    }
}
