//! Runs the loom models of this crate: `RUSTFLAGS="--cfg loom" cargo test -p oikaze-os --profile
//! loom --lib loom`. Loom tries every interleaving with a limited number of preemptions, and every
//! value that the memory model lets a load see.

/// Runs `body` in every interleaving with at most `preemptions` preemptions.
pub(crate) fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}
