//! Linux sockets in the procedures of the papers, for comparison with jobs: the bench's own
//! programs, of which each has a server.

mod channel;
mod form;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};

use self::channel::{Channel, connect};
use crate::error::Error;
use crate::lab::{CLIENT, SERVER};
use crate::node::pair::{median_us, percentile_us, thread_time};
use crate::node::{burst, load, post, tell, wake};

/// Protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Udp,
    Tcp,
    /// Ethernet frames by a packet socket, as paper 000 measured Linux. It never sleeps.
    Packet,
}

/// Settings of a socket, with those of the measurement.
#[derive(Args)]
pub struct SocketRun<S: Args> {
    /// Protocol of the socket.
    #[arg(long, value_enum, default_value = "udp")]
    protocol: Protocol,
    /// Sleep while nothing comes, instead of asking again and again.
    #[arg(long)]
    block: bool,
    #[command(flatten)]
    settings: S,
}

/// Role of a process. A client prints its result as one JSON object.
#[derive(Subcommand)]
pub enum Role {
    /// Cost of a send for its caller.
    Post(SocketRun<post::Settings>),
    /// Takes what comes.
    PostServer(SocketRun<post::Settings>),
    /// Many packets and an answer.
    Burst(SocketRun<burst::Settings>),
    /// Answers when all packets have come.
    BurstServer(SocketRun<burst::Settings>),
    /// Wake-ups for several arrivals.
    Wake(SocketRun<wake::Settings>),
    /// Sends what the client waits for.
    WakeServer(SocketRun<wake::Settings>),
    /// Latency and bandwidth for a while.
    Load(SocketRun<load::Settings>),
    /// Answers, then receives.
    LoadServer(SocketRun<load::Settings>),
    /// An application of paper 002.
    Form(form::Settings),
    /// Receiver of such an application.
    FormServer(form::Settings),
}

/// Runs one end.
///
/// # Errors
/// A socket operation fails.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Post(over) => post(over.open(CLIENT)?, &over.settings),
        Role::PostServer(over) => drain(over.open(SERVER)?, over.settings.size),
        Role::Burst(over) => bursts(over.open(CLIENT)?, &over.settings),
        Role::BurstServer(over) => answers(over.open(SERVER)?, &over.settings),
        Role::Wake(over) => wakes(over.open(CLIENT)?, &over.settings),
        Role::WakeServer(over) => wakers(over.open(SERVER)?, &over.settings),
        Role::Load(over) => loads(over.open(CLIENT)?, &over.settings),
        Role::LoadServer(over) => loaders(over.open(SERVER)?),
        Role::Form(settings) => form::application(settings),
        Role::FormServer(settings) => form::receiver(settings),
    }
}

impl<S: Args> SocketRun<S> {
    fn open(&self, host: usize) -> Result<Channel, Error> {
        connect(self.protocol, host, self.block)
    }
}

