//! Meeting at rank 0 where the launcher has no server: all processes derive the address of rank 0's
//! store, and the job's secret, from what the launcher tells each of them (LAUNCH-9.4).

use super::store_here::Meeting;
use super::table::ForeignLauncher;
use crate::JobError;
use crate::environment::{Lookup, SECRET, STORE, optional};
use oikaze_os::secrets::secret::{SECRET_LEN, Secret};

/// Number of ports at which the store may listen, one behind another. It takes the first that is
/// free.
const PORTS: u16 = 16;
/// Port of the store in a pod of Kubernetes, which shares its ports with no other.
const POD_PORT: u16 = 7711;
/// First port, and number of ports, among which the number of a Slurm step chooses.
const STEP_PORTS: (u16, u16) = (20_000, 12_000);

/// Where the processes of a job meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Name or address of rank 0's host.
    host: String,
    /// Ports at which the store may listen.
    ports: Vec<u16>,
    /// Text that is the same in all processes of the job, and in no other job.
    job: String,
}

impl Place {
    /// Derives the place from the launcher's variables.
    ///
    /// # Errors
    /// A variable is missing or makes no sense.
    pub(super) fn of(by: ForeignLauncher, lookup: Lookup<'_>) -> Result<Place, JobError> {
        let given = lookup(STORE).filter(|text| !text.is_empty());
        let mut place = Place::by_launcher(by, lookup, given.as_deref())?;
        if let Some(given) = given {
            let wrong = || JobError::Environment {
                name: STORE,
                found: format!("{given:?}"),
                needed: "HOST:PORT, at which rank 0 listens",
            };
            let (host, port) = given.rsplit_once(':').ok_or_else(wrong)?;
            let port: u16 = port.parse().map_err(|_| wrong())?;
            (place.host, place.ports) = (host.to_owned(), vec![port]);
        }
        Ok(place)
    }

