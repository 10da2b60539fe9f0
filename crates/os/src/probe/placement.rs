//! Support for moving and exchanging pages of regions.

use super::{Finding, Suitability, bytes};
use crate::features::DisabledFeatures;
use crate::memory::huge_page;
use crate::memory::placement::{Placement, calibration::Crossovers};

pub(super) fn findings(without: &DisabledFeatures) -> Vec<Finding> {
    let placement = Placement::new(without);
    let needed = "optional: regions change pages instead of bytes (Linux 6.8)";
    let mut findings = vec![huge()];
    match placement.why_not() {
        Some(why) => {
            let finding =
                Finding::new("moving pages", format!("no: {why}"), needed, Suitability::Degraded);
            findings.push(finding.fix("Upgrade the kernel, permit userfaultfd (docs/KERNELS.md), and clear OIKAZE_WITHOUT."));
        }
        None => {
            findings.push(Finding::new("moving pages", "works (tried)", needed, Suitability::Good))
        }
    }
    if let Some(calibration) = placement.calibration() {
        let needed = "measured once a boot: sizes from which each beats a copy";
        findings.push(Finding::new(
            "moving pays, alone",
            text(&calibration.alone),
            needed,
            Suitability::Good,
        ));
        findings.push(Finding::new(
            "moving pays, beside a busy thread",
            text(&calibration.beside),
            needed,
            Suitability::Good,
        ));
    }
    if let Some(doubted) = placement.doubted() {
        let needed = "a file of the user's own, as it was written";
        let finding = Finding::new(
            "what was measured before",
            format!("not believed: {doubted}"),
            needed,
            Suitability::Degraded,
        );
        findings.push(finding.fix(
            "It was measured anew and replaced where possible; if this stays, remove the file.",
        ));
    }
    findings
}

fn huge() -> Finding {
    let needed = "optional: regions are touched and moved by huge pages";
    match huge_page() {
        Some(size) => Finding::new("huge pages", bytes(size as u64), needed, Suitability::Good),
        None => Finding::new(
            "huge pages",
            "none, or switched off by OIKAZE_WITHOUT=huge",
            needed,
            Suitability::Good,
        ),
    }
}

fn text(found: &Crossovers) -> String {
    let sizes = [
        ("move", found.moving),
        ("take", found.taking),
        ("exchange", found.exchange),
        ("install", found.install),
        ("huge exchange", found.huge),
    ];
    sizes
        .map(|(what, from)| {
            format!("{what} {}", from.map_or("never".to_owned(), |from| bytes(from as u64)))
        })
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_words() {
        let found = Crossovers {
            moving: Some(64 << 10),
            exchange: Some(192 << 10),
            ..Crossovers::default()
        };
        assert_eq!(
            text(&found),
            "move 64 KiB, take never, exchange 192 KiB, install never, huge exchange never"
        );
    }

    #[test]
    fn what_is_switched_off_is_said() {
        let findings = findings(&DisabledFeatures::parse("move").unwrap());
        let moving = findings.iter().find(|finding| finding.what == "moving pages").unwrap();
        assert!(moving.ok == Suitability::Degraded, "{moving}");
        assert!(moving.found.contains("OIKAZE_WITHOUT=move"), "{moving}");
        assert!(findings.iter().all(|finding| !finding.what.starts_with("moving pays")));
    }
}
