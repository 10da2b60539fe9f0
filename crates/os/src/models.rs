//! How this crate's models are tried: `RUSTFLAGS="--cfg loom" cargo test -p oikaze-os --profile
//! loom --lib loom`. Every interleaving with so many interruptions at most, and every value that
//! the memory model lets a load see.

/// Try the body in all of them.
pub(crate) fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}
