//! A connection to the store that outlives TCP's: when it is lost, another one takes its place (WIND-11.3).

use super::connect::{Connected, Process, Search};
use crate::job::environment::Place;
use crate::job::store::protocol::Request;
use crate::job::store::seal::{From, Seal};
use crate::job::{JobError, Secret};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request that has no answer yet.
pub(super) struct Unanswered {
    request: Request,
    asked: Instant,
}

impl Unanswered {
    pub fn new(request: Request) -> Unanswered {
        Unanswered { request, asked: Instant::now() }
    }

    /// As it is to be asked now: with what is left of its time limit.
    fn encode(&self, id: u32) -> Vec<u8> {
        let gone = u64::try_from(self.asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &self.request {
            Request::Get(key, limit) => Request::Get(key.clone(), limit.saturating_sub(gone)).encode(id),
            Request::Fence(name, limit) => Request::Fence(name.clone(), limit.saturating_sub(gone)).encode(id),
            other => other.encode(id),
        }
    }
}

struct Writer {
    stream: TcpStream,
    seal: Seal,
    unanswered: BTreeMap<u32, Unanswered>,
}

impl Writer {
    fn write(&mut self, body: &[u8]) {
        let frame = self.seal.frame(body);
        // The reading thread notices a lost connection, and asks again on the next one.
        let _ = self.stream.write_all(&frame);
    }
}

/// The writing half of the connection, and what it takes to open another one.
pub(super) struct Link {
    address: SocketAddr,
    process: Process,
    is_closed: AtomicBool,
    writer: Mutex<Writer>,
}

impl Link {
    /// Returns the reading half too.
    pub fn new(stream: TcpStream, address: SocketAddr, key: &Secret, process: Process) -> Result<(Link, TcpStream), JobError> {
        let reading = stream.try_clone().map_err(JobError::system("serve the connection to the job's store"))?;
        let writer = Writer { stream, seal: Seal::new(key.clone(), From::Node), unanswered: BTreeMap::new() };
        Ok((Link { address, process, is_closed: AtomicBool::new(false), writer: Mutex::new(writer) }, reading))
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request on this connection, and on each later one until [`Link::forget`].
    pub fn send(&self, id: u32, request: Unanswered) {
        let body = request.encode(id);
        let mut writer = self.lock();
        // Under the same lock, so that each connection carries a request once.
        writer.unanswered.insert(id, request);
        writer.write(&body);
    }

    pub fn forget(&self, id: u32) {
        self.lock().unanswered.remove(&id);
    }

    /// Opens the next connection; `None`: the launcher cannot be reached any more, or [`Link::close`] was called.
    pub fn resume(&self, place: &Place, limit: Duration) -> Option<(TcpStream, Seal)> {
        let is_cancelled = || self.is_closed.load(Ordering::Acquire);
        if is_cancelled() {
            return None;
        }
        let search = Search { place, process: &self.process, unresolved: Vec::new(), limit, is_cancelled: &is_cancelled };
        let Connected { stream, key, .. } = search.connect(&[self.address]).ok()?;
        let reading = stream.try_clone().ok()?;
        let mut writer = self.lock();
        if is_cancelled() {
            return None;
        }
        (writer.stream, writer.seal) = (stream, Seal::new(key.clone(), From::Node));
        let again: Vec<Vec<u8>> = writer.unanswered.iter().map(|(id, request)| request.encode(*id)).collect();
        again.iter().for_each(|body| writer.write(body));
        Some((reading, Seal::new(key, From::Store)))
    }

    /// Closes the connection for good.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.lock().stream.shutdown(Shutdown::Both);
    }
}
