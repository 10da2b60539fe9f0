//! Settings with which a program joins its job.

use crate::call::{CallError, CallResult, run};
use crate::job::{keep_job, limit, oik_job};
use crate::objects::{find, handled, keep, take};
use crate::place::name_calls;
use crate::pointers::{Text, place};
use crate::status::oik_status;
use oikaze::job::{CongestionControl, EngineMode, Feature, JobBuilder, WaitMode};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// Settings for joining. A value that is set here wins over its environment variable.
pub struct oik_settings;

/// Settings that threads change in turn.
#[derive(Default)]
pub struct Settings(Mutex<JobBuilder>);

handled! { oik_settings: Settings, "settings"; }

fn change(
    settings: *mut oik_settings,
    change: impl FnOnce(JobBuilder) -> CallResult<JobBuilder>,
) -> oik_status {
    run(|| {
        let settings = find(settings)?;
        let mut settings = settings.0.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = change(settings.clone())?;
        Ok(())
    })
}

/// Changes a setting of this name to `words`, in those of its environment variable.
fn change_in_words(
    settings: *mut oik_settings,
    name: &str,
    words: Text,
    apply: impl FnOnce(JobBuilder, &str) -> Result<JobBuilder, String>,
) -> oik_status {
    change(settings, |settings| {
        let words = words.get(name)?;
        apply(settings, words)
            .map_err(|why| CallError::invalid(format!("setting {name} to {words:?}: {why}")))
    })
}

/// Makes settings that change nothing. Thread-safe, as all functions for settings are.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_new(
    settings: Option<&mut MaybeUninit<*mut oik_settings>>,
) -> oik_status {
    run(|| keep(place(settings, "settings")?, Settings::default()).map(drop))
}

/// Releases settings. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_release(settings: *mut oik_settings) -> oik_status {
    run(|| take(settings).map(drop))
}

/// Joins the job as `oik_join` does, with these settings, which may be used again. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_join_with(
    settings: *mut oik_settings,
    job: Option<&mut MaybeUninit<*mut oik_job>>,
) -> oik_status {
    run(|| {
        let job = place(job, "job")?;
        let settings = find(settings)?;
        let settings = settings.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        name_calls();
        keep_job(job, settings.join()?)
    })
}

/// Sets the time limit, in seconds, of waits that are given none of their own (`OIKAZE_TIMEOUT`).
/// INFINITY means no limit. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_time_limit(settings: *mut oik_settings, seconds: f64) -> oik_status {
    change(settings, |settings| Ok(settings.time_limit(limit(seconds)?)))
}

/// Sets the time of silence, in seconds, after which a peer is dead (`OIKAZE_FAILURE_TIME`; 5 s
/// unless set). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_failure_time(
    settings: *mut oik_settings,
    seconds: f64,
) -> oik_status {
    change(settings, |settings| Ok(settings.failure_time(limit(seconds)?)))
}

/// Sets the time, in seconds, that a wait lasts before one line on stderr explains it
/// (`OIKAZE_EXPLAIN_AFTER`; 5 s unless set). With 0, no wait is explained. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_explain_after(
    settings: *mut oik_settings,
    seconds: f64,
) -> oik_status {
    change(settings, |settings| Ok(settings.explain_after(limit(seconds)?)))
}

/// Sets whether survivors go on with what needs no dead node when a node dies
/// (`OIKAZE_KEEP_GOING`). `oik_lost` names the dead. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_keep_going(
    settings: *mut oik_settings,
    goes_on: bool,
) -> oik_status {
    change(settings, |settings| Ok(settings.keep_going(goes_on)))
}

/// Sets how datagrams between machines are protected (`OIKAZE_SEAL`): "full" (encrypted, the
/// default), "integrity", "crc" or "header". All nodes of a job choose the same. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_seal(settings: *mut oik_settings, seal: Text) -> oik_status {
    change(settings, |settings| {
        let seal = seal.get("seal")?.parse().map_err(|why: String| CallError::invalid(why))?;
        Ok(settings.seal(seal))
    })
}

