//! No module of the engine imports a module that imports it, directly or through others.
//!
//! The check reads all paths that begin with `crate`, `self` or `super`, and `use` declarations
//! that begin with a child module. It ignores tests. It looks for circles among files, and among
//! the folders and files at the top of the crate. The root only declares modules: an item that a
//! module imports from the root is a circle, too.

use crate::command::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Sources without import circles.
const SOURCES: &str = "crates/engine/src";
/// Name of the root module.
const ROOT: &str = "crate";

/// Imports: for each module the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the sources of the engine.
///
/// # Errors
/// A source cannot be read, or modules import one another.
pub fn run() -> Result<(), String> {
    let mut sources = Vec::new();
    read(&root().join(SOURCES), &mut Vec::new(), &mut sources)?;
    let files = imports(&sources);
    let circle = circle(&files).or_else(|| circle(&by_top(&files)));
    println!("imports: {} modules of {SOURCES}", files.len());
    match circle {
        None => Ok(()),
        Some(circle) => Err(format!("imports: a circle in {SOURCES}: {}", circle.join(" -> "))),
    }
}

/// Source without tests, and the path of its module.
pub struct Source {
    pub module: Vec<String>,
    pub text: String,
}

/// Reads all sources of a folder that are no tests.
pub fn read(
    folder: &Path,
    module: &mut Vec<String>,
    sources: &mut Vec<Source>,
) -> Result<(), String> {
    let failed = |why| format!("{}: {why}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if name == "tests" {
            continue;
        }
        if !matches!(name, "lib" | "mod") {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            read(&path, module, sources)?;
        } else {
            let text = fs::read_to_string(&path).map_err(failed)?;
            sources.push(Source { module: module.clone(), text: code(&text) });
        }
        if !matches!(name, "lib" | "mod") {
            module.pop();
        }
    }
    Ok(())
}

/// Returns a text without comments, and without the tests at its end.
pub fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let text = text.get(..tests).unwrap_or_default();
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    text.lines().map(line).collect()
}

fn imports(sources: &[Source]) -> Imports {
    let modules: BTreeSet<&[String]> =
        sources.iter().map(|source| source.module.as_slice()).collect();
    let mut imports = Imports::new();
    for source in sources {
        let imported = imports.entry(name(&source.module)).or_default();
        for path in paths(&source.text, &source.module, &modules) {
            let longest = (0..=path.len()).rev().find_map(|len| {
                let prefix = path.get(..len)?;
                modules.contains(prefix).then_some(prefix)
            });
            imported.extend(longest.filter(|module| *module != source.module).map(name));
        }
    }
    imports
}

pub fn name(module: &[String]) -> String {
    if module.is_empty() { ROOT.to_owned() } else { module.join("::") }
}

/// Returns all paths within the crate that a source names, from the root.
fn paths(text: &str, module: &[String], modules: &BTreeSet<&[String]>) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let word: String = rest.chars().take_while(|c| is_in_word(*c)).collect();
        if word.is_empty() {
            before = first;
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        rest = rest.get(word.len()..).unwrap_or_default();
        let begins = before != ':' && !is_in_word(before);
        if begins && word == "use" {
            let (tree, after) = rest.split_once(';').unwrap_or((rest, ""));
            for path in leaves(tree) {
                paths.extend(from_root(&path, module, modules, true));
            }
            rest = after;
        } else if begins && matches!(word.as_str(), "crate" | "super" | "self") {
            let path: String = rest.chars().take_while(|c| is_in_word(*c) || *c == ':').collect();
            if path.starts_with("::") {
                let path: Vec<String> =
                    (word.clone() + &path).split("::").map(str::to_owned).collect();
                paths.extend(from_root(&path, module, modules, false));
            }
        }
        before = word.chars().next_back().unwrap_or(' ');
    }
    paths
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the paths of a tree of imports such as `crate::{a::B, c}`.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|part| part.trim().to_owned()).collect()];
    };
    let prefix: Vec<String> = before
        .split("::")
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(inside.get(begin..at).filter(|part| !part.trim().is_empty()));
                begin = at + 1;
            }
            _ => {}
        }
    }
    let with_prefix = |path: Vec<String>| prefix.iter().cloned().chain(path).collect();
    parts.into_iter().flat_map(leaves).map(with_prefix).collect()
}

