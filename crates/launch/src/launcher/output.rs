//! Output of many nodes on one pair of streams.
//!
//! Without prefix, bytes pass as they come (LAUNCH-5.1). With prefix, whole lines pass, each with
//! its rank in front, and no byte is lost (LAUNCH-5.2). On a terminal, a progress bar (text redrawn
//! after a carriage return) of rank 0 is shown live below the lines of the others; of another rank,
//! only its last state is shown.

mod line;

use line::Line;
use oikaze_protocol::Rank;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// One of a node's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Standard output of the node.
    Out = 1,
    /// Standard error of the node.
    Err = 2,
}

/// Destination of the nodes' output.
pub trait Sink: Send + Sync {
    /// Writes bytes of a node. Returns `false` if no reader is left, and the caller should stop.
    fn write(&self, rank: Rank, stream: Stream, bytes: &[u8]) -> bool;
    /// Notes that the stream has ended.
    fn end(&self, rank: Rank, stream: Stream);
    /// Returns `true` while bytes are being written. A slow reader holds that up.
    fn is_busy(&self) -> bool;
}

/// Number of threads that write, or wait for their turn to write.
#[derive(Default)]
pub struct Busy(AtomicUsize);

impl Busy {
    /// Counts one more thread while `act` runs.
    pub fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::SeqCst);
        let done = act();
        self.0.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// Returns `true` if a thread writes or waits.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

struct Screen {
    lines: HashMap<(Rank, Stream), Line>,
    /// Text drawn in the terminal's last row.
    drawing: Option<(Stream, Vec<u8>)>,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    broken: bool,
}

/// Standard output and error of the launcher itself.
pub struct Terminal {
    prefix: bool,
    live: [bool; 2],
    screen: Mutex<Screen>,
    busy: Busy,
    /// Reason why output was lost.
    lost: OnceLock<String>,
}

impl Terminal {
    /// Writes to this process's standard output and error.
    #[must_use]
    pub fn new(prefix: bool) -> Terminal {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let live = [out.is_terminal(), err.is_terminal()];
        Terminal::on(prefix, live, Box::new(out), Box::new(err))
    }

    /// Writes to any two writers; `live` says which are terminals.
    #[must_use]
    pub fn on(
        prefix: bool,
        live: [bool; 2],
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
    ) -> Terminal {
        let screen = Screen { lines: HashMap::new(), drawing: None, out, err, broken: false };
        Terminal {
            prefix,
            live,
            screen: Mutex::new(screen),
            busy: Busy::default(),
            lost: OnceLock::new(),
        }
    }

    fn with(&self, act: impl FnOnce(&mut Screen) -> std::io::Result<()>) -> bool {
        self.busy.during(|| {
            let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
            if !screen.broken
                && let Err(why) = act(&mut screen)
            {
                screen.broken = true;
                // A reader that closes the pipe, as `head` does, has read enough.
                if why.kind() != std::io::ErrorKind::BrokenPipe {
                    let _ =
                        self.lost.set(format!("{why}{}", oikaze_os::error_text::remedy_of(&why)));
                }
            }
            !screen.broken
        })
    }

    /// Returns why some output could not be written, if so. A reader that has gone away is not a
    /// loss.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    fn is_live(&self, stream: Stream) -> bool {
        let [out, err] = self.live;
        if stream == Stream::Out { out } else { err }
    }

    /// Prints a line of the launcher itself on standard error.
    pub fn print_line(&self, text: &str) {
        self.with(|screen| screen.print(Stream::Err, b"", format!("oikaze: {text}").as_bytes()));
    }
}

fn front(rank: Rank) -> String {
    format!("[{rank}] ")
}

impl Screen {
    fn on(&mut self, stream: Stream) -> &mut (dyn Write + Send) {
        if stream == Stream::Out { &mut *self.out } else { &mut *self.err }
    }

    /// Prints one line, above a drawing.
    fn print(&mut self, stream: Stream, front: &[u8], line: &[u8]) -> std::io::Result<()> {
        if let Some((drawn, _)) = self.drawing {
            self.on(drawn).write_all(b"\r\x1b[K")?;
            self.on(drawn).flush()?;
        }
        let whole = [front, line, b"\n"].concat();
        self.on(stream).write_all(&whole)?;
        self.on(stream).flush()?;
        self.redraw()
    }

    fn redraw(&mut self) -> std::io::Result<()> {
        let Some((stream, bytes)) = self.drawing.take() else { return Ok(()) };
        let on = self.on(stream);
        on.write_all(&[b"\r\x1b[K", &bytes[..]].concat())?;
        on.flush()?;
        self.drawing = Some((stream, bytes));
        Ok(())
    }

    fn erase(&mut self) -> std::io::Result<()> {
        let Some((stream, _)) = self.drawing.take() else { return Ok(()) };
        self.on(stream).write_all(b"\r\x1b[K")?;
        self.on(stream).flush()
    }
}

