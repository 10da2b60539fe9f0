//! Draws pictures of a paper's figure, as SVG that a browser and a repository's page show without
//! help. The horizontal axis is logarithmic.

use std::fmt::Display;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::error::Error;
use crate::page::wrapped;

/// Maximum number of lines that can be told apart in one panel.
pub const LINES_MAX: usize = 6;

/// One line: its name and its points.
#[derive(Clone)]
pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// One line of today, and the least and the greatest value of the rounds at each of its points.
pub struct Measured {
    pub line: Line,
    pub spread: Vec<(f64, f64)>,
}

/// Axes with lines, of which there are at most [`LINES_MAX`].
#[derive(Default)]
pub struct Panel {
    pub lines: Vec<Measured>,
    /// Results of the paper, drawn with dashes and empty circles.
    pub then_lines: Vec<Line>,
}

/// Scale of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Starts at 0.
    Linear,
    /// Uses powers of ten, for old and new values that differ too much for a linear axis.
    Logarithmic,
}

/// A picture of one or more panels with the same axes, one below the other.
pub struct Plot {
    pub title: &'static str,
    pub across: &'static str,
    pub up: &'static str,
    pub scale: Scale,
    /// Notes below the panels.
    pub notes: Vec<String>,
    pub panels: Vec<Panel>,
}

const WIDTH: u32 = 900;
const TITLE: u32 = 44;
const PANEL: u32 = 400;
/// Width of a letter of the legend, as wide as in the widest common font.
const LETTER: u32 = 8;
/// Width of what stands in front of a name of the legend.
const KEY: u32 = 40;
/// Height of a line of the legend.
const KEY_HEIGHT: i32 = 20;
/// Height of a line of notes.
const NOTE: u32 = 16;
const NOTE_LETTERS: usize = 125;
/// Colours that people with colour blindness can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; LINES_MAX] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
];
const TEXT: RGBColor = RGBColor(34, 34, 34);

/// Area of the picture.
type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;

impl Plot {
    /// Returns the picture as SVG.
    ///
    /// # Errors
    /// A panel has too many lines, or a value cannot be drawn.
    pub fn svg(&self) -> Result<String, Error> {
        let failed = |why: &dyn Display| Error::new(format!("drawing {:?}: {why}", self.title));
        let most = self.panels.iter().map(Panel::len).max().unwrap_or(0);
        if most > LINES_MAX {
            return Err(failed(&format!("{most} lines in one panel, of at most {LINES_MAX}")));
        }
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|why| failed(&why))?;
        Ok(svg)
    }

    fn draw<'s>(&self, svg: &'s mut String) -> Result<(), Box<dyn std::error::Error + 's>> {
        let notes: Vec<String> =
            self.notes.iter().flat_map(|note| wrapped(note, NOTE_LETTERS)).collect();
        let panels = PANEL * self.panels.len() as u32;
        let height = TITLE + panels + NOTE * (notes.len() as u32 + 1);
        let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(self.title, &("sans-serif", 18).into_font().color(&TEXT), (12, 16))?;
        let (_, below) = root.split_vertically(TITLE);
        let (drawn, below) = below.split_vertically(panels);
        let axes = Axes::of(&self.panels, self.scale);
        let areas = drawn.split_evenly((self.panels.len().max(1), 1));
        let names = self.panels.iter().flat_map(Panel::names);
        let names = names.map(|name| name.chars().count()).max().unwrap_or(0) as u32;
        for (panel, area) in self.panels.iter().zip(&areas) {
            let (chart, legend) = area.split_horizontally(WIDTH - KEY - LETTER * names);
            let up = axes.up.clone();
            match self.scale {
                Scale::Linear => self.draw_panel(panel, &chart, &axes, up)?,
                Scale::Logarithmic => self.draw_panel(panel, &chart, &axes, up.log_scale())?,
            }
            panel.draw_legend(&legend)?;
        }
        for (number, note) in (0..).zip(&notes) {
            let style = ("sans-serif", 14).into_font().color(&TEXT);
            below.draw_text(note, &style, (12, NOTE as i32 * number))?;
        }
        root.present()?;
        Ok(())
    }

    fn draw_panel<'s, Y>(
        &self,
        panel: &Panel,
        area: &Area<'s>,
        axes: &Axes,
        up: Y,
    ) -> Result<(), Box<dyn std::error::Error + 's>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .set_label_area_size(LabelAreaPosition::Left, 74)
            .set_label_area_size(LabelAreaPosition::Bottom, 48)
            .build_cartesian_2d(axes.across.clone().log_scale().base(2.0), up)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(24)
            .x_desc(self.across)
            .y_desc(if self.up == "us" { "µs" } else { self.up })
            .x_label_formatter(&|size| size_text(*size))
            .y_label_formatter(&|value| value_text(*value))
            .label_style(("sans-serif", 14).into_font().color(&TEXT))
            .draw()?;
        for (measured, colour) in panel.lines.iter().zip(COLOURS) {
            let points = || measured.line.points.iter().copied();
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            let bars = points().zip(&measured.spread).map(|((x, y), (least, most))| {
                ErrorBar::new_vertical(x, *least, y, *most, colour.stroke_width(1), 7)
            });
            chart.draw_series(bars)?;
            chart.draw_series(points().map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        let colours = COLOURS.into_iter().skip(panel.lines.len());
        for (line, colour) in panel.then_lines.iter().zip(colours) {
            let points = || line.points.iter().copied();
            chart.draw_series(DashedLineSeries::new(points(), 7, 5, colour.stroke_width(2)))?;
            chart.draw_series(points().map(|at| Circle::new(at, 4, colour.stroke_width(2))))?;
        }
        Ok(())
    }
}

