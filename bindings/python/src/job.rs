//! The job of this process.

pub mod cell;

use crate::interpreter::error::{OrRaise, invalid};
use crate::interpreter::finalization::{call, detached};
use crate::interpreter::number::{Named, Object, number, optional, text};
use crate::memory::arrival::Arrivals;
use crate::memory::fifo::Fifo;
use crate::memory::peer::Peer;
use crate::memory::region::{Region, lend, rights_of};
use crate::memory::remote::RemoteRegion;
use crate::message::{Message, Received};
use crate::operation::{Operation, Outcome};
use crate::queue::CompletionQueue;
use crate::wait::{OrOfJob, TimeLeft, Timeout, limit_of, taken, wait, wait_for, wait_in_thread};
use cell::{JobCell, lock};
use oikaze::ffi::{CallCounter, LockMode};
use oikaze::job::{CongestionControl, EngineMode, Feature, FlowCount, JobBuilder, LoopProgress};
use oikaze::memory::remote::RemoteId;
use oikaze::shared::LockGuard;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Base class of `oikaze.Job`, which the package completes in Python.
#[pyclass(module = "oikaze._native", name = "Job", subclass, frozen, weakref, dict)]
pub struct Job {
    cell: Arc<JobCell>,
}

impl Job {
    /// Returns what the objects of this job share.
    pub fn cell(&self) -> &Arc<JobCell> {
        &self.cell
    }

    /// Returns the job, unless this process has left it.
    pub fn get(&self, py: Python<'_>) -> PyResult<Arc<oikaze::Job>> {
        self.cell.get(py)
    }

    fn lock_of(&self, number: u64, reads: bool) -> Lock {
        Lock { job: Arc::clone(&self.cell), number, reads, held: Mutex::new(None) }
    }
}

/// Settings of a job, from the keywords of `oikaze.join`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    time_limit: Option<f64>,
    failure_time: Option<f64>,
    explain_after: Option<f64>,
    keep_going: Option<bool>,
    seal: Option<String>,
    cubic_congestion_control: bool,
    flows: Option<Py<PyAny>>,
    ports: Option<Py<PyAny>>,
    waiting: Option<String>,
    engine: Option<String>,
    engine_core: Option<Py<PyAny>>,
    engine_priority: Option<String>,
    without: Option<String>,
    rank: Option<Py<PyAny>>,
    size: Option<Py<PyAny>>,
    gather: Option<Py<PyAny>>,
}

/// Place of this process in a job whose processes meet by a function of the program.
struct Gathering {
    rank: u32,
    size: u32,
    gather: Py<PyAny>,
}

impl Gathering {
    fn of(settings: &mut Settings, py: Python<'_>) -> PyResult<Option<Self>> {
        let number = |given: &Option<Py<PyAny>>, name| {
            optional::<u32>(given.as_ref().map(|given| given.bind(py)), "join", name)
        };
        let (rank, size) = (number(&settings.rank, "rank")?, number(&settings.size, "size")?);
        match (rank, size, settings.gather.take()) {
            (None, None, None) => Ok(None),
            (Some(rank), Some(size), Some(gather)) => Ok(Some(Self { rank, size, gather })),
            _ => Err(PyTypeError::new_err("rank, size and gather are given together")),
        }
    }

    fn join(self, builder: JobBuilder) -> oikaze::Result<oikaze::Job> {
        let call = |mine: &[u8]| {
            Python::attach(|py| {
                let all = self.gather.call1(py, (PyBytes::new(py, mine),))?;
                all.extract::<Vec<Vec<u8>>>(py)
            })
            .map_err(Into::into)
        };
        builder.join_gathering(self.rank, self.size, call)
    }
}

fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| {
        PyValueError::new_err(format!("{name}={seconds}: {error}; give a number of seconds"))
    })
}

