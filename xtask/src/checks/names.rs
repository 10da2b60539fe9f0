//! No two types of a crate have the same name, and the name of a type is a noun.
//!
//! The check reads all declarations of types. It ignores tests, conformance suites and models for
//! loom. Names that are adverbs, pronouns or prepositions have ceilings ([`super::ratchet`]).

use super::imports::{Source, crates, name, read};
use super::ratchet::Measure;
use crate::command::root;
use std::collections::BTreeMap;

/// Modules whose types are only for tests.
const ONLY_TESTS: [&str; 2] = ["conformance", "models"];

/// Words that name no thing: adverbs, pronouns, prepositions and participles without a noun.
const NOT_NOUNS: &[&str] = &[
    "Above", "After", "Again", "All", "Alone", "Among", "At", "Back", "Before", "Behind", "Below",
    "Beside", "Between", "Both", "Current", "Down", "Each", "Early", "For", "From", "Half", "Held",
    "Here", "In", "Into", "It", "Kept", "Late", "Near", "Now", "Of", "Off", "On", "Other",
    "Others", "Out", "Over", "Own", "Said", "Since", "Some", "Taken", "That", "Then", "There",
    "These", "They", "This", "Those", "Through", "To", "Told", "Under", "Until", "Up", "What",
    "Who", "With", "Within", "Without",
];

/// Checks the sources of every crate.
///
/// # Errors
/// A source cannot be read, two types have the same name, or a name is not a noun.
pub fn run() -> Result<(), String> {
    let (mut types, mut found, mut not_nouns) = (0, Vec::new(), BTreeMap::new());
    for folder in crates()? {
        let mut sources = Vec::new();
        read(&root().join(&folder).join("src"), &mut Vec::new(), &mut sources)?;
        let declared = declared(&sources);
        types += declared.len();
        let words = declared.keys().filter(|name| NOT_NOUNS.contains(&name.as_str()));
        not_nouns.extend(words.map(|name| (format!("{folder}:{name}"), 1)));
        // Programs and benches may name their types alike; a crate that others use may not.
        if folder.starts_with("crates/") {
            let twice = declared.into_iter().filter(|(_, modules)| modules.len() > 1);
            found.extend(twice.map(|(name, of)| format!("{folder}: {name}: {}", of.join(", "))));
        }
    }
    println!("names: {types} types");
    if !found.is_empty() {
        found.sort();
        return Err(format!("names: rename all but one of these types:\n{}", found.join("\n")));
    }
    let measure = Measure { name: "noun", unit: "name that is not a noun", limit: 0 };
    measure.check(&not_nouns).map_err(|wrong| format!("names:\n    {wrong}"))
}

/// Returns for each name the modules that declare a type of this name.
fn declared(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut declared = BTreeMap::<String, Vec<String>>::new();
    for source in sources {
        if source.module.iter().any(|part| ONLY_TESTS.contains(&part.as_str())) {
            continue;
        }
        for of in source.text.lines().filter_map(type_of) {
            let modules = declared.entry(of.to_owned()).or_default();
            // A file may declare a type twice, for loom and for all else.
            let module = name(&source.module);
            if !modules.contains(&module) {
                modules.push(module);
            }
        }
    }
    declared
}

/// Returns the name of the type that a line declares, if it declares one.
fn type_of(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(visibility) => visibility.split_once(')')?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let mut words = line.split_whitespace();
    let is_type = match words.next()? {
        "struct" | "enum" | "union" | "trait" => true,
        // A type with indentation is an associated type.
        "type" => !is_indented,
        _ => false,
    };
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    let name = words.next()?.split(end).next()?;
    (is_type && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::imports::code;

    fn twice(sources: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let source = |(module, text): &(&str, &str)| Source {
            module: module.split("::").map(str::to_owned).collect(),
            text: code(text),
        };
        let sources: Vec<_> = sources.iter().map(source).collect();
        declared(&sources).into_iter().filter(|(_, modules)| modules.len() > 1).collect()
    }

    #[test]
    fn types_of_the_same_name_are_found_in_all_forms() {
        for text in [
            "struct Queue(u8);",
            "pub(crate) enum Queue {",
            "pub(in crate::a) enum Queue {",
            "fn f() {\n    struct Queue;\n}",
            "pub trait Queue: Send {}",
            "mod inner {\n    pub union Queue {",
            "pub type Queue<T> = Vec<T>;",
        ] {
            let found =
                twice(&[("a", "pub struct Queue<T> {"), ("b::c", text), ("d", "use Queue;")]);
            assert_eq!(found, [("Queue".to_owned(), vec!["a".to_owned(), "b::c".to_owned()])]);
        }
    }

    #[test]
    fn other_lines_declare_no_type() {
        for text in [
            "    type Queue = u8;",
            "// struct Queue;",
            "struct Queued;",
            "#[cfg(test)]\nmod tests {\n    struct Queue;\n}",
        ] {
            assert_eq!(twice(&[("a", "struct Queue;"), ("b", text)]), [], "{text}");
        }
        assert_eq!(twice(&[("a", "struct Queue;"), ("conformance", "struct Queue;")]), []);
    }
}