impl Panel {
    fn len(&self) -> usize {
        self.lines.len() + self.then_lines.len()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let now = self.lines.iter().map(|measured| measured.line.name);
        now.chain(self.then_lines.iter().map(|line| line.name))
    }

    /// Returns the least and the greatest value of each point.
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        let then = self.then_lines.iter().flat_map(|line| &line.points).map(|&(_, y)| (y, y));
        self.lines.iter().flat_map(|measured| &measured.spread).copied().chain(then)
    }

    fn sizes(&self) -> impl Iterator<Item = f64> {
        let then = self.then_lines.iter().flat_map(|line| &line.points);
        let now = self.lines.iter().flat_map(|measured| &measured.line.points);
        now.chain(then).map(|&(x, _)| x)
    }

    fn draw_legend<'s>(&self, area: &Area<'s>) -> Result<(), Box<dyn std::error::Error + 's>> {
        let style = ("sans-serif", 14).into_font().color(&TEXT);
        for ((number, name), colour) in (0..).zip(self.names()).zip(COLOURS) {
            let y = 20 + KEY_HEIGHT * number;
            let key = |x| (4 + x, y);
            if (number as usize) < self.lines.len() {
                area.draw(&PathElement::new([key(0), key(22)], colour.stroke_width(2)))?;
                area.draw(&Circle::new(key(11), 3, colour.filled()))?;
            } else {
                for dash in [0, 16] {
                    area.draw(&PathElement::new(
                        [key(dash), key(dash + 6)],
                        colour.stroke_width(2),
                    ))?;
                }
                area.draw(&Circle::new(key(11), 4, colour.stroke_width(2)))?;
            }
            area.draw_text(name, &style, (32, y - 7))?;
        }
        Ok(())
    }
}

/// Ranges of the axes, which hold all points of all panels.
struct Axes {
    across: Range<f64>,
    up: Range<f64>,
}

