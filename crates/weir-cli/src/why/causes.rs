//! Why the resident set is as large as it is: rules, each of which looks for one cause.

use super::cause::{Case, Finding};
use super::{beside_causes, heap_causes, program_causes};

/// All causes that apply: first what is out of the ordinary, largest first, then what the program just uses.
pub fn find(case: &Case) -> Vec<Finding> {
    let rules: [fn(&Case) -> Option<Finding>; 18] = [
        heap_causes::fragmentation,
        heap_causes::idle,
        program_causes::huge_pages,
        program_causes::other_allocator,
        program_causes::own_mapping,
        program_causes::locked,
        heap_causes::limit,
        beside_causes::page_tables,
        heap_causes::metadata,
        beside_causes::children,
        beside_causes::page_cache,
        beside_causes::page_cache_of_group,
        heap_causes::in_use,
        program_causes::files,
        program_causes::shared,
        program_causes::stacks,
        program_causes::data,
        heap_causes::growth,
    ];
    let mut found: Vec<Finding> = rules.iter().filter_map(|rule| rule(case)).collect();
    found.sort_by_key(|it| (it.cause.rank(), std::cmp::Reverse(it.bytes)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::idle_window::IdleWindow;
    use crate::why::cause::Cause;
    use crate::why::look::Look;
    use crate::why::look::OfWeir;
    use crate::why::mappings::Kind;
    use crate::why::mappings::Mapping;
    use crate::why::parts::Parts;

    fn look(mappings: &[(Kind, u64)], measured: [u64; 5]) -> Look {
        let mapping = |&(kind, mib): &(Kind, u64)| Mapping {
            kind,
            address: (0, mib << 20),
            file: None,
            resident: mib << 20,
            huge: 0,
            locked: 0,
            swapped: 0,
        };
        let weir = OfWeir { measured: Some(measured.map(|mib| mib << 20)), ..OfWeir::default() };
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
        look.weir.as_mut().unwrap().measured = Some([60 << 20, 0, 0, 6 << 20, 0]);
        look.mappings.truncate(2);
        assert_eq!(names(&look), [Cause::Metadata, Cause::InUse]);
        let metadata = &causes(&look)[0];
        assert!(metadata.bytes == 6 << 20 && metadata.cures[0].starts_with("`weir ctl 7 drain`"), "{metadata:?}");
    }

    #[test]
    fn a_setting_explains_why_idle_memory_stays() {
        let mut look = look(&[(Kind::WeirHeap, 60)], [10, 50, 0, 0, 0]);
        assert_eq!(names(&look)[0], Cause::Retained);
        for (setting, value) in [("report", 0), ("background", 0), ("background", 2)] {
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
        assert!(found.says.contains("for 1.20 s after its last use, and gone 1.80 s after it"), "{found:?}");
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
        look.empty_bytes = 60 << 20;
        assert_eq!(names(&look), [Cause::HugePages, Cause::OwnMapping]);
        look.empty_bytes = 64 << 20;
        assert_eq!(names(&look), [Cause::HugePages]);
    }
}