/// Controls congestion by loss, as CUBIC does, and not by delay (`OIKAZE_CONGESTION=cubic`).
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_cubic(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.congestion(CongestionControl::Cubic)))
}

/// Sets the UDP ports that the node may use, `first` to `last` (`OIKAZE_PORTS`). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_ports(
    settings: *mut oik_settings,
    first: u16,
    last: u16,
) -> oik_status {
    change(settings, |settings| Ok(settings.ports(first..=last)))
}

/// Lets threads that wait spin without end (`OIKAZE_WAIT=spin`). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_spin_while_waiting(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.waiting(WaitMode::Spin)))
}

/// Lets threads that wait poll every `nanoseconds`, 1 µs to 100 ms, and sleep in between
/// (`OIKAZE_WAIT=poll:TIME`). Another interval is an error when the job is joined. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_poll_while_waiting(
    settings: *mut oik_settings,
    nanoseconds: u64,
) -> oik_status {
    change(settings, |settings| {
        Ok(settings.waiting(WaitMode::Poll(std::time::Duration::from_nanos(nanoseconds))))
    })
}

/// Lets threads that wait sleep at once (`OIKAZE_WAIT=block`). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_block_while_waiting(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.waiting(WaitMode::Block)))
}

/// Lets threads that wait spin for a while where the machine has cores for it
/// (`OIKAZE_WAIT=adaptive`, the default). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_wait_adaptively(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.waiting(WaitMode::Adaptive)))
}

/// Lets the threads that wait run the engine (`OIKAZE_ENGINE=inline`, the default). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_engine_inline(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.engine(EngineMode::inline())))
}

/// Gives the engine a thread of its own (`OIKAZE_ENGINE=thread`). Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_engine_thread(settings: *mut oik_settings) -> oik_status {
    change(settings, |settings| Ok(settings.engine(EngineMode::thread())))
}

/// Gives the engine a thread of its own on this core (`OIKAZE_ENGINE=thread:CORE`). The core
/// may lie outside the affinity mask of the program. `oik_settings_engine` takes sets of cores.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_engine_thread_on(
    settings: *mut oik_settings,
    core: usize,
) -> oik_status {
    change(settings, |settings| Ok(settings.engine(EngineMode::thread_on([core]))))
}

/// Runs the engine in the words of `OIKAZE_ENGINE`: "inline", "thread[:CORES]", such as
/// "thread:0,2-3", or "process[:NAME][@CORES]", such as "process:io@3". In mode "process" a server
/// of this machine sends and receives (`oikaze serve --help`); it is started if it does not run.
/// A core that the machine does not have is an error when the job is joined. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_engine(settings: *mut oik_settings, words: Text) -> oik_status {
    change_in_words(
        settings,
        "engine",
        words,
        |settings, words| Ok(settings.engine(words.parse()?)),
    )
}

/// Gives the engine's own thread a priority over applications, in the words of `OIKAZE_PRIORITY`:
/// "fifo" or "fifo:N" (real-time class, 1 to 99), or "nice:N" (-20 to 19). If the system forbids
/// the priority, the node says so on stderr and runs without it. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_engine_priority(
    settings: *mut oik_settings,
    words: Text,
) -> oik_status {
    change(settings, |settings| {
        let priority = words.get("priority")?.parse();
        let priority = priority
            .map_err(|why: String| CallError::invalid(format!("setting priority to {why}")))?;
        Ok(settings.engine_priority(priority))
    })
}

/// Lets threads wait in the words of `OIKAZE_WAIT`: "spin", "poll:TIME", such as "poll:10us",
/// "block" or "adaptive". Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_waiting(settings: *mut oik_settings, words: Text) -> oik_status {
    change_in_words(settings, "waiting", words, |settings, words| {
        Ok(settings.waiting(words.parse()?))
    })
}

/// Switches features off, in the words of `OIKAZE_WITHOUT`, such as "gso,gro". Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_settings_without(settings: *mut oik_settings, features: Text) -> oik_status {
    change_in_words(settings, "features", features, |settings, words| {
        Ok(settings.without(Feature::list(words).map_err(|why| why.to_string())?))
    })
}