impl Settings {
    fn builder(self, py: Python<'_>) -> PyResult<JobBuilder> {
        let ports = self.ports.as_ref().map(|ports| ports.bind(py));
        let ports: Option<(u16, u16)> = optional(ports, "join", "ports")?;
        let core = self.engine_core.as_ref().map(|core| core.bind(py));
        let core: Option<usize> = optional(core, "join", "engine_core")?;
        let mut builder = oikaze::Job::builder();
        if let Some(limit) = self.time_limit {
            builder = builder.time_limit(seconds("time_limit", limit)?);
        }
        if let Some(time) = self.failure_time {
            builder = builder.failure_time(seconds("failure_time", time)?);
        }
        if let Some(time) = self.explain_after {
            builder = builder.explain_after(seconds("explain_after", time)?);
        }
        if let Some(goes_on) = self.keep_going {
            builder = builder.keep_going(goes_on);
        }
        if let Some(seal) = self.seal {
            builder = builder.seal(seal.parse().map_err(PyValueError::new_err::<String>)?);
        }
        if self.cubic_congestion_control {
            builder = builder.congestion(CongestionControl::Cubic);
        }
        if let Some(flows) = &self.flows {
            builder = builder.flows(flow_count(flows.bind(py))?);
        }
        if let Some((first, last)) = ports {
            builder = builder.ports(first..=last);
        }
        if let Some(words) = self.waiting.as_deref() {
            let mode = words.parse().map_err(|why: String| unknown("waiting", words, &why))?;
            builder = builder.waiting(mode);
        }
        builder = match (self.engine.as_deref(), core) {
            (None, None) => builder,
            (Some(words), None) => {
                let mode = words.parse().map_err(|why: String| unknown("engine", words, &why))?;
                builder.engine(mode)
            }
            (Some("thread") | None, Some(core)) => builder.engine(EngineMode::thread_on([core])),
            (Some(words), Some(core)) => {
                let why = format!(
                    "engine_core={core} is a core of engine=\"thread\"; give cores as in \"thread:2-3\" or \"process:NAME@3\""
                );
                return Err(unknown("engine", words, &why));
            }
        };
        if let Some(words) = self.engine_priority.as_deref() {
            let priority = words
                .parse()
                .map_err(|why: String| PyValueError::new_err(format!("engine_priority={why}")))?;
            builder = builder.engine_priority(priority);
        }
        if let Some(words) = &self.without {
            let features =
                Feature::list(words).map_err(|why| unknown("without", words, &why.to_string()))?;
            builder = builder.without(features);
        }
        Ok(builder)
    }
}

/// Reads a number of flows, or the word of `OIKAZE_FLOWS`.
fn flow_count(given: &Bound<'_, PyAny>) -> PyResult<FlowCount> {
    let words = given.str()?.to_string();
    let read: Result<FlowCount, _> = words.parse();
    read.map_err(|why| PyValueError::new_err(format!("flows={words}: {why}")))
}

fn unknown(name: &str, words: &str, why: &str) -> PyErr {
    PyValueError::new_err(format!("{name}={words:?}: {why}"))
}

#[pymethods]
impl Job {
    #[new]
    fn join(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        // The cause says what is wrong, and the error which setting.
        let of_setting = |error: PyErr| match error.cause(py) {
            Some(cause) => {
                PyTypeError::new_err(format!("{}: {}", error.value(py), cause.value(py)))
            }
            None => error,
        };
        let mut settings = settings.extract::<Settings>().map_err(of_setting).named(py, "join")?;
        let gathering = Gathering::of(&mut settings, py).named(py, "join")?;
        let builder = settings.builder(py).named(py, "join")?;
        // In a thread of its own, so that a signal ends the wait of this one for other nodes.
        let job = wait_in_thread(py, "oikaze-join", move || match gathering {
            Some(gathering) => gathering.join(builder),
            None => builder.join(),
        })?;
        let (rank, size) = (job.rank(), job.size());
        let cell = JobCell {
            job: Mutex::new(Some(Arc::new(job))),
            rank,
            size,
            running: Mutex::default(),
            regions: Mutex::default(),
        };
        Ok(Self { cell: Arc::new(cell) })
    }

    /// Rank of this node, 0 to `size` - 1.
    #[getter]
    fn rank(&self) -> u32 {
        self.cell.rank
    }

    /// Number of nodes in the job.
    #[getter]
    fn size(&self) -> u32 {
        self.cell.size
    }