/// Returns a path from the root, or `None` if the path belongs to another crate.
fn from_root(
    path: &[String],
    module: &[String],
    modules: &BTreeSet<&[String]>,
    is_import: bool,
) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = path.get(1..)?;
        }
        "super" | "self" => {
            while let Some((first, after)) = rest.split_first() {
                match first.as_str() {
                    "super" => drop(base.pop()),
                    "self" => {}
                    _ => break,
                }
                rest = after;
            }
        }
        first => {
            base.push(first.to_owned());
            if !is_import || !modules.contains(base.as_slice()) {
                return None;
            }
            rest = path.get(1..)?;
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Returns the imports among the folders and files at the top of the crate.
fn by_top(files: &Imports) -> Imports {
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let mut tops = Imports::new();
    for (module, imported) in files {
        let imported =
            imported.iter().map(|other| top(other)).filter(|other| *other != top(module));
        tops.entry(top(module)).or_default().extend(imported);
    }
    tops
}

/// Returns the modules of a circle, of which the first is also the last.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| circle_from(module, imports, &mut Vec::new(), &mut done))
}

fn circle_from(
    module: &str,
    imports: &Imports,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = path.iter().position(|known| known == module) {
        return Some(path.iter().skip(at).cloned().chain([module.to_owned()]).collect());
    }
    if done.contains(module) {
        return None;
    }
    path.push(module.to_owned());
    let found = imports
        .get(module)
        .and_then(|others| others.iter().find_map(|other| circle_from(other, imports, path, done)));
    path.pop();
    done.insert(module.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Option<Vec<String>> {
        let source = |(module, text): &(&str, &str)| Source {
            module: module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            text: code(text),
        };
        let files = imports(&sources.iter().map(source).collect::<Vec<_>>());
        circle(&files).or_else(|| circle(&by_top(&files)))
    }

    #[test]
    fn circle_through_three_modules_is_named() {
        let mut sources = [
            ("", "mod a;\nmod b;\nmod c;\npub use a::One;"),
            ("a", "use crate::b::{Two, deep::Three};\nuse std::sync::Arc;"),
            ("b", "use super::c::Four as Five;"),
            ("c", "fn f() { crate::a::g() }"),
        ];
        assert_eq!(found(&sources), Some(["a", "b", "c", "a"].map(str::to_owned).to_vec()));
        sources[3].1 = "fn f() { crate::other() }";
        assert_eq!(found(&sources), Some(["a", "b", "c", ROOT, "a"].map(str::to_owned).to_vec()));
        sources[3].1 = "fn f() { std::mem::drop(()) }";
        assert_eq!(found(&sources), None);
    }

    #[test]
    fn item_of_the_root_is_a_circle() {
        let sources = [("", "pub use a::One;"), ("a", "use crate::{Two};")];
        assert_eq!(found(&sources), Some(["a", ROOT, "a"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn child_may_not_import_its_parent() {
        let sources = [
            ("", "mod a;"),
            ("a", "mod b;\nuse b::Child;\nstruct Parent;"),
            ("a::b", "use super::Parent;"),
        ];
        assert_eq!(found(&sources), Some(["a", "a::b", "a"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn folders_may_not_import_one_another_through_different_files() {
        let sources = [
            ("a::one", "use crate::b::one::Item;"),
            ("a::two", ""),
            ("b::one", ""),
            ("b::two", "use crate::a::two::Item;"),
        ];
        assert_eq!(found(&sources), Some(["a", "b", "a"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let sources = [
            ("a", "use crate::b::Item;"),
            (
                "b",
                "//! See crate::a::Item.\n#[cfg(test)]\nmod tests {\n    use crate::a::Item;\n}\n",
            ),
        ];
        assert_eq!(found(&sources), None);
    }
}
