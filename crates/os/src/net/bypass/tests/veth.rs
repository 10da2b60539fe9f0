//! Links at both ends of a veth pair between two network namespaces. Only as root.

use crate::features::DisabledFeatures;
use crate::net::stack::{LinkStack, open};
use crate::net::{Bind, Link};
use crate::testing::skip;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;

/// Two hosts with a link each, and a cable between them.
pub(super) struct Cable {
    pub(super) ends: [(SocketAddr, LinkStack); 2],
    pub(super) namespaces: [File; 2],
}

impl Cable {
    /// Moves this thread to the host at this end, where its link may open further sockets.
    pub(super) fn at(&mut self, end: usize) -> &mut LinkStack {
        go_to(&self.namespaces[end]);
        &mut self.ends[end].1
    }
}

pub(super) fn go_to(namespace: &File) {
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(namespace),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
}

pub(super) fn ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
}

/// Makes a cable and leaves this thread at its second end. Neither link may open sockets later
/// without moving the thread (`connect`). Returns `None` if that is not permitted.
pub(super) fn cable(addresses: [&str; 2], without: [&str; 2]) -> Option<Cable> {
    let namespace = || {
        // SAFETY: concerns this thread alone, which ends with the test.
        (unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0)
            .then(|| File::open("/proc/thread-self/ns/net").unwrap())
    };
    let Some(first) = namespace() else {
        skip("network namespaces take root");
        return None;
    };
    let second = namespace().unwrap();
    let home =
        format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&first));
    ip(&format!("link add there type veth peer name here netns {home}"));
    let mut ends = Vec::new();
    let devices = [(&first, "here"), (&second, "there")];
    for ((namespace, device), (address, without)) in
        devices.into_iter().zip(addresses.into_iter().zip(without))
    {
        go_to(namespace);
        ip(&format!(
            "address add {address} dev {device} {}",
            if address.contains(':') { "nodad" } else { "broadcast +" }
        ));
        ip(&format!("link set {device} mtu 9000 up"));
        let without = DisabledFeatures::parse(without).unwrap();
        let link = open(&Bind { without, ..Bind::default() }).unwrap();
        let at = SocketAddr::new(
            address.split('/').next().unwrap().parse().unwrap(),
            link.properties().port,
        );
        ends.push((at, link));
    }
    let ends = ends.try_into().ok().unwrap();
    Some(Cable { ends, namespaces: [first, second] })
}

pub(super) fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    // The thread may be in another network namespace afterwards.
    std::thread::spawn(test).join().unwrap();
}
