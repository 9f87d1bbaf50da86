//! Why the resident set is as large as it is: rules, each of which looks for one cause.

mod beside;
pub mod cause;
mod heap;
mod program;

use cause::{Case, Finding};

/// A rule, which looks for one cause.
type Rule = fn(&Case) -> Option<Finding>;

/// All causes that apply: first what is out of the ordinary, largest first, then what the program just uses.
pub fn find(case: &Case) -> Vec<Finding> {
    use {beside::*, heap::*, program::*};
    let of_heap = [fragmentation, idle, limit, metadata, in_use, growth];
    let of_program = [huge_pages, other_allocator, own_mapping, locked, files, shared, stacks, data];
    let beside = [page_tables, children, page_cache, page_cache_of_group];
    let rules: [&[Rule]; 3] = [&of_heap, &of_program, &beside];
    let mut found: Vec<Finding> = rules.concat().iter().filter_map(|rule| rule(case)).collect();
    found.sort_by_key(|it| (it.cause.rank(), std::cmp::Reverse(it.bytes)));
    found
}

#[cfg(test)]
mod tests {
    use super::cause::Cause;
    use super::*;
    use crate::figures::idle_window::IdleWindow;
    use crate::figures::memory::Measured;
    use crate::why::holders::Holder;
    use crate::why::look::Look;
    use crate::why::look::OfWeir;
    use crate::why::mappings::Kind;
    use crate::why::mappings::Mapping;
    use crate::why::parts::Parts;

    fn measured(mib: [u64; 5]) -> Option<Measured> {
        let [live, idle, fragmented, metadata, untouched] = mib.map(|mib| mib << 20);
        Some(Measured { live, idle, fragmented, merged: 0, metadata, untouched, process: 0 })
    }

    fn look(mappings: &[(Kind, u64)], mib: [u64; 5]) -> Look {
        let mapping = |&(kind, mib): &(Kind, u64)| Mapping {
            kind,
            address: (0, mib << 20),
            file: None,
            resident: mib << 20,
            huge: 0,
            locked: 0,
            swapped: 0,
            empty: 0,
        };
        let weir = OfWeir { measured: measured(mib), ..OfWeir::default() };
        Look { pid: 7, weir: Some(weir), mappings: mappings.iter().map(mapping).collect(), ..Look::default() }
    }

    fn causes(look: &Look) -> Vec<Finding> {
        find(&Case { look, parts: &Parts::of(look), growth: None })
    }

    fn names(look: &Look) -> Vec<Cause> {
        causes(look).iter().map(|it| it.cause).collect()
    }

    #[test]
    fn what_is_out_of_the_ordinary_comes_first_and_what_is_small_not_at_all() {
        let maps =
            [(Kind::WeirHeap, 60), (Kind::WeirMetadata, 6), (Kind::Code, 3), (Kind::Stack, 1), (Kind::Anonymous, 4)];
        let mut look = look(&maps, [40, 12, 8, 6, 0]);
        assert_eq!(
            names(&look),
            [Cause::Retained, Cause::Fragmentation, Cause::Metadata, Cause::OwnMapping, Cause::InUse]
        );
        look.weir.as_mut().unwrap().measured = measured([60, 0, 0, 6, 0]);
        look.mappings.truncate(2);
        assert_eq!(names(&look), [Cause::Metadata, Cause::InUse]);
        let metadata = &causes(&look)[0];
        assert!(metadata.bytes == 6 << 20 && metadata.cures[0].starts_with("`weir ctl 7 drain`"), "{metadata:?}");
    }

