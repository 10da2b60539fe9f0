//! Links that must pass the [checks](super::checks).

use super::checks;
use super::{Plan, V4, V6, carries, narrow_namespace};
use crate::features::DisabledFeatures;
use crate::net::bypass::raw_tx::RawTx;
use crate::net::bypass::splice::Splice;
use crate::net::bypass::tcx::TcxRx;
use crate::net::stack::open;
use crate::net::{
    Bind, Fault, FaultSettings, Link, Offload, Pcapng, Tap, Trace, UdpLink, local_addresses,
};
use crate::testing::skip;
use std::net::{IpAddr, SocketAddr};

fn ask(ip: IpAddr, without: &str) -> Bind {
    let without = DisabledFeatures::parse(without).unwrap();
    Bind { addresses: vec![ip], without, ..Bind::default() }
}

fn udp(ip: IpAddr, without: &str) -> UdpLink {
    UdpLink::bind(&ask(ip, without)).unwrap()
}

fn splice(ip: IpAddr) -> Splice<UdpLink> {
    Splice::open(udp(ip, ""), &ask(ip, ""))
}

fn raw_tx(ip: IpAddr) -> RawTx<UdpLink> {
    RawTx::new(udp(ip, ""), &ask(ip, ""))
}

/// Receives by tcx also at the loopback interface, where that is permitted.
fn tcx(ip: IpAddr) -> TcxRx<UdpLink> {
    TcxRx::open_at_loopback(udp(ip, ""), &ask(ip, ""))
}

/// All paths around the kernel, at the loopback interface.
fn stack(ip: IpAddr) -> TcxRx<RawTx<Splice<UdpLink>>> {
    TcxRx::open_at_loopback(RawTx::new(splice(ip), &ask(ip, "")), &ask(ip, ""))
}

fn tapped(ip: IpAddr) -> Tap<UdpLink> {
    let mut tap = Tap::new(udp(ip, ""));
    tap.record(
        "capture".into(),
        Box::new(Pcapng::new("test")),
        Box::new(std::io::sink()),
        u64::MAX,
    )
    .unwrap();
    tap.record("trace".into(), Box::<Trace>::default(), Box::new(std::io::sink()), u64::MAX)
        .unwrap();
    tap
}

fn everywhere() -> UdpLink {
    UdpLink::bind(&Bind::default()).unwrap()
}

crate::test_links! {
    udp_by_address: |ip| Box::new(udp(ip, "")) as Box<dyn Link>;
    udp_without_gso: |ip| Box::new(udp(ip, "gso")) as Box<dyn Link>;
    udp_without_gro: |ip| Box::new(udp(ip, "gro")) as Box<dyn Link>;
    udp_without_lanes: |ip| Box::new(udp(ip, "lanes")) as Box<dyn Link>;
    udp_without_both: |ip| Box::new(udp(ip, "gso,gro")) as Box<dyn Link>;
    splice: |ip| Box::new(splice(ip)) as Box<dyn Link>;
    raw_tx: |ip| Box::new(raw_tx(ip)) as Box<dyn Link>;
    tcx: |ip| Box::new(tcx(ip)) as Box<dyn Link>;
    stack: |ip| Box::new(stack(ip)) as Box<dyn Link>;
    opened: |ip| Box::new(open(&ask(ip, "")).unwrap()) as Box<dyn Link>;
    tap: |ip| Box::new(tapped(ip)) as Box<dyn Link>;
    fault_without_faults: |ip| Box::new(Fault::new(udp(ip, ""), FaultSettings::default())) as Box<dyn Link>;
}

/// A link bound to the wildcard reaches both families. An answer from its loopback address comes
/// from there.
#[test]
fn a_wildcard_link_carries_both_families() {
    let (mut sender, mut receivers) = (everywhere(), vec![Box::new(everywhere()) as Box<dyn Link>]);
    let plan: Plan = (0..40).map(|number| (0, [24, number, 4])).collect();
    carries(&mut sender, &mut receivers, V4, &plan);
    if sender.bound().iter().any(SocketAddr::is_ipv6)
        && local_addresses().unwrap().iter().any(|local| local.address.ip() == V6)
    {
        carries(&mut sender, &mut receivers, V6, &plan);
    }
}

/// The checks of the stack are checks of its wrappers, because each is used. Runs in a network
/// namespace of its own, because the kernel's routes are shorter than 65,536 bytes, which is the
/// usual MTU of the loopback interface.
#[test]
fn every_path_of_the_stack_is_used() {
    let tested = std::thread::spawn(|| {
        if !narrow_namespace(9000) {
            return false;
        }
        let (mut one, mut other) = (stack(V4), stack(V4));
        if [one.statistics().tcx_receive, one.statistics().splice] != [Offload::On; 2] {
            return false;
        }
        checks::exchange(&mut one, &mut other, V4);
        let mut receivers = vec![Box::new(other) as Box<dyn Link>];
        carries(&mut one, &mut receivers, V4, &checks::page_plan());
        let counters = one.statistics();
        assert!(counters.by_tcx > 100, "{counters:?}");
        assert!(counters.frames_out > 100, "{counters:?}");
        assert!(counters.spliced > 100, "{counters:?}");
        true
    });
    if !tested.join().unwrap() {
        skip("it needs root, for a network namespace, tcx (Linux 6.6) and splice (Linux 6.5)");
    }
}
