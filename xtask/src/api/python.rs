//! Public names of the Python package: one line a class, a method or a function, with its
//! signature. Private names, which begin with `_`, are left out.

use crate::command::root;
use std::fs;

/// Folder of the package.
const FOLDER: &str = "bindings/python/python/oikaze";

/// Returns the face of the package.
///
/// # Errors
/// A source cannot be read.
pub fn face() -> Result<Vec<String>, String> {
    let package = read("__init__.py")?;
    let mut lines: Vec<String> = Vec::new();
    for import in package.split("\nfrom .").skip(1) {
        let Some((module, names)) = import.split_once(" import ") else { continue };
        let names = names.trim_start_matches('(');
        let names = names.split([')', '\n']).next().filter(|first| !first.is_empty()).map_or_else(
            || names.split(')').next().unwrap_or_default().to_owned(),
            ToOwned::to_owned,
        );
        let source = match read(&format!("{module}.py")) {
            Ok(text) => text,
            Err(_) => read(&format!("{module}.pyi"))?,
        };
        let names = names.split([',', '\n']).map(|name| name.split('#').next().unwrap_or_default());
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            lines.extend(of_name(&source, name));
        }
    }
    lines.sort();
    lines.dedup();
    Ok(lines)
}

fn read(name: &str) -> Result<String, String> {
    let path = root().join(FOLDER).join(name);
    fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))
}

/// Returns the lines of a class with its methods, or of a function.
fn of_name(source: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut decorator = "";
    let mut is_inside = false;
    for statement in statements(source) {
        let indent = statement.len() - statement.trim_start().len();
        let text = statement.trim();
        if text.is_empty() {
            continue;
        }
        if text.starts_with('@') {
            decorator = if text == "@property" { "property " } else { decorator };
            continue;
        }
        let head = text.trim_end_matches("...").trim_end().trim_end_matches(':');
        let kind = std::mem::take(&mut decorator);
        if indent == 0 {
            let declares = |word: &str| {
                let rest = head.strip_prefix(word)?.strip_prefix(name)?;
                let ends = !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
                ends.then_some(())
            };
            is_inside = declares("class ").is_some();
            let is_found =
                is_inside || ["def ", "async def ", ""].iter().any(|word| declares(word).is_some());
            if is_found && (is_inside || head.contains("def ") || head.contains(':')) {
                found.push(format!("{name}: {head}"));
            }
        } else if is_inside && indent == 4 {
            let method = head.trim_start_matches("async ").strip_prefix("def ");
            let method = method.and_then(|rest| rest.split('(').next());
            let is_public = |method: &str| {
                !method.starts_with('_') || (method.starts_with("__") && method != "__slots__")
            };
            if let Some(method) = method.filter(|method| is_public(method)) {
                found.push(format!("{name}.{method}: {kind}{head}"));
            } else if let Some((field, _)) = head.split_once(':')
                && !field.starts_with('_')
                && field.chars().all(|next| next.is_alphanumeric() || next == '_')
            {
                found.push(format!("{name}.{head}"));
            }
        }
    }
    found
}

/// Returns statements that declare something, each on one line. Texts and bodies are left out as
/// far as they look like neither.
fn statements(source: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let (mut open, mut is_text) = (0_i32, false);
    let mut statement = String::new();
    for line in source.lines() {
        let quotes = line.matches("\"\"\"").count();
        if is_text || quotes > 0 {
            is_text ^= quotes % 2 == 1;
            continue;
        }
        let line = line.split("  #").next().unwrap_or_default().trim_end();
        if open == 0 {
            statement.clear();
            statement.push_str(line);
        } else {
            let is_first = statement.ends_with(['(', '[']);
            statement.push_str(if is_first { "" } else { " " });
            statement.push_str(line.trim_start());
        }
        open += line
            .chars()
            .map(|next| i32::from("([{".contains(next)) - i32::from(")]}".contains(next)))
            .sum::<i32>();
        if open <= 0 {
            open = 0;
            statements.push(statement.replace(",)", ")").replace(", )", ")"));
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_behind_blank_lines_and_bodies_belong_to_their_class() {
        let source = "\
class First:
    \"\"\"A text.\"\"\"

    field: int

    def one(self) -> int:
        \"\"\"Another text.\"\"\"
        if self.field:

            return 1
        return 2

    @property
    def two(
        self,
    ) -> int: ...

    def _private(self) -> None: ...


class Second:

    def three(self) -> None: ...


def first() -> None:
    pass
";
        assert_eq!(
            of_name(source, "First"),
            [
                "First: class First",
                "First.field: int",
                "First.one: def one(self) -> int",
                "First.two: property def two(self) -> int",
            ]
        );
        assert_eq!(
            of_name(source, "Second"),
            ["Second: class Second", "Second.three: def three(self) -> None"]
        );
        assert_eq!(of_name(source, "first"), ["first: def first() -> None"]);
    }
}
