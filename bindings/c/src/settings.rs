//! Settings with which a program joins its job.

use crate::abi::call::{CallError, CallResult, Raw, functions};
use crate::abi::objects::{New, Released, handled};
use crate::abi::place::name_calls;
use crate::abi::pointers::{Bytes, BytesMut, Text};
use crate::job::{Joined, Limit};
use oikaze::job::{CongestionControl, EngineMode, Feature, FlowCount, JobBuilder, WaitMode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Settings for joining. A value that is set here wins over its environment variable.
pub struct oik_settings;

/// Settings that threads change in turn.
#[derive(Default)]
pub struct Settings(Mutex<JobBuilder>);

handled! { oik_settings: Settings, "settings"; }

impl Settings {
    fn get(&self) -> MutexGuard<'_, JobBuilder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(JobBuilder) -> CallResult<JobBuilder>) -> CallResult {
        let mut settings = self.get();
        *settings = change(settings.clone())?;
        Ok(())
    }

    /// Changes a setting of this name to `words`, in those of its environment variable.
    fn change_in_words(
        &self,
        name: &str,
        words: &Text,
        apply: impl FnOnce(JobBuilder, &str) -> Result<JobBuilder, String>,
    ) -> CallResult {
        let words = words.get(name)?;
        let refused = |why| CallError::invalid(format!("setting {name} to {words:?}: {why}"));
        self.change(|settings| apply(settings, words).map_err(refused))
    }
}

/// Stands for as many flows as pay, where a number of flows is asked for.
pub const OIK_FLOWS_AUTO: i32 = -1;

/// Reads a number of flows.
fn flow_count(flows: i32) -> CallResult<FlowCount> {
    if flows == OIK_FLOWS_AUTO {
        return Ok(FlowCount::Auto);
    }
    flows.to_string().parse().map_err(|_| {
        CallError::invalid(format!(
            "setting flows to {flows}: there is no such number; give 0 to 16, or OIK_FLOWS_AUTO"
        ))
    })
}

/// Number of bytes that `oik_exchange` gathers from each process.
pub const OIK_GATHERED: usize = 1024;

/// Gathers `OIK_GATHERED` bytes at `mine` from each process into `all`, in the order of the ranks.
/// Returns 0, or another number if it has failed.
pub type oik_exchange = Option<extern "C" fn(mine: Bytes, all: BytesMut, context: BytesMut) -> i32>;

/// Calls the program's function with bytes of its length. What is shorter ends with zeros.
fn gathered(
    gather: extern "C" fn(Bytes, BytesMut, BytesMut) -> i32,
    mine: &[u8],
    size: u32,
    context: &BytesMut,
) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
    let mut padded = mine.to_vec();
    if padded.len() > OIK_GATHERED {
        return Err(format!("{} bytes are more than OIK_GATHERED", mine.len()).into());
    }
    padded.resize(OIK_GATHERED, 0);
    let mut all = vec![0; OIK_GATHERED * size as usize];
    let status = gather(Bytes::of(Some(&padded)), BytesMut::of(all.as_mut_ptr()), context.copy());
    if status != 0 {
        return Err(format!("gather has returned {status}").into());
    }
    let of_one = |bytes: &[u8]| {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.iter().take(len).copied().collect()
    };
    Ok(all.chunks_exact(OIK_GATHERED).map(of_one).collect())
}

