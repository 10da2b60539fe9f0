//! Client of a PMI-1 server: lines of `key=value` over a socket that the launcher gives
//! (LAUNCH-9.3).
//!
//! The socket may be shared with an MPI library in the same process. So nothing is read beyond the
//! answer to a request, and no option of the socket is changed. The connection stays open until the
//! node has left, because a launcher takes its end for a crash. It is finalized then, unless there
//! is an MPI library, which does that.

use super::exchange::Exchange;
use crate::JobError;
use crate::clock::{Clock, TICK};
use crate::environment::Lookup;
use crate::pmi::OWN_SPACE;
use crate::pmi::line::{LINE_MAX, LineReader, PmiLine};
use crate::stray;
use oikaze_os::inherited;
use oikaze_os::origin::Origin;
use oikaze_protocol::limits::NODES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time limit for an answer that waits for no other process.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Time limit for the last answer.
const FINALIZE_TIME: Duration = Duration::from_secs(2);
/// Prefix of our keys.
const KEY: &str = "oikaze";
/// Length of a value that any server takes, if it does not say more.
const VALUE_LEN: usize = 512;

/// Connection to a PMI-1 server.
pub struct Pmi {
    /// A socket, which reads and writes as a file does.
    socket: File,
    space: String,
    value_max: usize,
    rank: u32,
    size: u32,
    origin: Origin,
}

/// Place of this process, as a launcher with a PMI-1 server tells it.
pub(super) enum PmiPlace<'a> {
    /// Rank and number of processes, by variables.
    Known((u32, u32)),
    /// Number by which the server knows the process. It tells the place.
    Asked(&'a str),
}

impl Drop for Pmi {
    fn drop(&mut self) {
        // A child of fork has the connection of its parent (MEM-24.2).
        if self.origin.is_here() && !has_mpi() {
            // The launcher ends the job if it is not there any more.
            let _ = self.ask("cmd=finalize", "finalize_ack", FINALIZE_TIME);
        }
    }
}

/// Returns `true` if an MPI library is loaded, which shares the connection and finalizes it.
fn has_mpi() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/libmpi"))
}

impl Pmi {
    /// Opens the connection that `PMI_FD`, or `PMI_PORT` and `PMI_ID`, name.
    ///
    /// # Errors
    /// The variables name no server, or the server speaks another version.
    pub fn open(lookup: Lookup<'_>, place: Option<(u32, u32)>) -> Result<Pmi, JobError> {
        if let Some(place) = place {
            let number = lookup("PMI_FD").unwrap_or_default();
            return Pmi::over(inherited_socket(&number)?, PmiPlace::Known(place));
        }
        let port = lookup("PMI_PORT").unwrap_or_default();
        let id = lookup("PMI_ID").unwrap_or_default();
        Pmi::over(connected(&port)?, PmiPlace::Asked(&id))
    }

    pub(super) fn over(socket: OwnedFd, place: PmiPlace<'_>) -> Result<Pmi, JobError> {
        let mut pmi = Pmi {
            socket: socket.into(),
            space: String::new(),
            value_max: VALUE_LEN,
            rank: 0,
            size: 0,
            origin: Origin::here(),
        };
        (pmi.rank, pmi.size) = match place {
            PmiPlace::Known(place) => place,
            PmiPlace::Asked(id) => pmi.ask_place(id)?,
        };
        let hello = "cmd=init pmi_version=1 pmi_subversion=1";
        pmi.ask(hello, "response_to_init", ANSWER_TIME)?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes", ANSWER_TIME)?;
        if let Some(max) = maxes.value("vallen_max").and_then(|text| text.parse().ok()) {
            // One byte less, for servers that count a zero at the end.
            pmi.value_max = usize::clamp(max, 2, VALUE_LEN + 1) - 1;
        }
        let space = pmi.ask("cmd=get_my_kvsname", "my_kvsname", ANSWER_TIME)?;
        pmi.space = space.value("kvsname").unwrap_or_default().to_owned();
        // A node of `oikaze run` knows its job by the variables of the job (LAUNCH-10.7).
        if pmi.space.starts_with(OWN_SPACE) {
            return Err(stray::lost_variables());
        }
        Ok(pmi)
    }

    /// Says who this process is, and returns its rank and the number of processes.
    fn ask_place(&mut self, id: &str) -> Result<(u32, u32), JobError> {
        self.ask(&format!("cmd=initack pmiid={id}"), "initack", ANSWER_TIME)?;
        let (mut rank, mut size) = (None, None);
        // Size, rank and a flag, in lines of their own.
        for _ in 0..3 {
            let line = self.answer("set", ANSWER_TIME)?;
            let number = |key| line.value(key).and_then(|text| text.parse().ok());
            (rank, size) = (rank.or(number("rank")), size.or(number("size")));
        }
        match (rank, size) {
            (Some(rank), Some(size)) if rank < size && size <= NODES_MAX => Ok((rank, size)),
            _ => Err(JobError::Exchange {
                server: "PMI",
                why: format!("it says that this is process {rank:?} of {size:?}"),
            }),
        }
    }

