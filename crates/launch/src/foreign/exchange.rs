//! Exchange by the server of a launcher, or by the program itself: rank 0 says to all where its
//! store is, and what the job's secret is (LAUNCH-9.2).

use super::store_here::Meeting;
use crate::JobError;
use oikaze_os::net::Ports;
use oikaze_os::secrets::secret::Secret;
use std::time::Duration;
use zeroize::Zeroizing;

/// Way for rank 0 to tell all processes of a job a few hundred bytes.
pub trait Exchange {
    /// Returns this process's rank.
    fn rank(&self) -> u32;
    /// Returns the number of processes.
    fn size(&self) -> u32;
    /// Hands the text of rank 0 to all processes. Each of them calls it once, rank 0 with the text.
    /// The text is of printable characters without spaces.
    ///
    /// # Errors
    /// A process did not come within the limit, or the server was lost.
    fn share(&mut self, of_rank_0: Option<&str>, limit: Duration) -> Result<String, JobError>;
}

/// Maximum number of addresses of the store that are told.
const ADDRESSES_MAX: usize = 16;
/// First word of what rank 0 says. Another release may say something else.
const FORM: &str = "oikaze-1";

/// Lets all processes of a job know the store of rank 0, which rank 0 starts.
pub(super) fn meet(
    by: &mut dyn Exchange,
    ports: Option<Ports>,
    limit: Duration,
) -> Result<Meeting, JobError> {
    if by.rank() != 0 {
        let (store, secret) = read(&Zeroizing::new(by.share(None, limit)?))?;
        return Ok(Meeting { store, secret, server: None });
    }
    let secret = Secret::random().map_err(JobError::system("draw the job's secret"))?;
    let (server, addresses) = super::store_here::open_store(ports, by.size(), &secret)?;
    let told: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    // Loopback is last, and serves a host without network.
    let (first, last) = told.split_at(told.len().saturating_sub(1));
    let some = first.iter().take(ADDRESSES_MAX - 1).chain(last);
    let store = some.map(String::as_str).collect::<Vec<_>>().join(",");
    let text = Zeroizing::new(format!("{FORM};{};{store}", secret.to_hex()));
    by.share(Some(&text), limit)?;
    Ok(Meeting { store, secret, server: Some(server) })
}

/// Reads what rank 0 said.
fn read(text: &str) -> Result<(String, Secret), JobError> {
    let mut words = text.split(';');
    let understood = (words.next() == Some(FORM))
        .then(|| {
            let secret = words.next().and_then(Secret::from_hex)?;
            let store = words.next().filter(|store| !store.is_empty())?;
            Some((store.to_owned(), secret))
        })
        .flatten();
    // The text may hold a secret, and is not shown.
    understood.ok_or(JobError::Malformed {
        rank: 0,
        what: "the job's store",
        why: format!("it does not have the form {FORM}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rank_0_says_is_read_and_nonsense_shows_no_secret() {
        let secret = Secret::from_bytes([7; 32]);
        let text = format!("{FORM};{};10.0.0.1:5,[::1]:5", secret.to_hex());
        let (store, read_secret) = read(&text).unwrap();
        assert_eq!((store.as_str(), read_secret == secret), ("10.0.0.1:5,[::1]:5", true));
        for wrong in [
            String::new(),
            format!("oikaze-2;{};a:1", secret.to_hex()),
            format!("{FORM};77;a:1"),
            format!("{FORM};{}", secret.to_hex()),
            format!("{FORM};{};", secret.to_hex()),
        ] {
            let why = read(&wrong).unwrap_err().to_string();
            assert!(why.contains("node 0") && !why.contains("0707"), "{why}");
        }
    }
}
