//! A cause why the resident set is as large as it is, and what the rules for causes go by.

use crate::why::growth::Growth;
use crate::why::look::Look;
use crate::why::mappings::{Kind, Mapping};
use crate::why::parts::{Name, Parts};
use serde::Serialize;

/// The words for each cause: its rank and its name for people.
macro_rules! causes {
    ($($(#[$what:meta])* $Cause:ident $rank:literal $word:literal,)*) => {
        /// A reason why memory is held.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause {
            $($(#[$what])* $Cause,)*
        }

        impl Cause {
            /// Growth ends in trouble whatever its size; the last ones are what every program has.
            pub fn rank(self) -> u32 {
                match self { $(Self::$Cause => $rank,)* }
            }

            /// For people.
            pub fn word(self) -> &'static str {
                match self { $(Self::$Cause => $word,)* }
            }
        }
    };
}

causes! {
    Growth 0 "growth",
    Fragmentation 1 "fragmentation",
    Retained 1 "retained",
    ReportingOff 1 "reporting off",
    HugePages 1 "huge pages",
    OtherAllocator 1 "another allocator",
    OwnMapping 1 "the program's own mappings",
    Locked 1 "locked memory",
    Limit 1 "limit missed",
    PageTables 1 "page tables",
    Metadata 1 "metadata",
    Children 1 "children",
    /// The cache of files that the process has open.
    PageCache 1 "page cache",
    /// The cache of all files that the process's cgroup used.
    CgroupPageCache 3 "page cache of the cgroup",
    /// The program uses it: nothing is wrong.
    InUse 2 "in use",
    Files 2 "mapped files",
    SharedMemory 2 "shared memory",
    Stacks 2 "stacks",
    Data 2 "static data",
}

/// A cause that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub cause: Cause,
    pub bytes: u64,
    /// In plain words.
    pub says: String,
    /// The ways to release the memory: commands, settings, calls.
    pub cures: Vec<String>,
}

/// The facts that the rules go by.
pub struct Case<'a> {
    pub look: &'a Look,
    pub parts: &'a Parts,
    pub growth: Option<&'a Growth>,
}

/// The least that is worth a word, bytes, and as a share of the resident set: 1 / SHARE.
const LEAST: u64 = 1 << 20;
const SHARE: u64 = 20;
/// By how much a mapping of the program's may exceed the program's own mappings, as a share of these: 1 / SLACK_SHARE. The figures
/// are of two moments.
const SLACK_SHARE: u64 = 8;

impl Case<'_> {
    /// A finding about so many bytes, if they are worth it.
    pub fn finding<C: Into<String>>(
        &self,
        cause: Cause,
        bytes: u64,
        says: String,
        cures: impl IntoIterator<Item = C>,
    ) -> Option<Finding> {
        let cures = cures.into_iter().map(Into::into).collect();
        let is_large = bytes >= LEAST.max(self.parts.resident_bytes() / SHARE);
        is_large.then_some(Finding { cause, bytes, says, cures })
    }

    /// The mappings that may be the program's own. Blocks that Weir maps singly lie among them, and what has more resident than
    /// all of the program's is such a block.
    pub fn own_mappings(&self) -> impl Iterator<Item = &Mapping> {
        let own = self.parts.bytes(Name::OwnMappings);
        let most = own.saturating_add(own / SLACK_SHARE);
        self.look.mappings.iter().filter(move |map| map.kind == Kind::Anonymous && map.resident <= most)
    }

    /// What huge pages of the program's own mappings hold for nothing.
    pub fn own_empty_bytes(&self) -> u64 {
        let empty: u64 = self.own_mappings().map(|map| map.empty).sum();
        empty.min(self.parts.bytes(Name::OwnMappings))
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
