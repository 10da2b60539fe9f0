//! Bad input of programs in C: a status and a text, and never a crash.

mod support;

use support::{compile, run, sources};

/// MEM-19.2, and the same for arguments of all kinds.
#[test]
fn bad_input_is_a_status_with_a_text() {
    let program = compile(&sources().join("tests/programs/errors.c"));
    assert_eq!(run(2, &program, &[]), ["node 0 has seen all errors", "node 1 has seen all errors"]);
}
