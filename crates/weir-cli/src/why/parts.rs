//! The parts of the resident set, which add up to it.

use super::look::Look;
use super::mappings::Kind;
use serde::Serialize;

/// The words for each part: its name for people, what it is, and what would release it. The last two are there again for a
/// process without Weir.
macro_rules! names {
    ($($(#[$doc:meta])* $Name:ident $word:literal $what:literal $release:literal $(, $other:literal $by:literal)?;)*) => {
        /// A kind of memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Name {
            $($(#[$doc])* $Name,)*
        }

        impl Name {
            /// For people.
            pub fn word(self) -> &'static str {
                match self { $(Self::$Name => $word,)* }
            }

            /// The meaning of the part, and what would release it.
            fn words(self, has_weir: bool) -> (&'static str, &'static str) {
                match self {
                    $($(Self::$Name if !has_weir => ($other, $by),)? Self::$Name => ($what, $release),)*
                }
            }
        }
    };
}

names! {
    Live "live" "in use by the program" "the program itself, by freeing it";
    Idle "idle" "free, can be released" "weir ctl PID trim, or drain for all of it";
    Fragmented "fragmented" "free, beside objects in use" "the program, by freeing the objects beside it";
    Merged "merged" "as fragmented; charged to nobody" "it takes no memory: the kernel merged these pages";
    Metadata "metadata" "Weir's own" "fewer objects; weir ctl PID drain";
    /// Resident in Weir's mappings, and in none of its figures: it came between the measurement and the look.
    Unexplained "unexplained" "Weir's, newer than its figures" "look again";
    /// Weir's heap, which it has not measured.
    HeapUnmeasured "heap" "Weir's heap, not measured yet" "weir ctl PID trim once its thread runs";
    OwnMappings "own mappings" "mappings of the program's own" "its madvise(MADV_DONTNEED) or munmap",
        "mappings: its allocator's, its own" "the allocator's own trim; weir run PROGRAM";
    BrkHeap "brk heap" "grown by brk: not by Weir" "the program, or what was allocated before Weir",
        "grown by brk: its allocator's" "glibc: malloc_trim; weir run PROGRAM";
    Stacks "stacks" "stacks of threads" "fewer threads, or less deep calls";
    Code "code" "code of program and libraries" "the kernel, under pressure";
    Data "data" "variables of program and libraries" "smaller static tables";
    Files "files" "files that are mapped" "the kernel, under pressure; munmap";
    Shared "shared" "shared memory: tmpfs, memfd, System V" "whoever made it, by removing it";
}

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    pub part: Name,
    pub bytes: u64,
    /// The part's meaning.
    pub what: &'static str,
    /// The way to release it.
    pub release: &'static str,
}

/// All parts that are there, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub Vec<Part>);

impl Parts {
    /// By one look.
    pub fn of(look: &Look) -> Self {
        // The pages of statistics are in none of the figures.
        let [heap, metadata, page] =
            [Kind::WeirHeap, Kind::WeirMetadata, Kind::WeirPage].map(|kind| look.resident(kind));
        let [anonymous, mut stacks] = [Kind::Anonymous, Kind::Stack].map(|kind| look.resident(kind));
        let weir = look.weir.as_ref();
        let mut parts = Vec::new();
        let mut add = |part, bytes| {
            if bytes > 0 {
                let (what, release) = Name::words(part, weir.is_some());
                parts.push(Part { part, bytes, what, release });
            }
        };
        let mut own = anonymous;
        match weir.and_then(|weir| Some((weir, weir.measured?))) {
            Some((weir, measured)) => {
                // Blocks that Weir maps singly lie among the program's mappings: what Weir has beyond its own areas. Where
                // these are too few, some pass for stacks, with which the kernel has merged them.
                let blocks = measured.resident().saturating_sub(heap + metadata).min(weir.elsewhere);
                let blocks = blocks.min(anonymous + stacks);
                own = anonymous.saturating_sub(blocks);
                stacks -= blocks.saturating_sub(anonymous);
                let [live, idle, fragmented, merged, metadata, rest] = measured.divide(heap + metadata + blocks);
                add(Name::Live, live);
                add(Name::Idle, idle);
                add(Name::Fragmented, fragmented);
                add(Name::Merged, merged);
                add(Name::Metadata, metadata + page);
                add(Name::Unexplained, rest);
            }
            None => {
                let blocks = weir.map_or(0, |weir| weir.elsewhere).min(anonymous);
                own -= blocks;
                add(Name::HeapUnmeasured, heap + blocks);
                add(Name::Metadata, metadata + page);
            }
        }
        add(Name::OwnMappings, own);
        add(Name::BrkHeap, look.resident(Kind::Brk));
        add(Name::Stacks, stacks);
        let others = [
            (Name::Data, Kind::Data),
            (Name::Code, Kind::Code),
            (Name::Files, Kind::File),
            (Name::Shared, Kind::Shared),
        ];
        others.into_iter().for_each(|(name, kind)| add(name, look.resident(kind)));
        Self(parts)
    }

    /// The resident set.
    pub fn resident_bytes(&self) -> u64 {
        self.0.iter().map(|part| part.bytes).sum()
    }

    /// One of them.
    pub fn bytes(&self, name: Name) -> u64 {
        self.0.iter().find(|part| part.part == name).map_or(0, |part| part.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::memory::Measured;
    use crate::why::look::OfWeir;
    use crate::why::mappings::Mapping;

    fn mapping(kind: Kind, resident: u64) -> Mapping {
        Mapping { kind, address: (0, 0), file: None, resident, huge: 0, locked: 0, swapped: 0, empty: 0 }
    }

    fn look(mappings: &[(Kind, u64)], measured: Option<[u64; 5]>, elsewhere: u64) -> Look {
        let of = |[live, idle, fragmented, metadata, untouched]: [u64; 5]| Measured {
            live,
            idle,
            fragmented,
            merged: 0,
            metadata,
            untouched,
            process: 0,
        };
        let measured = measured.map(of);
        let mappings = mappings.iter().map(|&(kind, bytes)| mapping(kind, bytes)).collect();
        let weir = OfWeir { measured, elsewhere, ..OfWeir::default() };
        Look { mappings, weir: Some(weir), ..Look::default() }
    }

    #[test]
    fn the_parts_are_all_that_is_resident_whatever_was_measured() {
        let maps =
            [(Kind::WeirHeap, 80), (Kind::WeirMetadata, 4), (Kind::Anonymous, 50), (Kind::Stack, 3), (Kind::Code, 9)];
        for measured in [[50, 20, 5, 3, 8], [500, 20, 5, 3, 8], [0; 5], [10, 80, 0, 0, 30], [5, 900, 9, 9, 0]] {
            let parts = Parts::of(&look(&maps, Some(measured), 20));
            assert_eq!(parts.resident_bytes(), 146, "{parts:?}");
        }
        let parts = Parts::of(&look(&maps, None, 20));
        assert_eq!([Name::HeapUnmeasured, Name::OwnMappings].map(|name| parts.bytes(name)), [100, 30]);
        // What a process says of itself may be anything.
        assert_eq!(Parts::of(&look(&maps, Some([u64::MAX; 5]), u64::MAX)).resident_bytes(), 146);
    }

    #[test]
    fn blocks_mapped_singly_are_weirs_and_the_rest_the_programs() {
        let maps = [(Kind::WeirHeap, 80), (Kind::Anonymous, 50)];
        let of = |elsewhere| Parts::of(&look(&maps, Some([110, 0, 0, 0, 0]), elsewhere));
        assert_eq!([Name::Live, Name::OwnMappings].map(|name| of(100).bytes(name)), [110, 20]);
        // Of the 30 bytes beyond its heap only 10 can be blocks: the others are not there any more.
        assert_eq!([Name::Live, Name::OwnMappings].map(|name| of(10).bytes(name)), [90, 40]);
    }

    #[test]
    fn blocks_that_pass_for_stacks_are_weirs() {
        let maps = [(Kind::WeirHeap, 80), (Kind::Anonymous, 10), (Kind::Stack, 40)];
        let of = |live, elsewhere| {
            let parts = Parts::of(&look(&maps, Some([live, 0, 0, 0, 0]), elsewhere));
            assert_eq!(parts.resident_bytes(), 130);
            [Name::Live, Name::OwnMappings, Name::Stacks].map(|name| parts.bytes(name))
        };
        assert_eq!(of(85, 100), [85, 5, 40]);
        assert_eq!(of(110, 100), [110, 0, 20]);
        assert_eq!(of(110, 15), [95, 0, 35]);
        assert_eq!(of(900, 900), [130, 0, 0]);
    }

    #[test]
    fn what_no_figure_explains_is_told_apart() {
        let parts = Parts::of(&look(&[(Kind::WeirHeap, 100)], Some([60, 20, 5, 0, 5]), 0));
        let names = [Name::Live, Name::Idle, Name::Fragmented, Name::Unexplained];
        assert_eq!(names.map(|name| parts.bytes(name)), [55, 20, 5, 20]);
    }
}
