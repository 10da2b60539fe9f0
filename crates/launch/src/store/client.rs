//! Node's end of the store: a [`Bootstrap`] over one TCP connection, used by any number of threads.
//!
//! `connect` opens the connection. If it is lost, `resume` opens another one, and sends all
//! unanswered requests again.

pub(super) mod answering;
mod connect;
mod resume;

use super::protocol::{LENGTH_LEN, Reply, Request, UNASKED};
use super::seal::{self, FrameSeal, FrameWriter};
use crate::bootstrap::{Bootstrap, check_key, check_value};
use crate::clock::{Clock, TICK};
use crate::environment::NodePlace;
use crate::reason::Reason;
use crate::store::server::Server;
use crate::{JobError, MEET_TIME, NodeEnd, Secret, Settings};
use answering::{Answering, NewsCallbacks};
use connect::{Connected, Process, Search};
use oikaze_os::origin::Origin;
use oikaze_os::signals::spawn;
use resume::{Link, Unanswered};
use std::collections::HashMap;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for the store's answer to a request that needs no waiting.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Pause before a name that is not known yet is looked up again.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);
/// Time for which the store of rank 0 waits for the others to leave.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// State that the reading thread and the callers share.
#[derive(Default)]
struct Shared {
    state: Mutex<ClientState>,
    changed: Condvar,
    news: NewsCallbacks,
}

#[derive(Default)]
struct ClientState {
    /// Replies by request: absent when no thread waits, `None` until answered.
    pending: HashMap<u32, Option<Reply>>,
    last_id: u32,
    lost: Option<String>,
    aborted: Option<String>,
    ended: Vec<NodeEnd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, why: String) {
        self.lock().lost = Some(why);
        self.changed.notify_all();
    }
}

/// Objects that a node keeps until it has left, in a job that another launcher has started
/// (LAUNCH-9.6).
#[derive(Default)]
pub(crate) struct ForeignJob {
    /// The job's store, in rank 0.
    pub(crate) store: Option<Server>,
    /// Connection to the launcher's server, which takes its end for the end of the process. It is
    /// only kept.
    pub(crate) _launcher: Option<Mutex<Box<dyn Send>>>,
}

/// Connection to the store.
pub struct Client {
    place: NodePlace,
    settings: Settings,
    shared: Arc<Shared>,
    link: Arc<Link>,
    reader: Option<JoinHandle<()>>,
    origin: Origin,
    /// Set in a job that another launcher has started, whose store is in rank 0.
    foreign: Option<ForeignJob>,
}

impl Client {
    /// Connects, proves the secret and takes the place that the launcher gave.
    ///
    /// # Errors
    /// The store cannot be reached, does not prove the secret, or refuses this process.
    pub fn connect(place: NodePlace, settings: Settings) -> Result<Client, JobError> {
        let resolved = connect::resolve(&place.store);
        let limit = settings.time_limit.unwrap_or(MEET_TIME);
        Client::search(place, settings, resolved, (limit, false))
    }

    /// Connects as [`Client::connect`] does, to a store that may not be there yet. Its name may not
    /// be known yet, either.
    ///
    /// # Errors
    /// As [`Client::connect`]; that the store is not there, when the time limit has passed.
    pub(crate) fn connect_late(place: NodePlace, settings: Settings) -> Result<Client, JobError> {
        let limit = settings.time_limit.unwrap_or(MEET_TIME);
        let begun = Instant::now();
        loop {
            let resolved = connect::resolve(&place.store);
            let left = limit.saturating_sub(begun.elapsed());
            if !resolved.0.is_empty() || left.is_zero() {
                return Client::search(place, settings, resolved, (left, true));
            }
            std::thread::sleep(RESOLVE_PAUSE);
        }
    }

    fn search(
        place: NodePlace,
        settings: Settings,
        (addresses, unresolved): (Vec<SocketAddr>, Vec<(String, Reason)>),
        (limit, opens_late): (Duration, bool),
    ) -> Result<Client, JobError> {
        let process = Process::new()?;
        let search = Search {
            place: &place,
            process: &process,
            unresolved,
            limit,
            opens_late,
            is_cancelled: &|| false,
        };
        let Connected { stream, address, key } = search.connect(&addresses)?;
        let shared = Arc::new(Shared::default());
        let (link, reading) = Link::new(stream, address, &key, process)?;
        let link = Arc::new(link);
        let (theirs, of_place) = ((Arc::clone(&shared), Arc::clone(&link)), place.clone());
        let read = move || {
            let (shared, link) = theirs;
            let (mut stream, mut seal) = (reading, FrameSeal::new(&key, FrameWriter::Store));
            let mut answering = Answering::new(Arc::clone(&link));
            loop {
                let why = read_replies(&stream, &mut seal, &shared, &mut answering);
                match link.resume(&of_place, limit) {
                    Some(next) => (stream, seal) = next,
                    None => return shared.lose(why),
                }
            }
        };
        let doing = "serve the connection to the job's store";
        let reader = spawn("oikaze job", read).map_err(JobError::system(doing))?;
        let (reader, origin) = (Some(reader), Origin::here());
        Ok(Client { place, settings, shared, link, reader, origin, foreign: None })
    }

