//! Name of a program as a user knows it: the script or the module, not the interpreter.

use std::path::Path;

/// Module that a node of a Python pool runs, and the module that a user knows.
const POOL_NODE: &str = "oikaze._pool._node";
const POOL: &str = "oikaze.local";

/// Interpreter, by the beginning of its file's name, and its options that take the next argument.
struct Interpreter {
    names: &'static [&'static str],
    /// Options whose value is the next argument.
    with_value: &'static [&'static str],
    /// Options whose value names the program.
    program: &'static [&'static str],
    /// Options after which no program is named: it stands in the argument itself.
    inline: &'static [&'static str],
    /// Several options of one letter may share an argument: `-um`.
    joins_letters: bool,
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy"],
        with_value: &["-W", "-X", "--check-hash-based-pycs"],
        program: &["-m"],
        inline: &["-c"],
        joins_letters: true,
    },
    Interpreter {
        names: &["java"],
        with_value: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--add-modules",
            "--add-opens",
            "--add-exports",
            "--add-reads",
        ],
        program: &["-jar", "-m", "--module"],
        inline: &[],
        joins_letters: false,
    },
    Interpreter {
        names: &["sh", "bash", "dash", "ksh", "zsh"],
        with_value: &["-o", "-O", "+o", "+O", "--rcfile", "--init-file"],
        program: &[],
        inline: &["-c"],
        joins_letters: true,
    },
    Interpreter {
        names: &["perl", "ruby"],
        with_value: &["-I", "-r"],
        program: &[],
        inline: &["-e", "-E"],
        joins_letters: true,
    },
    Interpreter {
        names: &["node", "nodejs", "deno", "bun"],
        with_value: &["-r", "--require", "--import", "--loader"],
        program: &[],
        inline: &["-e", "--eval", "-p", "--print"],
        joins_letters: true,
    },
    Interpreter {
        names: &["julia", "Rscript", "lua", "luajit"],
        with_value: &["-t", "--threads", "-p", "-L", "-l", "-J"],
        program: &[],
        inline: &["-e", "-E"],
        joins_letters: true,
    },
];

/// Returns the name of the program that these arguments start. It is the file's name without its
/// folder: of the program, or of the script that an interpreter runs. Of a module it is the
/// module's name. An interpreter without a script has its own name. `executable` is the name of the
/// process's file, for a process without arguments.
pub(super) fn program_name(arguments: &[String], executable: &str) -> String {
    let mut arguments = arguments.iter().map(String::as_str);
    let own = file_name(arguments.next().filter(|own| !own.is_empty()).unwrap_or(executable));
    // A login shell's name begins with a minus.
    let own = own.trim_start_matches('-');
    let known = INTERPRETERS.iter().find(|known| {
        known.names.iter().any(|name| own.strip_prefix(name).is_some_and(is_version))
    });
    match known.and_then(|known| known.program_of(arguments)).as_deref() {
        Some(POOL_NODE) => POOL.to_owned(),
        Some(name) => name.to_owned(),
        None => own.to_owned(),
    }
}