    /// Whether this process has left the job.
    #[getter]
    fn has_left(&self) -> bool {
        lock(&self.cell.job).is_none()
    }

    /// Time limit in seconds of waits that are given none, or `None`.
    #[getter]
    fn time_limit(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.get(py)?.time_limit().map(|limit| limit.as_secs_f64()))
    }

    /// How this node detects accesses to shared arrays, and why not in a better way.
    #[getter]
    fn page_tracking(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.get(py)?.page_tracking().to_owned())
    }

    /// Ranks of nodes that have died, or have left without waiting for the others.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        Ok(self.get(py)?.lost())
    }

    /// Whether survivors go on after the death of a node.
    #[getter]
    fn keeps_going(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.keeps_going())
    }

    /// Returns the counters of this node, all of them from its start, as a dictionary.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let job = self.get(py)?;
        let statistics = detached(py, || job.statistics());
        let counters = PyDict::new(py);
        for (name, value) in [
            ("read_faults", statistics.read_faults),
            ("write_faults", statistics.write_faults),
            ("pages_fetched", statistics.pages_fetched),
            ("diffs", statistics.diffs),
            ("diff_bytes", statistics.diff_bytes),
            ("barriers", statistics.barriers),
            ("locks", statistics.locks),
            ("datagrams_sent", statistics.datagrams_sent),
            ("datagrams_received", statistics.datagrams_received),
            ("bytes_sent", statistics.bytes_sent),
            ("bytes_received", statistics.bytes_received),
            ("retransmissions", statistics.retransmissions),
            ("corrupt", statistics.corrupt),
            ("unknown_connection", statistics.unknown_connection),
            ("bad_mac", statistics.bad_mac),
            ("rate_limited", statistics.rate_limited),
            ("stale_handshakes", statistics.stale_handshakes),
            ("no_cookie", statistics.no_cookie),
            ("duplicates", statistics.duplicates),
            ("placed_messages", statistics.placed_messages),
            ("group_datagrams_sent", statistics.group_datagrams_sent),
            ("group_bytes_sent", statistics.group_bytes_sent),
            ("group_datagrams_received", statistics.group_datagrams_received),
            ("group_members", statistics.group_members),
        ] {
            counters.set_item(name, value)?;
        }
        counters.set_item("notices", statistics.notices)?;
        Ok(counters)
    }

    /// Returns the latest accesses of peers that this node refused, as texts, the oldest first.
    fn refused_accesses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let job = self.get(py)?;
        Ok(detached(py, || job.refused_accesses().iter().map(ToString::to_string).collect()))
    }

    /// Waits until all nodes have come here. Afterwards each node sees the writes of all others to
    /// shared arrays.
    ///
    /// `timeout` is in seconds. Raises `PeerLostError` if a node is lost. After a timeout or an
    /// interruption, the next barrier goes on to wait for the same one, if the program calls no
    /// other collective before. What the node has written since the first call becomes visible with
    /// the collective after that.
    #[pyo3(signature = (timeout = None))]
    fn barrier(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<()> {
        let job = self.get(py)?;
        let timeout = match limit_of(timeout, "barrier") {
            Ok(timeout) => timeout,
            Err(error) => {
                // Otherwise the others would wait for this node.
                self._refuse_collective(py, "barrier", &error.value(py).to_string())?;
                return Err(error);
            }
        };
        wait(py, || timeout.choose(|limit| job.barrier_for(limit), || job.barrier()))
    }

    /// Ends the job for all nodes, for this reason, and returns.
    fn _end(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let job = self.get(py)?;
        detached(py, || job.end_with_reason(reason));
        Ok(())
    }

    /// Ends the job for all nodes, for this reason, and this process with this status.
    fn _abort(&self, py: Python<'_>, reason: &str, status: u8) -> PyResult<()> {
        let job = self.get(py)?;
        detached(py, || job.abort_with(status, reason))
    }

    /// Waits for all other nodes to leave, then says goodbye. Later calls raise `LeftError`.
    ///
    /// A second call does nothing. After an exception of a signal's handler, this process has not
    /// left, and the next call goes on.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let Some(job) = self.cell.take() else { return Ok(()) };
        let outcome = wait(py, || job.leave_shared());
        if outcome.is_err() && !job.has_left() {
            *lock(&self.cell.job) = Some(job);
            return outcome;
        }
        // All operations have ended, and no region is registered any more.
        let (running, regions) = (
            std::mem::take(&mut *lock(&self.cell.running)),
            std::mem::take(&mut *lock(&self.cell.regions)),
        );
        drop((running, regions));
        outcome
    }

    /// Gives the job up without a word to other nodes, for which this node is lost as soon as its
    /// process has ended. Later calls raise `LeftError`.
    fn _abandon(&self) {
        // The job is kept from its destructor, which would wait for the other nodes.
        if let Some(job) = self.cell.take() {
            std::mem::forget(job);
        }
    }

    /// Returns the node of this rank. Operations work on a node's own memory, too.
    fn peer(&self, py: Python<'_>, rank: Object) -> PyResult<Peer> {
        let rank: u32 = number(rank, "peer", "rank")?;
        let peer = self.get(py)?.peer(rank).or_raise(py)?;
        Ok(Peer::new(&self.cell, peer))
    }

    /// Waits for the next message, from the node `source` or from any, and returns it.
    ///
    /// `timeout` is in seconds. Raises `PeerLostError` if no message can come any more.
    #[pyo3(signature = (source = None, timeout = None))]
    fn receive(
        &self,
        py: Python<'_>,
        source: Option<Object>,
        timeout: Option<Object>,
    ) -> PyResult<Message> {
        let source: Option<u32> = optional(source, "receive", "source")?;
        let timeout = limit_of(timeout, "receive")?;
        let job = self.get(py)?;
        taken(
            py,
            timeout,
            || Ok(job.try_receive(source).map(Message::new)),
            |limit| match limit {
                Some(limit) => job.probe_for(source, limit).map(drop),
                None => job.probe(source).map(drop),
            },
        )
    }

    /// Returns the next message if one has arrived, otherwise `None`.
    #[pyo3(signature = (source = None))]
    fn try_receive(&self, py: Python<'_>, source: Option<Object>) -> PyResult<Option<Message>> {
        let source: Option<u32> = optional(source, "try_receive", "source")?;
        Ok(self.get(py)?.try_receive(source).map(Message::new))
    }

    /// Waits for the next message, from the node `source` or from any, and returns its description
    /// without taking it: a `Received`. The next `receive` with the same source gets that message,
    /// unless another thread receives it before, or a receive that is posted meanwhile matches it.
    ///
    /// `timeout` is in seconds. Raises `PeerLostError` if no message can come any more.
    #[pyo3(signature = (source = None, timeout = None))]
    fn probe(
        &self,
        py: Python<'_>,
        source: Option<Object>,
        timeout: Option<Object>,
    ) -> PyResult<Received> {
        let source: Option<u32> = optional(source, "probe", "source")?;
        let timeout = limit_of(timeout, "probe")?;
        let job = self.get(py)?;
        let within = |limit| job.probe_for(source, limit);
        wait(py, || timeout.choose(within, || job.probe(source))).map(Received::new)
    }

    /// Returns the description of the next message if one has arrived, otherwise `None`.
    #[pyo3(signature = (source = None))]
    fn try_probe(&self, py: Python<'_>, source: Option<Object>) -> PyResult<Option<Received>> {
        let source: Option<u32> = optional(source, "try_probe", "source")?;
        Ok(self.get(py)?.try_probe(source).map(Received::new))
    }

    /// Waits until `count` messages of any nodes have arrived, and returns them in a list. Returns
    /// fewer if the time limit passes, or all other nodes are lost.
    #[pyo3(signature = (count, timeout = None))]
    fn receive_batch(&self, count: Object, timeout: Option<Object>) -> PyResult<Vec<Message>> {
        let py = count.py();
        let count: usize = number(count, "receive_batch", "count")?;
        let timeout = limit_of(timeout, "receive_batch")?;
        let job = self.get(py)?;
        let mut left = TimeLeft::new(timeout);
        let mut at_least = count;
        loop {
            if let Some(batch) = job.try_receive_batch(count, at_least) {
                return Ok(batch.into_iter().map(Message::new).collect());
            }
            let limit = left.next();
            if !wait_for(py, || job.wait_batch_ready(count, limit))? {
                at_least = 0;
            }
            // A signal may have come since the wait last looked for it.
            py.check_signals()?;
        }
    }

    /// Offers memory for one message, and returns the `Operation`, whose result is a `Received`.
    ///
    /// `into` is a `Region`, or any contiguous buffer that may be written, such as a NumPy array.
    /// The message is of the node `source`, or of any; its tag equals `tag` in the bits of `mask`,
    /// or is any. Receives match in the order in which they were posted. `receive` gets the
    /// messages that no posted receive matches. If the message is longer than the memory, the wait
    /// raises `InvalidError`, and the message waits to be received. `operation.cancel()` withdraws
    /// the offer.
    #[pyo3(signature = (into, source = None, tag = None, mask = None))]
    fn post_receive(
        &self,
        py: Python<'_>,
        into: Object,
        source: Option<Object>,
        tag: Option<Object>,
        mask: Option<Object>,
    ) -> PyResult<Operation> {
        let source: Option<u32> = optional(source, "post_receive", "source")?;
        let tag: Option<u64> = optional(tag, "post_receive", "tag")?;
        let mask: Option<u64> = optional(mask, "post_receive", "mask")?;
        let job = self.get(py)?;
        let (slice, loan) = lend(&self.cell, &job, into, true, "posting a receive")?;
        let mask = mask.unwrap_or(if tag.is_some() { u64::MAX } else { 0 });
        let receive = job.post_receive(source, tag.unwrap_or(0), mask, slice);
        Ok(Operation::new(&self.cell, receive, Outcome::Received, loan))
    }

    /// Returns the queue of puts with notice to all regions of this node.
    fn arrivals(&self, py: Python<'_>) -> PyResult<Arrivals> {
        Ok(Arrivals::new(&self.cell, self.get(py)?.arrivals()))
    }

    /// Makes memory reachable for peers under a name of up to 48 bytes, and returns its `Region`.
    ///
    /// `memory` is a number of bytes, for new memory that local peers can map, or an object with a
    /// writable, contiguous buffer, which is used in place. `rights` are the rights of peers.
    #[pyo3(signature = (name, memory, rights))]
    fn publish(&self, name: Object, memory: Object, rights: Object) -> PyResult<Region> {
        let py = name.py();
        let name = text(name, "publish", "name")?;
        let (job, rights) = (self.get(py)?, rights_of(rights, "publish")?);
        Region::make(&self.cell, memory, |region| job.publish(name, region, rights))
    }

    /// Registers memory as source and destination of this node's operations. Peers cannot reach it.
    ///
    /// `memory` is as for `publish`.
    fn register(&self, py: Python<'_>, memory: Object) -> PyResult<Region> {
        let job = self.get(py)?;
        Region::make(&self.cell, memory, |region| job.register(region))
    }

    /// Makes memory reachable for peers that know its id, `region.remote_id`.
    fn expose(&self, py: Python<'_>, memory: Object, rights: Object) -> PyResult<Region> {
        let (job, rights) = (self.get(py)?, rights_of(rights, "expose")?);
        Region::make(&self.cell, memory, |region| job.expose(region, rights))
    }

    /// Returns the region of a peer whose id, of 24 bytes, another node has sent to this one.
    fn remote(&self, py: Python<'_>, id: Object) -> PyResult<RemoteRegion> {
        let id: &[u8] = id.extract().map_err(PyErr::from).named(py, "remote")?;
        let job = self.get(py)?;
        let Some(id) = RemoteId::from_bytes(id) else {
            let why = format!("an id has {} bytes, this one has {}", RemoteId::BYTES, id.len());
            return Err(invalid(py, "finding a region by its id", &why, "pass region.remote_id"));
        };
        let region = wait(py, || job.remote(id))?;
        Ok(RemoteRegion::new(&self.cell, region))
    }

    /// Makes a FIFO under a name, with room for `slots` elements of up to `longest` bytes.
    fn fifo(&self, py: Python<'_>, name: Object, slots: Object, longest: Object) -> PyResult<Fifo> {
        let name = text(name, "fifo", "name")?;
        let slots: u64 = number(slots, "fifo", "slots")?;
        let longest: u64 = number(longest, "fifo", "longest")?;
        let job = self.get(py)?;
        Ok(Fifo::new(wait(py, || job.fifo(name, slots, longest))?))
    }

    /// Returns how many calls this node has made of which all nodes make the same ones.
    fn _call_counts(&self, py: Python<'_>) -> PyResult<BTreeMap<(String, u64), u64>> {
        let job = self.get(py)?;
        let named = |(counter, count)| match counter {
            CallCounter::Job => (("job".to_owned(), 0), count),
            CallCounter::Arrays => (("arrays".to_owned(), 0), count),
            CallCounter::Team(id) => (("team".to_owned(), id), count),
            CallCounter::Splits(id) => (("splits".to_owned(), id), count),
        };
        Ok(detached(py, || job.call_counts()).into_iter().map(named).collect())
    }

    /// Brings this node in step with nodes that have made more calls.
    fn _catch_up(
        &self,
        py: Python<'_>,
        counts: BTreeMap<(String, u64), u64>,
        why: &str,
        limit: f64,
    ) -> PyResult<()> {
        let job = self.get(py)?;
        let counter = |((name, id), count): ((String, u64), u64)| {
            let counter = match name.as_str() {
                "job" => CallCounter::Job,
                "arrays" => CallCounter::Arrays,
                "team" => CallCounter::Team(id),
                "splits" => CallCounter::Splits(id),
                _ => return None,
            };
            Some((counter, count))
        };
        let counts = counts.into_iter().filter_map(counter).collect();
        wait(py, || job.catch_up(&counts, why, Duration::from_secs_f64(limit)))
    }

    /// Makes a queue in which operations report their end.
    fn completion_queue(&self, py: Python<'_>) -> PyResult<CompletionQueue> {
        Ok(CompletionQueue::new(self.get(py)?.completion_queue()))
    }

    /// Calls `function`, and posts the operations that it begins together, in few datagrams.
    /// Returns what the function returns.
    fn batch(&self, py: Python<'_>, function: Object) -> PyResult<Py<PyAny>> {
        self.get(py)?.batch(|| call(function, ())).map(Bound::unbind)
    }

    /// Orders later operations to each peer after earlier ones. Returns at once.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        self.get(py)?.fence();
        Ok(())
    }

    /// Waits until all operations and messages of this node have ended.
    ///
    /// Raises `UnreportedError` if some have failed that nobody waited for.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<()> {
        let timeout = limit_of(timeout, "flush")?;
        let job = self.get(py)?;
        wait(py, || timeout.choose(|limit| job.flush_for(limit), || job.flush()))?;
        self.cell.release_ended();
        Ok(())
    }

    /// Tells another node that what this node wrote to shared arrays is complete.
    fn notify(&self, py: Python<'_>, to: Object) -> PyResult<()> {
        let to: u32 = number(to, "notify", "to")?;
        let job = self.get(py)?;
        wait(py, || job.notify(to))
    }

    /// Waits for the next notification of a node, whose writes are visible then.
    #[pyo3(signature = (source, timeout = None))]
    fn wait_notify(&self, py: Python<'_>, source: Object, timeout: Option<Object>) -> PyResult<()> {
        let source: u32 = number(source, "wait_notify", "source")?;
        let timeout = limit_of(timeout, "wait_notify")?;
        let job = self.get(py)?;
        let take = || match wait_for(py, || job.wait_notify_for(source, Duration::ZERO))? {
            Err(error) if error.is_timeout() => Ok(None),
            notified => notified.map(Some).or_raise(py),
        };
        taken(py, timeout, take, |limit| job.wait_notify_ready(source, limit))
    }

    /// Number of a descriptor that becomes readable when an operation or a message has come. It may
    /// become readable without any event.
    #[getter]
    fn descriptor(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.get(py)?.descriptor().as_raw_fd())
    }

    /// Makes the descriptor unreadable again. Check for events after this call, not before.
    fn clear_descriptor(&self, py: Python<'_>) -> PyResult<()> {
        self.get(py)?.clear_descriptor();
        Ok(())
    }

    /// Does the work of the node that is due now, and returns at once, for programs with an event
    /// loop of their own. Returns True if the loop should look for its events and call again, and
    /// False if it should sleep on `descriptor`. `asyncio` needs no such call.
    fn progress(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.progress())
    }

    /// Does what `progress` does. Returns whether there was news, and whether to call again soon.
    fn _progress(&self, py: Python<'_>) -> PyResult<(bool, bool)> {
        let LoopProgress { news, polls_on } = self.get(py)?.progress_of_loop();
        Ok((news, polls_on))
    }

    /// Address of this job among the jobs of the process; operations have the same.
    #[getter]
    fn _address(&self) -> usize {
        Arc::as_ptr(&self.cell).addr()
    }

    /// Returns the lock of this number.
    fn _lock(&self, number: Object, reads: bool) -> PyResult<Lock> {
        let number: u64 = crate::interpreter::number::number(number, "lock", "name")?;
        Ok(self.lock_of(number, reads))
    }

    /// Returns the lock of this name.
    fn _lock_named(&self, py: Python<'_>, name: &str, reads: bool) -> PyResult<Lock> {
        Ok(self.lock_of(self.get(py)?.lock_number(name), reads))
    }
}

