//! Remote memory (spec/memory.md): two ends, a pipe between them that cuts and reorders, and
//! oracles.

mod accumulate;
mod blocks;
mod fifo;
mod heads;
mod hostile;
mod limits;
mod notices;
mod operations;
mod oracle;
mod rights;
mod unanswered;
mod vectors;
mod world;
