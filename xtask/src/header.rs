//! Header of the C binding, written by cbindgen from the sources of `bindings/c`.
//!
//! cbindgen does not expand macros. Constants that `bindings/c` makes of tables, and functions that
//! it makes of rows, are therefore written out for it first, in the place of the macro's call.

mod rows;

use crate::command::root;
use quote::ToTokens;
use rows::Types;
use std::fs;
use std::path::PathBuf;

// Tables of the library, from which `bindings/c` makes constants.
#[macro_use]
#[path = "../../crates/oikaze/src/tables/kinds.rs"]
mod kinds;
#[macro_use]
#[path = "../../crates/oikaze/src/tables/operators.rs"]
mod operators;

/// Constant of the header: documentation, name, type, and value.
struct Constant(String, &'static str, &'static str, u32);

/// Folder of the C binding.
pub fn folder() -> PathBuf {
    root().join("bindings/c")
}

/// Writes the header, or checks that it is what the sources say.
///
/// # Errors
/// The sources cannot be read, or the header is not theirs.
pub fn run(check: bool) -> Result<(), String> {
    let path = folder().join("include/oikaze.h");
    let header = generate()?;
    if !check {
        return fs::write(&path, header).map_err(|why| format!("{}: {why}", path.display()));
    }
    let kept = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("header: {} functions", header.matches("\noik_status ").count());
    if kept == header {
        return Ok(());
    }
    let differs = kept.lines().zip(header.lines()).position(|(kept, new)| kept != new);
    let line = differs.unwrap_or_else(|| kept.lines().count().min(header.lines().count())) + 1;
    Err(format!(
        "{}:{line}: differs from the sources; run `cargo xtask header` and commit it",
        path.display()
    ))
}

macro_rules! kinds {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt,
        { $numpy:literal, $atomic:tt, $constant:ident = $number:literal, $c:literal };
    )*) => {
        vec![$(Constant(
            concat!("Elements of type `", $c, "`.").to_owned(),
            stringify!($constant),
            "oik_kind",
            $number,
        )),*]
    };
}

macro_rules! operators {
    ($(
        $(#[$text:meta])*
        $operator:ident: $name:literal, $elements:ident, $fused:tt,
        { $constant:ident = $number:literal, $documentation:literal };
    )*) => {
        vec![$(Constant(
            $documentation.to_owned(),
            stringify!($constant),
            "oik_operator",
            $number,
        )),*]
    };
}

/// Returns the calls of macros in `bindings/c`, with the constants that they make.
fn tables() -> [(&'static str, Vec<Constant>); 2] {
    [
        ("oikaze::for_each_kind!(kinds);", for_each_kind!(kinds)),
        ("oikaze::for_each_operator!(operators);", for_each_operator!(operators)),
    ]
}

/// Returns the text of the header.
fn generate() -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cbindgen: {why}");
    let config = folder().join("cbindgen.toml");
    let config = cbindgen::Config::from_file(config.to_string_lossy().as_ref());
    let sources = root().join("target/header");
    fs::create_dir_all(&sources).map_err(|why| format!("{}: {why}", sources.display()))?;
    let mut builder = cbindgen::Builder::new().with_config(config.map_err(|why| failed(&why))?);
    let modules = modules()?.into_iter().map(|name| Ok((read(&name)?, name)));
    let modules: Vec<(syn::File, String)> = modules.collect::<Result<_, String>>()?;
    let types = Types::of(modules.iter().map(|(file, _)| file));
    for (mut file, name) in modules {
        types.expand(&mut file).map_err(|why| format!("src/{name}.rs: {why}"))?;
        let path = sources.join(format!("{}.rs", name.replace('/', "_")));
        fs::write(&path, file.to_token_stream().to_string())
            .map_err(|why| format!("{}: {why}", path.display()))?;
        builder = builder.with_src(path);
    }
    let bindings = builder.generate().map_err(|why| failed(&why))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|why| failed(&why))?;
    Ok(tidy(&text))
}

/// Returns the modules of `bindings/c`, in the order of the header, by their paths without `.rs`.
fn modules() -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    add_modules("lib", "", &mut found)?;
    Ok(found)
}

/// Adds the modules that a file declares, each with those of its folder before it.
fn add_modules(file: &str, folder_of_file: &str, found: &mut Vec<String>) -> Result<(), String> {
    let path = folder().join(format!("src/{file}.rs"));
    let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let name = |line: &str| {
        let declared = line.strip_prefix("pub ").unwrap_or(line);
        Some(declared.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    for module in text.lines().filter_map(name) {
        let path = format!("{folder_of_file}{module}");
        if folder().join(format!("src/{path}")).is_dir() {
            add_modules(&format!("{path}/mod"), &format!("{path}/"), found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads a module, with the constants of tables.
fn read(module: &str) -> Result<syn::File, String> {
    let path = folder().join(format!("src/{module}.rs"));
    let mut text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    for (call, constants) in tables() {
        let constants = constants.iter().map(|Constant(documentation, name, kind, value)| {
            format!("/// {documentation}\npub const {name}: {kind} = {value};\n")
        });
        text = text.replace(call, &constants.collect::<String>());
    }
    syn::parse_file(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Joins stars to the names behind them. Types that cbindgen renames end with a star, and it sets a
/// space behind.
fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    for line in text.lines() {
        let is_comment = line.trim_start().starts_with(['*', '/']);
        let line =
            if is_comment { line.to_owned() } else { line.replace("* *", "**").replace("* ", "*") };
        tidy.push_str(line.trim_end());
        tidy.push('\n');
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn stars_stand_at_names() {
        assert_eq!(
            tidy("f(const char * name, void * *at, oik_job *job);\n"),
            "f(const char *name, void **at, oik_job *job);\n"
        );
        assert_eq!(tidy(" * a comment * 2\n"), " * a comment * 2\n");
    }
}
