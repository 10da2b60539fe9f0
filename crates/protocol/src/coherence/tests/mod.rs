//! Coherence against a model of the machine.
