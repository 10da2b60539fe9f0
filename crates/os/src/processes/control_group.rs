//! Control groups of this process (`cgroups(7)`), which limit its memory and processors.

use std::path::{Path, PathBuf};

/// Version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupVersion {
    /// Version 1, with a mount for each controller.
    One,
    /// Version 2, with one mount.
    Two,
}

/// Returns the directories of the control groups that may limit this process by `controller`, with
/// their versions. `text` is `/proc/self/cgroup`, and `root` the mount point.
pub(crate) fn control_groups(
    text: &str,
    root: &Path,
    controller: &str,
) -> Vec<(GroupVersion, PathBuf)> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (version, mount) = match controllers {
            "" => (GroupVersion::Two, root.to_owned()),
            list if list.split(',').any(|listed| listed == controller) => {
                (GroupVersion::One, root.join(controller))
            }
            _ => return None,
        };
        // In a container, the path may be the host's. The mount point is then our own group.
        let own = mount.join(path);
        let groups = own.ancestors().take_while(|group| group.starts_with(&mount));
        Some(groups.map(|group| (version, group.to_owned())).collect::<Vec<_>>())
    };
    text.lines().filter_map(of_line).flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory tree of control groups, removed when dropped.
    pub(crate) struct Tree(pub PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Makes a tree with these files and their contents.
    pub(crate) fn tree(name: &str, files: &[(&str, &str)]) -> Tree {
        let root =
            std::env::temp_dir().join(format!("oikaze-groups-{}-{name}", std::process::id()));
        for (file, content) in files {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        Tree(root)
    }

    #[test]
    fn groups_are_listed_from_the_own_one_to_the_mount() {
        let groups = |text| control_groups(text, Path::new("/sys"), "cpu");
        let two = |path: &str| (GroupVersion::Two, PathBuf::from(path));
        assert_eq!(groups("0::/a/b\n"), [two("/sys/a/b"), two("/sys/a"), two("/sys")]);
        assert_eq!(groups("0::/\n"), [two("/sys")]);
        let one = |path: &str| (GroupVersion::One, PathBuf::from(path));
        let text = "5:cpuset:/x\n4:cpu,cpuacct:/c\n";
        assert_eq!(groups(text), [one("/sys/cpu/c"), one("/sys/cpu")]);
        assert_eq!(groups("nonsense\n"), []);
    }
}
