//! Places of calls in a program of C: file and line with debug information (`-g`), else the name of
//! the calling function.

use oikaze::ffi::find_places_by;
use std::backtrace::Backtrace;
use std::fmt;

/// Makes explanations of long waits name the calls of the program. The stack of a thread is walked
/// only when its wait has lasted long.
pub fn name_calls() {
    find_places_by(|| Some(Box::new(CallSite(Backtrace::force_capture()))));
}

/// Call of the program. The stack's addresses become names and lines when it is displayed, which
/// reads the program's debug information.
struct CallSite(Backtrace);

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let site = call_site(&self.0.to_string());
        f.write_str(site.as_deref().unwrap_or("an unknown place"))
    }
}

/// Returns the frame that called a function of the header, from the text of a stack: lines such as
/// `12: oik_barrier`, each followed by `at src/heat.c:40:5` if that is known.
fn call_site(stack: &str) -> Option<String> {
    let mut lines = stack.lines().map(str::trim).peekable();
    let mut is_inside = false;
    while let Some(line) = lines.next() {
        let Some((number, name)) = line.split_once(": ") else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let at = lines.next_if(|line| line.starts_with("at "));
        if name.starts_with("oik_") {
            is_inside = true;
        } else if is_inside {
            let place = at.and_then(|at| at.strip_prefix("at ")).map(line_of);
            // A stripped program has no names.
            let function = || (name != "<unknown>").then(|| format!("function {name}"));
            return place.or_else(function);
        }
    }
    None
}

/// Returns "src/heat.c:40" of "./src/heat.c:40:5".
fn line_of(at: &str) -> String {
    let at = at.strip_prefix("./").unwrap_or(at);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match at.rsplit_once(':') {
        Some((line, column)) if is_number(column) && line.contains(':') => line.to_owned(),
        _ => at.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = "   0: std::backtrace::Backtrace::create
   1: oikaze_c::place::name_calls::{{closure}}
             at /src/bindings/c/src/place.rs:12:5
  14: oik_barrier
             at /src/bindings/c/src/sync.rs:20:5
  15: exchange_borders
             at ./src/heat.c:40:5
  16: main
             at ./src/heat.c:90:9
";

    #[test]
    fn caller_of_the_header_is_the_place() {
        assert_eq!(call_site(STACK).as_deref(), Some("src/heat.c:40"));
        let stripped = STACK.replace("             at ./src/heat.c:40:5\n", "");
        assert_eq!(call_site(&stripped).as_deref(), Some("function exchange_borders"));
        let unnamed = stripped.replace("exchange_borders", "<unknown>");
        assert_eq!(call_site(&unnamed), None);
        assert_eq!(call_site("   0: main\n"), None);
        assert_eq!(line_of("/src/heat.c:40"), "/src/heat.c:40");
    }
}