impl Interpreter {
    fn program_of<'a>(&self, mut arguments: impl Iterator<Item = &'a str>) -> Option<String> {
        loop {
            let argument = arguments.next()?;
            if argument == "--" {
                return arguments.next().map(|script| file_name(script).to_owned());
            }
            if self.program.contains(&argument) {
                return arguments.next().map(|name| file_name(name).to_owned());
            }
            if self.inline.contains(&argument) || argument == "-" {
                return None;
            }
            if self.with_value.contains(&argument) {
                arguments.next()?;
                continue;
            }
            let Some(letters) = argument.strip_prefix('-') else {
                let is_option = argument.starts_with('+') || argument.starts_with('@');
                if is_option {
                    continue;
                }
                return Some(file_name(argument).to_owned());
            };
            if letters.starts_with('-') {
                continue;
            }
            if !self.joins_letters {
                continue;
            }
            // Letters in one argument: `-um package.module`, `-mpackage`, `-uc`.
            if let Some((before, value)) = self.one_letter(self.program, letters)
                && before.bytes().all(|letter| letter.is_ascii_alphabetic())
            {
                return match value {
                    "" => arguments.next().map(|name| file_name(name).to_owned()),
                    value => Some(file_name(value).to_owned()),
                };
            }
            if let Some((before, _)) = self.one_letter(self.inline, letters)
                && before.bytes().all(|letter| letter.is_ascii_alphabetic())
            {
                return None;
            }
        }
    }

    /// Divides the letters of an argument at the first one that is an option of its own among
    /// these. An option with a value ends the letters.
    fn one_letter<'a>(&self, options: &[&str], letters: &'a str) -> Option<(&'a str, &'a str)> {
        let is_letter = |known: &str, letter: char| {
            known.strip_prefix('-').is_some_and(|known| known.chars().eq([letter]))
        };
        for (at, letter) in letters.char_indices() {
            if options.iter().any(|known| is_letter(known, letter)) {
                return Some((letters.get(..at)?, letters.get(at + letter.len_utf8()..)?));
            }
            if self.with_value.iter().any(|known| is_letter(known, letter)) {
                return None;
            }
        }
        None
    }
}

/// Returns `true` for the end of an interpreter's file name, such as "3.11" or "".
fn is_version(rest: &str) -> bool {
    rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b't' | b'd'))
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Returns the name of this process's program.
pub(super) fn own_name() -> String {
    let executable = std::env::current_exe().unwrap_or_default();
    let executable = executable.file_name().unwrap_or_default().to_string_lossy();
    // The arguments of a process that a library of another language runs in, too.
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let arguments = arguments.strip_suffix(&[String::new()]).unwrap_or(&arguments);
    program_name(arguments, &executable)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn program_of_an_interpreter_is_its_script_or_module() {
        for (line, name) in [
            ("/usr/bin/himeno l 10", "himeno"),
            ("./himeno", "himeno"),
            ("python3.11 jacobi.py 100", "jacobi.py"),
            ("/venv/bin/python /home/me/src/jacobi.py -m x", "jacobi.py"),
            ("python3 -u -O -W error -X dev jacobi.py", "jacobi.py"),
            ("python3 -Werror -Xdev jacobi.py", "jacobi.py"),
            ("python3.14t -m package.module arg", "package.module"),
            ("python3 -um package.module", "package.module"),
            ("python3 -m oikaze._pool._node", "oikaze.local"),
            ("python3 -mpackage", "package"),
            ("python3 -c pass", "python3"),
            ("python3 -uc pass x.py", "python3"),
            ("python3.12", "python3.12"),
            ("python3 -", "python3"),
            ("python3 -i", "python3"),
            ("/venv/bin/python /venv/bin/solve --fast", "solve"),
            ("python3-config --libs", "python3-config"),
            ("java -Xmx4g -cp a.jar:b.jar -jar app.jar x", "app.jar"),
            ("java -cp classes org.example.Main x", "org.example.Main"),
            ("java", "java"),
            ("bash -eu /opt/run.sh x", "run.sh"),
            ("sh -o pipefail run.sh", "run.sh"),
            ("sh -c ./program", "sh"),
            ("-bash", "bash"),
            ("perl -w solve.pl", "solve.pl"),
            ("perl -we print", "perl"),
            ("node --require x.js main.js", "main.js"),
            ("julia -t 4 --project=. heat.jl", "heat.jl"),
            ("python3 -- -x.py", "-x.py"),
            ("shuffle cards.txt", "shuffle"),
            ("", "oikaze"),
        ] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(program_name(&arguments, "/usr/bin/oikaze"), name, "{line}");
        }
        assert_eq!(program_name(&[], "/usr/bin/oikaze"), "oikaze");
    }
}
