//! Procedure of paper 000, section 4.5: many packets at once, then an answer.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::completion::Counter;
use oikaze::memory::{LocalRegion, Region};
use oikaze::message::Class;

use super::pair::{PATIENCE, Pair, finish, median_us, thread_time};
use super::{failed, tell};
use crate::error::Error;

/// Longest message that is sent by a copy. Longer ones are gathered from registered memory.
const COPIED: usize = 1024;
/// Share of the turns that are not counted.
const WARM_UP: u32 = 10;
/// Minimum number of turns that are not counted. A peer is worth a connected socket, and frames of
/// its own, after some dozens of calls. `first_lat` of `bench wind` measures the time before.
const WARM_UP_MIN: u32 = 100;

/// Settings on which both ends must agree.
#[derive(Args)]
pub struct Settings {
    /// Packets of a turn.
    #[arg(long)]
    pub packets: usize,
    /// Bytes of a packet.
    #[arg(long)]
    pub size: usize,
    /// Bytes of an answer.
    #[arg(long)]
    pub answer: usize,
    /// Answers of a turn; one with all packets received, or as many as packets.
    #[arg(long, default_value_t = 1)]
    pub answers: usize,
    /// Number of turns.
    #[arg(long)]
    pub turns: u32,
    /// Send and receive packet by packet: one request for each, instead of one for all.
    #[arg(long)]
    pub one_by_one: bool,
    /// Receive each packet at a position of its own, as the paper's request names them: by posted
    /// receives and one wait for all.
    #[arg(long, conflicts_with = "one_by_one")]
    pub posted: bool,
}

impl Settings {
    /// Returns the number of turns, with those that are not counted.
    pub fn all_turns(&self) -> u32 {
        self.turns + self.warm_up()
    }

    /// Returns `true` if a turn counts.
    pub fn counts(&self, turn: u32) -> bool {
        turn >= self.warm_up()
    }

    fn warm_up(&self) -> u32 {
        self.turns.div_ceil(WARM_UP).max(WARM_UP_MIN)
    }
}

/// Times of all turns, in nanoseconds.
#[derive(Default)]
pub struct Times {
    /// Time from the first send until the answer has been received.
    pub whole: Vec<u64>,
    /// Time until the last send has returned.
    pub sending: Vec<u64>,
    /// Rest of the time.
    pub rest: Vec<u64>,
    /// Processor time of the sending thread until then.
    pub processor: Vec<u64>,
}

impl Times {
    /// Runs one turn, and records it if it counts.
    pub fn turn<E>(
        &mut self,
        counts: bool,
        send: impl FnOnce() -> Result<(), E>,
        receive: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let (before, begun) = (thread_time(), Instant::now());
        send()?;
        let (sending, processor) = (begun.elapsed(), thread_time() - before);
        receive()?;
        let whole = begun.elapsed();
        if counts {
            let of = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.whole.push(of(whole));
            self.sending.push(of(sending));
            self.rest.push(of(whole - sending));
            self.processor.push(processor);
        }
        Ok(())
    }

    /// Returns the medians in µs, under the names of the paper.
    pub fn medians(&self) -> [(&'static str, f64); 4] {
        [
            ("t0", median_us(&self.whole)),
            ("t1", median_us(&self.sending)),
            ("t2", median_us(&self.rest)),
            ("processor", median_us(&self.processor)),
        ]
    }
}

/// Prints the medians of a turn in µs: `t0` of all, `t1` until the sends have returned, `t2` from
/// then on, and `processor`, the sender's processor time of `t1`.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, settings.size.max(settings.answer))?;
    let mut times = Times::default();
    let positions = settings.posted.then(|| Positions::new(&pair, settings)).transpose()?;
    for turn in 0..settings.all_turns() {
        match (job.rank(), &positions) {
            (0, None) => one_turn(&pair, settings, &mut times, settings.counts(turn))?,
            (0, Some(to)) => one_request(&pair, settings, to, &mut times, settings.counts(turn))?,
            (_, None) => answer(&pair, settings)?,
            (_, Some(to)) => {
                to.fill(&pair, settings.packets, || Ok(()))?;
                together(&pair, settings.answers, || send(&pair, settings.answer).map(drop))?;
            }
        }
    }
    job.barrier().map_err(failed)?;
    if job.rank() == 0 {
        tell(&times.medians());
    }
    Ok(())
}

fn one_turn(
    pair: &Pair<'_>,
    settings: &Settings,
    times: &mut Times,
    counts: bool,
) -> Result<(), Error> {
    let mut sent = Vec::with_capacity(settings.packets);
    if settings.one_by_one {
        // A request for each packet, and a wait for each answer.
        let all = || {
            for _ in 0..settings.packets {
                let _settles_by_itself = send(pair, settings.size)?;
                take(pair, 1)?;
            }
            Ok(())
        };
        return times.turn(counts, || Ok(()), all);
    }
    times.turn(
        counts,
        || {
            together(pair, settings.packets, || {
                sent.push(send(pair, settings.size)?);
                Ok(())
            })
        },
        || take(pair, settings.answers),
    )?;
    sent.iter().try_for_each(finish)
}

