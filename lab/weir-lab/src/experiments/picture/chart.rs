//! A line chart as SVG, for a page that may be light or dark and readers who may not tell colours apart: each line has its
//! name at its end, and differs by colour, dashes and marks.

use std::fmt::Write;
use std::ops::Range;

/// Seconds since the frees began, and MiB resident.
pub type Curve = Vec<(f64, f64)>;

/// One chart among those that share the axes.
pub struct Panel {
    /// Above it.
    pub title: String,
    /// By name. The first is the subject.
    pub curves: Vec<(String, Curve)>,
}

/// All panels, below one another.
pub struct Chart<'a> {
    /// Above all.
    pub title: String,
    /// The axis from left to right.
    pub seconds: Range<f64>,
    /// From top to bottom.
    pub panels: &'a [Panel],
}

const WIDTH: f64 = 860.0;
const HEAD: f64 = 44.0;
const PANEL: f64 = 340.0;
const FOOT: f64 = 26.0;
/// Around a panel's lines: for its title, the names at the ends, the numbers below and beside.
const ABOVE: f64 = 36.0;
const RIGHT: f64 = 150.0;
const BELOW: f64 = 24.0;
const LEFT: f64 = 58.0;
/// From one name to the next, at least.
const LINE_HEIGHT: f64 = 16.0;
/// Seconds between two marks on a line.
const MARK_EVERY: f64 = 2.0;

/// Okabe and Ito's colours for all kinds of colour vision, but for black and yellow, one of which is lost on any page.
const COLORS: [&str; 6] = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "10 3 2 3"];
const MARKS: usize = 5;

/// Colours of the page, which a dark one changes.
const STYLE: &str = "<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#1f2328}.page{fill:#fff}\
.grid{stroke:#d1d9e0;stroke-width:1}.axis{stroke:#59636e;stroke-width:1}.lead{stroke-width:1;opacity:.6}\
.title{font-size:16px;font-weight:600}.panel{font-weight:600}.num{text-anchor:end}.mid{text-anchor:middle}\
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.page{fill:#0d1117}.grid{stroke:#3d444d}.axis{stroke:#9198a1}}\
</style>";

/// How one line is drawn.
struct LineStyle {
    color: &'static str,
    dash: &'static str,
    width: f64,
    mark: usize,
}

impl LineStyle {
    /// The subject is broad and unbroken; of the others no two are alike in more than one respect as long as there are
    /// colours.
    fn of(index: usize) -> Self {
        let dash = if index == 0 { "" } else { DASHES[(index + index / COLORS.len()) % DASHES.len()] };
        Self {
            color: COLORS[index % COLORS.len()],
            dash,
            width: if index == 0 { 3.5 } else { 1.8 },
            mark: index % MARKS,
        }
    }
}

/// Where a panel's values lie on the page.
struct Axes {
    seconds: Range<f64>,
    top_mib: f64,
    /// Of the panel.
    y: f64,
}

impl Axes {
    fn left(&self) -> f64 {
        LEFT
    }

    fn right(&self) -> f64 {
        WIDTH - RIGHT
    }

    fn x(&self, seconds: f64) -> f64 {
        let part = (seconds - self.seconds.start) / (self.seconds.end - self.seconds.start);
        self.left() + part * (self.right() - self.left())
    }

    fn y(&self, mib: f64) -> f64 {
        let (bottom, top) = (self.y + PANEL - BELOW, self.y + ABOVE);
        bottom - mib / self.top_mib * (bottom - top)
    }
}

impl Chart<'_> {
    /// The whole as text.
    pub fn svg(&self) -> String {
        let height = HEAD + PANEL * self.panels.len() as f64 + FOOT;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{0}</title>\n{STYLE}\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n<text class=\"title\" x=\"{LEFT}\" y=\"28\">{0}\
             </text>\n",
            escaped(&self.title)
        );
        let most = self.panels.iter().flat_map(|p| &p.curves).flat_map(|(_, c)| c).map(|(_, mib)| *mib);
        let step = step_for(most.fold(1.0, f64::max));
        let top_mib = step
            * (self.panels.iter().flat_map(|p| &p.curves).flat_map(|(_, c)| c))
                .map(|(_, mib)| (mib / step).ceil())
                .fold(1.0, f64::max);
        for (index, panel) in self.panels.iter().enumerate() {
            let axes = Axes { seconds: self.seconds.clone(), top_mib, y: HEAD + PANEL * index as f64 };
            draw_axes(&mut out, &axes, step, &panel.title);
            draw_curves(&mut out, &axes, &panel.curves);
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(out, "<text class=\"mid\" x=\"{middle}\" y=\"{:.0}\">seconds</text>\n</svg>", height - 10.0);
        out
    }
}

