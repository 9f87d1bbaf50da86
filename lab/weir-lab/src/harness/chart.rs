//! Line charts as SVG: panels one below the other, a curve for each name. They differ by colour, and the first is bold.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::coord::{Shift, combinators::LogCoord};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const PANEL: (u32, u32) = (900, 320);
/// Room for the names beside the curves, as a part of their width.
const NAMES: f64 = 0.22;

/// A panel: what it shows, and its curves by name.
pub struct Panel {
    pub title: String,
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Panel {
    /// The ranges of all points, of those above 0 for a logarithm.
    fn ranges(&self, is_log: bool) -> [Range<f64>; 2] {
        let range = |of: fn(&(f64, f64)) -> f64| {
            let all = self.curves.iter().flat_map(|(_, curve)| curve).map(of).filter(|value| !is_log || *value > 0.0);
            let (least, most) = all.fold((f64::MAX, 1.0), |(least, most), value| (value.min(least), value.max(most)));
            least.min(most / 2.0)..most
        };
        let [x, y] = [range(|point| point.0), range(|point| point.1)];
        let beside = if is_log { x.end * (x.end / x.start).powf(NAMES) } else { x.end + (x.end - x.start) * NAMES };
        [x.start..beside, if is_log { y.start..y.end * 1.2 } else { 0.0..y.end * 1.1 }]
    }
}

/// Draws the panels; both axes are logarithmic or neither is.
pub fn draw(path: &Path, panels: &[Panel], is_log: bool, x_label: fn(f64) -> String) -> Result<()> {
    let height = PANEL.1 * panels.len().max(1) as u32;
    let root = SVGBackend::new(path, (PANEL.0, height)).into_drawing_area();
    let draw = || -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            let [x, y] = panel.ranges(is_log);
            if is_log {
                draw_panel::<LogCoord<f64>>(area, panel, x.log_scale().into(), y.log_scale().into(), x_label)?;
            } else {
                draw_panel::<RangedCoordf64>(area, panel, x.into(), y.into(), x_label)?;
            }
        }
        Ok(root.present()?)
    };
    draw().map_err(|why| anyhow!("cannot draw {}: {why}", path.display()))
}

fn draw_panel<T: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    area: &DrawingArea<SVGBackend, Shift>,
    panel: &Panel,
    x: T,
    y: T,
    x_label: fn(f64) -> String,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y)?;
    chart.configure_mesh().light_line_style(WHITE).x_label_formatter(&|x| x_label(*x)).draw()?;
    for (index, (name, curve)) in panel.curves.iter().enumerate().rev() {
        let color = if index == 0 { BLACK.to_rgba() } else { Palette99::pick(index).to_rgba() };
        let style = color.stroke_width(if index == 0 { 3 } else { 1 });
        chart
            .draw_series(LineSeries::new(curve.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 14)).draw()?;
    Ok(())
}
