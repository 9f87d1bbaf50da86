//! Causes in what Weir manages.

use super::cause::{Case, Cause, Finding};
use crate::base::units::{bytes, nanoseconds};
use crate::why::holders::Holder;
use crate::why::parts::Name;

/// The least growth between two looks that is told, bytes: what a program at rest moves is less.
const LEAST_GROWTH: u64 = 64 << 10;

/// The caches and sizes with most of something, those with most first.
fn by_most(case: &Case, most: fn(&Holder) -> u64) -> Vec<Holder> {
    let all = case.look.weir.iter().flat_map(|weir| &weir.holders);
    let mut all: Vec<Holder> = all.filter(|holder| most(holder) > 0).cloned().collect();
    all.sort_by_key(|holder| std::cmp::Reverse(most(holder)));
    all
}

pub fn fragmentation(case: &Case) -> Option<Finding> {
    // Not what is left over of slabs, which no object was in.
    let rests =
        case.look.weir.iter().flat_map(|weir| &weir.holders).map(Holder::rest_bytes).fold(0, u64::saturating_add);
    let fragmented = case.parts.bytes(Name::Fragmented).saturating_sub(rests);
    let used = |it: &Holder| format!("{} ({} in use of {})", it.name, bytes(it.used_bytes), bytes(it.held_bytes));
    let worst: Vec<String> = by_most(case, |holder| holder.in_slabs_bytes).iter().take(3).map(used).collect();
    let says = format!(
        "{} are free but lie beside objects that are in use on the same pages, as after a peak of which a few objects \
         were left: {}.",
        bytes(fragmented),
        if worst.is_empty() { "no one cache stands out".into() } else { worst.join(", ") }
    );
    let mergeable = case.look.weir.as_ref().and_then(|weir| weir.mergeable).filter(|&size| size >= LEAST_GROWTH);
    let merging = mergeable.map(|size| {
        let size = bytes(size);
        match case.look.setting("merge") {
            Some(0) => case.ctl(
                "set merge 1",
                &format!("merging would release {size}, where the kernel merges pages (`weir doctor` says it)"),
            ),
            _ => format!(
                "merging would release {size}, once nothing changes there and the kernel merges pages (`weir doctor`)"
            ),
        }
    });
    let cures = [
        "free the objects that were left of the peak, or allocate what lives long before it or from an object cache of \
         its own (`weir::ObjectCache`, `weir_cache_create`)",
        "new allocations of the same sizes fill it first: it is not lost, and need not grow",
    ];
    let cures = cures.map(String::from).into_iter().chain(merging);
    case.finding(Cause::Fragmentation, fragmented, says, cures)
}

/// Free memory that could be released, and is not.
pub fn idle(case: &Case) -> Option<Finding> {
    let weir = case.look.weir.as_ref()?;
    let idle = case.parts.bytes(Name::Idle);
    let cached = weir.holders.iter().map(|holder| holder.cached_bytes).fold(0, u64::saturating_add);
    let place = by_most(case, |holder| holder.cached_bytes).first().map_or(String::new(), |deepest| {
        let cached = bytes(cached.min(idle));
        format!(", of them {cached} in depots and CPUs' buckets, most of it of {}", deepest.name)
    });
    let free = format!("{} are free and could be released{place}", bytes(idle));
    let setting = |name| case.look.setting(name);
    if setting("report") == Some(0) {
        let says = format!("{free}; the setting `report` is 0, so that Weir releases nothing.");
        let cure = case.ctl("set report 1", "Weir releases what is idle again; for good, leave `WEIR_REPORT=0` out");
        return case.finding(Cause::ReportingOff, idle, says, [cure]);
    }
    if setting("background") == Some(0) && !weir.has_thread {
        // Without a thread much is not measured: what is free of it stays, too.
        let unmeasured = case.parts.bytes(Name::HeapUnmeasured);
        let says = format!(
            "{free}, and {} of its heap are not measured; the setting `background` is 0, so that no thread \
             releases what is free while the program allocates nothing, and no pressure is heard.",
            bytes(unmeasured)
        );
        let cure = "start it without `WEIR_BACKGROUND`, or let the program call `weir_trim`";
        return case.finding(Cause::ReportingOff, idle + unmeasured, says, [cure]);
    }
    let kept = weir.window.map_or("of late".into(), |window| format!("for {window}"));
    let mut says = format!("{free}; Weir keeps what the program used at its peak {kept}.");
    if weir.refused > 0 {
        says += &format!(" The kernel refused {} batches, as it does for locked memory.", weir.refused);
    }
    let (is_doubled, is_long) =
        (weir.window.is_some_and(|window| window.doublings > 0), setting("idle_ms").is_some_and(|ms| ms > 10_000));
    let shorter = "it is kept for `idle_ms` again, and what is released is touched again as often as before";
    let cures = [
        Some(case.ctl("trim", "releases what is idle, and caches down to what they will want again")),
        Some(case.ctl("drain", "releases all that is free")),
        is_doubled.then(|| case.ctl("set refault_percent 100", shorter)),
        is_long.then(|| case.ctl("set idle_ms 300", "releases it by itself within a second; that is the default")),
    ];
    case.finding(Cause::Retained, idle, says, cures.into_iter().flatten())
}

