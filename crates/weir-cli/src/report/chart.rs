//! A picture with two axes, as inline SVG. Its colours are the page's, by class.

use super::scale::Scale;
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
