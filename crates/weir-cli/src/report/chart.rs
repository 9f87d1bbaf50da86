//! A picture with two axes, as inline SVG. Its colours are the page's, by class.

use maud::{Markup, html};

/// The picture's size, and that of its edges, in units of which the browser makes what fits.
const SIZE: [f64; 2] = [640.0, 240.0];
const LEFT: f64 = 72.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// A picture's axes.
pub struct Chart {
    pub x: Scale,
    pub y: Scale,
    pub x_label: fn(f64) -> String,
    pub y_label: fn(f64) -> String,
}

impl Chart {
    /// A place on the axis that goes to the right.
    pub fn x(&self, value: f64) -> f64 {
        LEFT + (SIZE[0] - LEFT - RIGHT) * (value / self.x.end).clamp(0.0, 1.0)
    }

    /// A place on the axis that goes up.
    pub fn y(&self, value: f64) -> f64 {
        SIZE[1] - BOTTOM - (SIZE[1] - TOP - BOTTOM) * (value / self.y.end).clamp(0.0, 1.0)
    }

    /// The axes around what is drawn between them; `about` says to those who do not see it what it is.
    pub fn draw(&self, about: &str, inside: &Markup) -> Markup {
        let (floor, right) = (self.y(0.0), self.x(self.x.end));
        html! {
            svg viewBox=(format!("0 0 {} {}", SIZE[0], SIZE[1])) role="img" aria-label=(about) {
                @for mark in self.y.marks() {
                    @let y = px(self.y(mark));
                    line.grid x1=(LEFT) x2=(px(right)) y1=(y) y2=(y) {}
                    @let label = (self.y_label)(mark);
                    text.mark x=(LEFT - 6.0) y=(y) text-anchor="end" dominant-baseline="middle" { (label) }
                }
                (inside)
                line.axis x1=(LEFT) x2=(px(right)) y1=(px(floor)) y2=(px(floor)) {}
                @for mark in self.x.marks() {
                    text.mark x=(px(self.x(mark))) y=(SIZE[1] - 8.0) text-anchor="middle" { ((self.x_label)(mark)) }
                }
            }
        }
    }

    /// A rectangle between two places of each axis; `says` is shown for it.
    pub fn bar(&self, class: &str, [from, to]: [f64; 2], [low, high]: [f64; 2], says: &str) -> Markup {
        let (x, width) = (self.x(from), self.x(to) - self.x(from));
        let (y, height) = (self.y(high), self.y(low) - self.y(high));
        html! {
            rect class=(class) x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) { title { (says) } }
        }
    }

    /// The area between two lines through the same places of the axis to the right.
    pub fn area(&self, class: &str, xs: &[f64], low: &[f64], high: &[f64], says: &str) -> Markup {
        let corner = |(x, y): (&f64, &f64)| format!("{} {}", px(self.x(*x)), px(self.y(*y)));
        let above = xs.iter().zip(high).map(corner);
        let below = xs.iter().zip(low).rev().map(corner);
        let corners: Vec<String> = above.chain(below).collect();
        html! { path class=(class) d=(format!("M{}Z", corners.join("L"))) { title { (says) } } }
    }
}

/// A length, as exact as a screen shows it.
pub fn px(length: f64) -> String {
    format!("{length:.1}")
}

/// Marks of an axis at most, without its zero.
const MARKS: f64 = 5.0;

/// An axis from zero: its end, and the distance of its marks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub end: f64,
    pub step: f64,
}

impl Scale {
    /// For bytes up to this many: the marks are at a power of two, so that their numbers are round.
    pub fn of_bytes(most: f64) -> Self {
        let step = 2f64.powf((most.max(1.0) / MARKS).log2().ceil());
        Self { end: (most.max(1.0) / step).ceil() * step, step }
    }

    /// For other numbers: 1, 2 or 5 of a power of ten. It ends where the numbers do.
    pub fn of_numbers(most: f64) -> Self {
        let end = if most > 0.0 { most } else { 1.0 };
        let power = 10f64.powf((end / MARKS).log10().floor());
        let fits = |step: &f64| end / step <= MARKS;
        Self { end, step: [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(fits).unwrap_or(10.0 * power) }
    }

    /// The marks, zero included.
    pub fn marks(self) -> impl Iterator<Item = f64> {
        (0..=(self.end / self.step + 1e-9) as u32).map(move |mark| f64::from(mark) * self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(Scale::of_bytes((60 << 20) as f64), Scale { end: (64 << 20) as f64, step: (16 << 20) as f64 });
        assert_eq!(Scale::of_bytes(0.0), Scale { end: 1.0, step: 0.25 });
        assert_eq!(Scale::of_numbers(47.0), Scale { end: 47.0, step: 10.0 });
        assert_eq!(Scale::of_numbers(0.0).end, 1.0);
        for most in [0.001, 0.7, 1.0, 3.0, 9.9, 1e3, 7e9, 1e19] {
            for scale in [Scale::of_bytes(most), Scale::of_numbers(most)] {
                let marks: Vec<_> = scale.marks().collect();
                assert!((2..=6).contains(&marks.len()) && scale.end >= most, "{most}: {scale:?}");
            }
        }
    }
}
