//! Any text in the variables and options that users and launchers write: refused with a reason, or
//! understood and written the same.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_launch::environment::{self, NodePlace};
use oikaze_launch::launcher::plan::Host;
use oikaze_launch::{Ports, Secret};
use oikaze_os::features::DisabledFeatures;
use oikaze_os::net::FaultSettings;

/// In the order in which the lines of the input are their values.
const NAMES: [&str; 14] = [
    environment::PORTS,
    environment::FAILURE_TIME,
    environment::TIME_LIMIT,
    environment::FAULT,
    environment::SEAL,
    environment::CONGESTION,
    environment::FLOWS,
    environment::SIZE,
    environment::RANK,
    environment::LOCAL_SIZE,
    environment::LOCAL_RANK,
    environment::SECRET,
    environment::INCARNATION,
    environment::STORE,
];

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(faults) = text.parse::<FaultSettings>() {
        // The time is written in microseconds, so it is read as it was.
        assert_eq!(faults.to_string().parse(), Ok(faults));
    }
    if let Ok(ports) = text.parse::<Ports>() {
        assert_eq!(ports.to_string().parse(), Ok(ports));
        assert!(ports.iter().all(|port| port != 0));
    }
    if let Ok(without) = DisabledFeatures::parse(&text) {
        without.names().for_each(drop);
    }
    let _ = text.parse::<Host>();
    let _ = Secret::from_hex(&text);
    let lines: Vec<&str> = text.split('\n').collect();
    let lookup = |name: &str| {
        let at = NAMES.iter().position(|known| *known == name)?;
        lines.get(at).filter(|line| !line.is_empty()).map(|line| (*line).to_owned())
    };
    let (settings, place) = (environment::read_settings(&lookup), environment::read_place(&lookup));
    if let (Ok(settings), Ok(Some(place))) = (settings, place) {
        let NodePlace { rank, size, local_rank, local_size, .. } = place;
        assert!(rank < size && local_rank < local_size && local_size <= size);
        let variables = environment::to_variables(&place, &settings);
        let again =
            |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.clone());
        assert_eq!(environment::read_settings(&again).ok(), Some(settings));
        assert!(
            environment::read_place(&again)
                .is_ok_and(|read| read.is_some_and(|read| read.rank == rank && read.size == size))
        );
    }
});
