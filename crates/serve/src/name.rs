//! Names of servers, and of their sockets.

/// Name of the server that is meant if no other is named.
pub const DEFAULT_NAME: &str = "default";
/// Maximum length of a server's name. A name in the kernel has at most 107 bytes, and that of the
/// socket also has the number of the user.
pub const NAME_MAX: usize = 64;

/// Returns the abstract name of the socket of a user's server (SERVE-1.1). Users do not share
/// names, so that no server of one user stands in the way of another's.
pub(super) fn socket_name(user: u32, name: &str) -> String {
    format!("oikaze-serve-{user}-{name}")
}

/// Checks the name of a server.
///
/// # Errors
/// The text says which names are permitted.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_word) {
        return Ok(());
    }
    Err(format!(
        "{name:?} names no server; give 1 to {NAME_MAX} letters, digits, dots, dashes or underscores"
    ))
}