functions! {
    /// Makes settings that change nothing. Thread-safe, as all functions for settings are.
    oik_settings_new() -> settings: New<oik_settings> = Settings::default();
    /// Releases settings. Thread-safe.
    oik_settings_release(settings: Released<oik_settings>) = drop(settings);
    /// Joins the job as `oik_join` does, with these settings, which may be used again. Thread-safe.
    oik_join_with(settings: *mut oik_settings) -> job: Joined = {
        let settings = settings.get().clone();
        name_calls();
        settings.join()?
    };
    /// Joins a job of `size` processes as the one of this rank, with these settings. The processes
    /// meet by `gather(mine, all, context)`, which each of them calls once on this thread. It
    /// gathers the `OIK_GATHERED` bytes at `mine` of each process, in the order of their ranks,
    /// into `all`, and returns 0. MPI_Allgather does so. The bytes of rank 0 hold the job's secret.
    /// With one process it is not called. It returns normally: neither longjmp nor an exception of
    /// C++ leaves it. Thread-safe.
    ///
    /// Errors: as `oik_join`; `OIK_JOB` if `gather` returns another number than 0.
    oik_join_gathering(settings: *mut oik_settings, rank: u32, size: u32, gather: Raw<oik_exchange>,
        context: Raw<BytesMut>) -> job: Joined = {
        let settings = settings.get().clone();
        let gather = gather.ok_or_else(|| CallError::invalid("gather is NULL; pass a function"))?;
        name_calls();
        let by_program = |mine: &[u8]| gathered(gather, mine, size, context);
        settings.join_gathering(rank, size, by_program)?
    };
    /// Sets the time limit, in seconds, of waits that are given none of their own
    /// (`OIKAZE_TIMEOUT`). INFINITY means no limit. Thread-safe.
    oik_settings_time_limit(settings: *mut oik_settings, seconds: Limit) =
        settings.change(|job| Ok(job.time_limit(seconds)))?;
    /// Sets the time of silence, in seconds, after which a peer is dead (`OIKAZE_FAILURE_TIME`; 5 s
    /// unless set). Thread-safe.
    oik_settings_failure_time(settings: *mut oik_settings, seconds: Limit) =
        settings.change(|job| Ok(job.failure_time(seconds)))?;
    /// Sets the time, in seconds, that a wait lasts before one line on stderr explains it
    /// (`OIKAZE_EXPLAIN_AFTER`; 5 s unless set). With 0, no wait is explained. Thread-safe.
    oik_settings_explain_after(settings: *mut oik_settings, seconds: Limit) =
        settings.change(|job| Ok(job.explain_after(seconds)))?;
    /// Sets whether survivors go on with what needs no dead node when a node dies
    /// (`OIKAZE_KEEP_GOING`). `oik_lost` names the dead. Thread-safe.
    oik_settings_keep_going(settings: *mut oik_settings, goes_on: bool) =
        settings.change(|job| Ok(job.keep_going(goes_on)))?;
    /// Sets how datagrams between machines are protected (`OIKAZE_SEAL`): "full" (encrypted, the
    /// default), "integrity", "crc" or "header". All nodes of a job choose the same. Thread-safe.
    oik_settings_seal(settings: *mut oik_settings, seal: Text) = {
        let seal = seal.parse().map_err(|why: String| CallError::invalid(why))?;
        settings.change(|job| Ok(job.seal(seal)))?
    };
    /// Controls congestion by loss, as CUBIC does, and not by delay (`OIKAZE_CONGESTION=cubic`).
    /// Thread-safe.
    oik_settings_cubic(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.congestion(CongestionControl::Cubic)))?;
    /// Sets the number of UDP source ports from which bulk to a peer leaves (`OIKAZE_FLOWS`), where
    /// the network caps what one of them carries: 1 to 16, or `OIK_FLOWS_AUTO`. With 0, the number
    /// stays as it is. Thread-safe.
    oik_settings_flows(settings: *mut oik_settings, flows: i32) =
        settings.change(|job| if flows == 0 { Ok(job) } else { Ok(job.flows(flow_count(flows)?)) })?;
    /// Sets the UDP ports that the node may use, `first` to `last` (`OIKAZE_PORTS`). Thread-safe.
    oik_settings_ports(settings: *mut oik_settings, first: u16, last: u16) =
        settings.change(|job| Ok(job.ports(first..=last)))?;
    /// Lets threads that wait spin without end (`OIKAZE_WAIT=spin`). Thread-safe.
    oik_settings_spin_while_waiting(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.waiting(WaitMode::Spin)))?;
    /// Lets threads that wait poll every `nanoseconds`, 1 µs to 100 ms, and sleep in between
    /// (`OIKAZE_WAIT=poll:TIME`). Another interval is an error when the job is joined. Thread-safe.
    oik_settings_poll_while_waiting(settings: *mut oik_settings, nanoseconds: u64) =
        settings.change(|job| Ok(job.waiting(WaitMode::Poll(Duration::from_nanos(nanoseconds)))))?;
    /// Lets threads that wait sleep at once (`OIKAZE_WAIT=block`). Thread-safe.
    oik_settings_block_while_waiting(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.waiting(WaitMode::Block)))?;
    /// Lets threads that wait spin for a while where the machine has cores for it
    /// (`OIKAZE_WAIT=adaptive`, the default). Thread-safe.
    oik_settings_wait_adaptively(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.waiting(WaitMode::Adaptive)))?;
    /// Lets the threads that wait run the engine (`OIKAZE_ENGINE=inline`, the default).
    /// Thread-safe.
    oik_settings_engine_inline(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.engine(EngineMode::inline())))?;
    /// Gives the engine a thread of its own (`OIKAZE_ENGINE=thread`). Thread-safe.
    oik_settings_engine_thread(settings: *mut oik_settings) =
        settings.change(|job| Ok(job.engine(EngineMode::thread())))?;
    /// Gives the engine a thread of its own on this core (`OIKAZE_ENGINE=thread:CORE`). The core
    /// may lie outside the affinity mask of the program. `oik_settings_engine` takes sets of cores.
    /// Thread-safe.
    oik_settings_engine_thread_on(settings: *mut oik_settings, core: usize) =
        settings.change(|job| Ok(job.engine(EngineMode::thread_on([core]))))?;
    /// Runs the engine in the words of `OIKAZE_ENGINE`: "inline", "thread[:CORES]", such as
    /// "thread:0,2-3", or "process[:NAME][@CORES]", such as "process:io@3". In mode "process" a
    /// server of this machine sends and receives (`oikaze serve --help`); it is started if it does
    /// not run. A core that the machine does not have is an error when the job is joined.
    /// Thread-safe.
    oik_settings_engine(settings: *mut oik_settings, words: Raw<Text>) =
        settings.change_in_words("engine", words, |job, words| Ok(job.engine(words.parse()?)))?;
    /// Gives the engine's own thread a priority over applications, in the words of
    /// `OIKAZE_PRIORITY`: "fifo" or "fifo:N" (real-time class, 1 to 99), or "nice:N" (-20 to 19).
    /// If the system forbids the priority, the node says so on stderr and runs without it.
    /// Thread-safe.
    oik_settings_engine_priority(settings: *mut oik_settings, words: Raw<Text>) = {
        settings.change(|job| {
            let priority = words.get("priority")?.parse();
            let refused = |why: String| CallError::invalid(format!("setting priority to {why}"));
            Ok(job.engine_priority(priority.map_err(refused)?))
        })?
    };
    /// Lets threads wait in the words of `OIKAZE_WAIT`: "spin", "poll:TIME", such as "poll:10us",
    /// "block" or "adaptive". Thread-safe.
    oik_settings_waiting(settings: *mut oik_settings, words: Raw<Text>) =
        settings.change_in_words("waiting", words, |job, words| Ok(job.waiting(words.parse()?)))?;
    /// Switches features off, in the words of `OIKAZE_WITHOUT`, such as "gso,gro". Thread-safe.
    oik_settings_without(settings: *mut oik_settings, features: Raw<Text>) =
        settings.change_in_words("features", features, |job, words| {
            Ok(job.without(Feature::list(words).map_err(|why| why.to_string())?))
        })?;
}
