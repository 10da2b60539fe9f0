//! Files with the field: all nodes write one for NumPy, and make a picture that node 0 writes.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::Path;

use oikaze::shared::SharedArray;
use oikaze::{Job, Result};
use oikaze_apps::{Progress, agree};
use oikaze_os::replace_file::{FileRights, PartFile};

use crate::Files;
use crate::parallel::Solution;
use crate::picture::{Scale, encode};

/// Checks that node 0 can write the files, so that no long computation is in vain. Collective.
///
/// # Errors
/// Node 0 cannot write a file, or a node is lost.
pub fn check(job: &Job, files: &Files) -> Result<(), String> {
    let mut wanted = files.paths();
    let mine = if job.rank() == 0 { wanted.try_for_each(try_to_write) } else { Ok(()) };
    agree(job, mine)
}

fn try_to_write(path: &Path) -> Result<(), String> {
    // Dropping the part removes it.
    let part = PartFile::create(path, FileRights::Kept);
    part.map(drop).map_err(|why| format!("writing {}: {why}", path.display()))
}

/// Writes the files. Collective.
///
/// # Errors
/// A node cannot write (all nodes get the error), is lost, or has no memory.
pub fn write(
    job: &Job,
    files: &Files,
    solution: &Solution,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    if let Some(path) = &files.npy {
        let plate = plate(job, solution)?;
        plate.save(path)?;
        plate.free()?;
        progress.step();
    }
    if let Some(path) = &files.png {
        let scale = Scale::of(solution.grid.size);
        let picture = picture(job, solution, scale)?;
        job.barrier()?; // now node 0 sees all pixels
        let written = match job.rank() {
            0 => write_png(path, scale.side, &picture.read(0..picture.len())?),
            _ => Ok(()),
        };
        agree(job, written)?;
        progress.step();
    }
    Ok(())
}

/// Returns the field without the padding of its rows.
fn plate(job: &Job, solution: &Solution) -> Result<SharedArray<f64>> {
    let size = solution.grid.size;
    let plate = job.array::<f64>("plate", [size, size])?;
    let mine = plate.home_block(job.rank());
    let mut to = plate.write(mine)?;
    for i in mine.range(0) {
        to.row_mut([i]).copy_from_slice(&solution.row(i)?[..size]);
    }
    drop(to);
    Ok(plate)
}

/// Returns the pixels of a picture. Each node computes some rows of it.
fn picture(job: &Job, solution: &Solution, scale: Scale) -> Result<SharedArray<f64>> {
    let picture = job.array::<f64>("picture", [scale.side, scale.side])?;
    let mine = picture.home_block(job.rank());
    let mut to = picture.write(mine)?;
    for i in mine.range(0) {
        let rows = scale.points(i).map(|row| solution.row(row)).collect::<Result<Vec<_>>>()?;
        scale.fill_row(rows.iter().map(|row| &row[..]), to.row_mut([i]));
    }
    drop(to);
    Ok(picture)
}

/// Writes a picture. The file appears under its name when it is whole.
fn write_png(path: &Path, side: usize, pixels: &[f64]) -> Result<(), String> {
    let part = PartFile::create(path, FileRights::Kept).map_err(png::EncodingError::from);
    let written = part.and_then(|part| {
        let mut file = BufWriter::new(part.file());
        encode(side, pixels, &mut file)?;
        file.flush()?;
        drop(file);
        part.publish()?;
        Ok(())
    });
    written.map_err(|why| format!("writing {}: {why}", path.display()))
}
