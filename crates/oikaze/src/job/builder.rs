//! Settings of a job that its program gives when it joins.

use crate::node::{EngineMode, Inline, OwnThread, Served, WaitMode, WaitSettings};
use crate::testing::Seat;
use crate::{Error, Job, Result};
use oikaze_launch::{Ports, Seal, Settings};
use oikaze_os::cpu::Priority;
use oikaze_os::features::Without;
use oikaze_protocol::wind::congestion::Algorithm;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Longest time that is not the same as no limit: 100 years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Joins a job with settings of the program's own; see [`Job::builder`].
///
/// Each setting has an environment variable, by which the user sets it for all programs. A value
/// that the builder has been given wins over the variable.
///
/// ```
/// use oikaze::prelude::*;
/// use std::time::Duration;
/// # fn main() -> oikaze::Result<()> {
/// let job = Job::builder()
///     .time_limit(Duration::from_secs(600))
///     .failure_time(Duration::from_secs(30))
///     .block_while_waiting()
///     .join()?;
/// assert_eq!(job.time_limit(), Some(Duration::from_secs(600)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobBuilder {
    time_limit: Option<Duration>,
    failure_time: Option<Duration>,
    explain_after: Option<Duration>,
    keep_going: Option<bool>,
    seal: Option<Seal>,
    congestion: Option<Algorithm>,
    ports: Option<RangeInclusive<u16>>,
    waiting: Option<Result<WaitMode, String>>,
    mode: Option<EngineMode>,
    priority: Option<Priority>,
    without: Option<String>,
}

impl JobBuilder {
    /// Sets the time limit of waits that are given none of their own (`OIKAZE_TIMEOUT`).
    /// [`Duration::MAX`] means no limit.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the time of silence after which a peer is dead (`OIKAZE_FAILURE_TIME`; 5 s unless set).
    pub fn failure_time(mut self, time: Duration) -> Self {
        self.failure_time = Some(time);
        self
    }

    /// Sets the time that a wait lasts before one line on stderr explains it
    /// (`OIKAZE_EXPLAIN_AFTER`; 5 s unless set). With zero, no wait is explained.
    pub fn explain_after(mut self, time: Duration) -> Self {
        self.explain_after = Some(time);
        self
    }

    /// Sets whether survivors go on with what needs no dead node when a node dies
    /// (`OIKAZE_KEEP_GOING`, `oikaze run --keep-going`). [`Job::lost`] names the dead. Waits and
    /// operations that need a dead node fail, and so do the collectives of its teams, and locks and
    /// pages that the death has touched. Survivors make a team of their own
    /// ([`Collectives::shrink`](crate::collective::Collectives::shrink)). Otherwise the job has
    /// failed, and the launcher ends the nodes that do not end by themselves.
    pub fn keep_going(mut self, goes_on: bool) -> Self {
        self.keep_going = Some(goes_on);
        self
    }

    /// Sets how datagrams between machines are protected (`OIKAZE_SEAL`). All nodes of a job choose
    /// the same.
    pub fn seal(mut self, seal: Seal) -> Self {
        self.seal = Some(seal);
        self
    }

    /// Controls congestion by loss, as CUBIC does, and not by delay (`OIKAZE_CONGESTION=cubic`).
    pub fn cubic_congestion_control(mut self) -> Self {
        self.congestion = Some(Algorithm::Cubic);
        self
    }

    /// Sets the UDP ports that the node may use (`OIKAZE_PORTS`).
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Lets threads that wait spin without end (`OIKAZE_WAIT=spin`). That is quickest where each
    /// node has cores of its own.
    pub fn spin_while_waiting(mut self) -> Self {
        self.waiting = Some(Ok(WaitMode::Spin));
        self
    }

