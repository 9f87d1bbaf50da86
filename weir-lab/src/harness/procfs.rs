//! What the kernel says of a process and of the machine.

use std::fs::read_to_string;

/// Bytes of a process, exact at the moment of asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident.
    pub rss: u64,
    /// Swapped out.
    pub swap: u64,
    /// Resident in huge pages.
    pub huge: u64,
}

impl Memory {
    /// What the process occupies, wherever it lies.
    pub fn held(self) -> u64 {
        self.rss + self.swap
    }
}

/// From `smaps_rollup`, which walks the page tables: `statm` is a batch of pages a CPU behind.
pub fn memory(pid: u32) -> Result<Memory, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    let field = |name: &str| kib_field(&text, name).map(|kib| kib * 1024);
    Ok(Memory {
        rss: field("Rss:").ok_or_else(|| format!("{path} has no Rss"))?,
        swap: field("Swap:").unwrap_or(0),
        huge: field("AnonHugePages:").unwrap_or(0),
    })
}

/// The number after `name` in a file of `Name:  12 kB` lines.
pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn status(pid: u32, name: &str) -> Option<u64> {
    let text = read_to_string(format!("/proc/{pid}/status")).ok()?;
    kib_field(&text, name).map(|kib| kib * 1024)
}

/// The high mark of a process's resident set, in bytes.
pub fn peak(pid: u32) -> Result<u64, String> {
    status(pid, "VmHWM:").ok_or_else(|| format!("/proc/{pid}/status has no VmHWM"))
}

/// Resident bytes of a process that no file stands behind.
pub fn anonymous(pid: u32) -> Option<u64> {
    status(pid, "RssAnon:")
}

/// Minor faults of a process and of those of its children that it has waited for.
pub fn minor_faults(pid: u32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    // The name, in parentheses, may hold anything; the fields after it are counted from the third.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|word| word.parse::<u64>().ok());
    field(10).zip(field(11)).map(|(own, childrens)| own + childrens).ok_or_else(|| format!("{path} is too short"))
}

/// Bytes that could be had without swapping.
pub fn available_memory() -> Result<u64, String> {
    let text = read_to_string("/proc/meminfo").map_err(|why| format!("/proc/meminfo: {why}"))?;
    kib_field(&text, "MemAvailable:").map(|kib| kib * 1024).ok_or_else(|| "/proc/meminfo has no MemAvailable".into())
}

/// One of the machine's counters.
pub fn vmstat(name: &str) -> Result<u64, String> {
    let text = read_to_string("/proc/vmstat").map_err(|why| format!("/proc/vmstat: {why}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).ok_or_else(|| format!("/proc/vmstat has no {name}"))
}

/// The machine's swap traffic since boot, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwapTraffic {
    /// Pages read back.
    pub pages_in: u64,
    /// Pages written out.
    pub pages_out: u64,
}

impl SwapTraffic {
    /// As it stands.
    pub fn now() -> Result<SwapTraffic, String> {
        Ok(SwapTraffic { pages_in: vmstat("pswpin")?, pages_out: vmstat("pswpout")? })
    }

    /// What came since `earlier`.
    pub fn since(self, earlier: SwapTraffic) -> SwapTraffic {
        SwapTraffic { pages_in: self.pages_in - earlier.pages_in, pages_out: self.pages_out - earlier.pages_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let text = "Rss:    12 kB\nSwapPss:  3 kB\nSwap:   4 kB\n";
        assert_eq!(kib_field(text, "Swap:"), Some(4));
        assert_eq!(kib_field(text, "Pss:"), None);
    }

    #[test]
    fn this_process_has_faulted() {
        assert!(minor_faults(std::process::id()).unwrap() > 10);
        assert!(peak(std::process::id()).unwrap() >= anonymous(std::process::id()).unwrap());
    }

    #[test]
    fn this_process_is_resident() {
        assert!(memory(std::process::id()).unwrap().rss > 4096);
    }
}
