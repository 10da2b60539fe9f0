//! Settings of a node's threads: which thread runs the engine, and how threads wait.

use super::mode::EngineMode;
use oikaze_launch::environment::{ENGINE, PRIORITY};
use oikaze_os::cpu::{CpuId, NoCore, Priority, online_cpus};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Shortest and longest interval of polling. A longer one would delay the end of the job.
const INTERVALS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(100);

/// Way in which threads wait, those of the application and of the engine alike.
///
/// In text, as in `OIKAZE_WAIT`: `spin`, `poll:TIME` (such as `poll:10us`), `block` or `adaptive`.
///
/// ```
/// use oikaze::job::WaitMode;
/// use std::time::Duration;
///
/// # fn main() {
/// assert_eq!("poll:10us".parse(), Ok(WaitMode::Poll(Duration::from_micros(10))));
/// assert!("poll:10".parse::<WaitMode>().is_err());
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Polls without end. That is quickest where each node has cores of its own.
    Spin,
    /// Polls at this interval, 1 µs to 100 ms, and sleeps in between. Nothing wakes the thread
    /// before.
    Poll(Duration),
    /// Sleeps at once, which leaves the cores to others. After a wakeup, a thread that waits for
    /// more polls until nothing has come for 100 µs, so that many completions cost one wakeup.
    Block,
    /// Spins where the machine has cores for it, and then sleeps. Each thread spins for as long as
    /// that has been paying off in its latest waits, at most 2 ms. Where nodes share cores, a
    /// thread hands its core over some times instead. The default.
    #[default]
    Adaptive,
}

impl WaitMode {
    /// Checks the interval of polling.
    ///
    /// # Errors
    /// The text says which intervals are permitted.
    fn checked(self) -> Result<WaitMode, String> {
        match self {
            WaitMode::Poll(interval) if !INTERVALS.contains(&interval) => {
                let (least, most) = (INTERVALS.start(), INTERVALS.end());
                Err(format!(
                    "{interval:?} is not an interval of polling; give {least:?} to {most:?}"
                ))
            }
            mode => Ok(mode),
        }
    }
}

impl FromStr for WaitMode {
    type Err = String;

    fn from_str(text: &str) -> Result<WaitMode, String> {
        match text {
            "spin" => Ok(WaitMode::Spin),
            "block" => Ok(WaitMode::Block),
            "adaptive" => Ok(WaitMode::Adaptive),
            _ => match text.strip_prefix("poll:").and_then(duration) {
                Some(interval) => WaitMode::Poll(interval).checked(),
                None => {
                    Err("expected spin, poll:TIME (such as poll:10us), block or adaptive".into())
                }
            },
        }
    }
}

/// Parses a time with its unit, such as `10us`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "ns" => Duration::from_nanos(number),
        "us" | "µs" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        _ => return None,
    })
}

/// Waiting policy of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Way in which threads wait.
    pub wait: WaitMode,
    /// The machine has cores for threads that spin.
    pub has_room: bool,
    /// Thread that runs the turns.
    pub mode: EngineMode,
    /// Priority of the engine's own thread, or else of the helper.
    pub priority: Option<Priority>,
}

impl WaitPolicy {
    /// Returns a warning if threads spin without end on too few cores. `nodes` is the number of
    /// nodes of this machine, and `cores` names the cores of this node.
    pub fn crowding(&self, nodes: u32, cores: &str) -> Option<String> {
        if self.wait != WaitMode::Spin || self.has_room {
            return None;
        }
        let who = match nodes {
            1 => "this node keeps".to_owned(),
            _ => format!("each of the {nodes} nodes here keeps"),
        };
        let threads = match self.mode.drive().own_thread() {
            None => "a thread",
            Some(_) => "2 threads, the program's and its engine's,",
        };
        Some(format!(
            "spinning without end (OIKAZE_WAIT=spin): {who} {threads} spinning, which is too many for cores {cores}, so they take the cores from each other and the job may be 50 times slower; use OIKAZE_WAIT=adaptive, more cores (--bind), or fewer nodes"
        ))
    }
}

/// Settings of waiting from the environment.
#[derive(Clone, Debug)]
pub struct WaitSettings {
    wait: WaitMode,
    mode: EngineMode,
    priority: Option<Priority>,
}

impl WaitSettings {
    /// Returns the given settings. Those that are not given are read from `OIKAZE_WAIT` = `spin`,
    /// `poll:TIME`, `block` or `adaptive` (default), and `OIKAZE_ENGINE` = `inline` (default),
    /// `thread`, `thread:CORES`, such as `thread:1` or `thread:2-3,6`, or `process[:NAME][@CORES]`,
    /// and `OIKAZE_PRIORITY` = `fifo`, `fifo:N` or `nice:N`.
    ///
    /// # Errors
    /// The text says what is wrong with a variable, or with the cores.
    pub fn given(
        mode: Option<EngineMode>,
        wait: Option<WaitMode>,
        priority: Option<Priority>,
    ) -> Result<Self, String> {
        let mode = match mode {
            Some(mode) => {
                check_cores(mode.cores(), "cores of the engine")?;
                mode
            }
            None => Self::mode_of_env()?,
        };
        let wait = wait.map_or_else(Self::wait_of_env, WaitMode::checked)?;
        let priority = match priority {
            Some(priority) => Some(priority.checked()?),
            None => Self::priority_of_env()?,
        };
        Ok(Self { wait, mode, priority })
    }

