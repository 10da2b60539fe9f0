//! Connection to the store that outlives TCP's. When a TCP connection is lost, another one takes
//! its place (WIND-11.3).

use super::answering::{Answer, lock};
use super::connect::{Connected, Process, Search};
use crate::environment::NodePlace;
use crate::store::protocol::Request;
use crate::store::seal::{FrameSeal, FrameWriter};
use crate::{JobError, Secret};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Request that has no answer yet.
pub(super) struct Unanswered {
    request: Request,
    /// Milliseconds of the time limit that have passed. Time of being stopped does not count
    /// (LAUNCH-4.3).
    spent: Arc<AtomicU64>,
}

impl Unanswered {
    pub fn new(request: Request, spent: Arc<AtomicU64>) -> Unanswered {
        Unanswered { request, spent }
    }

    /// Encodes the request as it is to be sent now, with the rest of its time limit.
    fn encode(&self, id: u32) -> Vec<u8> {
        let gone = self.spent.load(Ordering::Relaxed);
        match &self.request {
            Request::Get(key, limit) => {
                Request::Get(key.clone(), limit.saturating_sub(gone)).encode(id)
            }
            Request::Fence(name, limit) => {
                Request::Fence(name.clone(), limit.saturating_sub(gone)).encode(id)
            }
            Request::Ask(rank, limit, question) => {
                Request::Ask(*rank, limit.saturating_sub(gone), question.clone()).encode(id)
            }
            other => other.encode(id),
        }
    }
}

struct Writer {
    stream: TcpStream,
    seal: FrameSeal,
    unanswered: BTreeMap<u32, Unanswered>,
}

impl Writer {
    fn write(&mut self, body: &[u8]) {
        let frame = self.seal.frame(body);
        // The reading thread notices a lost connection, and asks again on the next one.
        let _ = self.stream.write_all(&frame);
    }
}

/// Writing half of the connection, and the data that opening another one needs.
pub(super) struct Link {
    address: SocketAddr,
    process: Process,
    is_closed: AtomicBool,
    writer: Mutex<Writer>,
    answer: Mutex<Option<Answer>>,
}

impl Link {
    /// Makes the link. Returns the reading half too.
    pub fn new(
        stream: TcpStream,
        address: SocketAddr,
        key: &Secret,
        process: Process,
    ) -> Result<(Link, TcpStream), JobError> {
        let reading = stream
            .try_clone()
            .map_err(JobError::system("serve the connection to the job's store"))?;
        let writer = Writer {
            stream,
            seal: FrameSeal::new(key, FrameWriter::Node),
            unanswered: BTreeMap::new(),
        };
        let (is_closed, writer, answer) =
            (AtomicBool::new(false), Mutex::new(writer), Mutex::new(None));
        Ok((Link { address, process, is_closed, writer, answer }, reading))
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// Sends a request on this connection, and on each later one until [`Link::forget`].
    pub fn send(&self, id: u32, request: Unanswered) {
        let body = request.encode(id);
        let mut writer = self.lock();
        // Under the same lock, so that each connection carries a request once.
        writer.unanswered.insert(id, request);
        writer.write(&body);
    }

    /// Sends an answer on the current connection only. If it is lost, the store asks again
    /// (LAUNCH-2.4).
    pub fn send_once(&self, body: &[u8]) {
        self.lock().write(body);
    }

    /// Sets the function that answers questions.
    pub fn answer_by(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    /// Returns the function that answers questions, once there is one.
    pub fn answer(&self) -> Option<Answer> {
        lock(&self.answer).clone()
    }

    pub fn forget(&self, id: u32) {
        self.lock().unanswered.remove(&id);
    }

    /// Opens the next connection. Returns `None` if the launcher cannot be reached any more, or
    /// [`Link::close`] was called.
    pub fn resume(&self, place: &NodePlace, limit: Duration) -> Option<(TcpStream, FrameSeal)> {
        let is_cancelled = || self.is_closed.load(Ordering::Acquire);
        if is_cancelled() {
            return None;
        }
        let search = Search {
            place,
            process: &self.process,
            unresolved: Vec::new(),
            limit,
            opens_late: false,
            is_cancelled: &is_cancelled,
        };
        let Connected { stream, key, .. } = search.connect(&[self.address]).ok()?;
        let reading = stream.try_clone().ok()?;
        let mut writer = self.lock();
        if is_cancelled() {
            return None;
        }
        (writer.stream, writer.seal) = (stream, FrameSeal::new(&key, FrameWriter::Node));
        let again: Vec<Vec<u8>> =
            writer.unanswered.iter().map(|(id, request)| request.encode(*id)).collect();
        again.iter().for_each(|body| writer.write(body));
        Some((reading, FrameSeal::new(&key, FrameWriter::Store)))
    }

    /// Closes the connection for good.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.lock().stream.shutdown(Shutdown::Both);
        // The function may hold objects that its registrar wants to be freed.
        *lock(&self.answer) = None;
    }
}
