//! Files that `heat` writes: a picture, and an array for NumPy. Real processes on 1, 2 and 4 nodes.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::PoisonError;

use support::{ONE_AT_A_TIME, oikaze, python};

const HEAT: &str = env!("CARGO_BIN_EXE_heat");

/// Folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("oikaze-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<_> =
            names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `heat` on some nodes, in this folder.
fn heat(nodes: u32, folder: &Path, arguments: &str) -> Output {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(oikaze());
    command.current_dir(folder).args(["run", "--timeout", "60", "-n", &nodes.to_string()]);
    command.args(["--", HEAT]).args(arguments.split(' ')).output().expect("oikaze starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the side of a square picture, and its pixels.
fn decode(path: &Path) -> (u32, Vec<[u8; 3]>) {
    let file = std::io::BufReader::new(fs::File::open(path).expect("the picture is there"));
    let mut reader = png::Decoder::new(file).read_info().expect("it is a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("it is small")];
    let info = reader.next_frame(&mut bytes).expect("it is whole");
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    assert_eq!(info.width, info.height);
    (info.width, bytes.as_chunks().0.to_vec())
}

/// Returns the elements of a `.npy` file of `f64`. The tests below let NumPy check its header.
fn values(path: &Path, count: usize) -> Vec<f64> {
    let bytes = fs::read(path).expect("the file is there");
    let (_, elements) = bytes.split_at(bytes.len() - count * 8);
    elements.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// Returns the colours of values between the smallest and the largest one.
fn colours(values: &[f64]) -> Vec<[u8; 3]> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scale = 1.0 / (high - low);
    values
        .iter()
        .map(|value| {
            let colour = colorous::VIRIDIS.eval_continuous((value - low) * scale);
            [colour.r, colour.g, colour.b]
        })
        .collect()
}

#[test]
fn files_are_the_same_on_any_number_of_nodes_and_show_the_field() {
    let folder = Folder::new("pictures");
    let arguments = "--size 130 --iterations 40 --start disc --verify --png a.png --npy a.npy";
    let mut first = None;
    for nodes in [1, 2, 4] {
        let output = heat(nodes, &folder.0, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(folder.files(), ["a.npy", "a.png"]);
        let read = |name| fs::read(folder.0.join(name)).expect("it was written");
        let files = [read("a.png"), read("a.npy")];
        assert!(*first.get_or_insert_with(|| files.clone()) == files, "on {nodes} nodes");
    }
    let (side, pixels) = decode(&folder.0.join("a.png"));
    let field = values(&folder.0.join("a.npy"), 130 * 130);
    assert_eq!(side, 130);
    assert!(pixels == colours(&field));
    // The hot middle is yellow and the cold corner is violet.
    assert_eq!([pixels[65 * 130 + 65], pixels[0]], [[0xfd, 0xe7, 0x25], [0x44, 0x01, 0x54]]);
}

#[test]
fn numpy_reads_the_field() {
    let folder = Folder::new("numpy");
    let output = heat(3, &folder.0, "--size 100 --iterations 50 --npy plate.npy --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The fingerprint of the field, as the program prints it, over what NumPy has read.
    let program = "
import numpy, sys
plate = numpy.load('plate.npy')
assert plate.shape == (100, 100) and plate.dtype == numpy.dtype('<f8'), (plate.shape, plate.dtype)
assert plate.flags['C_CONTIGUOUS']
hash = 1469598103934665603
for byte in plate.tobytes():
    hash = ((hash ^ byte) * 0x100000001b3) % 2**64
print('%016x' % hash)";
    let mut python = python();
    let read = python.current_dir(&folder.0).args(["-c", program]).output().expect("it starts");
    assert!(read.status.success(), "{}", text(&read.stderr));
    // The hash of a C program over MPI, as in `tests/nodes.rs`.
    assert_eq!(text(&read.stdout).trim(), "04b9869afc2d8518");
    assert!(text(&output.stdout).contains("04b9869afc2d8518"), "{}", text(&output.stdout));
}

#[test]
fn large_plate_is_scaled_down() {
    let folder = Folder::new("scaled");
    let arguments = "--size 2049 --iterations 1 --png a.png --npy a.npy";
    let output = heat(3, &folder.0, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (side, pixels) = decode(&folder.0.join("a.png"));
    let field = values(&folder.0.join("a.npy"), 2049 * 2049);
    assert_eq!((side, pixels.len()), (1024, 1024 * 1024));
    let of = |pixel: usize| pixel * 2049 / 1024..(pixel + 1) * 2049 / 1024;
    let mean = |pixel: usize| {
        let (rows, columns) = (of(pixel / 1024), of(pixel % 1024));
        let count = (rows.len() * columns.len()) as f64;
        let sums = rows.map(|i| columns.clone().map(|j| field[i * 2049 + j]).sum::<f64>());
        sums.sum::<f64>() / count
    };
    let expected = colours(&(0..1024 * 1024).map(mean).collect::<Vec<_>>());
    assert!(pixels == expected);
}

/// All nodes get the error before they compute, and no file is left.
#[test]
fn files_that_cannot_be_written_are_errors_on_all_nodes() {
    let folder = Folder::new("unwritable");
    fs::create_dir(folder.0.join("folder.png")).expect("the folder can be made");
    std::os::unix::fs::symlink("loop.npy", folder.0.join("loop.npy")).expect("it can be made");
    for (arguments, words) in [
        ("--png absent/a.png", ["writing absent/a.png", "No such file"]),
        ("--npy absent/a.npy", ["writing absent/a.npy", "No such file"]),
        ("--png folder.png", ["writing folder.png", "directory"]),
        ("--npy loop.npy", ["writing loop.npy", "symbolic links"]),
    ] {
        let arguments = format!("--size 32768 --iterations 1000000 {arguments}");
        let output = heat(2, &folder.0, &arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{arguments}: it must fail");
        for word in words.into_iter().chain(["[0] heat: node 0: ", "[1] heat: node 0: "]) {
            assert!(said.contains(word), "{arguments}: \"{word}\" is not in\n{said}");
        }
    }
    assert_eq!(folder.files(), ["folder.png", "loop.npy"]);
}