    /// Lets threads that wait poll at this interval, 1 µs to 100 ms, and sleep in between
    /// (`OIKAZE_WAIT=poll:TIME`, such as `poll:10us`). Nothing wakes them before. Another interval
    /// is an error of [`JobBuilder::join`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> oikaze::Result<()> {
    /// let every = Duration::from_micros(50);
    /// let job = oikaze::Job::builder().poll_while_waiting(every).join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn poll_while_waiting(mut self, interval: Duration) -> Self {
        self.waiting = Some(WaitMode::poll(interval));
        self
    }

    /// Lets threads that wait sleep at once (`OIKAZE_WAIT=block`). That leaves the cores to others.
    /// After a wakeup, a thread that waits for more polls until nothing has come for 100 µs, so
    /// that many completions cost one wakeup.
    pub fn block_while_waiting(mut self) -> Self {
        self.waiting = Some(Ok(WaitMode::Block));
        self
    }

    /// Lets threads that wait spin where the machine has cores for it, and then sleep
    /// (`OIKAZE_WAIT=adaptive`, the default). Each thread spins for as long as that has been paying
    /// off in its latest waits, at most 2 ms.
    pub fn wait_adaptively(mut self) -> Self {
        self.waiting = Some(Ok(WaitMode::Adaptive));
        self
    }

    /// Lets threads wait in the words of `OIKAZE_WAIT`: `spin`, `poll:TIME` (such as `poll:10us`),
    /// `block` or `adaptive`.
    ///
    /// ```
    /// # fn main() -> Result<(), String> {
    /// let builder = oikaze::Job::builder().wait_as("poll:10us")?;
    /// assert!(builder.wait_as("poll:10").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The words are not known. The text says which are.
    pub fn wait_as(mut self, words: &str) -> Result<Self, String> {
        self.waiting = Some(Ok(words.parse()?));
        Ok(self)
    }

    /// Lets the threads that wait run the engine (`OIKAZE_ENGINE=inline`, the default).
    pub fn engine_inline(mut self) -> Self {
        self.mode = Some(EngineMode::Inline(Inline));
        self
    }

    /// Gives the engine a thread of its own (`OIKAZE_ENGINE=thread`). Only that thread sends and
    /// receives. A call of another thread writes its request into a queue, which takes as long for
    /// 8 bytes as for 64 MiB.
    pub fn engine_thread(mut self) -> Self {
        self.mode = Some(EngineMode::Thread(OwnThread::default()));
        self
    }

    /// Gives the engine a thread of its own on this core (`OIKAZE_ENGINE=thread:CORES`). The core
    /// may lie outside the affinity mask of the program. A core that the machine does not have is
    /// an error of [`JobBuilder::join`]. If the system forbids the core (a cpuset), the node says
    /// so on stderr, and its engine runs where the program does.
    pub fn engine_thread_on(self, core: usize) -> Self {
        self.engine_thread_on_any_of([core])
    }

    /// Gives the engine a thread of its own on these cores, as [`JobBuilder::engine_thread_on`]
    /// does.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::Job::builder().engine_thread_on_any_of([0]).join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn engine_thread_on_any_of(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        let cores = cores.into_iter().collect();
        self.mode = Some(EngineMode::Thread(OwnThread { cores }));
        self
    }

    /// Leaves sending and receiving to the server of this name (`OIKAZE_ENGINE=process:NAME`),
    /// which serves the programs of a machine on cores of its own: see `oikaze serve --help`. The
    /// engine has a thread of its own, as in [`JobBuilder::engine_thread`], which makes no system
    /// call that sends or receives. A server that does not run is started on demand. Datagrams stay
    /// sealed for the server.
    ///
    /// ```no_run
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::Job::builder().engine_process("default").join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`JobBuilder::join`] fails if no server can be reached or started.
    pub fn engine_process(mut self, server: &str) -> Self {
        let served = Served { server: server.to_owned(), cores: Vec::new() };
        self.mode = Some(EngineMode::Process(served));
        self
    }

    /// Runs the engine in the words of `OIKAZE_ENGINE`: `inline`, `thread[:CORES]` (such as
    /// `thread:0,2-3`) or `process[:NAME][@CORES]` (such as `process:io@3`).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let job = oikaze::Job::builder().engine_as("thread:0")?.join()?;
    /// job.barrier()?;
    /// assert!(oikaze::Job::builder().engine_as("thread:zero").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The words are not known. The text says which are. A core that the machine does not have is
    /// an error of [`JobBuilder::join`].
    pub fn engine_as(mut self, words: &str) -> Result<Self, String> {
        self.mode = Some(words.parse()?);
        Ok(self)
    }

    /// Gives the engine's own thread a priority over applications, in the words of
    /// `OIKAZE_PRIORITY`: `fifo` or `fifo:N` (real-time class, 1 to 99), or `nice:N` (−20 to 19).
    /// In inline mode the helper thread gets it. If the system forbids the priority, the node says
    /// so on stderr and runs without it. An engine that spins in the real-time class needs a core
    /// of its own.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = oikaze::Job::builder().engine_thread().engine_priority("nice:5")?;
    /// assert!(oikaze::Job::builder().engine_priority("high").is_err());
    /// builder.join()?.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The words are not known. The text says which are.
    pub fn engine_priority(mut self, words: &str) -> Result<Self, String> {
        self.priority = Some(words.parse()?);
        Ok(self)
    }

    /// Switches mechanisms off, in the words of `OIKAZE_WITHOUT`, such as `"gso,gro"`. Every
    /// mechanism has a fallback. The words `membarrier`, `move`, `remap` and `huge` hold for the
    /// whole process; the first job that it joins decides.
    pub fn without(mut self, mechanisms: &str) -> Self {
        self.without = Some(mechanisms.to_owned());
        self
    }

    /// Joins the job, as [`join`](crate::join) does.
    ///
    /// # Errors
    /// As [`join`](crate::join); a setting makes no sense.
    #[track_caller]
    pub fn join(self) -> Result<Job> {
        super::join::join_with(&self)
    }

    /// Joins at this place. The builder's values win over the place's settings.
    pub(crate) fn join_at(&self, mut seat: Seat) -> Result<Job> {
        seat.settings = self.adjusted(seat.settings)?;
        super::join::join_at(Box::new(seat), self)
    }

    /// Returns the settings of the environment.
    pub(crate) fn of_environment() -> Result<Settings> {
        Ok(oikaze_launch::settings()?)
    }

    /// Returns the settings with those that the builder has been given in their place.
    ///
    /// # Errors
    /// A setting makes no sense.
    pub(crate) fn adjusted(&self, settings: Settings) -> Result<Settings> {
        let ports = match &self.ports {
            None => settings.ports,
            Some(ports) => Some(Ports::range(*ports.start(), *ports.end()).ok_or_else(|| {
                Error::invalid(
                    "joining the job",
                    format!("{ports:?} are not ports; give a range such as 40000..=40100"),
                )
            })?),
        };
        let time_limit = self.time_limit.or(settings.time_limit).filter(|limit| *limit < LONGEST);
        let failure_time = self.failure_time.map(|time| time.min(LONGEST));
        for (what, time) in [("time limit", self.time_limit), ("failure time", self.failure_time)] {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(Error::invalid(
                    "joining the job",
                    format!("the {what} is zero; give a longer time"),
                ));
            }
        }
        Ok(Settings {
            ports,
            failure_time: failure_time.or(settings.failure_time),
            time_limit,
            seal: self.seal.or(settings.seal),
            congestion: self.congestion.or(settings.congestion),
            explain_after: self.explain_after.or(settings.explain_after),
            keep_going: self.keep_going.unwrap_or(settings.keep_going),
            ..settings
        })
    }

    /// Returns the mechanisms that are switched off.
    pub(crate) fn switched_off(&self) -> Result<Without> {
        let without = match &self.without {
            None => Without::from_env(),
            Some(words) => Without::parse(words).inspect(|without| without.choose_for_process()),
        };
        without.map_err(|why| Error::invalid("joining the job", why.to_string()))
    }

    /// Returns the wishes about waiting.
    pub(crate) fn wait_settings(&self) -> Result<WaitSettings> {
        let waiting = self.waiting.clone().transpose();
        waiting
            .and_then(|waiting| WaitSettings::given(self.mode.clone(), waiting, self.priority))
            .map_err(|why| Error::invalid("joining the job", why))
    }

    /// Returns `true` if the program, and not the environment, lets survivors go on.
    pub(crate) fn lets_survivors_go_on(&self) -> bool {
        self.keep_going == Some(true)
    }
}

