//! Plan of the faults of each datagram: a pure function of a seed, so that every failure can be
//! reproduced.

use core::fmt;
use core::str::FromStr;
use oikaze_protocol::random::Random;
use std::time::Duration;

/// Environment variable that makes every link of a process faulty.
pub const VARIABLE: &str = "OIKAZE_FAULT";

/// Probabilities of faults, from 0 to 1, each independent, per datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultSettings {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Probability that the datagram is lost.
    pub loss: f64,
    /// Probability that it comes twice; the second copy has a fate of its own.
    pub duplicate: f64,
    /// Probability that up to eight later datagrams overtake it.
    pub reorder: f64,
    /// Probability that one bit is flipped.
    pub corrupt: f64,
    /// Probability that a few bytes are changed and the checksum is corrected, as an attacker on
    /// the path could do it.
    pub tamper: f64,
    /// Probability that it is late by `delay_time`.
    pub delay: f64,
    /// Delay of a late datagram.
    pub delay_time: Duration,
}

/// Error for a text that describes no faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}: {why} in \"{part}\"; write for example loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,delay=0.1:2ms,seed=7"
)]
pub struct FaultSyntax {
    part: String,
    why: &'static str,
}

impl FaultSettings {
    /// Returns `true` if no fault is possible.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        let FaultSettings { seed, delay_time, .. } = *self;
        *self == FaultSettings { seed, delay_time, ..FaultSettings::default() }
    }

    /// Reads the settings from `OIKAZE_FAULT`, if it is set and not empty.
    ///
    /// # Errors
    /// [`FaultSyntax`].
    pub fn from_env() -> Result<Option<FaultSettings>, FaultSyntax> {
        match std::env::var_os(VARIABLE) {
            Some(text) if !text.is_empty() => text.to_string_lossy().parse().map(Some),
            _ => Ok(None),
        }
    }
}

impl FromStr for FaultSettings {
    type Err = FaultSyntax;

    fn from_str(text: &str) -> Result<FaultSettings, FaultSyntax> {
        let mut settings = FaultSettings::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let fail = |why| FaultSyntax { part: part.to_owned(), why };
            let (name, value) = part.split_once('=').ok_or_else(|| fail("no \"=\""))?;
            let chance = |value: &str| match value.parse::<f64>() {
                Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
                Ok(_) => Err(fail("a probability must be between 0 and 1")),
                Err(_) => Err(fail("not a number")),
            };
            match name {
                "loss" => settings.loss = chance(value)?,
                "duplicate" => settings.duplicate = chance(value)?,
                "reorder" => settings.reorder = chance(value)?,
                "corrupt" => settings.corrupt = chance(value)?,
                "tamper" => settings.tamper = chance(value)?,
                "seed" => settings.seed = value.parse().map_err(|_| fail("not a whole number"))?,
                "delay" => {
                    let (share, time) = value
                        .split_once(':')
                        .ok_or_else(|| fail("a delay needs a time, as in 0.1:2ms"))?;
                    settings.delay = chance(share)?;
                    settings.delay_time =
                        span(time).ok_or_else(|| fail("not a time such as 2ms, 500us, 1s"))?;
                }
                _ => {
                    return Err(fail(
                        "unknown fault (known are loss, duplicate, reorder, corrupt, tamper, delay, seed)",
                    ));
                }
            }
        }
        Ok(settings)
    }
}

/// Parses a time such as `2ms`, `500us`, `1s`: at most a minute.
fn span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let span = match text.get(digits.len()..)? {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return None,
    };
    (span <= Duration::from_secs(60)).then_some(span)
}

impl fmt::Display for FaultSettings {
    /// Writes the form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loss={},duplicate={},reorder={},corrupt={}",
            self.loss, self.duplicate, self.reorder, self.corrupt
        )?;
        write!(f, ",tamper={}", self.tamper)?;
        write!(f, ",delay={}:{}us,seed={}", self.delay, self.delay_time.as_micros(), self.seed)
    }
}