/// A round number of MiB, so that there are three to seven lines.
fn step_for(most: f64) -> f64 {
    let steps = [1.0, 2.0, 5.0].map(|n| [n, n * 10.0, n * 100.0, n * 1000.0, n * 10_000.0]);
    let mut steps = steps.concat();
    steps.sort_by(f64::total_cmp);
    steps.into_iter().find(|step| most / step <= 7.0).unwrap_or(most)
}

fn draw_axes(out: &mut String, axes: &Axes, step: f64, title: &str) {
    let (left, right) = (axes.left(), axes.right());
    let _ = writeln!(
        out,
        "<text class=\"panel\" x=\"{left}\" y=\"{:.0}\">{}</text><text class=\"num\" x=\"{:.0}\" y=\"{:.0}\">MiB</text>",
        axes.y + 18.0,
        escaped(title),
        left - 8.0,
        axes.y + 18.0,
    );
    let mut mib = 0.0;
    while mib <= axes.top_mib {
        let y = axes.y(mib);
        let class = if mib == 0.0 { "axis" } else { "grid" };
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"M{left} {y:.1}H{right}\"/><text class=\"num\" x=\"{:.0}\" y=\"{:.1}\">{mib}</text>",
            left - 8.0,
            y + 4.5,
        );
        mib += step;
    }
    let mut second = axes.seconds.start.ceil();
    while second <= axes.seconds.end {
        let (x, y) = (axes.x(second), axes.y(0.0));
        let (label, second_shown) = (y + 18.0, second as i64);
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{x:.1} {y:.1}v4\"/><text class=\"mid\" x=\"{x:.1}\" y=\"{label:.1}\">\
             {second_shown}</text>"
        );
        second += MARK_EVERY;
    }
}

fn draw_curves(out: &mut String, axes: &Axes, curves: &[(String, Curve)]) {
    let ends: Vec<f64> = curves.iter().map(|(_, curve)| curve.last().map_or(0.0, |(_, mib)| axes.y(*mib))).collect();
    let places = spread(&ends, axes.y + ABOVE, axes.y + PANEL - BELOW);
    // The subject last, above the others.
    for index in (0..curves.len()).rev() {
        let ((name, curve), look) = (&curves[index], LineStyle::of(index));
        let LineStyle { color, dash, width, .. } = look;
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let path = path(axes, curve);
        let _ = writeln!(
            out,
            "<path fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash} d=\"{path}\"/>"
        );
        draw_marks(out, axes, curve, &look, index, curves.len());
        let (end, place, right) = (ends[index], places[index], axes.right());
        let last = curve.last().map_or(0.0, |(_, mib)| *mib);
        let bold = if index == 0 { " font-weight=\"700\"" } else { "" };
        let _ = writeln!(
            out,
            "<path class=\"lead\" stroke=\"{color}\" d=\"M{right} {end:.1}L{:.0} {place:.1}\"/>{}\
             <text x=\"{:.0}\" y=\"{:.1}\"{bold}>{} {last:.0}</text>",
            right + 14.0,
            mark(right + 20.0, place, &look),
            right + 28.0,
            place + 4.5,
            escaped(name),
        );
    }
}

/// Marks of the lines are apart from one another, so that each of a bundle can be seen.
fn draw_marks(out: &mut String, axes: &Axes, curve: &Curve, look: &LineStyle, index: usize, count: usize) {
    let mut at = 1.0 + MARK_EVERY * index as f64 / count as f64;
    while at < axes.seconds.end {
        if let Some((time, mib)) = curve.iter().find(|(time, _)| *time >= at) {
            let _ = writeln!(out, "{}", mark(axes.x(*time), axes.y(*mib), look));
        }
        at += MARK_EVERY;
    }
}

