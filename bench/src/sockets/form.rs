//! Application of paper 002 over UDP, and its receiver. A send of more than a datagram holds goes
//! as two.

use std::io::Write;
use std::net::UdpSocket;
use std::time::Instant;

use clap::Args;
use rustix::net::sockopt;

use super::channel::{PATIENCE, RECEIVE_BUFFER};
use crate::error::{Error, Tried};
use crate::node::pair::median_us;
use crate::node::{form, tell};
use crate::peers::udp::LARGEST;
use crate::process::say_ready;

const PORT: u16 = 7104;

/// Settings of an application, with the addresses of both ends.
#[derive(Args)]
pub struct Settings {
    /// Address of the application.
    #[arg(long)]
    from: String,
    /// Address of its receiver.
    #[arg(long)]
    to: String,
    /// Core of this process.
    #[arg(long)]
    core: usize,
    #[command(flatten)]
    form: form::Settings,
}

/// Returns the lengths of the datagrams of a send.
fn datagrams(size: usize) -> impl Iterator<Item = usize> {
    let count = size.div_ceil(LARGEST).max(1);
    (0..count).map(move |n| size / count + usize::from(n < size % count))
}

fn connected(settings: &Settings, from: &str, to: &str) -> Result<UdpSocket, Error> {
    oikaze_os::cpu::pin_to_core(settings.core).tried(format!("pinning to {}", settings.core))?;
    let socket = UdpSocket::bind((from, PORT)).tried(format!("binding {from}:{PORT}"))?;
    socket.connect((to, PORT)).tried(format!("connecting to {to}:{PORT}"))?;
    socket.set_read_timeout(Some(PATIENCE)).tried("limiting receives")?;
    sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .tried("enlarging the receive buffer (needs root)")?;
    Ok(socket)
}

/// Runs an application as [`form::run`] does. The endless one is ended by the bench.
///
/// # Errors
/// A socket operation fails, or a datagram was lost.
pub fn application(settings: &Settings) -> Result<(), Error> {
    let socket = connected(settings, &settings.from, &settings.to)?;
    let bytes = vec![1; settings.form.size];
    let send = || {
        let mut left = bytes.as_slice();
        for len in datagrams(bytes.len()) {
            let (datagram, rest) = left.split_at(len);
            socket.send(datagram).tried("sending")?;
            left = rest;
        }
        Ok::<_, Error>(())
    };
    if settings.form.endless {
        for sent in 0_u32.. {
            send()?;
            if sent == settings.form.sends {
                let mut out = std::io::stdout();
                writeln!(out, "ready").and_then(|()| out.flush()).tried("telling the bench")?;
            }
        }
        return Ok(());
    }
    let mut times = Vec::new();
    for turn in 0..=settings.form.turns {
        let begun = Instant::now();
        for _ in 0..settings.form.sends {
            send()?;
        }
        socket.recv(&mut [0; 8]).tried("waiting for the answer (a datagram may be lost)")?;
        if turn > 0 {
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    tell(&[("turn", median_us(&times) / 1e3)]);
    Ok(())
}

/// Receives until the bench ends this process, and answers each time when all sends have come.
///
/// # Errors
/// A socket operation fails.
pub fn receiver(settings: &Settings) -> Result<(), Error> {
    let socket = connected(settings, &settings.to, &settings.from)?;
    say_ready()?;
    let mut buffer = vec![0; LARGEST];
    let count = datagrams(settings.form.size).count() * settings.form.sends as usize;
    loop {
        for _ in 0..count {
            // A receiver without work waits on, until the bench ends it.
            while socket.recv(&mut buffer).is_err() {}
        }
        if !settings.form.endless {
            socket.send(&[0; 8]).tried("answering")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_datagram_holds_goes_as_two() {
        let of = |size| datagrams(size).collect::<Vec<_>>();
        assert_eq!(of(5120), [5120]);
        assert_eq!(of(65_536), [32_768, 32_768]);
        assert_eq!(of(65_509), [32_755, 32_754]);
    }
}
