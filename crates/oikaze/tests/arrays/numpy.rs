//! Files of arrays and NumPy: NumPy reads what nodes have saved, and nodes load what NumPy has
//! saved.

use super::failure;
use super::files::Folder;
use oikaze::shared::Element;
use oikaze::testing::cluster;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Cell {
    value: f64,
    flags: [u16; 4],
}

/// Runs a Python program in a folder. `make test` installs Python and NumPy.
fn python(folder: &Path, program: &str) {
    let has_numpy = |python: &&str| {
        let import = Command::new(python).args(["-c", "import numpy"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    // The system's Python has the system's packages, whatever comes first in the path.
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_numpy);
    let python = found.expect("Python with NumPy is missing: install the package python3-numpy");
    let output =
        Command::new(python).current_dir(folder).args(["-c", program]).output().expect("it starts");
    assert!(output.status.success(), "{program}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn numpy_reads_what_nodes_have_saved() {
    let folder = Folder::new("to-numpy");
    for nodes in [1, 2, 4] {
        cluster(nodes, |job| {
            let at = |name: &str| folder.0.join(name);
            let me = job.rank();
            let plate = job.array::<f32>("plate", [50, 60])?;
            let mine = plate.home_block(me);
            let mut guard = plate.write(mine)?;
            for i in mine.range(0) {
                (0..60).for_each(|j| guard[[i, j]] = (i * 100 + j) as f32);
            }
            drop(guard);
            plate.save(at("plate.npy"))?;
            let line = job.array::<i64>("line", 5000)?;
            for i in line.home_range(me) {
                line.write(i..i + 1)?[0] = -(i as i64);
            }
            line.save(at("line.npy"))?;
            let deep = job.array::<u8>("deep", [2, 3, 4, 5])?;
            deep.fill(7)?;
            deep.save(at("deep.npy"))?;
            let flags = job.array::<bool>("flags", [3, 4])?;
            flags.fill(true)?;
            flags.save(at("flags.npy"))?;
            let cells = job.array::<Cell>("cells", [9, 2])?;
            cells.fill(Cell { value: 0.5, flags: [1, 2, 3, 4] })?;
            cells.save(at("cells.npy"))?;
            let points = job.array::<[f64; 3]>("points", 10)?;
            points.fill([1.0, 2.0, 3.0])?;
            points.save(at("points.npy"))?;
            let wide = job.array::<u128>("wide", 3)?;
            wide.fill(1 << 100)?;
            wide.save(at("wide.npy"))?;
            let empty = job.array::<f64>("empty", [0, 5])?;
            Ok(empty.save(at("empty.npy"))?)
        });
        python(
            &folder.0,
            "
import numpy as np
def load(name, shape, dtype):
    found = np.load(name + '.npy')
    assert found.shape == shape and found.dtype == np.dtype(dtype), (name, found.shape, found.dtype)
    return found
i, j = np.indices((50, 60))
assert (load('plate', (50, 60), 'f4') == i * 100 + j).all()
assert (load('line', (5000,), 'i8') == -np.arange(5000)).all()
assert (load('deep', (2, 3, 4, 5), 'u1') == 7).all()
assert load('flags', (3, 4), '?').all()
cells = load('cells', (9, 2), [('value', 'f8'), ('flags', 'u2', (4,))])
assert (cells['value'] == 0.5).all() and (cells['flags'] == [1, 2, 3, 4]).all()
assert (load('points', (10, 3), 'f8') == [1, 2, 3]).all()
assert all(bytes(one) == (2**100).to_bytes(16, 'little') for one in load('wide', (3,), 'V16'))
load('empty', (0, 5), 'f8')
",
        );
    }
}

#[test]
fn nodes_load_what_numpy_has_saved() {
    let folder = Folder::new("from-numpy");
    python(
        &folder.0,
        "
import numpy as np
i, j = np.indices((50, 60))
plate = (i * 100 + j).astype('f4')
np.save('plate.npy', plate)
np.save('line.npy', -np.arange(5000))
np.save('deep.npy', np.full((2, 3, 4, 5), 7, 'u1'))
np.save('flags.npy', np.ones((3, 4), '?'))
cells = np.zeros((9, 2), [('value', 'f8'), ('flags', 'u2', (4,))])
cells['value'], cells['flags'] = 0.5, [1, 2, 3, 4]
np.save('cells.npy', cells)
np.save('points.npy', np.tile([1.0, 2.0, 3.0], (10, 1)))
np.save('empty.npy', np.zeros((0, 5)))
with open('second.npy', 'wb') as file:
    np.lib.format.write_array(file, plate, version=(2, 0))
",
    );
    for nodes in [1, 2, 4] {
        cluster(nodes, |job| {
            let at = |name: &str| folder.0.join(name);
            let plate = job.array::<f32>("plate", [50, 60])?;
            for name in ["plate.npy", "second.npy"] {
                plate.fill(0.0)?;
                plate.load(at(name))?;
                let all = plate.read(plate.whole())?;
                assert!((0..50).all(|i| (0..60).all(|j| all[[i, j]] == (i * 100 + j) as f32)));
            }
            let line = job.array::<i64>("line", 5000)?;
            line.load(at("line.npy"))?;
            assert!(line.read(0..5000)?.iter().enumerate().all(|(i, v)| *v == -(i as i64)));
            let deep = job.array::<u8>("deep", [2, 3, 4, 5])?;
            deep.load(at("deep.npy"))?;
            assert!(deep.read(deep.whole())?.iter().all(|value| *value == 7));
            let flags = job.array::<bool>("flags", [3, 4])?;
            flags.load(at("flags.npy"))?;
            assert!(flags.read(flags.whole())?.iter().all(|flag| *flag));
            let cells = job.array::<Cell>("cells", [9, 2])?;
            cells.load(at("cells.npy"))?;
            let cell = Cell { value: 0.5, flags: [1, 2, 3, 4] };
            assert!(cells.read(cells.whole())?.iter().all(|found| *found == cell));
            let points = job.array::<[f64; 3]>("points", 10)?;
            points.load(at("points.npy"))?;
            assert!(points.read(0..10)?.iter().all(|point| *point == [1.0, 2.0, 3.0]));
            job.array::<f64>("empty", [0, 5])?.load(at("empty.npy"))?;
            Ok(job.barrier()?)
        });
    }
}

/// Each mistake is a clear error on all nodes, and the array can be used afterwards.
#[test]
fn files_of_numpy_that_do_not_fit_are_refused_on_all_nodes() {
    let folder = Folder::new("not-numpy");
    python(
        &folder.0,
        "
import numpy as np
plate = np.arange(200, dtype='f8').reshape(10, 20)
np.save('fortran.npy', np.asfortranarray(plate))
np.save('line.npy', plate.ravel())
np.save('longer.npy', np.zeros((10, 21)))
np.save('single.npy', plate.astype('f4'))
np.save('integer.npy', plate.astype('i8'))
np.save('big.npy', plate.astype('>f8'))
np.save('complex.npy', plate.astype('c16'))
np.save('number.npy', 3.5)
np.save('objects.npy', np.array([{}, 'text'], dtype=object))
np.save('struct.npy', np.zeros((10, 20), [('value', 'f8')]))
np.save('aligned.npy', np.zeros(5, np.dtype([('flag', 'u1'), ('value', 'f8')], align=True)))
np.savez('archive.npz', plate=plate)
open('cut.npy', 'wb').write(open('line.npy', 'rb').read()[:-1])
open('text.npy', 'w').write('1 2 3')
open('nothing.npy', 'w').write('')
",
    );
    for nodes in [1, 2] {
        cluster(nodes, |job| {
            let plate = job.array::<f64>("plate", [10, 20])?;
            let told = |name: &str, words: &[&str]| {
                let path = folder.0.join(name);
                let text = failure(plate.load(&path), words);
                assert!(text.contains("load array \"plate\" from"), "{text}");
            };
            told("fortran.npy", &["Fortran order", "numpy.ascontiguousarray"]);
            told("line.npy", &["the shape (200,)", "the array has (10,20)"]);
            told("longer.npy", &["the shape (10,21)", "the array has (10,20)"]);
            told("single.npy", &["'<f4'", "'<f8'"]);
            told("integer.npy", &["'<i8'", "'<f8'"]);
            told("big.npy", &["'>f8'", "'<f8'"]);
            told("complex.npy", &["'<c16'", "'<f8'"]);
            told("number.npy", &["the shape ()", "the array has (10,20)"]);
            told("objects.npy", &["'|O'"]);
            told("struct.npy", &["[('value','<f8')]", "'<f8'"]);
            told("aligned.npy", &["('flag','|u1')", "'<f8'"]);
            told("text.npy", &["not an .npy file"]);
            told("nothing.npy", &["not an .npy file"]);
            told("archive.npz", &["archive.npz", "numpy.save"]);
            let line = job.array::<f64>("line", 200)?;
            failure(line.load(folder.0.join("cut.npy")), &["bytes", "the array needs"]);
            line.load(folder.0.join("line.npy"))?;
            assert_eq!(line.read(0..200)?[199], 199.0);
            Ok(job.barrier()?)
        });
    }
}
