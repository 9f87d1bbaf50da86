//! The machine.

/// Its memory, bytes.
pub fn memory() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram as u64 * u64::from(found.mem_unit)
}
