//! The sweep's picture: a panel for each pattern, cost by size, both logarithmic.

use super::measure::{Curve, Row};
use plotters::prelude::*;
use std::path::Path;

/// A panel's size, pixels.
const PANEL: (u32, u32) = (900, 300);

/// Draws all curves; the subject, which is the first, in the strongest line.
pub fn draw(path: &Path, names: &[&str], rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (PANEL.0, PANEL.1 * rows.len().max(1) as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (setting, curves)) in root.split_evenly((rows.len().max(1), 1)).iter().zip(rows) {
        let title = format!("{}, {} thread(s): ns of processor time an operation", setting.pattern, setting.threads);
        panel(area, &title, names, curves)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    title: &str,
    names: &[&str],
    curves: &[Curve],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (Some(first), Some(last)) = (all().map(|(&size, _)| size).min(), all().map(|(&size, _)| size).max()) else {
        return Ok(());
    };
    let ns = || all().map(|(_, point)| point.ns.median()).filter(|ns| *ns > 0.0);
    let (least, most) = (ns().fold(f64::MAX, f64::min).max(1.0), ns().fold(1.0, f64::max) * 1.2);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(60)
        .right_y_label_area_size(120)
        .build_cartesian_2d((first as f64..last as f64).log_scale(), (least..most).log_scale())?;
    chart.configure_mesh().light_line_style(WHITE).x_label_formatter(&|size| short_bytes(*size)).draw()?;
    for (index, (name, curve)) in names.iter().zip(curves).enumerate().rev() {
        let color = if index == 0 { BLACK.to_rgba() } else { Palette99::pick(index).to_rgba() };
        let style = color.stroke_width(if index == 0 { 3 } else { 1 });
        let points = curve.points.iter().map(|(&size, point)| (size as f64, point.ns.median().max(least)));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}

fn short_bytes(size: f64) -> String {
    match size {
        size if size >= f64::from(1 << 20) => format!("{:.0} MiB", size / f64::from(1 << 20)),
        size if size >= 1024.0 => format!("{:.0} KiB", size / 1024.0),
        size => format!("{size:.0} B"),
    }
}
