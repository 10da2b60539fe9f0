//! The text of errors, and what a program does about them.

use crate::abi::call::{Output, last_lost_peer, run, with_last_text};
use crate::abi::pointers::{Room, Text};
use crate::job::abort_all;
use crate::status::oik_status;
use std::io::Write;

/// Returns the text of the calling thread's last failure: operation, cause and remedy. The text is
/// valid until the next call of this thread fails. Returns an empty text if no call has failed.
/// Thread-safe: each thread has a text of its own.
#[unsafe(no_mangle)]
pub extern "C" fn oik_error() -> Text {
    with_last_text(|text| Text::of(text.map_or(c"", |text| text.as_c_str())))
}

/// Writes the rank of the node whose loss caused the calling thread's last failure. Returns
/// `OIK_NOT_READY` if the loss of a node was not the cause. Thread-safe: each thread has a last
/// failure of its own.
#[unsafe(no_mangle)]
pub extern "C" fn oik_error_lost_peer(mut rank: Room<u32>) -> oik_status {
    let (Ok(rank), Some(lost)) = (rank.place("rank"), last_lost_peer()) else {
        return oik_status::OIK_NOT_READY;
    };
    rank.write(lost);
    oik_status::OIK_OK
}

/// Does nothing for `OIK_OK`. For a failure, prints its text, ends all jobs of this process for all
/// their nodes (as `oik_abort` does), and exits with status 1. Programs that treat errors so write
/// `oik_check(oik_barrier(job))`. Thread-safe, as exit(3) is.
#[unsafe(no_mangle)]
pub extern "C" fn oik_check(status: i32) {
    if status == oik_status::OIK_OK as i32 {
        return;
    }
    let _ = run(|| {
        let text = with_last_text(|text| text.map(|text| text.to_string_lossy().into_owned()));
        let text = text.unwrap_or_else(|| format!("status {status}"));
        // Printed before the error ends the other nodes (END-3.2).
        let _ = writeln!(std::io::stderr(), "oikaze: {text}");
        abort_all(&text);
        Ok(())
    });
    std::process::exit(1);
}
