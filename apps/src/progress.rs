//! Progress bar: it moves on a terminal, and prints a few plain lines in a log.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

/// Progress in steps. Only one node shows it.
pub struct Progress {
    shown: Shown,
    steps: u64,
    done: u64,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// Prints one line for each tenth, where there is no terminal.
    Lines,
}

impl Progress {
    /// Makes a bar over `steps`, which shows nothing unless `wanted` is set.
    #[must_use]
    pub fn new(wanted: bool, steps: u64) -> Self {
        let bar = |target| {
            let style =
                ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {per_sec}, {eta} left")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            Shown::Bar(ProgressBar::with_draw_target(Some(steps), target).with_style(style))
        };
        let shown = if !wanted {
            Shown::Nothing
        } else if io::stderr().is_terminal() {
            bar(ProgressDrawTarget::stderr())
        } else if std::env::var_os(oikaze_launch::environment::TERMINAL)
            .is_some_and(|set| set == "1")
        {
            bar(ProgressDrawTarget::term_like_with_hz(Box::new(Relayed), 10))
        } else {
            Shown::Lines
        };
        Self { shown, steps, done: 0 }
    }

    /// Counts one more step.
    pub fn step(&mut self) {
        self.done += 1;
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => bar.inc(1),
            Shown::Lines => {
                let tenths = |done: u64| done * 10 / self.steps.max(1);
                if tenths(self.done) > tenths(self.done - 1) {
                    eprintln!("{:>3} %  {}/{}", tenths(self.done) * 10, self.done, self.steps);
                }
            }
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }
}

/// A terminal behind the launcher, which passes on standard error. This process does not know the
/// terminal's width.
#[derive(Debug)]
struct Relayed;

impl TermLike for Relayed {
    fn width(&self) -> u16 {
        72
    }
    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        if lines > 0 { self.write_str(&format!("\x1b[{lines}A")) } else { Ok(()) }
    }
    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        if lines > 0 { self.write_str(&format!("\x1b[{lines}B")) } else { Ok(()) }
    }
    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        if columns > 0 { self.write_str(&format!("\x1b[{columns}C")) } else { Ok(()) }
    }
    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        if columns > 0 { self.write_str(&format!("\x1b[{columns}D")) } else { Ok(()) }
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.write_str("\n")
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }
    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\r\x1b[2K")
    }
    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}
