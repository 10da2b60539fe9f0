//! Version of the running kernel.

/// Version that this kernel reports, if it can be parsed.
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    parse_version(&rustix::system::uname().release().to_string_lossy())
}

/// Parses a release: `6.8.0-45-generic` is (6, 8).
pub(crate) fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_of_all_distributions_are_read() {
        for (release, version) in [
            ("6.8.0-45-generic", Some((6, 8))),
            ("5.15.167.4-microsoft-standard-WSL2", Some((5, 15))),
            ("6.12-rc3", Some((6, 12))),
            ("6.1.0-26-amd64", Some((6, 1))),
            ("7", None),
            ("", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(parse_version(release), version, "{release}");
        }
    }
}