impl Job {
    /// Returns a builder, for joining with settings of the program's own.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::Job::builder().keep_going(true).join()?;
    /// assert!(job.lost().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> JobBuilder {
        JobBuilder::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user() -> Settings {
        Settings {
            ports: Ports::range(1000, 1999),
            failure_time: Some(Duration::from_secs(1)),
            time_limit: Some(Duration::from_secs(2)),
            fault: Some("loss=0.1".into()),
            seal: Some(Seal::Header),
            congestion: Some(Algorithm::Delay),
            explain_after: Some(Duration::from_secs(3)),
            keep_going: true,
            machine: Some("a".into()),
        }
    }

    #[test]
    fn settings_of_the_user_hold_unless_the_builder_has_others() {
        assert_eq!(Job::builder().adjusted(of_user()).unwrap(), of_user());
        let builder = Job::builder()
            .ports(2000..=2999)
            .failure_time(Duration::from_secs(10))
            .time_limit(Duration::from_secs(20))
            .seal(Seal::Crc)
            .cubic_congestion_control()
            .explain_after(Duration::ZERO)
            .keep_going(false);
        let expected = Settings {
            ports: Ports::range(2000, 2999),
            failure_time: Some(Duration::from_secs(10)),
            time_limit: Some(Duration::from_secs(20)),
            fault: Some("loss=0.1".into()),
            seal: Some(Seal::Crc),
            congestion: Some(Algorithm::Cubic),
            explain_after: Some(Duration::ZERO),
            keep_going: false,
            machine: Some("a".into()),
        };
        assert_eq!(builder.adjusted(of_user()).unwrap(), expected);
    }

    #[test]
    fn longest_time_limit_is_none() {
        let adjusted = Job::builder().time_limit(Duration::MAX).adjusted(of_user()).unwrap();
        assert_eq!(adjusted.time_limit, None);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (builder, why) in [
            (Job::builder().time_limit(Duration::ZERO), "time limit"),
            (Job::builder().failure_time(Duration::ZERO), "failure time"),
            (Job::builder().ports(0..=4), "are not ports"),
        ] {
            let text = builder.adjusted(of_user()).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
    }
}
