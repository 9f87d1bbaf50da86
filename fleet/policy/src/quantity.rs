//! Quantities of memory and of other things, as Kubernetes writes them.

/// Suffixes and what they stand for.
const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1048576.0),
    ("Gi", 1073741824.0),
    ("Ti", 1099511627776.0),
    ("Pi", 1125899906842624.0),
    ("Ei", 1152921504606846976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// What a quantity such as `512Mi`, `1.5G` or `50m` stands for; none: it is no quantity.
pub fn value(quantity: &str) -> Option<f64> {
    let quantity = quantity.trim();
    let suffix = SUFFIXES.iter().find_map(|(suffix, times)| Some((quantity.strip_suffix(suffix)?, times)));
    let (number, times) = suffix.unwrap_or((quantity, &1.0));
    let value = number.parse::<f64>().ok()? * times;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// The bytes of a quantity such as `512Mi`, `1.5G` or `128974848`, rounded up; none: it is no quantity.
pub fn bytes(quantity: &str) -> Option<u64> {
    value(quantity).map(|value| value.ceil() as u64)
}

/// Bytes as a quantity, exact.
pub fn text(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}Mi", bytes >> 20) } else { bytes.to_string() }
}

/// A number of bytes on the command line.
pub fn argument(quantity: &str) -> Result<u64, String> {
    bytes(quantity).ok_or_else(|| format!("`{quantity}` is no amount of memory: write 64Mi, or bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_notations_are_read() {
        for (quantity, expected) in [
            ("128974848", 128974848),
            ("129e6", 129000000),
            ("129M", 129000000),
            ("128974848000m", 128974848),
            ("1500000u", 2),
            ("2000000000n", 2),
            ("123Mi", 123 << 20),
            ("1.5Gi", 3 << 29),
            ("0", 0),
            ("1Ei", 1 << 60),
            ("1E", 1_000_000_000_000_000_000),
            ("1k", 1000),
        ] {
            assert_eq!(bytes(quantity), Some(expected), "{quantity}");
        }
        for wrong in ["", "Mi", "1 Mi x", "-1", "x", "inf", "NaN"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!((value("50m"), value("2"), value("0.1")), (Some(0.05), Some(2.0), Some(0.1)));
        assert_eq!((text(1_000_000_000), text(2 << 20)), ("1000000000".into(), "2Mi".into()));
        assert!(argument("5x").is_err_and(|why| why.contains("64Mi")));
    }
}
