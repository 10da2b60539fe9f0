//! Files of arrays: raw bytes and `.npy`.

use super::failure;
use crate::both_ways::cluster;
use oikaze::shared::Element;
use oikaze::shared::builder::Distribution;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Cell {
    value: f64,
    flags: [u16; 4],
}

/// Folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("oikaze-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn saved_arrays_are_loaded_by_any_number_of_nodes() {
    let folder = Folder::new("files");
    let value = |i: usize, j: usize| (i * 100 + j) as f32;
    for (nodes, name) in [(3, "a.npy"), (2, "a.raw")] {
        let path = folder.0.join(name);
        cluster(nodes, |job| {
            let plate = job
                .array_builder::<f32>("plate", [50, 60])
                .distribution(Distribution::Block { axis: 1 })
                .build()?;
            let mine = plate.home_block(job.rank());
            let mut guard = plate.write(mine)?;
            for i in 0..50 {
                mine.range(1).for_each(|j| guard[[i, j]] = value(i, j));
            }
            drop(guard);
            Ok(plate.save(&path)?)
        });
        let bytes = std::fs::read(&path).unwrap();
        let header = bytes.len() - 50 * 60 * 4;
        if name.ends_with("npy") {
            assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && header.is_multiple_of(64));
            let text = String::from_utf8_lossy(&bytes[10..header]);
            let start = "{'descr': '<f4', 'fortran_order': False, 'shape': (50,60), }";
            assert!(text.starts_with(start), "{text}");
        } else {
            assert_eq!(header, 0);
        }
        let at = header + (7 * 60 + 9) * 4;
        assert_eq!(bytes[at..at + 4], value(7, 9).to_le_bytes());
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), usize::from(nodes == 2) + 1);
        for nodes in [1, 4] {
            cluster(nodes, |job| {
                let plate = job.array::<f32>("plate", [50, 60])?;
                plate.load(&path)?;
                let all = plate.read(plate.whole())?;
                assert!((0..50).all(|i| (0..60).all(|j| all[[i, j]] == value(i, j))));
                drop(all);
                Ok(job.barrier()?)
            });
        }
    }
}

#[test]
fn saves_loads_and_fills_of_different_arrays_or_values_fail_on_all_nodes() {
    let folder = Folder::new("different");
    let path = folder.0.join("one.npy");
    cluster(2, |job| {
        let arrays = ["first", "second"].map(|name| job.array::<u32>(name, 4).unwrap());
        let mine = &arrays[job.rank() as usize];
        arrays.iter().for_each(|array| array.fill(1).unwrap());
        let refused = |result: oikaze::Result<()>| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains("node 1 called ") && text.contains(" array \""), "{text}");
        };
        refused(mine.save(&path));
        job.barrier()?;
        assert!(std::fs::read_dir(&folder.0).unwrap().next().is_none(), "a file is left");
        job.barrier()?;
        arrays[0].save(&path)?;
        refused(mine.load(&path));
        refused(mine.fill(2));
        refused(arrays[0].fill(job.rank()));
        arrays[1].fill(3)?;
        arrays[1].load(&path)?;
        assert_eq!(arrays[1].read(arrays[1].whole())?.to_vec(), [1; 4]);
        job.barrier()?;
        if job.rank() == 0 {
            std::fs::remove_file(&path)?;
        }
        Ok(())
    });
}

#[test]
fn structs_and_bools_are_saved_and_loaded() {
    let folder = Folder::new("cells");
    let paths = [folder.0.join("cells.npy"), folder.0.join("flags.npy")];
    cluster(2, |job| {
        let cells = job.array::<Cell>("cells", [9, 2, 3])?;
        let cell = Cell { value: 0.5, flags: [1, 2, 3, 4] };
        cells.fill(cell)?;
        cells.save(&paths[0])?;
        cells.fill(Cell { value: 0.0, flags: [0; 4] })?;
        cells.load(&paths[0])?;
        assert!(cells.read(cells.whole())?.iter().all(|found| *found == cell));
        let flags = job.array::<bool>("flags", 1000)?;
        flags.fill(true)?;
        flags.save(&paths[1])?;
        if job.rank() == 0 {
            let mut bytes = std::fs::read(&paths[1])?;
            assert!(String::from_utf8_lossy(&bytes[..80]).contains("'|b1'"));
            *bytes.last_mut().unwrap() = 2;
            std::fs::write(&paths[1], bytes)?;
        }
        job.barrier()?;
        failure(flags.load(&paths[1]), &["load array \"flags\"", "not a bool"]);
        Ok(job.barrier()?)
    });
}

