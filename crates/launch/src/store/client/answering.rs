//! Messages that come to a node unasked: calls after news, and answers to questions (LAUNCH-2.1).

use super::resume::Link;
use crate::store::protocol::{Request, UNASKED};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of questions that wait while one is being answered. Further ones stay unanswered.
const WAITING_MAX: usize = 64;
/// Answer of a node that has registered no function for answers.
pub(in crate::store) const NO_ANSWER: &str = "joined; says nothing of what it does";

/// Function that answers questions.
pub(super) type Answer = Arc<dyn Fn(&str) -> String + Send + Sync>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Functions to call after news.
#[derive(Default)]
pub(super) struct NewsCallbacks {
    calls: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl NewsCallbacks {
    /// Adds a function, which is called after news from now on.
    pub fn register(&self, call: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.calls).push(call);
    }

    /// Calls all functions. No lock is held meanwhile, so that a function may register another one.
    pub fn call(&self) {
        let calls = lock(&self.calls).clone();
        calls.iter().for_each(|call| call());
    }
}

/// Passes questions to a thread that may block. The thread starts with the first question and ends
/// with this value.
pub(super) struct Answering {
    link: Arc<Link>,
    questions: Option<SyncSender<(u32, String)>>,
}

impl Answering {
    /// Makes the value. Each answer goes out by the connection that `link` has then.
    pub fn new(link: Arc<Link>) -> Answering {
        Answering { link, questions: None }
    }

    /// Takes a question without blocking. A question that finds no room or no thread stays
    /// unanswered.
    pub fn take(&mut self, number: u32, question: String) {
        if self.questions.is_none() {
            let (questions, inbox) = sync_channel(WAITING_MAX);
            let link = Arc::clone(&self.link);
            let answer = move || answer_all(&inbox, &link);
            if oikaze_os::signals::spawn("oikaze answers", answer).is_ok() {
                self.questions = Some(questions);
            }
        }
        let _ = self.questions.as_ref().map(|questions| questions.try_send((number, question)));
    }
}

fn answer_all(inbox: &Receiver<(u32, String)>, link: &Link) {
    for (number, question) in inbox {
        let text = link.answer().map_or_else(|| NO_ANSWER.to_owned(), |answer| answer(&question));
        link.send_once(&Request::Answer(number, text).encode(UNASKED));
    }
}
