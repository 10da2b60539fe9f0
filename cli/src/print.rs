//! Output of the command.

use oikaze_os::standard_output;

/// Prints text on standard output. A reader that closes the pipe is not an error.
pub fn print(text: &str) -> oikaze::Result<()> {
    standard_output::print(text)
        .map_err(|source| oikaze::Error::system("writing to standard output", source))
}
