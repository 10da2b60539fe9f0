//! Few modules import a module that imports them, directly or through others.
//!
//! The check reads all paths that begin with `crate`, `self` or `super`, and `use` declarations
//! that begin with a child module. It ignores tests, and paths of visibility. An item that a module
//! imports from the root, or from the `mod.rs` of its folder, counts as an import of that file.
//!
//! Two measures of each crate have ceilings ([`super::ratchet`]). The first is the number of files
//! in the largest circle. The second is the number of *upward* imports: of the imports between the
//! files and folders of one folder, the fewest that point up in any order of these, added up over
//! all folders. The engine has neither.

use super::ratchet::Measure;
use crate::command::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Name of the root module.
const ROOT: &str = "crate";
/// Name of modules of tests, which count neither as files nor as imports.
const TESTS: &str = "tests";
/// Maximum number of members of a circle for which all orders are compared.
const EXACT_MAX: usize = 18;

/// Imports: for each module the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the sources of all crates.
///
/// # Errors
/// A source cannot be read, or a measure is not at its ceiling.
pub fn run() -> Result<(), String> {
    let (mut circles, mut upward, mut modules) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut longest = Vec::new();
    for folder in crates()? {
        let mut sources = Vec::new();
        read(&root().join(&folder).join("src"), &mut Vec::new(), &mut sources)?;
        let files = imports(&sources);
        let circle = components(&files).into_iter().max_by_key(Vec::len).unwrap_or_default();
        circles.insert(folder.clone(), circle.len());
        longest.push((folder.clone(), circle));
        upward.insert(folder, upward_imports(&files));
        modules += files.len();
    }
    println!("imports: {modules} modules of {} crates", circles.len());
    let circle = Measure { name: "circle", unit: "files in the largest circle", limit: 1 };
    circle.check(&circles).map_err(|wrong| {
        let named = |folder: &str| wrong.contains(&format!("{folder}: "));
        let circles = longest.iter().filter(|(folder, _)| named(folder));
        let circles = circles.map(|(folder, circle)| format!("{folder}: {}", circle.join(", ")));
        format!("imports:\n    {wrong}\n{}", circles.collect::<Vec<_>>().join("\n"))
    })?;
    let measure = Measure { name: "upward", unit: "upward imports", limit: 0 };
    measure.check(&upward).map_err(|wrong| format!("imports:\n    {wrong}"))
}

/// Returns the folders of all crates of the workspace.
///
/// # Errors
/// The manifest of the workspace cannot be read.
pub fn crates() -> Result<Vec<String>, String> {
    let text = fs::read_to_string(root().join("Cargo.toml"))
        .map_err(|why| format!("Cargo.toml: {why}"))?;
    let members = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let members = members.ok_or("Cargo.toml names no members")?.0;
    let names = members.split(',').map(|name| name.trim().trim_matches('"').to_owned());
    Ok(names.filter(|name| !name.is_empty()).collect())
}

/// Source without tests, and the path of its module.
pub struct Source {
    pub module: Vec<String>,
    pub text: String,
}

/// Reads all sources of a folder that are not tests.
pub fn read(
    folder: &Path,
    module: &mut Vec<String>,
    sources: &mut Vec<Source>,
) -> Result<(), String> {
    let failed = |why| format!("{}: {why}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if name == TESTS {
            continue;
        }
        if !is_root(name) {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            read(&path, module, sources)?;
        } else {
            let text = fs::read_to_string(&path).map_err(failed)?;
            sources.push(Source { module: module.clone(), text: code(&text) });
        }
        if !is_root(name) {
            module.pop();
        }
    }
    Ok(())
}

/// Returns `true` for the file of the module that its folder is named after.
fn is_root(name: &str) -> bool {
    matches!(name, "lib" | "main" | "mod")
}

