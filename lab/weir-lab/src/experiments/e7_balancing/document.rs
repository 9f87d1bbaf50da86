//! The document's tables (`Re: [PATCH 1/5] mm: kswapd: Stop high-order balancing when any suitable zone is balanced`, 7
//! December 2010): before, which balanced all zones, and after, which stopped at any.

use super::setting::Test;

/// Before and after, by the tables' own names for their lines; postmark's, then those of the streaming test.
type Row = (&'static str, [Option<[f64; 2]>; 2]);

const fn both(name: &'static str, postmark: [f64; 2], streaming: [f64; 2]) -> Row {
    (name, [Some(postmark), Some(streaming)])
}

const fn one(name: &'static str, postmark: [f64; 2]) -> Row {
    (name, [Some(postmark), None])
}

/// All lines, in the tables' order. The streaming test was printed without the pages reclaimed.
const ROWS: &[Row] = &[
    one("Transactions per second", [2.0, 2.0]),
    one("Data megabytes read per second", [8.14, 8.59]),
    one("Data megabytes written per second", [18.94, 19.98]),
    one("Files created alone per second", [4.0, 4.0]),
    one("Files create/transact per second", [1.0, 1.0]),
    one("Files deleted alone per second", [34.0, 30.0]),
    one("Files delete/transact per second", [1.0, 1.0]),
    both("User/Sys Time Running Test (seconds)", [152.4, 152.92], [24.23, 23.93]),
    both("Total Elapsed Time (seconds)", [5110.96, 4847.22], [916.18, 916.69]),
    both("Direct reclaims", [0.0, 0.0], [2437.0, 2565.0]),
    both("Direct reclaim pages scanned", [0.0, 0.0], [1_688_201.0, 1_801_142.0]),
    one("Direct reclaim pages reclaimed", [0.0, 0.0]),
    both("Direct reclaim write file async I/O", [0.0, 0.0], [0.0, 0.0]),
    both("Direct reclaim write anon async I/O", [0.0, 0.0], [14.0, 0.0]),
    both("Direct reclaim write file sync I/O", [0.0, 0.0], [0.0, 0.0]),
    both("Direct reclaim write anon sync I/O", [0.0, 0.0], [0.0, 0.0]),
    both("Wake kswapd requests", [0.0, 0.0], [1_333_358.0, 1_417_622.0]),
    both("Kswapd wakeups", [2177.0, 2174.0], [107.0, 116.0]),
    both("Kswapd pages scanned", [34_690_766.0, 34_691_473.0], [15_801_484.0, 15_706_394.0]),
    one("Kswapd pages reclaimed", [34_511_965.0, 34_513_478.0]),
    both("Kswapd reclaim write file async I/O", [32.0, 0.0], [44.0, 24.0]),
    both("Kswapd reclaim write anon async I/O", [2357.0, 2561.0], [25.0, 0.0]),
    both("Kswapd reclaim write file sync I/O", [0.0, 0.0], [0.0, 0.0]),
    both("Kswapd reclaim write anon sync I/O", [0.0, 0.0], [0.0, 0.0]),
    both("Time stalled direct reclaim (seconds)", [0.0, 0.0], [1.79, 0.98]),
    both("Time kswapd awake (seconds)", [632.10, 683.34], [387.60, 410.26]),
    both("Total pages scanned", [34_690_766.0, 34_691_473.0], [17_489_685.0, 17_507_536.0]),
    one("Total pages reclaimed", [34_511_965.0, 34_513_478.0]),
    both("%age total pages scanned/reclaimed", [99.48, 99.49], [0.0, 0.0]),
    both("%age total pages scanned/written", [0.01, 0.01], [0.0, 0.0]),
    both("%age file pages scanned/written", [0.0, 0.0], [0.0, 0.0]),
    both("Percentage Time Spent Direct Reclaim", [0.0, 0.0], [6.88, 3.93]),
    both("Percentage Time kswapd Awake", [12.37, 14.10], [42.31, 44.75]),
    both("Major Faults", [1979.0, 1741.0], [1943.0, 1808.0]),
    both("Minor Faults", [13_660_834.0, 13_587_939.0], [55_488_625.0, 55_441_993.0]),
    both("Page ins", [89_060.0, 74_704.0], [134_044.0, 126_640.0]),
    both("Page outs", [69_800.0, 58_884.0], [73_884.0, 69_248.0]),
    both("Swap ins", [1193.0, 1499.0], [2322.0, 1972.0]),
    both("Swap outs", [2403.0, 2562.0], [7291.0, 6521.0]),
];

/// Its figures of a line, before and after.
pub fn figures(test: Test, line: &str) -> Option<[f64; 2]> {
    let at = Test::ALL.iter().position(|own| *own == test)?;
    ROWS.iter().find(|(name, _)| *name == line)?.1[at]
}

/// The names of all lines that a test's table has.
#[cfg(test)]
pub fn names(test: Test) -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter(move |(_, figures)| figures[usize::from(test == Test::Streaming)].is_some()).map(|row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_percentages_come_out_of_its_own_figures() {
        let at = |test, line| figures(test, line).expect("a line")[1];
        let (stall, own) = (
            at(Test::Streaming, "Time stalled direct reclaim (seconds)"),
            at(Test::Streaming, "User/Sys Time Running Test (seconds)"),
        );
        let share = at(Test::Streaming, "Percentage Time Spent Direct Reclaim");
        assert!((100.0 * stall / (stall + own) - share).abs() < 0.01);
        let awake = at(Test::Postmark, "Time kswapd awake (seconds)");
        let elapsed = at(Test::Postmark, "Total Elapsed Time (seconds)");
        assert!((100.0 * awake / elapsed - at(Test::Postmark, "Percentage Time kswapd Awake")).abs() < 0.01);
    }
}