    /// Keeps what a job of another launcher needs until this node has left. Nobody reports the ends
    /// of processes in such a job.
    pub(crate) fn keep(&mut self, job: ForeignJob) {
        self.foreign = Some(job);
    }

    /// Sets this node's place among the nodes of its host.
    pub(crate) fn set_local_place(&mut self, local_rank: u32, local_size: u32) {
        (self.place.local_rank, self.place.local_size) = (local_rank, local_size);
    }

    /// Sends a request and waits for the answer.
    fn ask(&self, request: &Request, limit: Duration) -> Result<Reply, JobError> {
        if !self.origin.is_here() {
            let why = "this process is a child of fork, and the connection is its parent's".into();
            return Err(JobError::StoreLost { why });
        }
        let id = {
            let mut state = self.shared.lock();
            if let Some(why) = &state.aborted {
                return Err(JobError::Aborted { why: why.clone() });
            }
            state.last_id = match state.last_id.wrapping_add(1) {
                UNASKED => 1,
                id => id,
            };
            let id = state.last_id;
            state.pending.insert(id, None);
            id
        };
        let spent = Arc::new(AtomicU64::new(0));
        self.link.send(id, Unanswered::new(request.clone(), Arc::clone(&spent)));
        let answer = self.wait(id, limit, &spent);
        self.shared.lock().pending.remove(&id);
        self.link.forget(id);
        answer
    }