fn mark(x: f64, y: f64, look: &LineStyle) -> String {
    let color = look.color;
    match look.mark {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"/>"),
        1 => format!("<path fill=\"{color}\" d=\"M{:.1} {:.1}h7v7h-7z\"/>", x - 3.5, y - 3.5),
        2 => format!("<path fill=\"{color}\" d=\"M{x:.1} {:.1}l4.5 8h-9z\"/>", y - 5.0),
        3 => format!("<path fill=\"{color}\" d=\"M{x:.1} {:.1}l5 5-5 5-5-5z\"/>", y - 5.0),
        _ => format!("<path stroke=\"{color}\" stroke-width=\"2\" d=\"M{:.1} {:.1}l7 7m0-7l-7 7\"/>", x - 3.5, y - 3.5),
    }
}

/// The line, without the points that lie on the way from their neighbours' one to the other.
fn path(axes: &Axes, curve: &Curve) -> String {
    const SEEN: f64 = 0.4;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, (time, mib)) in curve.iter().enumerate() {
        let point = (axes.x(time.min(axes.seconds.end)), axes.y(*mib));
        let next = curve.get(index + 1).map(|(_, mib)| axes.y(*mib));
        let is_flat = |y: f64| (y - point.1).abs() < SEEN;
        if kept.last().is_none_or(|last| !is_flat(last.1)) || next.is_none_or(|next| !is_flat(next)) {
            kept.push(point);
        }
    }
    let words = kept.iter().enumerate().map(|(i, (x, y))| format!("{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' }));
    words.collect()
}

/// Moves places apart to the height of a line, as little as needed, within `top..=bottom` if there is room.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Groups of lines that touch: first index in `order`, count, middle.
    let mut groups: Vec<(usize, usize, f64)> = Vec::new();
    for (at, &index) in order.iter().enumerate() {
        groups.push((at, 1, wanted[index]));
        while let [.., a, b] = groups[..] {
            let half = |group: (usize, usize, f64)| group.1 as f64 * LINE_HEIGHT / 2.0;
            let clamp = |group: (usize, usize, f64)| {
                let (low, high) = (top + half(group) - LINE_HEIGHT / 2.0, bottom - half(group) + LINE_HEIGHT / 2.0);
                group.2.min(high).max(low)
            };
            if clamp(a) + half(a) <= clamp(b) - half(b) {
                break;
            }
            let count = a.1 + b.1;
            let middle = (a.2 * a.1 as f64 + b.2 * b.1 as f64) / count as f64;
            groups.truncate(groups.len() - 2);
            groups.push((a.0, count, middle));
        }
    }
    let mut places = vec![0.0; wanted.len()];
    for (first, count, middle) in groups {
        let half = count as f64 * LINE_HEIGHT / 2.0 - LINE_HEIGHT / 2.0;
        let begin = middle.min(bottom - half).max(top + half) - half;
        for n in 0..count {
            places[order[first + n]] = begin + n as f64 * LINE_HEIGHT;
        }
    }
    places
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_in_the_order_of_their_lines() {
        let wanted = [100.0, 20.0, 21.0, 22.0, 300.0, 299.0];
        let places = spread(&wanted, 20.0, 300.0);
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
        assert_eq!(order, [1, 2, 3, 0, 5, 4]);
        assert!(order.windows(2).all(|pair| places[pair[1]] - places[pair[0]] >= LINE_HEIGHT - 0.01), "{places:?}");
        assert!(places.iter().all(|y| (19.9..=300.1).contains(y)), "{places:?}");
        assert_eq!(places[0], 100.0, "what is alone stays");
    }

    #[test]
    fn no_two_lines_look_alike() {
        let looks: Vec<_> = (0..12).map(LineStyle::of).map(|l| (l.color, l.dash, l.mark)).collect();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{index}");
        }
    }

    #[test]
    fn the_scale_has_round_steps() {
        assert_eq!([step_for(1100.0), step_for(270.0), step_for(5.0)], [200.0, 50.0, 1.0]);
    }

    #[test]
    fn flat_stretches_take_two_points() {
        let curve: Curve = (0..100).map(|n| (n as f64 / 10.0, if n < 50 { 100.0 } else { 10.0 })).collect();
        let panel = Panel { title: "a < b".into(), curves: vec![("x".into(), curve.clone())] };
        let axes = Axes { seconds: 0.0..10.0, top_mib: 100.0, y: 0.0 };
        assert_eq!(path(&axes, &curve).matches('L').count(), 3);
        let svg = Chart { title: "t".into(), seconds: 0.0..10.0, panels: &[panel] }.svg();
        assert!(svg.contains(">x 10</text>") && svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
