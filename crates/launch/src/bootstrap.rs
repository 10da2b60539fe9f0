//! Bootstrap: how a process learns its place in a job and meets the others.

use super::environment::Settings;
use super::error::JobError;
use oikaze_os::secrets::secret::Secret;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum length of a key in the store, in bytes.
pub const KEY_MAX: usize = 128;
/// Maximum length of a value in the store, in bytes.
pub const VALUE_MAX: usize = 64 * 1024;

/// Meeting place of a job: rank, size, and a small store in which nodes publish where they can be
/// reached.
///
/// Used while joining and leaving, never on the data path. May be called from several threads at
/// once.
pub trait Bootstrap: Send + Sync {
    /// Returns this node's rank, 0 to n − 1.
    fn rank(&self) -> u32;
    /// Returns the number of nodes in the job.
    fn size(&self) -> u32;
    /// Returns this node's place among those on this host, as the launcher placed them (for
    /// choosing cores).
    fn local_rank(&self) -> u32;
    /// Returns the number of nodes that the launcher placed on this host.
    fn local_size(&self) -> u32;
    /// Returns `true` if all nodes are threads of this process. None of them can stop alone, so the
    /// others wait for it for as long as it takes.
    fn is_one_process(&self) -> bool {
        false
    }
    /// Returns the secret that only the nodes of this job know.
    fn secret(&self) -> &Secret;
    /// Returns the incarnation, which is greater in a process that was started later at the same
    /// rank.
    fn incarnation(&self) -> u64;
    /// Returns the settings that the user gave to the launcher.
    fn settings(&self) -> &Settings;
    /// Publishes a value. A key is written once: the same value again is accepted, another one is
    /// refused.
    ///
    /// # Errors
    /// The key or value is too long, the job was ended, or the store is lost.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError>;
    /// Returns the value under a key, and waits until a node publishes it.
    ///
    /// # Errors
    /// As [`Bootstrap::put`], or the time limit passed.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError>;
    /// Waits until all nodes have come to the fence of this name. A name may be used again
    /// afterwards.
    ///
    /// # Errors
    /// As [`Bootstrap::get`]; the error comes at once if a node that has not come has ended.
    fn fence(&self, name: &str, timeout: Duration) -> Result<(), JobError>;
    /// Ends the job for all nodes. Pending and later calls of all nodes fail with this reason. The
    /// first reason stays.
    fn abort(&self, why: &str);
    /// Returns why the job was ended, if it was. The call is cheap, because it asks no other
    /// process.
    fn aborted(&self) -> Option<String>;
    /// Returns the node processes that have ended so far, as their launcher saw it. The call is
    /// cheap, because it asks no other process.
    fn ended(&self) -> Vec<NodeEnd> {
        Vec::new()
    }
    /// Returns `true` if [`Bootstrap::ended`] will report every process that ends.
    fn reports_ends(&self) -> bool {
        false
    }
    /// Registers a function to call after each new [`NodeEnd`] and after an abort. It is called at
    /// once if there is one already. The function runs on the thread that reads from the store and
    /// must not block.
    fn on_news(&self, _call: Box<dyn Fn() + Send + Sync>) {}
    /// Tells the launcher that survivors go on after the death of a node (`oikaze run
    /// --keep-going`).
    fn keep_going(&self) {}
    /// Reports to the launcher that this node has joined the job. From then on the node fails the
    /// job by ending without having left (LAUNCH-3.4). The launcher knows it when the call returns.
    fn report_joined(&self) {}
    /// Reports to the launcher that this node has left the job.
    fn report_left(&self) {}
    /// Registers the function that answers questions of other nodes and of the launcher
    /// ([`Bootstrap::ask_node`]). It runs on a thread of its own and may block.
    fn on_question(&self, _answer: Box<dyn Fn(&str) -> String + Send + Sync>) {}
    /// Asks another node a question in text through the launcher. Returns `None` if no answer came
    /// within the limit, or if there is no launcher.
    fn ask_node(&self, _rank: u32, _question: &str, _limit: Duration) -> Option<String> {
        None
    }
}

