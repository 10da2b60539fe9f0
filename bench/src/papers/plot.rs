//! Draws lines over a logarithmic axis, as SVG that a browser and a repository's page show without
//! help.

use std::fmt::Write;

/// One line of a picture: its name and its points.
#[derive(Clone)]
pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Scale of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Starts at 0.
    Linear,
    /// Uses powers of ten, for old and new values that differ too much for a linear axis.
    Logarithmic,
}

/// A picture. The horizontal axis is logarithmic (powers of two).
pub struct Plot {
    pub title: &'static str,
    pub across: &'static str,
    pub up: &'static str,
    pub scale: Scale,
    /// Notes below the picture, one per line.
    pub notes: Vec<String>,
    pub lines: Vec<Line>,
    /// Results of the paper, drawn with dashes in the colours of the first lines.
    pub then_lines: Vec<Line>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 470.0;
/// Distance between the axes and the left edge of the picture.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Colours that people with colour blindness can tell apart (Okabe and Ito).
/// The last three are of Tol's muted scheme, for pictures of many lines.
const COLOURS: [&str; 10] = [
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7", "#999999",
    "#661100", "#44aa99",
];
/// Width of a letter of the legend.
const LETTER: f64 = 7.0;
/// Width of what stands in front of a name of the legend.
const KEY: f64 = 40.0;
/// Height of a line of notes.
const NOTE: f64 = 16.0;
const NOTE_LETTERS: usize = 130;

impl Plot {
    /// Returns the picture as SVG.
    pub fn svg(&self) -> String {
        let notes: Vec<String> = self.notes.iter().flat_map(|note| wrapped(note)).collect();
        let height = HEIGHT + NOTE * notes.len() as f64 + 10.0;
        let all = || self.lines.iter().chain(&self.then_lines);
        let longest = all().map(|line| line.name.chars().count()).max().unwrap_or(0) as f64;
        let width = WIDTH + (KEY + LETTER * longest - RIGHT).max(0.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        text(
            &mut svg,
            (LEFT, 28.0),
            "start",
            &format!("<tspan font-size=\"16\">{}</tspan>", escaped(self.title)),
        );
        let axes = Axes::of(&all().cloned().collect::<Vec<_>>(), self.scale);
        self.draw_axes(&mut svg, &axes);
        let now = self.lines.iter().zip(COLOURS.iter().cycle()).map(|drawn| (drawn, ""));
        let dashes = " stroke-dasharray=\"6 4\"";
        let then = self.then_lines.iter().zip(COLOURS.iter().cycle()).map(|drawn| (drawn, dashes));
        for (place, ((line, colour), dashes)) in now.chain(then).enumerate() {
            draw(&mut svg, &axes, line, colour, dashes);
            let y = TOP + 20.0 * place as f64 + 10.0;
            let x = WIDTH - RIGHT + 14.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{x} {y}h20\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/>"
            );
            text(&mut svg, (x + 26.0, y + 4.0), "start", &escaped(line.name));
        }
        for (place, note) in notes.iter().enumerate() {
            text(
                &mut svg,
                (12.0, HEIGHT + NOTE * place as f64),
                "start",
                &format!("<tspan font-size=\"12\">{}</tspan>", escaped(note)),
            );
        }
        svg + "</svg>\n"
    }

    fn draw_axes(&self, svg: &mut String, axes: &Axes) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#444\"/>"
        );
        for power in axes.first..=axes.last {
            let x = axes.x(f64::from(power).exp2());
            let _ = writeln!(svg, "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#444\"/>");
            text(svg, (x, bottom + 20.0), "middle", &size(power));
        }
        for (value, label) in axes.up.marks() {
            let y = axes.y(value);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>");
            text(svg, (LEFT - 8.0, y + 4.0), "end", &label);
        }
        text(svg, ((LEFT + right) / 2.0, bottom + 44.0), "middle", &escaped(self.across));
        text(svg, (LEFT - 8.0, TOP - 8.0), "end", &escaped(self.up));
    }
}

/// Vertical axis of a picture.
#[derive(Clone, Copy)]
enum ValueAxis {
    Linear {
        top: f64,
        step: f64,
    },
    /// Reaches from one power of ten to another.
    Logarithmic {
        first: i32,
        last: i32,
    },
}

