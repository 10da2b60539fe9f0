//! oikaze
#![forbid(unsafe_code)]
