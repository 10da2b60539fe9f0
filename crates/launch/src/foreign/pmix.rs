//! Exchange by the PMIx server of a launcher (LAUNCH-9.3).

use super::exchange::Exchange;
use crate::JobError;
use crate::environment::Lookup;
use oikaze_os::pmix::Pmix;
use oikaze_os::signals::spawn;
use oikaze_protocol::limits::NODES_MAX;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Key of what rank 0 says.
const KEY: &std::ffi::CStr = c"oikaze";
/// Variables that name the directory of an installation.
const PREFIXES: [&str; 4] = ["PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "PRTE_PREFIX", "OPAL_PREFIX"];

/// Connection to a PMIx server.
pub struct PmixExchange {
    /// `None` once a call has run out of time, and its thread keeps the connection.
    server: Option<Pmix>,
    rank: u32,
    size: u32,
}

fn failed(why: String) -> JobError {
    JobError::Exchange { server: "PMIx", why }
}

impl PmixExchange {
    /// Connects to the server that the launcher's variables name.
    ///
    /// # Errors
    /// The library is missing, or no server answers within the limit.
    pub fn open(lookup: Lookup<'_>, limit: Duration) -> Result<PmixExchange, JobError> {
        let prefixes: Vec<String> = PREFIXES.iter().filter_map(|name| lookup(name)).collect();
        let connect = move || {
            let paths: Vec<&Path> = prefixes.iter().map(Path::new).collect();
            let server = Pmix::connect(&paths)?;
            let (rank, size) = (server.rank(), server.size()?);
            Ok((server, rank, size))
        };
        let (server, rank, size) = within(limit, connect)?;
        if size > NODES_MAX || rank >= size {
            return Err(failed(format!("it says that this is process {rank} of {size}")));
        }
        Ok(PmixExchange { server: Some(server), rank, size })
    }

    /// Returns the connection, which ends when it is dropped.
    pub fn into_server(self) -> Option<Pmix> {
        self.server
    }
}

impl Exchange for PmixExchange {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn share(&mut self, of_rank_0: Option<&str>, limit: Duration) -> Result<String, JobError> {
        let Some(server) = self.server.take() else {
            return Err(failed("an earlier call has run out of time".into()));
        };
        let text = of_rank_0.map(str::to_owned);
        let meet = move || {
            if let Some(text) = &text {
                server.put(KEY, text)?;
            }
            server.fence()?;
            let text = text.map_or_else(|| server.text(0, KEY), Ok)?;
            Ok((server, text))
        };
        let (server, text) = within(limit, meet)?;
        self.server = Some(server);
        Ok(text)
    }
}

/// Runs calls of the library, which know no time limit, in a thread. If the limit passes, the
/// thread is left behind.
fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, JobError> {
    let (to, result) = channel();
    let run = move || _ = to.send(call());
    spawn("oikaze pmix", run).map_err(JobError::system("ask the launcher's PMIx server"))?;
    match result.recv_timeout(limit) {
        Ok(result) => result.map_err(failed),
        Err(RecvTimeoutError::Timeout) => Err(JobError::TimedOut {
            what: "the meeting of all processes at the launcher's PMIx server".into(),
            limit,
            missing: "a process has not come to `oikaze::join()`, or the server does not answer"
                .into(),
        }),
        Err(RecvTimeoutError::Disconnected) => Err(failed("its library has panicked".into())),
    }
}