    #[test]
    fn a_setting_explains_why_idle_memory_stays() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [10, 50, 0, 0, 0]);
        assert_eq!(names(&look)[0], Cause::Retained);
        for (setting, value) in [("report", 0), ("background", 0)] {
            look.weir.as_mut().unwrap().settings = [(setting.to_owned(), value)].into();
            assert_eq!(names(&look)[0], Cause::ReportingOff, "{setting}");
        }
    }

    #[test]
    fn the_window_that_is_named_is_the_one_in_force() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [10, 50, 0, 0, 0]);
        let weir = look.weir.as_mut().unwrap();
        weir.window = Some(IdleWindow::new(300, 2, 500 << 20, 400 << 20));
        let found = &causes(&look)[0];
        assert!(
            found.says.contains("for 1.20 s after its last use; in a program at rest it is gone 1.80 s after it"),
            "{found:?}"
        );
        assert!(found.says.contains("400.0 MiB of 500.0 MiB released were touched again"), "{found:?}");
        assert!(found.cures.iter().any(|cure| cure.contains("set refault_percent 100")), "{found:?}");
    }

    #[test]
    fn a_limit_that_is_kept_is_no_cause() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [60, 0, 0, 0, 0]);
        for (limit, is_missed) in [(0, false), (59 << 20, true), (60 << 20, false), (1 << 30, false)] {
            look.weir.as_mut().unwrap().settings = [("limit".to_owned(), limit)].into();
            assert_eq!(names(&look).contains(&Cause::Limit), is_missed, "{limit}");
        }
    }

    #[test]
    fn memory_is_not_explained_twice() {
        let mut look = look(&[(Kind::Anonymous, 64)], [0; 5]);
        assert_eq!(names(&look), [Cause::OwnMapping]);
        look.mappings[0].empty = 60 << 20;
        assert_eq!(names(&look), [Cause::HugePages, Cause::OwnMapping]);
        look.mappings[0].empty = 64 << 20;
        assert_eq!(names(&look), [Cause::HugePages]);
    }

    /// A block of malloc's of 500 MiB beside a mapping of the program's of 60.
    #[test]
    fn blocks_of_mallocs_are_no_mappings_of_the_programs() {
        let mut look = look(&[(Kind::Anonymous, 500), (Kind::Anonymous, 60)], [500, 0, 0, 0, 0]);
        look.weir.as_mut().unwrap().elsewhere = 500 << 20;
        let own = |look: &Look| causes(look).into_iter().find(|it| it.cause == Cause::OwnMapping).unwrap();
        let found = own(&look);
        assert!(found.bytes == 60 << 20 && found.says.contains("60.0 MiB of 60.0 MiB resident"), "{found:?}");
        // What huge pages of the block hold for nothing takes nothing from the program's.
        look.mappings[0].empty = 400 << 20;
        assert_eq!(own(&look).bytes, 60 << 20);
        let huge = &causes(&look)[0];
        assert!(
            huge.cause == Cause::HugePages && huge.says.contains("most of it in large blocks of malloc's"),
            "{huge:?}"
        );
        look.mappings[1].empty = 30 << 20;
        assert_eq!(own(&look).bytes, 30 << 20);
        // Merged with the block it has no name.
        look.mappings[0].resident += look.mappings.pop().unwrap().resident;
        assert!(own(&look).says.ends_with("60.0 MiB that no malloc knows of."), "{:?}", own(&look));
    }

    /// 1 GiB of blocks, of which 40 MiB were touched.
    #[test]
    fn what_was_never_touched_is_no_part_of_what_is_held() {
        let mut look = look(&[(Kind::Anonymous, 40)], [1024, 0, 0, 0, 984]);
        let weir = look.weir.as_mut().unwrap();
        weir.elsewhere = 1 << 30;
        let (name, all) = ("blocks".to_owned(), 1 << 30);
        let holder = Holder {
            name,
            object_bytes: 0,
            objects: 0,
            held_bytes: all,
            used_bytes: all,
            cached_bytes: 0,
            in_slabs_bytes: 0,
        };
        weir.holders = vec![holder];
        let says = |look: &Look| causes(look)[0].says.clone();
        assert!(
            says(&look).starts_with("the program holds 40.0 MiB of objects; handed out is more"),
            "{}",
            says(&look)
        );
        look.weir.as_mut().unwrap().holders[0].used_bytes = 30 << 20;
        assert!(says(&look).ends_with("40.0 MiB of objects, most of it (30.0 MiB) of blocks."), "{}", says(&look));
    }

    #[test]
    fn a_policy_is_proposed_that_is_not_in_force() {
        let mut look = look(&[(Kind::Anonymous, 64)], [0; 5]);
        look.mappings[0].empty = 60 << 20;
        for (policy, is_proposed) in [("always", true), ("madvise", false), ("never", false)] {
            look.huge_page_policy = policy.into();
            assert_eq!(causes(&look)[0].cures.iter().any(|cure| cure.contains("echo madvise")), is_proposed);
        }
    }
}
