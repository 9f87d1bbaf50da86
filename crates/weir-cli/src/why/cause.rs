//! A cause why the resident set is as large as it is, and what the rules for causes go by.

use super::growth::Growth;
use super::look::Look;
use super::parts::Parts;
use serde::Serialize;

/// What can hold memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Growth,
    Fragmentation,
    Retained,
    ReportingOff,
    HugePages,
    OtherAllocator,
    OwnMapping,
    Locked,
    Limit,
    PageTables,
    Metadata,
    Children,
    /// Of files that the process has open.
    PageCache,
    /// Of all that the process's cgroup did with files.
    CgroupPageCache,
    /// The program uses it: nothing is wrong.
    InUse,
    Files,
    SharedMemory,
    Stacks,
    Data,
}

/// A cause that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub cause: Cause,
    pub bytes: u64,
    /// In plain words.
    pub says: String,
    /// What would release the memory: commands, settings, calls.
    pub cures: Vec<String>,
}

/// What the rules go by.
pub struct Case<'a> {
    pub look: &'a Look,
    pub parts: &'a Parts,
    pub growth: Option<&'a Growth>,
}

/// The least that is worth a word, bytes, and as a share of the resident set: 1 / SHARE.
const LEAST: u64 = 1 << 20;
const SHARE: u64 = 20;

impl Cause {
    /// Growth ends in trouble whatever its size; the last ones are what every program has.
    pub fn rank(self) -> u32 {
        match self {
            Self::Growth => 0,
            Self::CgroupPageCache => 3,
            Self::InUse | Self::Files | Self::SharedMemory | Self::Stacks | Self::Data => 2,
            _ => 1,
        }
    }

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::Fragmentation => "fragmentation",
            Self::Retained => "retained",
            Self::ReportingOff => "reporting off",
            Self::HugePages => "huge pages",
            Self::OtherAllocator => "another allocator",
            Self::OwnMapping => "the program's own mappings",
            Self::Locked => "locked memory",
            Self::Limit => "limit missed",
            Self::PageTables => "page tables",
            Self::Metadata => "metadata",
            Self::Children => "children",
            Self::PageCache => "page cache",
            Self::CgroupPageCache => "page cache of the cgroup",
            Self::InUse => "in use",
            Self::Files => "mapped files",
            Self::SharedMemory => "shared memory",
            Self::Stacks => "stacks",
            Self::Data => "static data",
        }
    }
}

impl Case<'_> {
    fn is_large(&self, bytes: u64) -> bool {
        bytes >= LEAST.max(self.parts.resident_bytes() / SHARE)
    }

    /// A finding about so many bytes, if they are worth it.
    pub fn finding(&self, cause: Cause, bytes: u64, says: String, cures: Vec<String>) -> Option<Finding> {
        self.is_large(bytes).then_some(Finding { cause, bytes, says, cures })
    }

    /// A command for this process.
    pub fn ctl(&self, request: &str, what: &str) -> String {
        let silent = self.look.weir.as_ref().and_then(|weir| weir.silent.as_deref());
        match silent {
            None => format!("`weir ctl {} {request}`: {what}", self.look.pid),
            Some(why) => format!("start it anew so that `weir ctl` can {request} ({why}): {what}"),
        }
    }
}
