//! What every link must do.
