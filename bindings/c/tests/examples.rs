//! The programs of `examples/`, compiled and run as a user does.

mod support;

use support::{example, run};

#[test]
fn put_get_brings_the_number_of_the_previous_node() {
    let lines = run(3, &example("put_get.c"), &[]);
    assert_eq!(
        lines,
        [
            "node 0 has 1002, and its neighbour 1000",
            "node 1 has 1000, and its neighbour 1001",
            "node 2 has 1001, and its neighbour 1002",
        ]
    );
}
