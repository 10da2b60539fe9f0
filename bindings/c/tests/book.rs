//! The programs that the book's chapter on C shows, each compiled and run.

mod support;

use std::fs;
use support::{compile, run, scratch, sources};

#[test]
fn programs_of_the_book_run_on_any_number_of_nodes() {
    let page = fs::read_to_string(sources().join("../../docs/book/src/c.md")).unwrap();
    let mut count = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        let ending = match language {
            "c" => "c",
            "cpp" => "cc",
            _ => continue,
        };
        let source = scratch().join(format!("book{count}.{ending}"));
        fs::write(&source, format!("{text}\n")).unwrap();
        let program = compile(&source);
        for nodes in [1, 3] {
            let lines = run(nodes, &program, &[]);
            assert!(!lines.is_empty(), "{text}: prints nothing");
        }
        count += 1;
    }
    assert!(count >= 6, "{count}");
}