impl Sink for Terminal {
    fn write(&self, rank: Rank, stream: Stream, bytes: &[u8]) -> bool {
        if !self.prefix {
            return self.with(|screen| {
                screen.on(stream).write_all(bytes)?;
                screen.on(stream).flush()
            });
        }
        let front = front(rank);
        self.with(|screen| {
            let mut line = screen
                .lines
                .remove(&(rank, stream))
                .unwrap_or_else(|| Line::new(self.is_live(stream)));
            let mut finished = Vec::new();
            line.push(bytes, |text| finished.push(text.to_vec()));
            if rank == 0
                && self.is_live(stream)
                && (line.drawing().is_some() || !finished.is_empty())
            {
                let erased = screen.drawing.as_ref().is_none_or(|(drawn, _)| *drawn == stream);
                if erased {
                    screen.erase()?;
                }
                finished
                    .iter()
                    .try_for_each(|text| screen.print(stream, front.as_bytes(), text))?;
                if let Some(drawing) = line.drawing() {
                    screen.erase()?;
                    screen.drawing = Some((stream, [front.as_bytes(), drawing].concat()));
                    screen.redraw()?;
                }
            } else {
                finished
                    .iter()
                    .try_for_each(|text| screen.print(stream, front.as_bytes(), text))?;
            }
            screen.lines.insert((rank, stream), line);
            Ok(())
        })
    }

    fn end(&self, rank: Rank, stream: Stream) {
        let front = front(rank);
        self.with(|screen| {
            let line = screen.lines.remove(&(rank, stream)).unwrap_or_default();
            if rank == 0 && screen.drawing.as_ref().is_some_and(|(drawn, _)| *drawn == stream) {
                screen.erase()?;
            }
            if line.is_empty() {
                Ok(())
            } else {
                screen.print(stream, front.as_bytes(), line.shown())
            }
        });
    }

    fn is_busy(&self) -> bool {
        self.busy.is_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn terminal(prefix: bool, live: bool) -> (Terminal, Paper) {
        let paper = Paper::default();
        (Terminal::on(prefix, [live; 2], Box::new(paper.clone()), Box::new(paper.clone())), paper)
    }

    #[test]
    fn lines_are_whole_and_prefixed() {
        let (terminal, paper) = terminal(true, false);
        terminal.write(0, Stream::Out, b"one ");
        terminal.write(1, Stream::Out, b"first\r\nsecond");
        terminal.write(0, Stream::Out, b"two\n\nthree");
        terminal.end(1, Stream::Out);
        terminal.end(0, Stream::Out);
        terminal.end(0, Stream::Err);
        assert_eq!(paper.text(), "[1] first\r\n[0] one two\n[0] \n[1] second\n[0] three\n");
    }

    #[test]
    fn progress_bar_keeps_all_its_bytes_in_a_file() {
        let (terminal, paper) = terminal(true, false);
        for part in ["\r 10 %", "\r 50 %", "\r100 %", "\nfinished\n"] {
            terminal.write(0, Stream::Err, part.as_bytes());
        }
        assert_eq!(paper.text(), "[0] \r 10 %\r 50 %\r100 %\n[0] finished\n");
    }

    #[test]
    fn a_progress_bar_lives_below_the_lines() {
        let (terminal, paper) = terminal(true, true);
        terminal.write(0, Stream::Err, b"\r10 %");
        terminal.write(1, Stream::Err, b"\r99 %");
        terminal.write(1, Stream::Out, b"hello\n");
        terminal.write(0, Stream::Err, b"\r20 %");
        terminal.write(0, Stream::Err, b"\n");
        let clear = "\r\x1b[K";
        let expected = [
            clear,
            "[0] 10 %",
            clear,
            "[1] hello\n",
            clear,
            "[0] 10 %",
            clear,
            clear,
            "[0] 20 %",
            clear,
            "[0] 20 %\n",
        ]
        .concat();
        assert_eq!(paper.text(), expected);
    }

    /// LAUNCH-5.1.
    #[test]
    fn bytes_without_prefix_pass_as_they_come() {
        let (terminal, paper) = terminal(false, false);
        let parts: [(Rank, &[u8]); 4] =
            [(0, b"ten %\r"), (1, b"a,b\r\n\0\xff"), (0, b"no"), (1, b" end")];
        for (rank, part) in parts {
            terminal.write(rank, Stream::Out, part);
        }
        terminal.end(0, Stream::Out);
        terminal.end(1, Stream::Out);
        assert_eq!(*paper.0.lock().unwrap(), parts.map(|(_, part)| part).concat());
    }

    #[test]
    fn a_broken_pipe_stops_the_source() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let terminal = Terminal::on(true, [false; 2], Box::new(Broken), Box::new(Broken));
        assert!(terminal.write(0, Stream::Out, b"unfinished"));
        assert!(!terminal.write(0, Stream::Out, b"\n"));
    }

    proptest! {
        /// However the bytes are cut into reads, each stream's lines come out whole, in order, with
        /// its prefix.
        #[test]
        fn cutting_does_not_matter(texts in proptest::collection::vec("[a-z\n]{0,30}", 3), cuts in proptest::collection::vec((0usize..3, 1usize..6), 0..40)) {
            let (terminal, paper) = terminal(true, false);
            let mut rest: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            for (rank, len) in cuts {
                let (now, later) = rest[rank].split_at(len.min(rest[rank].len()));
                terminal.write(rank as u32, Stream::Out, now);
                rest[rank] = later;
            }
            for (rank, rest) in rest.iter().enumerate() {
                terminal.write(rank as u32, Stream::Out, rest);
                terminal.end(rank as u32, Stream::Out);
            }
            let printed = paper.text();
            for (rank, text) in texts.iter().enumerate() {
                let front = format!("[{rank}] ");
                let mine: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(&front)).collect();
                prop_assert_eq!(mine, text.lines().collect::<Vec<_>>());
            }
        }
    }
}
