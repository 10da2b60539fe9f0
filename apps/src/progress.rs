//! The progress bar: on a terminal it moves, in a log it is a few plain lines.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Steps done of steps to do. Only one node shows it.
pub struct Progress {
    shown: Shown,
    steps: u64,
    done: u64,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// Not a terminal: one line each tenth.
    Lines,
}

impl Progress {
    /// A bar over `steps`; shows nothing unless `wanted`.
    #[must_use]
    pub fn new(wanted: bool, steps: u64) -> Self {
        let shown = match (wanted, std::io::stderr().is_terminal()) {
            (false, _) => Shown::Nothing,
            (true, false) => Shown::Lines,
            (true, true) => {
                let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} iterations, {per_sec}, {eta} left")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                Shown::Bar(ProgressBar::new(steps).with_style(style))
            }
        };
        Self { shown, steps, done: 0 }
    }

    /// One step more is done.
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

    /// Takes the bar away.
    pub fn finish(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }
}
