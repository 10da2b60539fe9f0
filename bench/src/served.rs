//! Client of a server that sends to itself until its input ends: `oikaze-bench served NAME`.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use oikaze_os::net::{Bind, Link, Outgoing, ReceiveEach};
use oikaze_protocol::wire::Lane;
use oikaze_serve::ServedLink;

use crate::error::{Error, Tried};
use crate::process::say_ready;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bytes of a datagram.
const LEN: usize = 3000;
/// Datagrams of a call.
const BATCH: usize = 8;

/// Settings of the client.
#[derive(Args)]
pub struct Settings {
    /// Name of the server.
    name: String,
}

/// Runs the client.
///
/// # Errors
/// There is no such server, or it ends.
pub fn run(settings: &Settings) -> Result<(), Error> {
    let ask = Bind { addresses: vec![HERE], ..Bind::default() };
    let mut link = ServedLink::connect(&settings.name, &ask)
        .map_err(|why| Error::new(format!("connecting to the server: {why}")))?;
    say_ready()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        });
        let at = SocketAddr::new(HERE, link.properties().port);
        let body = [1; LEN];
        let batch = [(); BATCH].map(|()| Outgoing::new(&at, Lane::Bulk, &body));
        while !ended.load(Ordering::Relaxed) {
            link.send(&batch).tried("sending")?;
            link.receive(&mut |_| {}).tried("receiving")?;
        }
        Ok(())
    })
}
