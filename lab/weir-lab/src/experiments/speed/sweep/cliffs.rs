//! The cliffs of the sweep: where neighbouring sizes differ too much in cost, and which of these are known.

use std::collections::BTreeMap;

/// Instructions by size.
pub type Series = BTreeMap<u64, f64>;

/// Neighbours differ too much from this factor on, up or down.
const CLIFF: f64 = 3.0;
/// A known cliff is as it was while it is within this factor of what its row says.
const AS_IT_WAS: f64 = 1.5;

/// A cliff that is known: from the size before to `size` the cost becomes `factor` times as much.
pub struct Known {
    pub pattern: &'static str,
    pub size: u64,
    pub factor: f64,
    pub why: &'static str,
}

/// Between two neighbours: the smaller one, the larger one, and its cost over that of the smaller one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub before: u64,
    pub size: u64,
    pub factor: f64,
}

/// The steps between neighbours, the smallest sizes first.
pub fn steps(series: &Series) -> Vec<Step> {
    let points: Vec<(u64, f64)> = series.iter().map(|(&size, &cost)| (size, cost)).collect();
    points.windows(2).map(|two| Step { before: two[0].0, size: two[1].0, factor: two[1].1 / two[0].1 }).collect()
}

/// Whether neighbours differ too much.
pub fn is_cliff(step: Step) -> bool {
    !(1.0 / CLIFF..CLIFF).contains(&step.factor)
}

/// Faults of a series. One is a cliff that no row of the pattern names, the other a row that is not, or no longer, as the
/// cliff is. A step from or to a size with a cost `by_chance` is not judged.
pub fn faults(pattern: &str, series: &Series, known: &[Known], by_chance: impl Fn(u64) -> bool) -> Vec<String> {
    let of_pattern = || known.iter().filter(|row| row.pattern == pattern);
    let mut steps = steps(series);
    steps.retain(|step| !by_chance(step.before) && !by_chance(step.size));
    let unknown = steps.iter().filter(|step| is_cliff(**step) && !of_pattern().any(|row| row.size == step.size));
    let mut faults: Vec<String> = unknown
        .map(|step| format!("{pattern}: a cliff at {} B, {:.2} times the size before it", step.size, step.factor))
        .collect();
    for row in of_pattern() {
        let said = format!("{pattern}: the row of {} B says {:.2} times the size before it", row.size, row.factor);
        match steps.iter().find(|step| step.size == row.size) {
            None => faults.push(format!("{said}, and no such size is counted")),
            Some(step) if !(1.0 / AS_IT_WAS..=AS_IT_WAS).contains(&(step.factor / row.factor)) => {
                faults.push(format!("{said}, and it is {:.2}", step.factor));
            }
            Some(_) => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(costs: &[f64]) -> Series {
        (3..).map(|power| 1 << power).zip(costs.iter().copied()).collect()
    }

    fn row(size: u64, factor: f64) -> Known {
        Known { pattern: "malloc", size, factor, why: "" }
    }

    #[test]
    fn a_cliff_is_found_up_and_down() {
        let found = faults("malloc", &series(&[43.0, 43.0, 130.0, 140.0, 40.0, 41.0]), &[], |_| false);
        assert_eq!(
            found,
            [
                "malloc: a cliff at 32 B, 3.02 times the size before it",
                "malloc: a cliff at 128 B, 0.29 times the size before it"
            ]
        );
        assert!(faults("malloc", &series(&[43.0, 100.0, 250.0, 100.0]), &[], |_| false).is_empty());
    }

    #[test]
    fn a_known_cliff_may_stay_and_no_more() {
        let known = [row(32, 10.0)];
        for as_it_was in [70.0, 100.0, 145.0] {
            assert!(faults("malloc", &series(&[10.0, 10.0, as_it_was]), &known, |_| false).is_empty());
        }
        for changed in [10.0, 60.0, 160.0] {
            let found = faults("malloc", &series(&[10.0, 10.0, changed]), &known, |_| false);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("malloc: the row of 32 B says 10.00"), "{found:?}");
        }
    }

    #[test]
    fn what_chance_decides_is_not_judged() {
        let costs = series(&[10.0, 10.0, 100.0, 10.0, 10.0]);
        assert_eq!(faults("malloc", &costs, &[], |_| false).len(), 2);
        assert!(faults("malloc", &costs, &[], |size| size == 32).is_empty());
        assert_eq!(faults("malloc", &costs, &[], |size| size == 128).len(), 2);
    }

    #[test]
    fn a_row_is_of_its_pattern_and_of_a_size_that_is_counted() {
        let cliff = series(&[10.0, 10.0, 100.0]);
        assert_eq!(faults("calloc", &cliff, &[row(32, 10.0)], |_| false).len(), 1);
        let found = faults("malloc", &cliff, &[row(32, 10.0), row(33, 10.0)], |_| false);
        assert_eq!(found, ["malloc: the row of 33 B says 10.00 times the size before it, and no such size is counted"]);
    }
}