    fn by_launcher(
        by: ForeignLauncher,
        lookup: Lookup<'_>,
        given: Option<&str>,
    ) -> Result<Place, JobError> {
        let text = |name: &'static str, needed| {
            let text = lookup(name).filter(|text| !text.is_empty());
            text.ok_or(JobError::Environment { name, found: "not set".into(), needed })
        };
        let from = |first: u16| (first..=first.saturating_add(PORTS - 1)).collect();
        match by {
            ForeignLauncher::Torchrun => {
                let host = text("MASTER_ADDR", "the address of rank 0's host")?;
                let needed = "a port from 1 to 65519";
                let port = optional(lookup, "MASTER_PORT", needed, |text| {
                    text.parse::<u16>().ok().filter(|port| (1..=u16::MAX - PORTS).contains(port))
                })?
                .unwrap_or_default();
                let part = |name: &str| lookup(name).unwrap_or_default();
                let (run, restart) =
                    (part("TORCHELASTIC_RUN_ID"), part("TORCHELASTIC_RESTART_COUNT"));
                // The launcher's own store is at the port before these.
                let job = format!("torchrun {host} {port} {run} {restart}");
                Ok(Place { host, ports: from(port + 1), job })
            }
            ForeignLauncher::Slurm => {
                let needed = "the list of the step's nodes";
                let list = lookup("SLURM_STEP_NODELIST")
                    .or_else(|| lookup("SLURM_NODELIST"))
                    .unwrap_or_default();
                let host = first_of(&list).ok_or_else(|| JobError::Environment {
                    name: "SLURM_STEP_NODELIST",
                    found: format!("{list:?}"),
                    needed,
                })?;
                let number = |name| {
                    let text = text(name, "a number")?;
                    let wrong = || JobError::Environment {
                        name,
                        found: format!("{text:?}"),
                        needed: "a number",
                    };
                    text.parse::<u64>().map_err(|_| wrong())
                };
                let (job, step) = (number("SLURM_JOB_ID")?, number("SLURM_STEP_ID")?);
                let (first, count) = STEP_PORTS;
                // Steps of one allocation run at the same time on the same hosts.
                let chosen = job.wrapping_mul(7).wrapping_add(step) % u64::from(count / PORTS);
                let port = first + u16::try_from(chosen).unwrap_or_default() * PORTS;
                Ok(Place { host, ports: from(port), job: format!("slurm {job} {step}") })
            }
            ForeignLauncher::Kubernetes | ForeignLauncher::Pmix | ForeignLauncher::Pmi => {
                let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
                let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                let index = text("JOB_COMPLETION_INDEX", "the pod's number")?;
                let host = given
                    .map(str::to_owned)
                    .or_else(|| pod_0(own.trim(), &index, &hosts))
                    .ok_or_else(|| JobError::Environment {
                    name: STORE,
                    found: format!("not set, and {:?} is not the name of a pod", own.trim()),
                    needed: "HOST:PORT, at which the pod with index 0 listens",
                })?;
                let job = format!("kubernetes {host}");
                Ok(Place { host, ports: vec![POD_PORT], job })
            }
        }
    }

    /// Returns the store's addresses.
    fn store(&self) -> String {
        let at: Vec<String> =
            self.ports.iter().map(|port| format!("{}:{port}", self.host)).collect();
        at.join(",")
    }

    /// Meets the other processes: rank 0 starts the store, and the others know where it will be.
    pub(super) fn meet(
        &self,
        (rank, size): (u32, u32),
        lookup: Lookup<'_>,
    ) -> Result<Meeting, JobError> {
        let given = optional(lookup, SECRET, "64 hexadecimal digits", Secret::from_hex)
            // The error must not show the value.
            .map_err(|_| JobError::Environment {
                name: SECRET,
                found: "not usable".into(),
                needed: "64 hexadecimal digits",
            })?;
        if given.is_none() && rank == 0 {
            eprintln!(
                "oikaze: node 0: this launcher tells the processes no secret, so everybody who can reach {} may join \
                 the job: set OIKAZE_SECRET to 64 hexadecimal digits in all processes",
                self.host
            );
        }
        // A secret of one job must be of no use in another (LAUNCH-6.4).
        let of = given.unwrap_or_else(|| Secret::from_bytes([0; SECRET_LEN]));
        let secret = of.derive(&[b"oikaze job of another launcher", self.job.as_bytes()]);
        if rank != 0 {
            return Ok(Meeting { store: self.store(), secret, server: None });
        }
        let (server, at) = super::store_here::serve_at(&self.ports, size, &secret)?;
        Ok(Meeting { store: format!("127.0.0.1:{at}"), secret, server: Some(server) })
    }
}

/// Returns the first host of a list as Slurm writes it: `n[1-3,7],m2` begins with `n1`.
fn first_of(list: &str) -> Option<String> {
    let end = list.find(['[', ',']).unwrap_or(list.len());
    let (name, rest) = list.split_at_checked(end)?;
    let number = match rest.strip_prefix('[') {
        Some(numbers) => numbers.split(['-', ',', ']']).next().filter(|text| !text.is_empty())?,
        None => "",
    };
    // The text behind the bracket belongs to the name: `rack[1-2]-node`.
    let tail = match number {
        "" => "",
        _ => rest.split_once(']').map(|(_, tail)| tail.split([',', '[']).next().unwrap_or(""))?,
    };
    let host = format!("{name}{number}{tail}");
    Some(host).filter(|host| !host.is_empty())
}

