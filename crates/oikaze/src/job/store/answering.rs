//! A node's side of what comes unasked: calls after news, and answers to questions (LAUNCH-2.1).

use super::protocol::{Request, UNASKED};
use super::seal::Seal;
use crate::job::JobError;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of questions that wait while one is being answered. Further ones stay unanswered.
const WAITING_MAX: usize = 64;
/// Answer of a node that has registered no function for answers.
pub const NO_ANSWER: &str = "joined; says nothing of what it does";

type Answer = Arc<dyn Fn(&str) -> String + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writing half of a node's connection, shared by all callers and the answering thread.
pub struct Writer {
    out: Mutex<(TcpStream, Seal)>,
    answer: Mutex<Option<Answer>>,
}

impl Writer {
    /// `seal` is that of frames of the node.
    pub fn new(stream: TcpStream, seal: Seal) -> Writer {
        Writer { out: Mutex::new((stream, seal)), answer: Mutex::new(None) }
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&self, body: &[u8]) -> Result<(), JobError> {
        let mut out = lock(&self.out);
        let (stream, seal) = &mut *out;
        let frame = seal.frame(body);
        stream.write_all(&frame).map_err(|why| JobError::StoreLost { why: why.to_string() })
    }

    /// Closes the connection; the reading thread then ends.
    pub fn shut_down(&self) {
        let _ = lock(&self.out).0.shutdown(Shutdown::Both);
        // The function may hold what its registrar wants to be freed.
        *lock(&self.answer) = None;
    }

    /// Sets the function that answers questions.
    pub fn answer_by(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    fn answer(&self, number: u32, question: &str) {
        let answer = lock(&self.answer).clone();
        let text = answer.map_or_else(|| NO_ANSWER.to_owned(), |answer| answer(question));
        // A connection that is gone has no asker.
        let _ = self.send(&Request::Answer(number, text).encode(UNASKED));
    }
}

/// Functions to call after news.
#[derive(Default)]
pub struct News {
    calls: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl News {
    /// One more function. It is called after news from now on.
    pub fn register(&self, call: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.calls).push(call);
    }

    /// Calls all functions. No lock is held meanwhile, so that a function may register another one.
    pub fn call(&self) {
        let calls = lock(&self.calls).clone();
        calls.iter().for_each(|call| call());
    }
}

/// Passes questions to a thread that may block. The thread starts with the first question and ends with this value.
pub struct Answering {
    writer: Arc<Writer>,
    questions: Option<SyncSender<(u32, String)>>,
}

impl Answering {
    /// Answers go out by `writer`.
    pub fn new(writer: Arc<Writer>) -> Answering {
        Answering { writer, questions: None }
    }

    /// Takes a question without blocking. A question that finds no room or no thread stays unanswered.
    pub fn take(&mut self, number: u32, question: String) {
        if self.questions.is_none() {
            let (questions, inbox) = sync_channel(WAITING_MAX);
            let writer = Arc::clone(&self.writer);
            let answer = move || answer_all(&inbox, &writer);
            if std::thread::Builder::new().name("oikaze answers".into()).spawn(answer).is_ok() {
                self.questions = Some(questions);
            }
        }
        let _ = self.questions.as_ref().map(|questions| questions.try_send((number, question)));
    }
}

fn answer_all(inbox: &Receiver<(u32, String)>, writer: &Writer) {
    for (number, question) in inbox {
        writer.answer(number, &question);
    }
}
