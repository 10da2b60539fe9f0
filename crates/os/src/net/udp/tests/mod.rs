//! Properties of UDP links.

mod connected_sockets;
mod ports;
mod sending;

use super::{Bind, BindError, Ports, UdpLink};
use std::net::{IpAddr, Ipv4Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn bind(ports: Ports) -> Result<UdpLink, BindError> {
    UdpLink::bind(&Bind { addresses: vec![HERE], ports, ..Bind::default() })
}
