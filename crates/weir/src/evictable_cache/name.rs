//! Names of caches.

/// A name as it is kept: cut at 31 bytes, and at a character's end.
pub fn bytes(name: &str) -> [u8; 32] {
    let mut kept = [0; 32];
    let end = (0..=name.len().min(31)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    kept[..end].copy_from_slice(&name.as_bytes()[..end]);
    kept
}

/// A kept name.
pub fn text(name: &[u8; 32]) -> &str {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    core::str::from_utf8(&name[..end]).unwrap_or_default()
}
