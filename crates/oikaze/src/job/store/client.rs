//! A node's end of the store: a [`Bootstrap`] over one TCP connection, used by any number of threads.

use super::answering::{Answering, News, Writer};
use super::protocol::{Greeting, LENGTH_LEN, Malformed, NONCE_LEN, Proof, Reply, Request, UNASKED, VERSION, Verdict};
use super::seal::{self, From, Seal};
use crate::job::bootstrap::{Bootstrap, check_key, check_value};
use crate::job::clock::{Clock, TICK};
use crate::job::environment::Place;
use crate::job::{JobError, NodeEnd, Secret, Settings};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long one address may take to answer.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long the store may take for what needs no waiting.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// What the reading thread and the callers share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    news: News,
}

#[derive(Default)]
struct State {
    /// By request: absent when nobody waits, `None` until answered.
    pending: HashMap<u32, Option<Reply>>,
    last_id: u32,
    lost: Option<String>,
    aborted: Option<String>,
    ended: Vec<NodeEnd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to the store.
pub struct Client {
    place: Place,
    settings: Settings,
    shared: Arc<Shared>,
    writer: Arc<Writer>,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    /// Connect, prove the secret and take the place that the launcher gave.
    ///
    /// # Errors
    /// The store cannot be reached, does not prove the secret, or refuses.
    pub fn connect(place: Place, settings: Settings) -> Result<Client, JobError> {
        let mut tried = Vec::new();
        let mut verdict = None;
        for (address, stream) in race(&place.store, &mut tried)? {
            match handshake(&stream, &address, &place) {
                Ok(key) => return Client::run(stream, key, place, settings),
                Err(why) => {
                    tried.push(format!("{address}: {why}"));
                    // A refusal by the store itself says more than a stranger's silence at another address.
                    if verdict.is_none() || matches!(why, JobError::Refused { .. } | JobError::StoreVersion { .. }) {
                        verdict = Some(why);
                    }
                }
            }
        }
        Err(verdict.unwrap_or_else(|| JobError::StoreUnreachable { tried: tried.join(", ") }))
    }

    fn run(stream: TcpStream, key: Secret, place: Place, settings: Settings) -> Result<Client, JobError> {
        let doing = "serve the connection to the job's store";
        stream.set_read_timeout(None).map_err(JobError::system(doing))?;
        let reading = stream.try_clone().map_err(JobError::system(doing))?;
        let shared = Arc::new(Shared::default());
        let seal = Seal::new(key.clone(), From::Store);
        let writer = Arc::new(Writer::new(stream, Seal::new(key, From::Node)));
        let (theirs, answering) = (Arc::clone(&shared), Answering::new(Arc::clone(&writer)));
        let read = move || read_replies(reading, seal, &theirs, answering);
        let reader = std::thread::Builder::new().name("oikaze job".into()).spawn(read).map_err(JobError::system(doing))?;
        Ok(Client { place, settings, shared, writer, reader: Some(reader) })
    }

    /// Ask and wait for the answer.
    fn ask(&self, request: &Request, limit: Duration) -> Result<Reply, JobError> {
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
        let answer = self.writer.send(&request.encode(id)).and_then(|()| self.wait(id, limit));
        self.shared.lock().pending.remove(&id);
        answer
    }