/// End of a node's process, as its launcher saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnd {
    /// Rank of the node.
    pub rank: u32,
    /// Predicate of a sentence that begins with "node 2": `was killed by signal 9 (SIGKILL)`.
    pub how: String,
    /// Set if the process ended with status 0.
    pub success: bool,
}

/// Job of one node, without launcher. Its store is a map in this process.
pub struct SingleNode {
    secret: Secret,
    incarnation: u64,
    settings: Settings,
    state: Mutex<SingleNodeState>,
    changed: Condvar,
}

#[derive(Default)]
struct SingleNodeState {
    values: HashMap<String, Vec<u8>>,
    aborted: Option<String>,
}

impl SingleNode {
    /// Makes a new job of one node.
    ///
    /// # Errors
    /// The system has no random bytes for the secret.
    pub fn new(settings: Settings) -> Result<SingleNode, JobError> {
        let secret = Secret::random().map_err(JobError::system("draw the job's secret"))?;
        let incarnation = super::environment::new_incarnation();
        Ok(SingleNode {
            secret,
            incarnation,
            settings,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, SingleNodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a key that the store would refuse.
pub(crate) fn check_key(key: &str) -> Result<(), JobError> {
    if key.len() > KEY_MAX {
        return Err(JobError::TooLong {
            what: "a key of the job's store",
            len: key.len(),
            max: KEY_MAX,
        });
    }
    Ok(())
}

/// Refuses a value that the store would refuse.
pub(crate) fn check_value(value: &[u8]) -> Result<(), JobError> {
    if value.len() > VALUE_MAX {
        return Err(JobError::TooLong {
            what: "a value for the job's store",
            len: value.len(),
            max: VALUE_MAX,
        });
    }
    Ok(())
}

impl Bootstrap for SingleNode {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn local_rank(&self) -> u32 {
        0
    }
    fn local_size(&self) -> u32 {
        1
    }
    fn secret(&self) -> &Secret {
        &self.secret
    }
    fn incarnation(&self) -> u64 {
        self.incarnation
    }
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        check_key(key)?;
        check_value(value)?;
        let mut state = self.lock();
        if let Some(why) = &state.aborted {
            return Err(JobError::Aborted { why: why.clone() });
        }
        match state.values.get(key) {
            Some(old) if old != value => {
                return Err(JobError::Refused {
                    why: format!(
                        "{key:?} has another value already, and what is published does not change"
                    ),
                });
            }
            _ => state.values.insert(key.to_owned(), value.to_vec()),
        };
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        check_key(key)?;
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.aborted {
                return Err(JobError::Aborted { why: why.clone() });
            }
            if let Some(value) = state.values.get(key) {
                return Ok(value.clone());
            }
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            else {
                let missing = "nobody published it".to_owned();
                return Err(JobError::TimedOut {
                    what: format!("publication of {key:?}"),
                    limit: timeout,
                    missing,
                });
            };
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fence(&self, name: &str, _: Duration) -> Result<(), JobError> {
        check_key(name)?;
        self.aborted().map_or(Ok(()), |why| Err(JobError::Aborted { why }))
    }

    fn abort(&self, why: &str) {
        self.lock().aborted.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    fn aborted(&self) -> Option<String> {
        self.lock().aborted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn one_node_needs_nobody() {
        let job = SingleNode::new(Settings::default()).unwrap();
        assert_eq!((job.rank(), job.size(), job.local_size()), (0, 1, 1));
        job.put("a", b"1").unwrap();
        job.put("a", b"1").unwrap();
        assert!(matches!(job.put("a", b"2"), Err(JobError::Refused { .. })));
        assert_eq!(job.get("a", SHORT).unwrap(), b"1");
        job.fence("x", SHORT).unwrap();
        assert!(matches!(job.get("b", SHORT), Err(JobError::TimedOut { .. })));
        assert!(matches!(job.put(&"k".repeat(KEY_MAX + 1), b""), Err(JobError::TooLong { .. })));
        assert!(matches!(job.put("v", &vec![0; VALUE_MAX + 1]), Err(JobError::TooLong { .. })));
        job.abort("first");
        job.abort("second");
        assert!(matches!(job.fence("x", SHORT), Err(JobError::Aborted { why }) if why == "first"));
    }
}