/// Returns a text without comments, and without the tests at its end.
pub fn code(text: &str) -> String {
    let tests = text.find("\nmod tests {").unwrap_or(text.len());
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
        let all = paths(&source.text, &source.module, &modules);
        for path in all.into_iter().filter(|path| !path.iter().any(|part| part == TESTS)) {
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
    // Modules written inside the file: the depth of braces before each.
    let (mut module, mut depth, mut inline) = (module.to_vec(), 0_usize, Vec::new());
    while let Some(first) = rest.chars().next() {
        let word: String = rest.chars().take_while(|c| is_in_word(*c)).collect();
        if word.is_empty() {
            if first == '{' {
                depth += 1;
            } else if first == '}' {
                depth = depth.saturating_sub(1);
                if inline.pop_if(|before| *before == depth).is_some() {
                    module.pop();
                }
            }
            before = first;
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        rest = rest.get(word.len()..).unwrap_or_default();
        let begins = before != ':' && !is_in_word(before);
        if before == '(' && word == "in" {
            // `pub(in crate::a)` imports nothing.
            rest = rest.split_once(')').map_or("", |(_, after)| after);
        } else if begins && word == "mod" && opens(rest) {
            let name = rest.split('{').next().unwrap_or_default();
            module.push(name.trim().to_owned());
            inline.push(depth);
        } else if begins && word == "use" {
            let (tree, after) = rest.split_once(';').unwrap_or((rest, ""));
            for path in leaves(tree) {
                paths.extend(from_root(&path, &module, modules, true));
            }
            rest = after;
        } else if begins && matches!(word.as_str(), "crate" | "super" | "self") {
            let path: String = rest.chars().take_while(|c| is_in_word(*c) || *c == ':').collect();
            if path.starts_with("::") {
                let path: Vec<String> =
                    (word.clone() + &path).split("::").map(str::to_owned).collect();
                paths.extend(from_root(&path, &module, modules, false));
            }
        }
        before = word.chars().next_back().unwrap_or(' ');
    }
    paths
}

/// Returns `true` if a name and an opening brace follow: a module written inside its file.
fn opens(rest: &str) -> bool {
    rest.trim_start().trim_start_matches(is_in_word).trim_start().starts_with('{')
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

/// Returns the circles of a graph as sets of modules that reach each other, and each module that is
/// in no circle alone.
fn components(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reached_from(module, imports))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for module in imports.keys() {
        if done.contains(module.as_str()) {
            continue;
        }
        let circle: Vec<String> = imports
            .keys()
            .filter(|other| *other == module || (reaches(module, other) && reaches(other, module)))
            .cloned()
            .collect();
        done.extend(
            imports.keys().map(String::as_str).filter(|name| circle.iter().any(|of| of == name)),
        );
        found.push(circle);
    }
    found
}

fn reached_from<'a>(module: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> =
        imports.get(module).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(imports.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// Returns the number of upward imports, over all folders.
fn upward_imports(files: &Imports) -> usize {
    let mut folders: BTreeMap<String, Imports> = BTreeMap::new();
    for (module, imported) in files {
        for other in imported {
            let (folder, from, to) = among_siblings(module, other);
            let siblings = folders.entry(folder).or_default();
            siblings.entry(to.clone()).or_default();
            siblings.entry(from).or_default().insert(to);
        }
    }
    let upward = |siblings: &Imports| -> usize {
        components(siblings).iter().map(|circle| fewest_upward(circle, siblings)).sum()
    };
    folders.values().map(upward).sum()
}

/// Returns the innermost folder that holds both modules, and the file or folder in it to which each
/// of the two belongs.
fn among_siblings(module: &str, other: &str) -> (String, String, String) {
    let parts = |module: &str| -> Vec<String> {
        let path = module.split("::").filter(|part| *part != ROOT);
        path.map(str::to_owned).collect()
    };
    let (from, to) = (parts(module), parts(other));
    let common = from.iter().zip(&to).take_while(|(one, two)| one == two).count();
    // Imports and exports of a folder's own file belong to that file.
    let child = |path: &[String]| path.get(common).cloned().unwrap_or_else(|| ROOT.to_owned());
    let folder = from.get(..common).unwrap_or_default().join("::");
    (folder, child(&from), child(&to))
}

/// Returns the fewest imports within a circle that point up, over all orders of its members. For
/// large circles, one order is taken: modules that import little from the rest go down first.
fn fewest_upward(circle: &[String], imports: &Imports) -> usize {
    let place = |name: &String| circle.iter().position(|member| member == name);
    // Bit j of entry i: member i imports member j.
    let rows: Vec<u64> = circle
        .iter()
        .map(|member| {
            let imported = imports.get(member).into_iter().flatten().filter_map(place);
            imported.fold(0, |row, at| row | 1_u64.checked_shl(at as u32).unwrap_or(0))
        })
        .collect();
    let all = circle.len();
    let up = |member: usize, below: u64| {
        let row = rows.get(member).copied().unwrap_or(0);
        (row & !below & !(1 << member)).count_ones() as usize
    };
    if all > EXACT_MAX {
        let (mut below, mut sum) = (0_u64, 0);
        for _ in 0..all {
            let open = (0..all).filter(|member| below >> member & 1 == 0);
            let Some(next) = open.min_by_key(|member| up(*member, below)) else { break };
            sum += up(next, below);
            below |= 1 << next;
        }
        return sum;
    }
    // Fewest upward imports of members below, for each set of these.
    let mut fewest = vec![usize::MAX; 1 << all];
    if let Some(first) = fewest.first_mut() {
        *first = 0;
    }
    for below in 0..fewest.len() {
        let Some(known) = fewest.get(below).copied().filter(|known| *known < usize::MAX) else {
            continue;
        };
        for member in (0..all).filter(|member| below >> member & 1 == 0) {
            let sum = known + up(member, below as u64);
            if let Some(best) = fewest.get_mut(below | 1 << member) {
                *best = sum.min(*best);
            }
        }
    }
    fewest.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> (Vec<String>, usize) {
        let source = |(module, text): &(&str, &str)| Source {
            module: module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            text: code(text),
        };
        let files = imports(&sources.iter().map(source).collect::<Vec<_>>());
        let circle = components(&files).into_iter().filter(|circle| circle.len() > 1).max();
        (circle.unwrap_or_default(), upward_imports(&files))
    }

    #[test]
    fn circle_through_three_modules_is_named() {
        let mut sources = [
            ("", "mod a;\nmod b;\nmod c;"),
            ("a", "use crate::b::{Two, deep::Three};\nuse std::sync::Arc;"),
            ("b", "use super::c::Four as Five;"),
            ("c", "fn f() { crate::a::g() }"),
        ];
        assert_eq!(found(&sources), (["a", "b", "c"].map(str::to_owned).to_vec(), 1));
        sources[3].1 = "fn f() { std::mem::drop(()) }";
        assert_eq!(found(&sources), (vec![], 0));
    }

    #[test]
    fn item_of_the_root_is_a_circle() {
        let sources = [("", "pub use a::One;"), ("a", "use crate::{Two};")];
        assert_eq!(found(&sources), (["a", ROOT].map(str::to_owned).to_vec(), 1));
    }

    #[test]
    fn child_that_imports_its_parent_points_up() {
        let sources = [
            ("", "mod a;"),
            ("a", "mod b;\nuse b::Child;\nstruct Parent;"),
            ("a::b", "use super::Parent;"),
        ];
        assert_eq!(found(&sources), (["a", "a::b"].map(str::to_owned).to_vec(), 1));
    }

    #[test]
    fn folders_that_import_one_another_through_different_files_point_up() {
        let sources = [
            ("a::one", "use crate::b::one::Item;"),
            ("a::two", ""),
            ("b::one", ""),
            ("b::two", "use crate::a::two::Item;"),
        ];
        assert_eq!(found(&sources), (vec![], 1));
    }

    #[test]
    fn fewest_upward_imports_are_counted_in_the_best_order() {
        let sources = [
            ("a", "use crate::{b::B, c::C};"),
            ("b", "use crate::{a::A, c::C};"),
            ("c", "use crate::a::A;"),
        ];
        assert_eq!(found(&sources).1, 2);
    }

    #[test]
    fn comments_tests_and_visibilities_import_nothing() {
        let sources = [
            ("a", "use crate::b::Item;\npub(in crate::c) fn f() {}"),
            ("c", "use crate::a::f;"),
            (
                "b",
                "//! See crate::a::Item.\n#[cfg(test)]\nmod tests {\n    use crate::a::Item;\n}\n",
            ),
        ];
        assert_eq!(found(&sources), (vec![], 0));
    }

    #[test]
    fn module_inside_a_file_belongs_to_the_file() {
        let sources = [
            ("a", "use b::Item;"),
            ("a::b", "mod inner { use super::Item; }\nuse super::c::Other;"),
            ("a::c", "mod inner { fn f() { super::super::b::g() } }"),
        ];
        assert_eq!(found(&sources), (["a::b", "a::c"].map(str::to_owned).to_vec(), 1));
    }
}