impl Axes {
    fn of(panels: &[Panel], scale: Scale) -> Axes {
        /// Part of an axis that stays free at an end.
        const FREE: f64 = 1.15;
        let sizes = || panels.iter().flat_map(Panel::sizes);
        let (first, last) = (sizes().fold(f64::MAX, f64::min), sizes().fold(1.0, f64::max));
        let values = || panels.iter().flat_map(Panel::values);
        let most = values().map(|(_, most)| most).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let positive = values().map(|(least, _)| least).filter(|least| *least > 0.0);
        let least = positive.fold(most, f64::min);
        Axes {
            across: first.min(last).max(1.0) / FREE..last * FREE,
            up: match scale {
                Scale::Linear => 0.0..most * FREE,
                Scale::Logarithmic => least / FREE..most * FREE,
            },
        }
    }
}

/// Formats a size in bytes, or a number.
fn size_text(size: f64) -> String {
    match size {
        ..1024.0 => format!("{size}"),
        ..1_048_576.0 => format!("{}K", size / 1024.0),
        _ => format!("{}M", size / 1_048_576.0),
    }
}

/// Formats a value with as many digits as it needs.
fn value_text(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &'static str, points: &[(f64, f64)]) -> Measured {
        let spread = points.iter().map(|&(_, y)| (y * 0.8, y * 1.5)).collect();
        Measured { line: Line { name, points: points.into() }, spread }
    }

    fn plot(scale: Scale, panels: Vec<Panel>) -> Plot {
        let notes = vec!["long ".repeat(60)];
        Plot { title: "t & u", across: "bytes", up: "GB/s", scale, notes, panels }
    }

    #[test]
    fn axes_hold_all_points_and_their_spread() {
        let lines = vec![measured("a", &[(64.0, 0.1), (65_507.0, 3.7)])];
        let then_lines = vec![Line { name: "b", points: vec![(8.0, 9.0)] }];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let panels = [Panel { lines: Vec::new(), then_lines: then_lines.clone() }];
            let axes = Axes::of(&panels, scale);
            assert!(axes.across.contains(&8.0) && axes.up.contains(&9.0));
            let nothing = Axes::of(&[], scale);
            assert!(nothing.across.end.is_finite() && nothing.up.end.is_finite());
            assert!(nothing.across.start < nothing.across.end);
        }
        let axes = Axes::of(&[Panel { lines, then_lines }], Scale::Logarithmic);
        assert!(axes.across.contains(&65_507.0) && axes.up.contains(&(3.7 * 1.5)));
        assert!(axes.up.contains(&(0.1 * 0.8)) && axes.up.start > 0.0);
    }

    #[test]
    fn a_picture_is_well_formed() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let then = Line { name: "a very long name of then", points: vec![(8.0, 2.0)] };
            let first = Panel {
                lines: vec![measured("a < b", &[(8.0, 1.0), (1024.0, 2.0)])],
                then_lines: vec![then],
            };
            let second = Panel {
                lines: vec![measured("c", &[(2.0 * 1_048_576.0, 0.5)])],
                then_lines: vec![],
            };
            let svg = plot(scale, vec![first, second]).svg().expect("the picture can be drawn");
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("a &lt; b") && svg.contains("t &amp; u"), "{svg}");
            assert!(svg.contains("a very long name of then") && svg.contains("1K"), "{svg}");
            // A dot and the bar's circle at each of three points, one old point, and three keys.
            assert_eq!(svg.matches("<circle").count(), 10);
        }
    }

    #[test]
    fn picture_of_more_lines_than_colours_is_refused() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let lines = names.map(|name| measured(name, &[(8.0, 1.0)])).into();
        let panel = Panel { lines, then_lines: Vec::new() };
        let error = plot(Scale::Linear, vec![panel]).svg().expect_err("seven lines").to_string();
        assert!(error.contains("7 lines") && error.contains("t & u"), "{error}");
    }

    #[test]
    fn labels_of_sizes_and_values() {
        assert_eq!([8.0, 2048.0, 4_194_304.0].map(size_text), ["8", "2K", "4M"]);
        assert_eq!([0.01, 100.0, 0.1 + 0.2].map(value_text), ["0.01", "100", "0.3"]);
    }
}
