//! The programs of `examples/`, compiled and run as a user does.

mod support;

use std::process::{Command, Stdio};
use support::{compile_with, example, lines, nodes, run, sources};

#[test]
fn put_get_brings_the_number_of_the_previous_node() {
    let lines = run(3, &example("put_get.c"), &[]);
    assert_eq!(
        lines,
        [
            "node 0 has 1002, and the next one 1000",
            "node 1 has 1000, and the next one 1001",
            "node 2 has 1001, and the next one 1002",
        ]
    );
}

/// The results are those of an independent serial program, and of Oikaze's program in Rust.
#[test]
fn himeno_has_the_bits_of_the_serial_program() {
    let himeno = example("himeno.c");
    for (nodes, size, iterations, gosa) in [
        (1, "XS", "3", "6.229796415e-03"),
        (2, "XS", "100", "2.317158918e-03"),
        (3, "S", "3", "3.296793931e-03"),
    ] {
        let lines = run(nodes, &himeno, &[size, iterations]);
        let [correct, result] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(correct, "correct");
        assert!(result.starts_with(&format!("gosa {gosa}, p hash ")), "{result}");
    }
}

#[test]
fn stencil_has_one_result_on_any_number_of_nodes() {
    let stencil = example("stencil.c");
    let alone = run(1, &stencil, &[]);
    assert!(alone[0].starts_with("heat ") && alone[0] != "heat 0.000000", "{alone:?}");
    assert_eq!(run(3, &stencil, &[]), alone);
}

#[test]
fn header_serves_a_program_in_cpp() {
    assert_eq!(run(3, &example("sum.cc"), &[]), ["last 3000.0, digits 123"]);
}

/// Messages, remote memory, and arrays with barriers. Any error that Valgrind finds ends a program
/// with status 9.
#[test]
fn examples_run_under_valgrind_without_errors() {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("skipped: valgrind is not installed (make packages-all)");
        return;
    }
    let suppressions = format!("--suppressions={}", sources().join("oikaze.supp").display());
    for (name, arguments) in [("put_get.c", &[][..]), ("sum.cc", &[]), ("himeno.c", &["XS", "3"])] {
        let program = example(name);
        let program = program.to_str().unwrap();
        let options = ["--quiet", "--error-exitcode=9", &suppressions, program];
        let arguments = [&options[..], arguments].concat();
        let lines = lines(&mut nodes(2, "valgrind".as_ref(), &arguments));
        assert!(!lines.is_empty());
    }
}

/// Messages, remote memory, and arrays with barriers. AddressSanitizer and
/// UndefinedBehaviorSanitizer end a program at the first error.
#[test]
fn examples_run_under_sanitizers_without_errors() {
    let flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for (name, arguments) in [("put_get.c", &[][..]), ("sum.cc", &[]), ("himeno.c", &["XS", "3"])] {
        let program = compile_with(&sources().join("examples").join(name), &flags);
        let lines = run(2, &program, arguments);
        assert!(!lines.is_empty());
    }
}