    fn wait(&self, id: u32, limit: Duration) -> Result<Reply, JobError> {
        // While this process and the store are stopped, no limit passes.
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
            let Some(left) = limit.checked_sub(clock.now()).filter(|left| !left.is_zero()) else {
                return Err(JobError::StoreLost { why: format!("no answer in {limit:?}") });
            };
            state = self.shared.changed.wait_timeout(state, left.min(TICK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ask for something that may take until `timeout`; the store itself watches the limit and says what is missing.
    fn ask_within(&self, request: &Request, what: String, timeout: Duration) -> Result<Vec<u8>, JobError> {
        match self.ask(request, timeout.saturating_add(ANSWER_TIME))? {
            Reply::Done(value) => Ok(value),
            Reply::Refused(why) => Err(JobError::Refused { why }),
            Reply::TimedOut(missing) => Err(JobError::TimedOut { what, limit: timeout, missing }),
            Reply::Aborted(why) => Err(JobError::Aborted { why }),
            Reply::Gone(NodeEnd { rank, how, .. }) => Err(JobError::NodeEnded { rank, how, what }),
            // Both come only unasked, and are no answer to a request.
            Reply::Ended(_) | Reply::Question(_) => Err(JobError::StoreLost { why: "an answer of the wrong kind".into() }),
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
        self.ask_within(&Request::Put(key.to_owned(), value.to_vec()), format!("publishing {key:?}"), ANSWER_TIME).map(drop)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        check_key(key)?;
        self.ask_within(&Request::Get(key.to_owned(), milliseconds(timeout)), format!("the value under key {key:?}"), timeout)
    }

    fn fence(&self, name: &str, timeout: Duration) -> Result<(), JobError> {
        check_key(name)?;
        self.ask_within(&Request::Fence(name.to_owned(), milliseconds(timeout)), format!("the fence {name:?}"), timeout).map(drop)
    }

    fn abort(&self, why: &str) {
        // If the store is gone the launcher is, and with it the job.
        let _ = self.ask(&Request::Abort(why.to_owned()), ANSWER_TIME);
    }

    fn aborted(&self) -> Option<String> {
        self.shared.lock().aborted.clone()
    }

    fn ended(&self) -> Vec<NodeEnd> {
        self.shared.lock().ended.clone()
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

    fn on_question(&self, answer: Box<dyn Fn(&str) -> String + Send + Sync>) {
        self.writer.answer_by(Arc::from(answer));
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
        // Ends the reading thread too.
        self.writer.shut_down();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Connect to all addresses at once; yields streams as they come, so that a dead address costs nothing.
fn race(store: &str, tried: &mut Vec<String>) -> Result<impl Iterator<Item = (SocketAddr, TcpStream)> + use<>, JobError> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for text in store.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match text.to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(why) => tried.push(format!("{text}: {why}")),
        }
    }
    let (found, streams) = channel();
    let (failed, failures) = channel();
    for address in addresses {
        let (found, failed) = (found.clone(), failed.clone());
        let connect = move || match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => drop(found.send((address, stream))),
            Err(why) => drop(failed.send(format!("{address}: {why}"))),
        };
        std::thread::Builder::new()
            .name("oikaze connect".into())
            .spawn(connect)
            .map_err(JobError::system("connect to the job's store"))?;
    }
    drop((found, failed));
    // The first stream, or all failures when there is none.
    let mut streams = streams.into_iter();
    let first = streams.next();
    if first.is_none() {
        tried.extend(failures);
    }
    Ok(first.into_iter().chain(streams))
}

/// Prove the secret and let the store prove it; the connection's key.
fn handshake(stream: &TcpStream, address: &SocketAddr, place: &Place) -> Result<Secret, JobError> {
    let lost = |why: std::io::Error| JobError::StoreLost { why: format!("{address}: {why}") };
    let foreign = |_: Malformed| JobError::NotOurStore { address: address.to_string() };
    stream.set_nodelay(true).map_err(lost)?;
    stream.set_read_timeout(Some(CONNECT_TIME)).map_err(lost)?;
    let greeting = Greeting::decode(&read_content(stream, false).map_err(lost)?).map_err(foreign)?;
    if greeting.version != VERSION {
        return Err(JobError::StoreVersion { ours: VERSION, theirs: greeting.version });
    }
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|why| JobError::System {
        doing: "draw a random number".into(),
        source: std::io::Error::other(why.to_string()),
    })?;
    let Place { rank, size, incarnation, .. } = *place;
    let proof = Proof { version: VERSION, rank, size, incarnation, nonce, mac: [0; 32] }.signed(&place.secret, &greeting);
    let mut writing = stream;
    writing.write_all(&seal::plain(&proof.encode())).map_err(lost)?;
    match Verdict::decode(&read_content(stream, false).map_err(lost)?).map_err(foreign)? {
        // These words are not proven: whoever sent them could also have closed the connection. Control characters are not shown.
        Verdict::Refused(why) => Err(JobError::Refused { why: why.replace(char::is_control, "?") }),
        Verdict::Welcome(mac) if mac == proof.answer(&place.secret, &greeting) => Ok(proof.session(&place.secret, &greeting)),
        Verdict::Welcome(_) => Err(JobError::NotOurStore { address: address.to_string() }),
    }
}

fn read_content(mut stream: &TcpStream, sealed: bool) -> std::io::Result<Vec<u8>> {
    let mut front = [0; LENGTH_LEN];
    stream.read_exact(&mut front)?;
    let mut content = vec![0; seal::length(front, sealed).map_err(std::io::Error::other)?];
    stream.read_exact(&mut content)?;
    Ok(content)
}

/// The reading thread: hands each answer to its asker, records news, and passes questions to the answering thread.
fn read_replies(stream: TcpStream, mut seal: Seal, shared: &Shared, mut answering: Answering) {
    let why = loop {
        let content = match read_content(&stream, true) {
            Ok(content) => content,
            Err(why) => break why.to_string(),
        };
        let (id, reply) = match seal.open(&content).and_then(Reply::decode) {
            Ok(read) => read,
            Err(why) => break why.to_string(),
        };
        let mut state = shared.lock();
        let mut news = true;
        match reply {
            Reply::Aborted(why) if id == UNASKED => _ = state.aborted.get_or_insert(why),
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
    };
    shared.lock().lost = Some(why);
    shared.changed.notify_all();
}
