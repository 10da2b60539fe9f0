//! Tests of files that appear whole.

use super::*;
use crate::testing::skip;
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, lchown, symlink};

/// Folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("oikaze-replace-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write_kept(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, FileRights::Kept)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn replaced_file_keeps_its_mode_and_new_file_gets_that_of_open() {
    let folder = Folder::new("mode");
    let (path, usual) = (folder.at("a"), folder.at("usual"));
    fs::write(&usual, "").unwrap();
    write_kept(&path, b"new").unwrap();
    assert_eq!(mode(&path), mode(&usual));
    for kept in [0o600, 0o640, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
        write_kept(&path, b"next").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (kept, b"next".to_vec()));
    }
    write(&path, b"secret", FileRights::Private).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(folder.names(), ["a", "usual"]);
}

#[test]
fn replaced_file_of_another_owner_keeps_owner_and_group() {
    if !rustix::process::geteuid().is_root() {
        return skip("it needs root");
    }
    let folder = Folder::new("owner");
    let path = folder.at("a");
    fs::write(&path, "old").unwrap();
    chown(&path, Some(12_345), Some(12_346)).unwrap();
    write_kept(&path, b"new").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (12_345, 12_346));
}

#[test]
fn link_stays_and_file_behind_it_is_replaced() {
    let folder = Folder::new("link");
    fs::create_dir(folder.at("data")).unwrap();
    for (name, target) in [("one", "data/real"), ("two", "one"), ("dangling", "data/new")] {
        symlink(target, folder.at(name)).unwrap();
    }
    fs::write(folder.at("data/real"), "old").unwrap();
    for (link, file) in [("one", "data/real"), ("two", "data/real"), ("dangling", "data/new")] {
        write_kept(&folder.at(link), link.as_bytes()).unwrap();
        assert_eq!(fs::read(folder.at(file)).unwrap(), link.as_bytes());
        assert!(fs::symlink_metadata(folder.at(link)).unwrap().is_symlink());
    }
    symlink("circle", folder.at("circle")).unwrap();
    let why = write_kept(&folder.at("circle"), b"").unwrap_err();
    assert_eq!(Errno::from_io_error(&why), Some(Errno::LOOP));
    assert_eq!(folder.names(), ["circle", "dangling", "data", "one", "two"]);
    assert_eq!(fs::read_dir(folder.at("data")).unwrap().count(), 2);
}

#[test]
fn link_that_another_user_planted_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("it needs root");
    }
    let folder = Folder::new("planted");
    fs::set_permissions(&folder.0, Permissions::from_mode(0o1777)).unwrap();
    fs::write(folder.at("victim"), "old").unwrap();
    symlink("victim", folder.at("link")).unwrap();
    lchown(folder.at("link"), Some(12_345), None).unwrap();
    let why = write_kept(&folder.at("link"), b"new").unwrap_err();
    assert!(why.to_string().contains("another user"), "{why}");
    assert_eq!(fs::read(folder.at("victim")).unwrap(), b"old");
}

#[test]
fn folder_is_refused_and_device_takes_bytes_but_no_part() {
    let folder = Folder::new("kinds");
    for path in [folder.0.clone(), folder.at("none/"), folder.at(".."), "/".into()] {
        let why = write_kept(&path, b"").unwrap_err();
        assert_eq!(Errno::from_io_error(&why), Some(Errno::ISDIR), "{}", path.display());
    }
    assert!(write_kept(&folder.at("none/a"), b"").is_err());
    let null = Path::new("/dev/null");
    write_kept(null, b"bytes").unwrap();
    assert!(fs::metadata(null).unwrap().file_type().is_char_device());
    let why = PartFile::create(null, FileRights::Kept).unwrap_err();
    assert!(why.to_string().contains("device"), "{why}");
    let full = write_kept(Path::new("/dev/full"), b"bytes").unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn open_file_under_its_name_in_proc_is_appended_to() {
    let folder = Folder::new("proc");
    let mut file = File::create(folder.at("a")).unwrap();
    file.write_all(b"first ").unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    write_kept(Path::new(&path), b"second").unwrap();
    assert_eq!(fs::read(folder.at("a")).unwrap(), b"first second");
}

#[test]
fn file_is_not_there_before_it_is_whole_and_dropped_part_leaves_nothing() {
    let folder = Folder::new("whole");
    let path = folder.at("a");
    let part = PartFile::create(&path, FileRights::Kept).unwrap();
    let shared = PartFile::open(&path, part.number()).unwrap();
    assert!(PartFile::open(&folder.at("b"), part.number()).is_err());
    shared.file().write_all(b"whole").unwrap();
    assert!(!path.exists());
    part.publish().unwrap();
    shared.leave();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    drop(PartFile::create(&path, FileRights::Kept).unwrap());
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn two_writers_of_one_name_leave_the_whole_file_of_one() {
    let folder = Folder::new("two");
    let path = folder.at("a");
    let parts = [1, 2].map(|_| PartFile::create(&path, FileRights::Kept).unwrap());
    for (part, bytes) in parts.iter().zip([b"one", b"two"]) {
        part.file().write_all(bytes).unwrap();
    }
    for (part, bytes) in parts.into_iter().zip([b"one", b"two"]) {
        part.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn part_of_a_killed_process_is_removed_and_one_in_use_stays() {
    let folder = Folder::new("abandoned");
    let path = folder.at("a");
    let target = || match destination(&path).unwrap() {
        Destination::File(target) => target,
        Destination::Stream(_) => unreachable!(),
    };
    // As a killed process leaves it: no descriptor holds the lock.
    let [abandoned, other] = [random().unwrap(), random().unwrap() ^ 1 << MACHINE_SHIFT];
    let [abandoned, other] = [abandoned, other].map(|number| target().part(number));
    for part in [&abandoned, &other] {
        fs::write(part, "half").unwrap();
    }
    let used = PartFile::create(&path, FileRights::Kept).unwrap();
    assert!(!abandoned.exists() && other.exists(), "{:?}", folder.names());
    let old = std::time::SystemTime::now() - 2 * ABANDONED_AGE;
    File::options().write(true).open(&other).unwrap().set_modified(old).unwrap();
    write_kept(&path, b"new").unwrap();
    assert!(!other.exists(), "{:?}", folder.names());
    assert_eq!(folder.names().len(), 2, "{:?}", folder.names());
    used.publish().unwrap();
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn long_name_has_a_part() {
    let folder = Folder::new("long");
    let name = "x".repeat(255);
    write_kept(&folder.at(&name), b"new").unwrap();
    assert_eq!(folder.names(), [name]);
}
