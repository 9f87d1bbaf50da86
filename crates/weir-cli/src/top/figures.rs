//! Figures as the screen writes them.

use crate::around::stall::Stall;

/// Shares of time in which tasks waited for memory.
pub fn stall_line(name: &str, stall: Option<&Stall>) -> String {
    let Some(Stall { some, full }) = stall else { return format!("{name}: the kernel tells of none") };
    let three = |shares: &[f64; 3]| shares.map(|share| format!("{share:.1}")).join(" ");
    format!("{name}  some {} %  full {} %  (10 s, 1 min, 5 min)", three(some), three(full))
}

/// Bytes in at most five columns: three digits and a unit.
pub fn short(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = ['K', 'M', 'G', 'T', 'P', 'E'].into_iter().peekable();
    // What would be written with four digits is written in the next unit.
    while value >= 999.5 && units.len() > 1 {
        value /= 1024.0;
        units.next();
    }
    let unit = units.next().unwrap_or('E');
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_four_columns() {
        let written = [0, 999, 1000, 1536, 10 << 20, 1000 << 20, 5 << 30, u64::MAX].map(short);
        assert_eq!(written, ["0B", "999B", "1.0K", "1.5K", "10M", "1.0G", "5.0G", "16E"]);
        for shift in 0..64 {
            assert!(short((1 << shift) - 1).len() <= 5 && short(1 << shift).len() <= 5);
        }
    }
}