/// Sends all packets and receives all answers as one request.
fn one_request(
    pair: &Pair<'_>,
    settings: &Settings,
    to: &Positions,
    times: &mut Times,
    counts: bool,
) -> Result<(), Error> {
    let mut sent = Vec::with_capacity(settings.packets);
    let all = || {
        to.fill(pair, settings.answers, || {
            together(pair, settings.packets, || {
                sent.push(send(pair, settings.size)?);
                Ok(())
            })
        })
    };
    times.turn(counts, || Ok(()), all)?;
    sent.iter().try_for_each(finish)
}

/// Memory with a position for each packet that comes.
struct Positions {
    memory: LocalRegion,
    /// Bytes from one position to the next.
    step: usize,
    counter: Counter,
}

impl Positions {
    fn new(pair: &Pair<'_>, settings: &Settings) -> Result<Positions, Error> {
        let step = settings.size.max(settings.answer);
        let count = settings.packets.max(settings.answers);
        let memory = Region::zeroed((step * count).max(1)).map_err(failed)?;
        let memory = pair.job.register(memory).map_err(failed)?;
        Ok(Positions { memory, step, counter: pair.job.counter() })
    }

    /// Posts receives for `count` packets, runs `send`, and waits until all are there.
    fn fill(
        &self,
        pair: &Pair<'_>,
        count: usize,
        send: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.counter.counts();
        for n in 0..count {
            let position = self.memory.slice(n * self.step..(n + 1) * self.step);
            let from = Some(pair.peer.rank());
            let receive = pair.job.post_receive(from, 0, 0, position.map_err(failed)?);
            receive.count_in(&self.counter).map_err(failed)?;
        }
        send()?;
        let ended = before.ended() + count as u64;
        let after = self.counter.wait_for(ended, PATIENCE).map_err(failed)?;
        if after.failed > before.failed {
            return Err(Error::new("a posted receive has failed"));
        }
        Ok(())
    }
}

fn answer(pair: &Pair<'_>, settings: &Settings) -> Result<(), Error> {
    if settings.one_by_one {
        for _ in 0..settings.packets {
            take(pair, 1)?;
            let _settles_by_itself = send(pair, settings.answer)?;
        }
        return Ok(());
    }
    take(pair, settings.packets)?;
    together(pair, settings.answers, || send(pair, settings.answer).map(drop))
}

/// Repeats sends, which leave together if there are several.
fn together(
    pair: &Pair<'_>,
    count: usize,
    mut send: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    if count == 1 {
        return send();
    }
    pair.job.batch(|| (0..count).try_for_each(|_| send()))
}

/// Sends a message of `size` bytes.
fn send(pair: &Pair<'_>, size: usize) -> Result<oikaze::completion::Operation<()>, Error> {
    const SHORT: [u8; COPIED] = [7; COPIED];
    match SHORT.get(..size) {
        Some(bytes) => Ok(pair.peer.send(Class::Ordered, 0, bytes)),
        None => {
            let from = pair.source_of(size)?;
            Ok(pair.peer.send_from(Class::Ordered, 0, from))
        }
    }
}

/// Receives this many messages, by one wait.
fn take(pair: &Pair<'_>, count: usize) -> Result<(), Error> {
    if count == 1 {
        return pair.job.receive_for(Some(pair.peer.rank()), PATIENCE).map(drop).map_err(failed);
    }
    let taken = pair.job.receive_batch_for(count, PATIENCE).len();
    if taken == count {
        return Ok(());
    }
    Err(Error::new(format!("{taken} of {count} messages came within {PATIENCE:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_turn_add_up() {
        let mut times = Times::default();
        times.turn(false, || Ok::<_, ()>(()), || Ok(())).expect("a turn");
        assert!(times.whole.is_empty(), "it does not count");
        times.turn(true, || Ok::<_, ()>(()), || Ok(())).expect("a turn");
        assert_eq!(times.whole[0], times.sending[0] + times.rest[0]);
        assert!(times.turn(true, || Err("lost"), || Ok(())).is_err() && times.whole.len() == 1);
    }

    #[test]
    fn first_turns_do_not_count() {
        let (packets, size, answer, answers) = (1, 1, 1, 1);
        let settings = Settings {
            packets,
            size,
            answer,
            answers,
            turns: 15,
            one_by_one: false,
            posted: false,
        };
        let counted = (0..settings.all_turns()).filter(|&turn| settings.counts(turn)).count();
        assert_eq!((settings.all_turns(), counted), (WARM_UP_MIN + 15, 15));
    }
}