/// Each mistake is an error on all nodes. No file is left, and an older file stays.
#[test]
fn files_that_do_not_fit_are_refused_on_all_nodes() {
    let folder = Folder::new("wrong");
    let path = folder.0.join("a.npy");
    cluster(2, |job| {
        let array = job.array::<i32>("a", [10, 20])?;
        array.save(&path)?;
        let told = |outcome, words: &[&str]| failure(outcome, &[words, &["array \"a"]].concat());
        let longer = job.array::<i32>("a1", [10, 21])?;
        told(longer.load(&path), &["shape (10,20)", "(10,21)"]);
        let other = job.array::<f32>("a2", [10, 20])?;
        told(other.load(&path), &["'<i4'", "'<f4'"]);
        let raw = folder.0.join("a.raw");
        if job.rank() == 0 {
            std::fs::write(&raw, [0; 799])?;
        }
        job.barrier()?;
        told(array.load(&raw), &["799 bytes", "800"]);
        told(array.load(folder.0.join("absent")), &["absent", "share"]);
        told(array.load(&folder.0), &["is not a file"]);
        told(array.save(folder.0.join("absent/a.npy")), &["absent", "share"]);
        // One node names another file.
        let name = if job.rank() == 0 { "a.npy" } else { "b.npy" };
        told(array.save(folder.0.join(name)), &["b.npy", "share"]);
        let text = told(array.load(folder.0.join(name)), &["b.npy"]);
        assert!(job.rank() == 1 || text.contains("node 1 cannot go on"), "{text}");
        array.load(&path)?;
        Ok(job.barrier()?)
    });
    let left: Vec<_> =
        std::fs::read_dir(&folder.0).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// A save replaces what a link leads to, keeps the mode, and refuses what is not a regular file.
#[test]
fn save_to_link_or_file_of_mode_600_keeps_them_and_device_or_pipe_is_refused_on_all_nodes() {
    let folder = Folder::new("kinds");
    let at = |name: &str| folder.0.join(name);
    std::fs::write(at("real.npy"), "old").unwrap();
    std::fs::set_permissions(at("real.npy"), Permissions::from_mode(0o600)).unwrap();
    symlink("real.npy", at("link.npy")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(pipe.success());
    cluster(2, |job| {
        let array = job.array::<u8>("a", 100)?;
        array.fill(job.size() as u8)?;
        array.save(at("link.npy"))?;
        for path in [at("pipe"), "/dev/full".into(), "/dev/stdout".into()] {
            failure(array.save(path), &["save array", "cannot be replaced"]);
        }
        failure(array.save(&folder.0), &["save array", "directory"]);
        Ok(job.barrier()?)
    });
    assert!(std::fs::symlink_metadata(at("link.npy")).unwrap().is_symlink());
    let real = std::fs::metadata(at("real.npy")).unwrap();
    assert_eq!((real.permissions().mode() & 0o777, real.len()), (0o600, 128 + 100));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 3);
}

/// Sets a flag at its end, in whatever way the test ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn load_of_a_file_that_is_replaced_meanwhile_reads_one_version() {
    const LEN: usize = 3 * 4096;
    let folder = Folder::new("versions");
    let (path, part) = (folder.0.join("a.raw"), folder.0.join("part"));
    let replace = |version: u8| {
        std::fs::write(&part, vec![version; LEN]).unwrap();
        std::fs::rename(&part, &path).unwrap();
    };
    replace(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetAtEnd(&is_over);
        scope.spawn(|| {
            (0..=u8::MAX)
                .cycle()
                .take_while(|_| !is_over.load(Ordering::Relaxed))
                .for_each(replace);
        });
        cluster(3, |job| {
            let array = job.array::<u8>("a", LEN)?;
            for _ in 0..100 {
                match array.load(&path) {
                    Ok(()) => {
                        let all = array.read(array.whole())?;
                        let first = all[[0]];
                        assert!(all.iter().all(|element| *element == first));
                    }
                    Err(error) => assert!(error.to_string().contains("was replaced"), "{error}"),
                }
            }
            Ok(())
        });
    });
}

#[test]
fn load_of_copies_on_other_disks_succeeds() {
    let folder = Folder::new("copies");
    let paths: Vec<PathBuf> = (0..3).map(|rank| folder.0.join(format!("{rank}.raw"))).collect();
    for path in &paths {
        std::fs::write(path, [7; 300]).unwrap();
    }
    cluster(3, |job| {
        let array = job.array::<u8>("a", 300)?;
        array.load(&paths[job.rank() as usize])?;
        assert!(array.read(array.whole())?.iter().all(|element| *element == 7));
        Ok(())
    });
}
