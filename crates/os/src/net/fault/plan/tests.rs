//! Settings of faults, and what they decide.

use super::*;
use proptest::prelude::*;

#[test]
fn the_syntax_is_read_and_written() {
    let text = "loss=0.05,duplicate=0.25,reorder=0.5,corrupt=0.01,tamper=0.02,delay=0.1:2ms,seed=7";
    let settings: FaultSettings = text.parse().unwrap();
    let want = FaultSettings {
        seed: 7,
        loss: 0.05,
        duplicate: 0.25,
        reorder: 0.5,
        corrupt: 0.01,
        tamper: 0.02,
        delay: 0.1,
        delay_time: Duration::from_millis(2),
    };
    assert_eq!(settings, want);
    assert_eq!(settings.to_string().parse::<FaultSettings>().unwrap(), want);
    assert_eq!("".parse::<FaultSettings>().unwrap(), FaultSettings::default());
}

#[test]
fn wrong_syntax_says_what_is_wrong() {
    for (text, why) in [
        ("lost=0.1", "unknown fault"),
        ("loss", "no \"=\""),
        ("loss=1.5", "between 0 and 1"),
        ("loss=-0.1", "between 0 and 1"),
        ("loss=NaN", "between 0 and 1"),
        ("loss=few", "not a number"),
        ("delay=0.1", "needs a time"),
        ("delay=0.1:2", "not a time"),
        ("delay=0.1:99999s", "not a time"),
        ("seed=-1", "not a whole number"),
    ] {
        let error = text.parse::<FaultSettings>().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(text), "{text}: {error}");
        assert!(error.contains("for example"), "{text}: {error}");
    }
}

#[test]
fn faults_come_about_as_often_as_asked() {
    let settings = FaultSettings {
        seed: 3,
        loss: 0.1,
        duplicate: 0.2,
        reorder: 0.3,
        corrupt: 0.05,
        tamper: 0.15,
        delay: 0.4,
        delay_time: Duration::from_millis(1),
    };
    let mut plan = FaultPlan::new(settings);
    let decisions: Vec<FaultDecision> = (0..20_000).map(|_| plan.decide()).collect();
    let share = |count: usize, of: usize| count as f64 / of as f64;
    let fates: Vec<Fate> = decisions.iter().filter_map(|decision| decision.first).collect();
    let near = |value: f64, want: f64| (value - want).abs() < 0.02;
    assert!(near(share(decisions.len() - fates.len(), decisions.len()), 0.1));
    // A second copy may be lost as well.
    assert!(near(
        share(
            decisions.iter().filter(|decision| decision.second.is_some()).count(),
            decisions.len()
        ),
        0.18
    ));
    assert!(near(share(fates.iter().filter(|fate| fate.overtaken > 0).count(), fates.len()), 0.3));
    assert!(near(
        share(fates.iter().filter(|fate| fate.corrupt.is_some()).count(), fates.len()),
        0.05
    ));
    assert!(near(
        share(fates.iter().filter(|fate| fate.tamper.is_some()).count(), fates.len()),
        0.15
    ));
    assert!(near(
        share(fates.iter().filter(|fate| !fate.delay.is_zero()).count(), fates.len()),
        0.4
    ));
}

proptest! {
    #[test]
    fn a_seed_repeats_itself(seed: u64, loss in 0.0..1.0, duplicate in 0.0..1.0) {
        let settings = FaultSettings { seed, loss, duplicate, reorder: 0.5, corrupt: 0.5, ..FaultSettings::default() };
        let (mut one, mut two) = (FaultPlan::new(settings), FaultPlan::new(settings));
        for _ in 0..50 {
            prop_assert_eq!(one.decide(), two.decide());
        }
    }

    #[test]
    fn corruption_turns_exactly_one_bit(at: u64, bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut turned = bytes.clone();
        Corruption { at }.apply(&mut turned);
        let bits: u32 = bytes.iter().zip(&turned).map(|(a, b)| (a ^ b).count_ones()).sum();
        prop_assert_eq!(bits, u32::from(!bytes.is_empty()));
    }

    #[test]
    fn tampering_changes_few_bytes_and_not_the_name(seed: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut changed = bytes.clone();
        Tampering { seed }.apply(&mut changed);
        prop_assert_eq!(changed.get(..NAMED), bytes.get(..NAMED));
        prop_assert!(bytes.iter().zip(&changed).filter(|(a, b)| a != b).count() <= TAMPERED_MAX);
    }

    #[test]
    fn tampering_leaves_the_other_faults_where_they_were(seed: u64) {
        let settings = FaultSettings { seed, loss: 0.2, duplicate: 0.2, reorder: 0.5, corrupt: 0.5, ..FaultSettings::default() };
        let (mut one, mut two) = (FaultPlan::new(settings), FaultPlan::new(FaultSettings { tamper: 0.5, ..settings }));
        for _ in 0..50 {
            let (mut decision, plain) = (two.decide(), one.decide());
            decision.first.iter_mut().chain(&mut decision.second).for_each(|fate| fate.tamper = None);
            prop_assert_eq!(decision, plain);
        }
    }
}
