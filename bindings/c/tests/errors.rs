//! Bad input of programs in C: a status and a text, and never a crash.

mod support;

use std::fs;
use std::process::Command;
use support::{compile, libraries, scratch, sources, succeed, two_nodes_print};

/// MEM-19.2, and the same for arguments of all kinds.
#[test]
fn bad_input_is_a_status_with_a_text() {
    two_nodes_print("errors.c", &["node 0 has seen all errors", "node 1 has seen all errors"]);
}

/// Functions that give a handle and cannot fail here.
const NEVER_FAIL: [&str; 1] = ["oik_settings_new"];

/// Returns the functions of the header that give a handle through their last argument: name, other
/// arguments, and type of the handle.
fn functions_with_handles() -> Vec<(String, usize, String)> {
    let header = fs::read_to_string(sources().join("include/oikaze.h")).unwrap();
    let mut functions = Vec::new();
    for declaration in header.split(";\n").filter_map(|text| text.rsplit_once("oik_status oik_")) {
        let Some((name, arguments)) = declaration.1.split_once('(') else { continue };
        let arguments: Vec<&str> = arguments.trim_end_matches(')').split(',').collect();
        let last = arguments.last().unwrap().trim();
        if let Some((kind, _)) = last.split_once(" **") {
            functions.push((format!("oik_{name}"), arguments.len() - 1, kind.to_owned()));
        }
    }
    functions
}

/// Each function that gives a handle leaves the caller's alone if it fails.
#[test]
fn failed_calls_leave_the_handle_of_the_caller_alone() {
    let functions = functions_with_handles();
    assert!(functions.len() > 60, "{functions:?}");
    let mut text =
        "#include <oikaze.h>\n#include <stdio.h>\nstatic char mark;\nint main(void) {\n".to_owned();
    for (name, others, kind) in &functions {
        if NEVER_FAIL.contains(&name.as_str()) {
            continue;
        }
        let others = "0, ".repeat(*others);
        text += &format!(
            "    {{\n        {kind} *out = ({kind} *)(void *)&mark;\n        \
             if ({name}({others}&out) == OIK_OK || (void *)out != (void *)&mark) puts(\"{name}\");\n    }}\n"
        );
    }
    text += "    puts(\"all were called\");\n    return 0;\n}\n";
    let source = scratch().join("handles.c");
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compile(&source));
    // Joining fails, too.
    command.env("OIKAZE_TIMEOUT", "never").env("LD_LIBRARY_PATH", libraries());
    assert_eq!(succeed(&mut command), "all were called\n");
}
