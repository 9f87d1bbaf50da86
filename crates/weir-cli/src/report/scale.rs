//! Where the marks of an axis are.

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
