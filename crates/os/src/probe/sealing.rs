//! Cipher of this machine for datagrams (SEAL-2.6), and its speed on one core.

use super::{Finding, Suitability};
use crate::features::DisabledFeatures;
use crate::secrets::seal::{Aead, preferred_cipher};
use oikaze_protocol::seal::{Cipher, CipherKind, TAG_LEN};
use std::time::{Duration, Instant};

/// Bytes that are sealed at once, about as many as a jumbo frame carries.
const TEXT_LEN: usize = 8 << 10;
/// Time of the measurement.
const SPAN: Duration = Duration::from_millis(4);

/// Returns the name of the processor, as the kernel gives it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        ["model name", "CPU part"].contains(&name.trim()).then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| "unknown processor".to_owned())
}

/// Names the instructions for AES that this processor has.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("vaes") && std::is_x86_feature_detected!("vpclmulqdq") {
        return "AES and VAES instructions";
    }
    match preferred_cipher() {
        CipherKind::Aes128Gcm => "AES instructions",
        CipherKind::ChaCha20Poly1305 => "no AES instructions",
    }
}

/// Measures how many bytes a core seals in a second. The fastest text counts, because this process
/// may lose its core meanwhile.
fn bytes_per_second(cipher: CipherKind) -> f64 {
    let key = match cipher {
        CipherKind::Aes128Gcm => &[1; 16][..],
        CipherKind::ChaCha20Poly1305 => &[1; 32][..],
    };
    let cipher = Aead::new(cipher, key, [2; 12]);
    let (mut text, mut tag) = (vec![3; TEXT_LEN], [0; TAG_LEN]);
    let (begun, mut fastest) = (Instant::now(), Duration::MAX);
    for number in 0.. {
        let started = Instant::now();
        cipher.seal(number, &[], &mut text, &mut tag);
        fastest = fastest.min(started.elapsed());
        if begun.elapsed() > SPAN {
            break;
        }
    }
    TEXT_LEN as f64 / fastest.as_secs_f64().max(1e-9)
}

pub(super) fn finding(without: &DisabledFeatures) -> Finding {
    let cipher = without.cipher();
    let speed = bytes_per_second(cipher) / 1e9;
    let found =
        format!("{} at {speed:.1} GB/s a core: {}, {}", cipher.name(), processor(), instructions());
    let is_fast = cipher == CipherKind::Aes128Gcm;
    let ok = if is_fast { Suitability::Good } else { Suitability::Degraded };
    let fix = if without.aes {
        "take aes out of OIKAZE_WITHOUT"
    } else {
        "show the processor's AES instructions to this virtual machine, if it has them; on a network that you trust, \
         --seal crc costs less"
    };
    Finding::new(
        "sealing",
        found,
        "AES instructions, to seal datagrams at the speed of a network",
        ok,
    )
    .fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_cipher_is_measured_and_named() {
        for (text, name) in [("", preferred_cipher().name()), ("aes", "ChaCha20-Poly1305")] {
            let finding = finding(&DisabledFeatures::parse(text).unwrap());
            let speed = finding.found.split_once(" at ").unwrap().1.split(' ').next().unwrap();
            assert!(finding.found.starts_with(name), "{finding}");
            // Slower than any processor that Oikaze runs on, and faster than any to come soon.
            assert!((0.01..1000.0).contains(&speed.parse::<f64>().unwrap()), "{finding}");
            assert_eq!(finding.ok == Suitability::Good, name == "AES-128-GCM", "{finding}");
        }
    }
}
