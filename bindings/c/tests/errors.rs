//! Bad input of programs in C: a status and a text, and never a crash.

mod support;

use support::{lines, nodes, program};

/// MEM-19.2, and the same for arguments of all kinds.
#[test]
fn bad_input_is_a_status_with_a_text() {
    let errors = program("errors.c");
    for without in ["", "shm"] {
        let mut command = nodes(2, &errors, &[]);
        let seen = lines(command.env("OIKAZE_WITHOUT", without));
        assert_eq!(seen, ["node 0 has seen all errors", "node 1 has seen all errors"]);
    }
}
