//! Parts of the texts of errors, for languages whose exceptions have attributes.

use super::{Cause, Error, advice};

/// Parts of the text of an [`Error`].
///
/// ```
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let error = job.peer(1_000_000).unwrap_err();
/// let parts = error.parts();
/// assert!(parts.operation.contains("node 1000000") && !parts.cause.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorParts {
    /// Operation that was tried. Empty if the text does not name it.
    pub operation: String,
    /// Cause of the failure.
    pub cause: String,
    /// Remedy. Empty if the text has none.
    pub remedy: String,
}

impl ErrorParts {
    /// Takes a text apart that has all parts in this order: `operation: cause; remedy`.
    fn of_text(text: &str) -> Self {
        let (operation, rest) = text.split_once(": ").unwrap_or(("", text));
        Self::of_rest(operation, rest)
    }

    fn of_rest(operation: &str, rest: &str) -> Self {
        let cut = rest.find("; ").into_iter().chain(rest.find(". ")).min();
        let (cause, remedy) = cut.and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
        let remedy = remedy.trim_start_matches([';', '.', ' ']);
        Self { operation: operation.into(), cause: cause.into(), remedy: remedy.into() }
    }
}

impl Error {
    /// Returns the operation, the cause and the remedy that the text names.
    #[must_use]
    pub fn parts(&self) -> ErrorParts {
        match self.cause() {
            Cause::Timeout { what, .. } => {
                let text = self.to_string();
                ErrorParts::of_rest(what, text.strip_prefix(&format!("{what}: ")).unwrap_or(&text))
            }
            Cause::Failed { what, failure, launcher_says } => {
                let cause = failure.to_string();
                let remedy = launcher_says.as_ref().map_or_else(
                    || advice(failure).trim_start_matches(['.', ' ']).to_owned(),
                    |launcher_says| format!("The launcher says: {launcher_says}"),
                );
                let cause = cause.strip_prefix(&format!("{what}: ")).unwrap_or(&cause);
                if remedy.is_empty() {
                    return ErrorParts::of_rest(what, cause);
                }
                ErrorParts { operation: what.clone(), cause: cause.to_owned(), remedy }
            }
            Cause::Unseen { .. } => ErrorParts { cause: self.to_string(), ..ErrorParts::default() },
            Cause::Invalid { what, why } => ErrorParts::of_rest(what, why),
            _ => ErrorParts::of_text(&self.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_texts_are_found() {
        let parts = |text| {
            let ErrorParts { operation, cause, remedy } = ErrorParts::of_text(text);
            [operation, cause, remedy]
        };
        assert_eq!(
            parts("joining: the limit is zero; give more"),
            ["joining", "the limit is zero", "give more"]
        );
        assert_eq!(parts("put: too long. Cut it. Or so"), ["put", "too long", "Cut it. Or so"]);
        assert_eq!(parts("a mystery"), ["", "a mystery", ""]);
    }
}