/// A lock of the job, used as a context manager: `with job.lock("histogram"): ...`. Several objects
/// of `job.read_lock` hold a lock together.
#[pyclass(module = "oikaze", frozen)]
pub struct Lock {
    job: Arc<JobCell>,
    number: u64,
    reads: bool,
    held: Mutex<Option<LockGuard>>,
}

#[pymethods]
impl Lock {
    /// Waits for the lock. Afterwards this node sees what earlier holders wrote to shared arrays.
    ///
    /// `timeout` is in seconds; after a `TimeoutError` the lock is no longer asked for.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<()> {
        self.take(py, false, limit_of(timeout, "acquire")?).map(drop)
    }

    /// Acquires the lock if no other thread or node has it; a lock for reading, if nobody has it by
    /// `lock` or waits so. Returns whether it did.
    ///
    /// `timeout` is in seconds; with it, waits for the lock for so long.
    #[pyo3(signature = (timeout = None))]
    fn try_acquire(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<bool> {
        self.take(py, true, limit_of(timeout, "try_acquire")?)
    }

    /// Gives the lock back, with all writes to shared arrays.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(guard) = lock(&self.held).take() else {
            let why = "this object does not hold it";
            return Err(invalid(py, "releasing a lock", why, "acquire it first"));
        };
        wait(py, || guard.release())
    }

    fn __repr__(&self) -> String {
        let state = if self.held() { "held" } else { "free" };
        let kind = if self.reads { ", for reading" } else { "" };
        format!("<oikaze.Lock {}{kind}, {state}>", self.number)
    }

    /// Whether this object holds the lock.
    #[getter]
    fn held(&self) -> bool {
        lock(&self.held).is_some()
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().acquire(slf.py(), None)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Object) -> PyResult<()> {
        self.release(py)
    }
}

impl Lock {
    /// Acquires the lock within `timeout`. Returns whether it did, which a call that does not try
    /// always does.
    fn take(&self, py: Python<'_>, tries: bool, timeout: Option<Timeout>) -> PyResult<bool> {
        if lock(&self.held).is_some() {
            let why = "this object holds it already";
            let remedy = "release it first; another thread waits with an object of its own";
            return Err(invalid(py, "acquiring a lock", why, remedy));
        }
        let (job, mode) = (self.job.get(py)?, LockMode { reads: self.reads, tries });
        let limit = timeout.choose(Some, || None);
        let taken = wait(py, || job.lock_in_mode(self.number, mode, limit))?;
        let Some(guard) = taken else { return Ok(false) };
        if let Err(raised) = py.check_signals() {
            detached(py, || drop(guard));
            return Err(raised);
        }
        *lock(&self.held) = Some(guard);
        Ok(true)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let guard = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(guard) = guard {
            Python::try_attach(|py| detached(py, || drop(guard)));
        }
    }
}