/// Times sends as [`post::run`] times puts.
fn post(mut channel: Channel, settings: &post::Settings) -> Result<(), Error> {
    let bytes = vec![1; settings.size];
    let mut posts = Vec::new();
    for _ in 0..settings.singles {
        let begun = Instant::now();
        channel.send(&bytes)?;
        posts.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let mut processor = Vec::new();
    for _ in 0..settings.bursts {
        let before = thread_time();
        for _ in 0..settings.burst {
            channel.send(&bytes)?;
        }
        processor.push((thread_time() - before) / u64::from(settings.burst.max(1)));
    }
    tell(&[("post", median_us(&posts)), ("processor", median_us(&processor))]);
    Ok(())
}

/// Receives until the bench ends this process.
fn drain(mut channel: Channel, size: usize) -> Result<(), Error> {
    let mut buffer = vec![0; size];
    loop {
        channel.receive(&mut buffer)?;
    }
}

fn bursts(mut channel: Channel, settings: &burst::Settings) -> Result<(), Error> {
    let bytes = vec![1; settings.size];
    let mut answer = vec![0; settings.answer];
    let mut times = burst::Times::default();
    for turn in 0..settings.all_turns() {
        // Both halves of a turn use the one channel, one after the other.
        let channel = std::cell::RefCell::new(&mut channel);
        let one_by_one = settings.one_by_one;
        let send = || {
            for _ in 0..if one_by_one { 0 } else { settings.packets } {
                channel.borrow_mut().send(&bytes)?;
            }
            Ok(())
        };
        let receive = || {
            let mut channel = channel.borrow_mut();
            for _ in 0..if one_by_one { settings.packets } else { settings.answers } {
                if one_by_one {
                    channel.send(&bytes)?;
                }
                channel.receive(&mut answer)?;
            }
            Ok(())
        };
        times.turn(settings.counts(turn), send, receive)?;
    }
    tell(&times.medians());
    Ok(())
}

fn answers(mut channel: Channel, settings: &burst::Settings) -> Result<(), Error> {
    let mut buffer = vec![0; settings.size];
    let answer = vec![1; settings.answer];
    for _ in 0..settings.all_turns() {
        for _ in 0..settings.packets {
            channel.receive(&mut buffer)?;
            if settings.one_by_one {
                channel.send(&answer)?;
            }
        }
        for _ in 0..if settings.one_by_one { 0 } else { settings.answers } {
            channel.send(&answer)?;
        }
    }
    Ok(())
}

fn wakes(mut channel: Channel, settings: &wake::Settings) -> Result<(), Error> {
    let mut word = [0; 8];
    let (mut own, mut all) = (0, 0);
    for _ in 0..settings.turns {
        let (own_before, all_before) = (wake::own_sleeps()?, wake::all_sleeps()?);
        channel.send(&word)?;
        for _ in 0..settings.count {
            channel.receive(&mut word)?;
        }
        own += wake::own_sleeps()? - own_before;
        all += wake::all_sleeps()? - all_before;
    }
    let turns = f64::from(settings.turns);
    tell(&[("own", own as f64 / turns), ("all", all as f64 / turns)]);
    Ok(())
}

fn wakers(mut channel: Channel, settings: &wake::Settings) -> Result<(), Error> {
    let mut word = [0; 8];
    for _ in 0..settings.turns {
        channel.receive(&mut word)?;
        wake::spin(wake::ASLEEP);
        for _ in 0..settings.count {
            channel.send(&word)?;
            wake::spin(Duration::from_micros(settings.apart));
        }
    }
    Ok(())
}

/// First byte of a message that ends the ping-pong.
const STOP: u8 = 1;

fn loads(mut channel: Channel, settings: &load::Settings) -> Result<(), Error> {
    let span = Duration::from_millis(settings.milliseconds);
    let (mut times, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < span {
        let one = Instant::now();
        channel.send(&[0; 8])?;
        channel.receive(&mut [0; 8])?;
        times.push(u64::try_from(one.elapsed().as_nanos() / 2).unwrap_or(u64::MAX));
    }
    channel.send(&[STOP; 8])?;
    let bytes = vec![0; settings.bulk];
    let (mut sent, begun) = (0, Instant::now());
    while begun.elapsed() < span {
        channel.send(&bytes)?;
        sent += bytes.len();
    }
    channel.end_sending()?;
    channel.receive(&mut [0; 8])?;
    let bandwidth = sent as f64 / begun.elapsed().as_secs_f64() / 1e9;
    let (p50, p99) = (percentile_us(&mut times, 50), percentile_us(&mut times, 99));
    tell(&[("p50", p50), ("p99", p99), ("bandwidth", bandwidth)]);
    Ok(())
}

fn loaders(mut channel: Channel) -> Result<(), Error> {
    let mut word = [0; 8];
    loop {
        channel.receive(&mut word)?;
        if word == [STOP; 8] {
            break;
        }
        channel.send(&word)?;
    }
    channel.receive_to_end()?;
    channel.send(&word)
}
