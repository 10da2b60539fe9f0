//! Links at both ends of a veth pair between two network namespaces. Only as root.

use crate::features::DisabledFeatures;
use crate::net::stack::{LinkStack, open};
use crate::net::{Bind, Link};
use crate::testing::namespaces::{go_to, ip, namespace, path_of};
use std::fs::File;
use std::net::SocketAddr;

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

/// Makes a cable and leaves this thread at its second end. Neither link may open sockets later
/// without moving the thread (`connect`). Returns `None` if that is not permitted.
pub(super) fn cable(addresses: [&str; 2], without: [&str; 2]) -> Option<Cable> {
    let first = namespace()?;
    let second = namespace()?;
    let home = path_of(&first);
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