    fn priority_of_env() -> Result<Option<Priority>, String> {
        let Ok(text) = std::env::var(PRIORITY) else { return Ok(None) };
        text.parse().map(Some).map_err(|why| format!("{PRIORITY}={why}"))
    }

    fn mode_of_env() -> Result<EngineMode, String> {
        let Ok(text) = std::env::var(ENGINE) else { return Ok(EngineMode::inline()) };
        let mode: EngineMode = text.parse().map_err(|why| format!("{ENGINE}={text}: {why}"))?;
        check_cores(mode.cores(), &format!("{ENGINE}={text}"))?;
        Ok(mode)
    }

    fn wait_of_env() -> Result<WaitMode, String> {
        match std::env::var("OIKAZE_WAIT") {
            Err(_) => Ok(WaitMode::default()),
            Ok(text) => text.parse().map_err(|why| format!("OIKAZE_WAIT={text}: {why}")),
        }
    }

    /// Returns the processors to which the engine's own thread is bound.
    pub fn engine_cores(&self) -> &[CpuId] {
        self.mode.cores()
    }

    /// Returns the priority of communication, if the user has chosen one.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Returns the mode of the engine.
    pub fn mode(&self) -> &EngineMode {
        &self.mode
    }

    /// Returns the policy. `has_room_for` says whether the machine has room for this many spinning
    /// threads, in this node and each of its local peers.
    pub fn policy(self, has_room_for: impl FnOnce(usize) -> bool) -> WaitPolicy {
        let threads = if self.mode.drive().own_thread().is_some() { 2 } else { 1 };
        let has_room = has_room_for(threads);
        WaitPolicy { wait: self.wait, has_room, mode: self.mode, priority: self.priority }
    }
}

/// Refuses processors that this machine does not have. Those outside the application's own mask are
/// permitted, because a mask holds for each thread on its own.
fn check_cores(cores: &[CpuId], setting: &str) -> Result<(), String> {
    // Without a list of the processors, the engine's thread finds out when it binds itself.
    let Ok(online) = online_cpus() else { return Ok(()) };
    match NoCore::among(cores, &online) {
        Some(why) => Err(format!("{setting}: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_os::cpu::parse_cores;

    #[test]
    fn ways_of_waiting_are_read_as_they_are_written() {
        let micros = |micros| Ok(WaitMode::Poll(Duration::from_micros(micros)));
        for (text, mode) in [
            ("spin", Ok(WaitMode::Spin)),
            ("block", Ok(WaitMode::Block)),
            ("adaptive", Ok(WaitMode::Adaptive)),
            ("poll:10us", micros(10)),
            ("poll:10µs", micros(10)),
            ("poll:1500ns", Ok(WaitMode::Poll(Duration::from_nanos(1500)))),
            ("poll:2ms", micros(2000)),
        ] {
            assert_eq!(text.parse(), mode, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_words_that_are_known() {
        for text in ["", "Spin", "poll", "poll:", "poll:10", "poll:us", "poll:-1us", "poll:1us2"] {
            let why = text.parse::<WaitMode>().unwrap_err();
            assert!(why.contains("expected spin, poll:TIME"), "{text}: {why}");
        }
        for text in ["poll:0us", "poll:999ns", "poll:101ms"] {
            let why = text.parse::<WaitMode>().unwrap_err();
            assert!(why.contains("give 1µs to 100ms"), "{text}: {why}");
        }
    }

    /// Quotas, cpusets, bound nodes and several nodes of a machine are in `has_room`, which
    /// `oikaze_os::cpu::Topology` tests.
    #[test]
    fn spinning_on_too_few_cores_is_told_with_a_remedy() {
        let thread = EngineMode::thread();
        let policy = |wait, has_room, mode: &EngineMode| WaitPolicy {
            wait,
            has_room,
            mode: mode.clone(),
            priority: None,
        };
        let told = policy(WaitMode::Spin, false, &thread).crowding(2, "0-1").unwrap();
        for part in ["OIKAZE_WAIT=spin", "2 nodes here", "its engine's", "0-1", "adaptive"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let one = policy(WaitMode::Spin, false, &EngineMode::inline()).crowding(1, "0").unwrap();
        assert!(one.contains("this node keeps a thread spinning"), "{one}");
        assert_eq!(policy(WaitMode::Spin, true, &thread).crowding(2, "0-3"), None);
        for wait in [WaitMode::Adaptive, WaitMode::Block] {
            assert_eq!(policy(wait, false, &thread).crowding(2, "0"), None, "such threads sleep");
        }
    }

    #[test]
    fn cores_of_the_engine_are_a_set_of_the_machine_s() {
        assert_eq!(parse_cores("1"), Some(vec![1]));
        assert_eq!(parse_cores("0-1,5"), Some(vec![0, 1, 5]));
        assert_eq!((parse_cores(""), parse_cores("one"), parse_cores("1-")), (None, None, None));
        assert_eq!(check_cores(&[0], "x"), Ok(()), "Linux does not take processor 0 offline here");
        let why = check_cores(&[0, 99_999], "x").unwrap_err();
        assert!(why.starts_with("x: this machine has no core 99999; its cores are 0"), "{why}");
    }
}