/// Returns the name of the pod with index 0, whose name differs from this pod's in the index only.
/// The domain stands in the pod's file of hosts.
fn pod_0(own: &str, index: &str, hosts: &str) -> Option<String> {
    let job = own.strip_suffix(index)?.strip_suffix('-')?;
    let mut names = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.split_whitespace().skip(1));
    let domain = names.find_map(|name| name.strip_prefix(own)?.strip_prefix('.'));
    Some(match domain {
        Some(domain) => format!("{job}-0.{domain}"),
        None => format!("{job}-0"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn place(by: ForeignLauncher, text: &str) -> Result<Place, JobError> {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        let map: HashMap<&str, &str> = pairs.collect();
        Place::of(by, &|name| map.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn first_host_of_a_list_is_found() {
        for (list, first) in [
            ("n1", Some("n1")),
            ("n1,n2", Some("n1")),
            ("n[1-3,7],m2", Some("n1")),
            ("n[007,9]", Some("n007")),
            ("rack[2-3]-a,x", Some("rack2-a")),
            ("", None),
            ("n[]", None),
            ("n[1", None),
        ] {
            assert_eq!(first_of(list).as_deref(), first, "{list}");
        }
    }

    #[test]
    fn pod_with_index_0_has_the_domain_of_this_pod() {
        let hosts = "127.0.0.1 localhost\n10.1.2.3 sum-3.sum.default.svc.cluster.local sum-3\n";
        let full = "sum-0.sum.default.svc.cluster.local";
        assert_eq!(pod_0("sum-3", "3", hosts).as_deref(), Some(full));
        assert_eq!(pod_0("sum-3", "3", "# 1 sum-3.x").as_deref(), Some("sum-0"));
        assert_eq!(pod_0("sum-13", "13", "").as_deref(), Some("sum-0"));
        assert_eq!(pod_0("laptop", "3", hosts), None);
        assert_eq!(pod_0("sum-3", "4", hosts), None);
    }

    /// LAUNCH-9.4.
    #[test]
    fn places_of_jobs_differ_and_nonsense_is_named() {
        let torch = "MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x";
        let at = place(ForeignLauncher::Torchrun, torch).unwrap();
        assert_eq!((at.host.as_str(), at.ports.first(), at.ports.len()), ("a", Some(&29501), 16));
        let restarted =
            place(ForeignLauncher::Torchrun, &format!("{torch} TORCHELASTIC_RESTART_COUNT=1"));
        assert_ne!(restarted.unwrap().job, at.job);
        let elsewhere = place(ForeignLauncher::Torchrun, &format!("{torch} OIKAZE_STORE=b:7"));
        let elsewhere = elsewhere.unwrap();
        assert_eq!((elsewhere.store().as_str(), &elsewhere.job), ("b:7", &at.job));
        let slurm = |step: u32| {
            let text = format!("SLURM_STEP_NODELIST=n[1-2] SLURM_JOB_ID=7 SLURM_STEP_ID={step}");
            place(ForeignLauncher::Slurm, &text).unwrap()
        };
        assert_eq!(slurm(0).host, "n1");
        assert!(slurm(0).ports.iter().all(|port| !slurm(1).ports.contains(port)));
        let given =
            place(ForeignLauncher::Kubernetes, "JOB_COMPLETION_INDEX=1 OIKAZE_STORE=job-0.svc:9");
        let given = given.unwrap();
        assert_eq!((given.store().as_str(), given.ports.len()), ("job-0.svc:9", 1));
        for (by, text, name) in [
            (ForeignLauncher::Torchrun, "MASTER_ADDR=a MASTER_PORT=65530", "MASTER_PORT"),
            (ForeignLauncher::Torchrun, "MASTER_PORT=5", "MASTER_ADDR"),
            (ForeignLauncher::Slurm, "SLURM_JOB_ID=7 SLURM_STEP_ID=0", "SLURM_STEP_NODELIST"),
            (
                ForeignLauncher::Slurm,
                "SLURM_NODELIST=n SLURM_JOB_ID=x SLURM_STEP_ID=0",
                "SLURM_JOB_ID",
            ),
            (ForeignLauncher::Kubernetes, "JOB_COMPLETION_INDEX=1 OIKAZE_STORE=a", "OIKAZE_STORE"),
        ] {
            let why = place(by, text).unwrap_err().to_string();
            assert!(why.contains(name), "{text}: {why}");
        }
    }
}
