//! The options of `weir-guest-run`.

use clap::{Parser, value_parser};
use std::path::PathBuf;

/// Boots the guest's image under QEMU and measures, on the host, what comes back
#[derive(Parser)]
pub struct Options {
    /// MiB of memory of the guest
    #[arg(long, default_value_t = 512, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// MiB that it touches and frees in each round
    #[arg(long, default_value_t = 384, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub touch: u64,
    /// MiB that it keeps in use and checks
    #[arg(long, default_value_t = 24, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub keep: u64,
    /// The control: a balloon without free page reporting
    #[arg(long)]
    pub no_reporting: bool,
    /// A balloon without page poison
    #[arg(long)]
    pub no_poison: bool,
    /// The kernel image [default: weir-guest, next to this program]
    #[arg(long)]
    pub image: Option<PathBuf>,
    /// QEMU
    #[arg(long, default_value = "qemu-system-x86_64")]
    pub qemu: String,
}
