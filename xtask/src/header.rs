//! Header of the C binding, written by cbindgen from the sources of `bindings/c`.

use crate::command::root;
use std::fs;
use std::path::PathBuf;

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

/// Returns the text of the header.
fn generate() -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cbindgen: {why}");
    let config = folder().join("cbindgen.toml");
    let config = cbindgen::Config::from_file(config.to_string_lossy().as_ref());
    let bindings = cbindgen::Builder::new()
        .with_config(config.map_err(|why| failed(&why))?)
        .with_crate(folder())
        .generate()
        .map_err(|why| failed(&why))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|why| failed(&why))?;
    Ok(tidy(&text))
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
