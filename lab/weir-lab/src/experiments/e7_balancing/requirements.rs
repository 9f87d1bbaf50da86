//! What the machine has to have, and how to get it.

use crate::harness::nbd_servers::weir_nbd;
use crate::harness::{block_device, cgroup, programs};

/// Programs beside those of the device, and Debian's packages of them.
const PROGRAMS: [(&str, &str); 3] = [("postmark", "postmark"), ("mount", "mount"), ("mkfs.ext4", "e2fsprogs")];

/// What is missing, a line each.
pub fn missing() -> Vec<String> {
    let mut missing: Vec<String> =
        programs::missing_root("loop devices, mounts, cgroups and swap need it").into_iter().collect();
    missing.extend(programs::missing(&PROGRAMS));
    missing.extend(programs::missing(&block_device::PROGRAMS));
    missing.extend(block_device::missing_devices());
    missing.extend(weir_nbd().err());
    missing.extend(cgroup::version().err());
    missing
}