/// Fate of one copy of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Bit that is flipped.
    pub corrupt: Option<Corruption>,
    /// Bytes that are changed before the checksum is corrected.
    pub tamper: Option<Tampering>,
    /// Time by which the copy is late.
    pub delay: Duration,
    /// Number of later datagrams that come before this copy (if they come).
    pub overtaken: u8,
}

impl Fate {
    /// Returns `true` if the copy comes now.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.delay.is_zero() && self.overtaken == 0
    }
}

/// One flipped bit, of a datagram of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    at: u64,
}

impl Corruption {
    /// Flips the bit. A datagram without bytes stays as it is.
    pub fn apply(self, bytes: &mut [u8]) {
        let bits = bytes.len() as u64 * 8;
        if bits > 0 {
            let bit = self.at % bits;
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

/// Bytes at the start, headers and frames mostly, that are changed more often than those behind.
const TAMPERED_HEAD: usize = 128;
/// Bytes that name the connection. They stay, because the receiver would drop the datagram
/// otherwise.
const NAMED: usize = 8;
/// Maximum number of changed bytes in one datagram.
const TAMPERED_MAX: usize = 4;

/// A few changed bytes, of a datagram of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tampering {
    seed: u64,
}

impl Tampering {
    /// Changes the bytes. The name of the connection stays as it is.
    pub fn apply(self, bytes: &mut [u8]) {
        let mut random = Random::new(self.seed);
        let Some(changeable) = bytes.get_mut(NAMED..).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        for _ in 0..=random.below(TAMPERED_MAX) {
            let all = random.below(4) == 0;
            let len = if all { changeable.len() } else { changeable.len().min(TAMPERED_HEAD) };
            let (at, how, by) = (random.below(len), random.below(3), random.next_u64());
            let Some(byte) = changeable.get_mut(at) else { return };
            *byte = match how {
                0 => by as u8,
                1 => *byte ^ (1 << (by % 8)),
                _ => byte.wrapping_add(1),
            };
        }
    }
}

/// Fate of a datagram: none, one or two copies of it arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultDecision {
    /// The datagram itself; `None` if it is lost.
    pub first: Option<Fate>,
    /// A second copy, if any.
    pub second: Option<Fate>,
}

/// Decides the fate of one datagram after another. The same settings give the same decisions
/// everywhere.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    settings: FaultSettings,
    random: Random,
    /// Random numbers for tampering. They are separate, so that the other faults of a seed stay the
    /// same.
    tampering: Random,
}

impl FaultPlan {
    /// A plan with these settings that starts at their seed.
    #[must_use]
    pub fn new(settings: FaultSettings) -> FaultPlan {
        FaultPlan {
            settings,
            random: Random::new(settings.seed),
            tampering: Random::new(!settings.seed),
        }
    }

    /// Returns the probabilities of the faults.
    #[must_use]
    pub fn settings(&self) -> &FaultSettings {
        &self.settings
    }

    /// Decides the next datagram's fate.
    pub fn decide(&mut self) -> FaultDecision {
        let duplicate = self.random.chance(self.settings.duplicate);
        let (first, second) = (self.fate(), self.fate());
        FaultDecision { first, second: second.filter(|_| duplicate) }
    }

    fn fate(&mut self) -> Option<Fate> {
        let FaultSettings { loss, reorder, corrupt, tamper, delay, delay_time, .. } = self.settings;
        // Every number is drawn regardless of the settings, so that changing one setting leaves the
        // other faults where they were.
        let lost = self.random.chance(loss);
        let (turned, at) = (self.random.chance(corrupt), self.random.next_u64());
        let (behind, by) = (self.random.chance(reorder), self.random.next_u64());
        let late = self.random.chance(delay);
        let (tampered, seed) = (self.tampering.chance(tamper), self.tampering.next_u64());
        (!lost).then_some(Fate {
            corrupt: turned.then_some(Corruption { at }),
            tamper: tampered.then_some(Tampering { seed }),
            delay: if late { delay_time } else { Duration::ZERO },
            overtaken: if behind { 1 + (by % 8) as u8 } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests;