    /// Waits for an answer. `spent` receives the time that has passed, in milliseconds.
    fn wait(&self, id: u32, limit: Duration, spent: &AtomicU64) -> Result<Reply, JobError> {
        // No limit passes while this process and the store are stopped.
        let mut clock = Clock::new();
        let mut state = self.shared.lock();
        loop {
            if let Some(reply) = state.pending.get_mut(&id).and_then(Option::take) {
                return Ok(reply);
            }
            if let Some(why) = &state.aborted {
                return Err(JobError::Aborted { why: why.clone() });
            }
            if let Some(why) = &state.lost {
                return Err(JobError::StoreLost { why: why.clone() });
            }
            let now = clock.now();
            spent.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            let Some(left) = limit.checked_sub(now).filter(|left| !left.is_zero()) else {
                return Err(JobError::StoreLost { why: format!("no answer in {limit:?}") });
            };
            state = self
                .shared
                .changed
                .wait_timeout(state, left.min(TICK))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sends a request that may take until `timeout`. The store itself watches the limit and
    /// reports what is missing.
    fn ask_within(
        &self,
        request: &Request,
        what: String,
        timeout: Duration,
    ) -> Result<Vec<u8>, JobError> {
        match self.ask(request, timeout.saturating_add(ANSWER_TIME))? {
            Reply::Done(value) => Ok(value),
            Reply::Refused(why) => Err(JobError::Refused { why }),
            Reply::TimedOut(missing) => Err(JobError::TimedOut { what, limit: timeout, missing }),
            Reply::Aborted(why) => Err(JobError::Aborted { why }),
            Reply::Gone(NodeEnd { rank, how, .. }) => Err(JobError::NodeEnded { rank, how, what }),
            // Both come only unasked, and do not answer a request.
            Reply::Ended(_) | Reply::Question(_) => {
                Err(JobError::StoreLost { why: "an answer of the wrong kind".into() })
            }
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    // Rounded up: a limit below one millisecond is still a limit.
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Bootstrap for Client {
    fn rank(&self) -> u32 {
        self.place.rank
    }
    fn size(&self) -> u32 {
        self.place.size
    }
    fn local_rank(&self) -> u32 {
        self.place.local_rank
    }
    fn local_size(&self) -> u32 {
        self.place.local_size
    }
    fn secret(&self) -> &Secret {
        &self.place.secret
    }
    fn incarnation(&self) -> u64 {
        self.place.incarnation
    }
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        check_key(key)?;
        check_value(value)?;
        self.ask_within(
            &Request::Put(key.to_owned(), value.to_vec()),
            format!("publishing {key:?}"),
            ANSWER_TIME,
        )
        .map(drop)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        check_key(key)?;
        self.ask_within(
            &Request::Get(key.to_owned(), milliseconds(timeout)),
            format!("publication of {key:?}"),
            timeout,
        )
    }

    fn fence(&self, name: &str, timeout: Duration) -> Result<(), JobError> {
        check_key(name)?;
        self.ask_within(
            &Request::Fence(name.to_owned(), milliseconds(timeout)),
            "the meeting of all nodes".to_owned(),
            timeout,
        )
        .map(drop)
    }

    fn abort(&self, why: &str) {
        // If the store is gone, the launcher is gone too, and with it the job.
        let _ = self.ask(&Request::Abort(why.to_owned()), ANSWER_TIME);
    }

    fn aborted(&self) -> Option<String> {
        self.shared.lock().aborted.clone()
    }

    fn ended(&self) -> Vec<NodeEnd> {
        self.shared.lock().ended.clone()
    }

    fn reports_ends(&self) -> bool {
        self.foreign.is_none()
    }

    fn on_news(&self, call: Box<dyn Fn() + Send + Sync>) {
        let call: Arc<dyn Fn() + Send + Sync> = Arc::from(call);
        self.shared.news.register(Arc::clone(&call));
        let state = self.shared.lock();
        let any = state.aborted.is_some() || !state.ended.is_empty();
        drop(state);
        if any {
            call();
        }
    }

    fn keep_going(&self) {
        // Without a store there is no launcher that could end the others.
        let _ = self.ask(&Request::KeepGoing, ANSWER_TIME);
    }

    fn report_joined(&self) {
        // Without a store there is no launcher that could count this node.
        let _ = self.ask(&Request::Joined, ANSWER_TIME);
    }

    fn report_left(&self) {
        let _ = self.ask(&Request::Left, ANSWER_TIME);
    }

    fn on_question(&self, answer: Box<dyn Fn(&str) -> String + Send + Sync>) {
        self.link.answer_by(Arc::from(answer));
    }

    fn ask_node(&self, rank: u32, question: &str, limit: Duration) -> Option<String> {
        let request = Request::Ask(rank, milliseconds(limit), question.to_owned());
        match self.ask(&request, limit.saturating_add(ANSWER_TIME)) {
            Ok(Reply::Done(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The connection is the parent's in a child of fork, which has no reading thread either
        // (MEM-24.2).
        if !self.origin.is_here() {
            return;
        }
        // The others still say that they have left, or hear why the job was ended.
        if let Some(store) = self.foreign.as_ref().and_then(|job| job.store.as_ref()) {
            store.wait_until_left(LEAVE_TIME);
        }
        // Ends the reading thread too.
        self.link.close();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn read_content(mut stream: &TcpStream, sealed: bool) -> std::io::Result<Vec<u8>> {
    let mut front = [0; LENGTH_LEN];
    stream.read_exact(&mut front)?;
    let mut content = vec![0; seal::length(front, sealed).map_err(std::io::Error::other)?];
    stream.read_exact(&mut content)?;
    Ok(content)
}

/// Hands each answer to its asker, records news, and passes questions to the answering thread,
/// until the connection is lost; returns why.
fn read_replies(
    stream: &TcpStream,
    seal: &mut FrameSeal,
    shared: &Shared,
    answering: &mut Answering,
) -> String {
    loop {
        let content = match read_content(stream, true) {
            Ok(content) => content,
            Err(why) => return why.to_string(),
        };
        let (id, reply) = match seal.open(&content).and_then(|body| Reply::decode(&body)) {
            Ok(read) => read,
            Err(why) => return why.to_string(),
        };
        let mut state = shared.lock();
        let mut news = true;
        match reply {
            Reply::Aborted(why) if id == UNASKED => _ = state.aborted.get_or_insert(why),
            // The store tells all of them again on each connection (LAUNCH-1.4).
            Reply::Ended(end) if state.ended.iter().any(|known| known.rank == end.rank) => continue,
            Reply::Ended(end) => state.ended.push(end),
            Reply::Question(question) => {
                drop(state);
                answering.take(id, question);
                continue;
            }
            reply => {
                news = false;
                if let Some(slot) = state.pending.get_mut(&id) {
                    *slot = Some(reply);
                }
            }
        }
        drop(state);
        shared.changed.notify_all();
        if news {
            shared.news.call();
        }
    }
}