    fn ask(&mut self, line: &str, answer: &str, limit: Duration) -> Result<PmiLine, JobError> {
        let sent = self.socket.write_all(format!("{line}\n").as_bytes());
        sent.map_err(JobError::system("ask the launcher's PMI server"))?;
        self.answer(answer, limit)
    }

    fn answer(&mut self, wanted: &str, limit: Duration) -> Result<PmiLine, JobError> {
        let line = self.line(limit)?;
        let failed = |why: String| JobError::Exchange { server: "PMI", why };
        match (line.value("cmd"), line.value("rc")) {
            (Some(found), None | Some("0")) if found == wanted => Ok(line),
            (Some(found), Some(rc)) if found == wanted => {
                let why = line.value("msg").unwrap_or("no reason given");
                Err(failed(format!("it answers {found} with error {rc} ({why})")))
            }
            _ => Err(failed(format!("it sends {:?} in place of {wanted}", line.shown()))),
        }
    }

    /// Reads a line, byte by byte, so that the rest is left to an MPI library.
    fn line(&mut self, limit: Duration) -> Result<PmiLine, JobError> {
        let mut clock = Clock::new();
        let lost = |why: &str| JobError::Exchange { server: "PMI", why: why.to_owned() };
        let mut line = LineReader::default();
        loop {
            let left = limit.saturating_sub(clock.now());
            if left.is_zero() {
                return Err(JobError::TimedOut {
                    what: "the meeting of all processes at the launcher's PMI server".into(),
                    limit,
                    missing: "a process has not come to `oikaze::join()`, or has ended".into(),
                });
            }
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
            let time = Timespec::try_from(left.min(TICK)).ok();
            if !poll(&mut wait, time.as_ref()).is_ok_and(|ready| ready > 0) {
                continue;
            }
            let mut byte = [0];
            match self.socket.read(&mut byte) {
                Ok(0) => return Err(lost("it has closed the connection")),
                Ok(_) => {
                    let [byte] = byte;
                    let taken = line.take(byte);
                    let taken = taken.map_err(|why| lost(&format!("it sends {why}")))?;
                    if let Some(line) = taken {
                        return Ok(line);
                    }
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(lost(&why.to_string())),
            }
        }
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result", ANSWER_TIME)?;
        let value = answer.value("value").map(str::to_owned);
        let missing =
            || JobError::Exchange { server: "PMI", why: format!("it has no value of {key}") };
        value.ok_or_else(missing)
    }
}

impl Exchange for Pmi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn share(&mut self, of_rank_0: Option<&str>, limit: Duration) -> Result<String, JobError> {
        // A value is short, so the text goes in pieces. The first key tells their number.
        if let Some(text) = of_rank_0 {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(self.value_max).collect();
            let count = pieces.len().to_string();
            let values = pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned());
            for (at, value) in std::iter::once(count).chain(values).enumerate() {
                let line = format!("cmd=put kvsname={} key={KEY}-{at} value={value}", self.space);
                self.ask(&line, "put_result", ANSWER_TIME)?;
            }
        }
        self.ask("cmd=barrier_in", "barrier_out", limit)?;
        if let Some(text) = of_rank_0 {
            return Ok(text.to_owned());
        }
        let count = self.get(&format!("{KEY}-0"))?;
        let wrong = || JobError::Exchange {
            server: "PMI",
            why: format!("it says that rank 0 told {count:?} pieces"),
        };
        let count: usize =
            count.parse().ok().filter(|count| *count <= LINE_MAX).ok_or_else(wrong)?;
        (1..=count).map(|at| self.get(&format!("{KEY}-{at}"))).collect()
    }
}

fn inherited_socket(number: &str) -> Result<OwnedFd, JobError> {
    let open = number.trim().parse().ok().and_then(|number| inherited::shared_socket(number).ok());
    open.ok_or_else(|| JobError::Environment {
        name: "PMI_FD",
        found: format!("{number:?}"),
        needed: "an open socket of the launcher (mpiexec, srun --mpi=pmi2); a program between may have closed it",
    })
}

fn connected(port: &str) -> Result<OwnedFd, JobError> {
    let stream = TcpStream::connect(port).map_err(|why: io::Error| JobError::Environment {
        name: "PMI_PORT",
        found: format!("{port:?} ({why})"),
        needed: "the address of the launcher's PMI server",
    })?;
    Ok(stream.into())
}