impl ValueAxis {
    fn of(values: &[f64], scale: Scale) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max).max(1e-9);
        match scale {
            Scale::Linear => {
                // Chooses four to ten steps of 1, 2 or 5 times a power of ten.
                let coarse = 10_f64.powf((most / 4.0).log10().floor());
                let step = [5.0, 2.0, 1.0]
                    .into_iter()
                    .map(|times| times * coarse)
                    .find(|step| most / step >= 4.0)
                    .unwrap_or(coarse);
                Self::Linear { top: (most / step).ceil() * step, step }
            }
            Scale::Logarithmic => {
                let least =
                    values.iter().copied().filter(|&value| value > 0.0).fold(most, f64::min);
                let first = least.log10().floor() as i32;
                Self::Logarithmic { first, last: (most.log10().ceil() as i32).max(first + 1) }
            }
        }
    }

    /// Returns the position of a value, from 0 at the bottom to 1 at the top.
    fn share(self, value: f64) -> f64 {
        match self {
            Self::Linear { top, .. } => value / top,
            Self::Logarithmic { first, last } => {
                let power = value.max(10_f64.powi(first)).log10();
                (power - f64::from(first)) / f64::from(last - first)
            }
        }
    }

    fn marks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { top, step } => {
                let decimals = if step < 0.1 { 2 } else { 1 };
                let values = (0..=(top / step).round() as u32).map(|n| f64::from(n) * step);
                values.map(|value| (value, format!("{value:.decimals$}"))).collect()
            }
            Self::Logarithmic { first, last } => {
                let marked = |power: i32| {
                    (
                        10_f64.powi(power),
                        format!("{:.*}", (-power).max(0) as usize, 10_f64.powi(power)),
                    )
                };
                (first..=last).map(marked).collect()
            }
        }
    }
}

/// Maps values to positions.
struct Axes {
    first: i32,
    last: i32,
    up: ValueAxis,
}

impl Axes {
    fn of(lines: &[Line], scale: Scale) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let powers = || points().map(|&(x, _)| x.max(1.0).log2());
        let first = powers().fold(f64::INFINITY, f64::min).min(60.0).floor() as i32;
        let last = (powers().fold(0.0, f64::max).ceil() as i32).max(first + 1);
        let values: Vec<f64> = points().map(|&(_, y)| y).collect();
        Self { first, last, up: ValueAxis::of(&values, scale) }
    }

    fn x(&self, value: f64) -> f64 {
        let share =
            (value.max(1.0).log2() - f64::from(self.first)) / f64::from(self.last - self.first);
        LEFT + share * (WIDTH - RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.up.share(value) * (HEIGHT - BOTTOM - TOP)
    }
}

fn draw(svg: &mut String, axes: &Axes, line: &Line, colour: &str, dashes: &str) {
    let points: Vec<String> =
        line.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", axes.x(x), axes.y(y))).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" stroke-linejoin=\"round\"{dashes}/>",
        points.join(" ")
    );
    for &(x, y) in &line.points {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
            axes.x(x),
            axes.y(y)
        );
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#222\">{content}</text>"
    );
}

/// Formats 2ⁿ bytes.
fn size(power: i32) -> String {
    let value = |below: i32| 1_u64 << (power - below).clamp(0, 62);
    match power {
        ..10 => value(0).to_string(),
        10..20 => format!("{}K", value(10)),
        _ => format!("{}M", value(20)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Wraps a text between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.len() + word.len() >= NOTE_LETTERS)
        {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_points() {
        let lines = [Line { name: "a", points: vec![(64.0, 0.1), (65_507.0, 3.7)] }];
        let axes = Axes::of(&lines, Scale::Linear);
        assert_eq!((axes.first, axes.last), (6, 16));
        assert!((axes.x(64.0) - LEFT).abs() < 1e-9 && axes.y(3.7) >= TOP);
        assert!((5..=12).contains(&axes.up.marks().len()));
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let nothing = Axes::of(&[], scale);
            assert!(nothing.x(8.0).is_finite() && nothing.y(0.0).is_finite());
        }
    }

    #[test]
    fn what_differs_much_goes_up_by_powers_of_ten() {
        let lines = [
            Line { name: "now", points: vec![(64.0, 3.0)] },
            Line { name: "then", points: vec![(64.0, 250.0)] },
        ];
        let axes = Axes::of(&lines, Scale::Logarithmic);
        let marks: Vec<String> = axes.up.marks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(marks, ["1", "10", "100", "1000"]);
        assert!((axes.y(1.0) - (HEIGHT - BOTTOM)).abs() < 1e-9);
        assert!((axes.y(1000.0) - TOP).abs() < 1e-9);
        assert_eq!(
            Axes::of(&[Line { name: "a", points: vec![(8.0, 0.02)] }], Scale::Logarithmic)
                .up
                .marks()[0]
                .1,
            "0.01"
        );
    }

    #[test]
    fn a_picture_is_well_formed() {
        let lines = vec![Line { name: "a < b", points: vec![(8.0, 1.0), (1024.0, 2.0)] }];
        let notes = vec!["long ".repeat(60)];
        let svg = Plot {
            title: "t & u",
            across: "bytes",
            up: "GB/s",
            scale: Scale::Linear,
            notes,
            lines,
            then_lines: vec![Line { name: "a very long name of then", points: vec![(8.0, 2.0)] }],
        }
        .svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && svg.contains("t &amp; u") && svg.contains(">1K<"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "line and key of then");
        assert!(svg.contains("viewBox=\"0 0 898 "), "the long name fits: {}", &svg[..80]);
    }
}
