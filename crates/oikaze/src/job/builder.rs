//! Settings of a job that its program gives when it joins.

use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::testing::seat::Seat;
use oikaze_launch::{Ports, Seal, Settings};
use oikaze_os::cpu::Priority;
use oikaze_os::features::{DisabledFeatures, Feature};
use oikaze_protocol::limits::FLOWS_MAX;
use oikaze_protocol::wind::FlowCount;
use oikaze_protocol::wind::congestion::Algorithm as CongestionControl;
use oikaze_runtime::node::{EngineMode, WaitMode, WaitSettings};
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
/// use oikaze::job::WaitMode;
/// use oikaze::prelude::*;
/// use std::time::Duration;
/// # fn main() -> oikaze::Result<()> {
/// let job = Job::builder()
///     .time_limit(Duration::from_secs(600))
///     .failure_time(Duration::from_secs(30))
///     .waiting(WaitMode::Block)
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
    congestion: Option<CongestionControl>,
    flows: Option<FlowCount>,
    ports: Option<RangeInclusive<u16>>,
    waiting: Option<WaitMode>,
    engine: Option<EngineMode>,
    engine_priority: Option<Priority>,
    without: Option<DisabledFeatures>,
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

    /// Sets the congestion control algorithm (`OIKAZE_CONGESTION`).
    pub fn congestion(mut self, algorithm: CongestionControl) -> Self {
        self.congestion = Some(algorithm);
        self
    }

    /// Sets the number of UDP source ports from which bulk to a peer leaves (`OIKAZE_FLOWS`), where
    /// the network caps what one of them carries, as clouds do.
    ///
    /// ```
    /// use oikaze::job::FlowCount;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::Job::builder().flows(FlowCount::Auto).join()?;
    /// job.barrier()?;
    /// let four = oikaze::Job::builder().flows(FlowCount::Fixed(4));
    /// # let _ = four;
    /// # Ok(())
    /// # }
    /// ```
    pub fn flows(mut self, flows: FlowCount) -> Self {
        self.flows = Some(flows);
        self
    }

    /// Sets the UDP ports that the node may use (`OIKAZE_PORTS`).
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports = Some(ports);
        self
    }

    /// Sets the way in which threads wait (`OIKAZE_WAIT`).
    ///
    /// ```
    /// use oikaze::job::WaitMode;
    /// use std::time::Duration;
    /// # fn main() -> oikaze::Result<()> {
    /// let every = Duration::from_micros(50);
    /// let job = oikaze::Job::builder().waiting(WaitMode::Poll(every)).join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiting(mut self, mode: WaitMode) -> Self {
        self.waiting = Some(mode);
        self
    }

    /// Sets the thread that runs the engine, and what sends and receives for it (`OIKAZE_ENGINE`).
    ///
    /// ```
    /// use oikaze::job::EngineMode;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::Job::builder().engine(EngineMode::thread()).join()?;
    /// job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn engine(mut self, mode: EngineMode) -> Self {
        self.engine = Some(mode);
        self
    }

    /// Gives the engine's own thread a priority over applications (`OIKAZE_PRIORITY`). In inline
    /// mode the helper thread gets it. If the system forbids the priority, the node says so on
    /// stderr and runs without it. An engine that spins in the real-time class needs a core of its
    /// own.
    ///
    /// ```
    /// use oikaze::job::{EngineMode, Priority};
    /// # fn main() -> oikaze::Result<()> {
    /// let builder = oikaze::Job::builder().engine(EngineMode::thread());
    /// builder.engine_priority(Priority::Nice(5)).join()?.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn engine_priority(mut self, priority: Priority) -> Self {
        self.engine_priority = Some(priority);
        self
    }

    /// Switches features off (`OIKAZE_WITHOUT`). Every feature has a fallback. `Membarrier`,
    /// `Move`, `Remap` and `Huge` hold for the whole process; the first job that it joins decides.
    ///
    /// ```
    /// use oikaze::job::Feature;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let job = oikaze::Job::builder().without([Feature::Gso, Feature::Gro]).join()?;
    /// job.barrier()?;
    /// let of_words = oikaze::Job::builder().without(Feature::list("gso,gro")?);
    /// # let _ = of_words;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without(mut self, features: impl IntoIterator<Item = Feature>) -> Self {
        self.without = Some(features.into_iter().collect());
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

    /// Joins a job of `size` processes as the one of this rank. The processes meet by `gather`, a
    /// function of the program that all of them call once: it is given some bytes of this process,
    /// and returns those of all processes in the order of their ranks. So a program that has means
    /// to exchange a few bytes needs no launcher of Oikaze: an allgather of MPI, an actor, a file.
    /// The bytes of rank 0 hold the job's secret.
    ///
    /// Nobody tells such a job that a process has ended. Its death shows by silence (END-1.4).
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let alone = oikaze::Job::builder().join_gathering(0, 1, |mine| Ok(vec![mine.to_vec()]))?;
    /// assert_eq!(alone.size(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`join`](crate::join); `gather` fails, or returns something else.
    #[track_caller]
    pub fn join_gathering(
        self,
        rank: u32,
        size: u32,
        mut gather: impl FnMut(
            &[u8],
        ) -> std::result::Result<
            Vec<Vec<u8>>,
            Box<dyn std::error::Error + Send + Sync>,
        >,
    ) -> Result<Job> {
        super::join::join_gathering(&self, (rank, size), &mut gather)
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
        if let Some(FlowCount::Fixed(flows)) = self.flows
            && !(1..=FLOWS_MAX).contains(&flows)
        {
            return Err(Error::invalid(
                "joining the job",
                format!(
                    "the number of flows is {flows}; give 1 to {FLOWS_MAX}, or FlowCount::Auto"
                ),
            ));
        }
        Ok(Settings {
            ports,
            failure_time: failure_time.or(settings.failure_time),
            time_limit,
            seal: self.seal.or(settings.seal),
            congestion: self.congestion.or(settings.congestion),
            flows: self.flows.or(settings.flows),
            explain_after: self.explain_after.or(settings.explain_after),
            keep_going: self.keep_going.unwrap_or(settings.keep_going),
            ..settings
        })
    }

    /// Returns the features that are switched off.
    pub(crate) fn disabled_features(&self) -> Result<DisabledFeatures> {
        match self.without {
            None => DisabledFeatures::from_env()
                .map_err(|why| Error::invalid("joining the job", why.to_string())),
            Some(disabled) => {
                disabled.choose_for_process();
                Ok(disabled)
            }
        }
    }

    /// Returns the wishes about waiting.
    pub(crate) fn wait_settings(&self) -> Result<WaitSettings> {
        WaitSettings::given(self.engine.clone(), self.waiting, self.engine_priority)
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
    use oikaze_protocol::wind::FlowCount;

    fn of_user() -> Settings {
        Settings {
            ports: Ports::range(1000, 1999),
            failure_time: Some(Duration::from_secs(1)),
            time_limit: Some(Duration::from_secs(2)),
            fault: Some("loss=0.1".into()),
            seal: Some(Seal::Header),
            congestion: Some(CongestionControl::Delay),
            flows: Some(FlowCount::Fixed(4)),
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
            .congestion(CongestionControl::Cubic)
            .flows(FlowCount::Auto)
            .explain_after(Duration::ZERO)
            .keep_going(false);
        let expected = Settings {
            ports: Ports::range(2000, 2999),
            failure_time: Some(Duration::from_secs(10)),
            time_limit: Some(Duration::from_secs(20)),
            fault: Some("loss=0.1".into()),
            seal: Some(Seal::Crc),
            congestion: Some(CongestionControl::Cubic),
            flows: Some(FlowCount::Auto),
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
            (Job::builder().flows(FlowCount::Fixed(0)), "number of flows is 0"),
            (Job::builder().flows(FlowCount::Fixed(FLOWS_MAX + 1)), "give 1 to 16"),
        ] {
            let text = builder.adjusted(of_user()).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
    }
}
