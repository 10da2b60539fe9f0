//! Picture of the field: its size, the mean of the points of each pixel, and its colours as PNG.

use std::io::Write;
use std::ops::Range;

/// Maximum number of pixels along one side. A larger field is scaled down.
pub const SIDE_MAX: usize = 1024;

/// Scale of a picture of `size` × `size` points.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    size: usize,
    /// Number of pixels along one side.
    pub side: usize,
}

impl Scale {
    /// Returns the scale for a field: one point for each pixel, as far as the picture is not too
    /// large.
    #[must_use]
    pub fn of(size: usize) -> Self {
        Self { size, side: size.min(SIDE_MAX) }
    }

    /// Returns the points along one axis that a pixel shows. No point is left out or shown twice.
    #[must_use]
    pub fn points(self, pixel: usize) -> Range<usize> {
        pixel * self.size / self.side..(pixel + 1) * self.size / self.side
    }

    /// Gives each pixel of a row the mean of its points. `rows` are the rows of points that the
    /// pixels show. Points are added in one order, so that the mean does not depend on the nodes.
    pub fn fill_row<'a>(self, rows: impl Iterator<Item = &'a [f64]>, pixels: &mut [f64]) {
        pixels.fill(0.0);
        let mut count = 0;
        for row in rows {
            for (pixel, value) in pixels.iter_mut().enumerate() {
                *value += row[self.points(pixel)].iter().sum::<f64>();
            }
            count += 1;
        }
        for (pixel, value) in pixels.iter_mut().enumerate() {
            *value /= (count * self.points(pixel).len()) as f64;
        }
    }
}

/// Writes a square picture as PNG. The coldest pixel is dark violet, the hottest one yellow, in the
/// colour map viridis, whose steps look equally large.
///
/// # Errors
/// The writer fails.
pub fn encode(side: usize, values: &[f64], to: &mut impl Write) -> Result<(), png::EncodingError> {
    let (coldest, hottest) = range(values);
    let scale = if hottest > coldest { 1.0 / (hottest - coldest) } else { 0.0 };
    let colour = |value: &f64| {
        let colorous::Color { r, g, b } =
            colorous::VIRIDIS.eval_continuous((value - coldest) * scale);
        [r, g, b]
    };
    let pixels: Vec<u8> = values.iter().flat_map(colour).collect();
    let mut encoder = png::Encoder::new(to, side as u32, side as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()
}

/// Returns the smallest and the largest value.
fn range(values: &[f64]) -> (f64, f64) {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    values.iter().fold(ends, |(low, high), value| (low.min(*value), high.max(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_show_each_point_once() {
        for size in [3, 100, 1024, 1025, 2048, 2500, 32_768] {
            let scale = Scale::of(size);
            assert_eq!(scale.side, size.min(1024));
            let mut next = 0;
            for pixel in 0..scale.side {
                let points = scale.points(pixel);
                assert!(points.start == next && !points.is_empty(), "{pixel} of {size}");
                next = points.end;
            }
            assert_eq!(next, size);
        }
    }

    #[test]
    fn pixel_is_the_mean_of_its_points() {
        let scale = Scale { size: 5, side: 2 }; // pixels of two and three points
        let rows = [[1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 7.0, 8.0, 9.0]];
        let mut pixels = [9.0; 2];
        scale.fill_row(rows.iter().map(<[f64; 5]>::as_slice), &mut pixels);
        assert_eq!(pixels, [2.5, 6.0]);
    }

    #[test]
    fn ends_of_the_colour_map_are_the_published_ones() {
        let mut file = Vec::new();
        encode(2, &[0.25, 0.5, 0.75, 0.25], &mut file).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (2, 2, png::ColorType::Rgb));
        let (cold, hot) = ([0x44, 0x01, 0x54], [0xfd, 0xe7, 0x25]);
        assert_eq!([&pixels[..3], &pixels[6..9], &pixels[9..]], [cold, hot, cold]);
        assert_ne!(pixels[3..6], cold);
    }

    #[test]
    fn field_of_one_temperature_has_one_colour() {
        let mut file = Vec::new();
        encode(2, &[0.5; 4], &mut file).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, [0x44, 0x01, 0x54].repeat(4));
    }
}