pub fn metadata(case: &Case) -> Option<Finding> {
    let metadata = case.parts.bytes(Name::Metadata);
    let says = format!("{} are Weir's own: tables of its heap, and what waits in depots.", bytes(metadata));
    let cures = [
        case.ctl("drain", "releases the buckets of depots, and with them what they take"),
        "it grows with the heap's peak and with the number of caches and CPUs".into(),
    ];
    case.finding(Cause::Metadata, metadata, says, cures)
}

pub fn limit(case: &Case) -> Option<Finding> {
    let limit = case.look.setting("limit").filter(|&limit| limit > 0)?;
    let resident = case.parts.resident_bytes();
    let over = resident.checked_sub(limit)?;
    let idle = case.parts.bytes(Name::Idle);
    let says = format!(
        "the limit is {}, and the resident set {}: {} cannot be released, as they are in use, fragmented or not \
         Weir's; memory in use is never refused for `limit`.",
        bytes(limit),
        bytes(resident),
        bytes(resident - idle)
    );
    let cures = vec![
        "let the program hold less: caches of its own as `weir::EvictableCache`, or a shrinker, shrink under the limit"
            .into(),
        format!("a limit that it can keep: `weir ctl {} set limit SIZE`", case.look.pid),
        "`hard_limit`, or the cgroup's memory.max, if allocations are to fail instead".into(),
    ];
    // However small the excess is, somebody set the limit.
    (over > 0).then_some(Finding { cause: Cause::Limit, bytes: over, says, cures })
}

pub fn in_use(case: &Case) -> Option<Finding> {
    // What is not measured may be free.
    let [live, unmeasured] = [Name::Live, Name::HeapUnmeasured].map(|name| case.parts.bytes(name));
    case.look.weir.as_ref()?;
    let most = by_most(case, |holder| holder.used_bytes);
    let most = most.first().map_or(String::new(), |it| {
        let (held, used, name) = (live + unmeasured, it.used_bytes, &it.name);
        // The figures are of two moments.
        if used - used / 8 <= held {
            return format!(", most of it ({}) of {name}", bytes(used.min(held)));
        }
        let used = bytes(used);
        format!("; handed out is more, most of it ({used}) of {name}: what was never touched takes no memory")
    });
    let says = match unmeasured {
        0 => format!("the program holds {} of objects{most}.", bytes(live)),
        _ => format!(
            "Weir's heap takes {} and is not measured, as it is small or has no thread{most}.",
            bytes(unmeasured)
        ),
    };
    let cures = [
        "the program frees it, or keeps less".into(),
        format!("`weir why {} --growth` says whether it grows, as a leak does", case.look.pid),
    ];
    case.finding(Cause::InUse, live + unmeasured, says, cures)
}

pub fn growth(case: &Case) -> Option<Finding> {
    let growth = case.growth?;
    let more = growth.bytes();
    if more < LEAST_GROWTH {
        return None;
    }
    let an_hour = (u128::from(more) * 3_600_000_000_000 / u128::from(growth.ns.max(1))).min(u64::MAX.into()) as u64;
    let sizes: Vec<String> =
        growth.holders.iter().map(|(name, more)| format!("{name} by {}", bytes(more.unsigned_abs()))).collect();
    let in_sizes = if sizes.is_empty() { String::new() } else { format!(": {}", sizes.join(", ")) };
    let says = format!(
        "what the program holds grew by {} in {}{in_sizes}. If it goes on, that is {} in an hour: a leak, or a cache \
         without a bound.",
        bytes(more),
        nanoseconds(growth.ns),
        bytes(an_hour)
    );
    let cures = vec![
        format!("`weir profile {}` names the lines that allocate what is not freed", case.look.pid),
        "look over a longer time to be sure: `--growth=1m`".into(),
        "until then a bound: `hard_limit`, or the cgroup's memory.max".into(),
    ];
    Some(Finding { cause: Cause::Growth, bytes: more, says, cures })
}
