//! How much memory requests may take, and what the process should stay under: what is set, or parts of what there is.

use crate::base::Failure;
use crate::base::machine;
use crate::base::size::Size;
use crate::protocol::constants::MIN_UNFRAGMENTED;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing::{info, warn};

/// Most bytes by default: for all requests, for one client's, of one request.
const MOST: u64 = 512 << 20;
const MOST_OF_CLIENT: u64 = 64 << 20;
const MOST_OF_REQUEST: u64 = 32 << 20;
/// Least data of one request by default, where that fits.
const LEAST: u64 = 1 << 20;

/// Least limit of the resident set, bytes, as for `weir run`: no program runs in less. One that is set lacks its unit. A control
/// group's is there for a moment, to have the kernel reclaim.
pub const MIN_LIMIT: u64 = 1 << 20;
/// Memory that counts for requests where the control group's limit is less than that, bytes: only the lowest limit is known.
const UNKNOWN: u64 = 64 << 20;

/// The limit that was derived last, bytes; 0: none.
static DERIVED: AtomicU64 = AtomicU64::new(0);

/// Memory that the server cannot give back, whatever its limit is, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Locked memory. It is resident from the start on.
    pub locked: u64,
    /// Exports in memory, at their full size. These are files: they count in the group, and are not resident.
    pub exports: u64,
}

impl Held {
    /// What is left beside it of so much memory. None: it takes all.
    fn rest_of(self, memory: u64) -> Option<u64> {
        memory.checked_sub(self.locked.saturating_add(self.exports)).filter(|&rest| rest > 0)
    }
}

/// Memory that the server may have, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Available {
    /// The lowest limit of its control group and of those above it.
    pub group: Option<u64>,
    pub machine: u64,
}

impl Available {
    /// As it is now.
    pub fn find() -> Self {
        Self { group: weir::pressure::group_limit(), machine: machine::memory() }
    }

    /// What there is for requests by these, and by `limit`, which is set: in a group, the rest beside what is held. An export in
    /// memory may be larger than all there is, if little of it is written. Then it counts for nothing.
    pub fn for_requests(&self, limit: Option<u64>, held: Held) -> u64 {
        let of = |group: u64| if group < MIN_LIMIT { UNKNOWN } else { held.rest_of(group).unwrap_or(group) };
        let group = self.group.map(of);
        let limits = [group, limit.filter(|&limit| limit > 0)];
        limits.into_iter().flatten().fold(self.machine, u64::min)
    }

    /// What a server with a cache should stay under in a group of this limit, if nothing is set. The rest is for what lies outside
    /// of the process: the kernel's memory for sockets and I/O, and files. None: what is held and `requests` do not fit.
    fn limit(group: u64, held: Held, requests: u64) -> Option<u64> {
        let rest = held.rest_of(group).filter(|&rest| rest >= requests)?;
        let limit = rest - part(rest);
        (limit >= MIN_LIMIT).then_some(held.locked + limit)
    }

    /// Says in the log what follows where the group's limit is none that a server can have.
    pub fn log(&self) {
        if let Some(group) = self.group.filter(|&group| group < MIN_LIMIT) {
            let [group, unknown] = [group, UNKNOWN].map(Size);
            warn!(
                "no server runs in the control group's limit of {group}: requests get their part of {unknown} at most"
            );
        }
    }

    /// Sets Weir's limit for a server with a cache in a control group that has one. A limit that is set otherwise stays.
    pub fn set_limit(&self, held: Held, requests: u64) -> Result<(), Failure> {
        if weir::settings::get("limit") != Ok(DERIVED.load(Relaxed)) {
            return Ok(());
        }
        let limit = self.group.and_then(|group| Self::limit(group, held, requests));
        if let (Some(group), None) = (self.group, limit) {
            let [group, locked, exports, requests] = [group, held.locked, held.exports, requests].map(Size);
            warn!(
                "no limit of resident memory follows from the control group's of {group}: locked memory of {locked}, exports \
                 in memory of {exports} and requests of {requests} do not fit into it"
            );
        }
        let limit = limit.unwrap_or(0);
        weir::settings::set_number("limit", limit).map_err(Failure::because("limit"))?;
        if DERIVED.swap(limit, Relaxed) != limit && limit > 0 {
            info!("the limit of resident memory is {}, by that of the control group", Size(limit));
        }
        Ok(())
    }
}

/// What requests may take by default of so much memory.
fn part(memory: u64) -> u64 {
    (memory / 4).min(MOST)
}

/// Bounds that are set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set {
    pub request: Option<u64>,
    pub client: Option<u64>,
    pub all: Option<u64>,
}

/// The bounds of the memory of requests, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMemory {
    /// Longest data of one request.
    pub request: u64,
    /// For one client's requests.
    pub client: u64,
    /// For all of them.
    pub all: u64,
}

impl RequestMemory {
    /// The bounds that are set, and for each other one what fits to them and to the memory that there is.
    pub fn new(set: Set, workers: usize, memory: u64) -> Self {
        let workers = workers.max(1) as u64;
        let least = set.request.unwrap_or(MIN_UNFRAGMENTED.into()).saturating_mul(workers);
        let all = set.all.unwrap_or(part(memory).max(least));
        let share = all / workers;
        let request = set.request.unwrap_or_else(|| {
            // Half of a worker's, so that one request is not all that it serves.
            let half = MOST_OF_REQUEST.min(share / 2).max(if share < LEAST { 0 } else { LEAST });
            let most = half.min(set.client.unwrap_or(u64::MAX)).max(MIN_UNFRAGMENTED.into());
            1 << most.ilog2()
        });
        let client = set.client.unwrap_or(MOST_OF_CLIENT.min(share).max(request));
        Self { request, client, all }
    }

    /// Says in the log what they are, of so much memory. `is_set`: the bound for all of them is.
    pub fn log(self, memory: u64, is_set: bool) {
        let [request, client, all, of] = [self.request, self.client, self.all, memory].map(Size);
        if !is_set && self.all > part(memory) {
            warn!("requests may take {all} of {of} of memory, as each worker needs room for one: set max-memory");
        }
        info!("requests may take {all} of {of} of memory, one client's {client}, one {request}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_request_fits_whatever_memory_there_is() {
        for mib in [1, 4, 32, 48, 64, 100, 128, 256, 512, 1000, 1024, 2048, 4096] {
            for workers in [1, 2, 8] {
                let found = RequestMemory::new(Set::default(), workers, mib * MIB);
                let what = format!("{mib} MiB, {workers} workers: {found:?}");
                assert!(found.request.is_power_of_two() && found.request >= u64::from(MIN_UNFRAGMENTED), "{what}");
                assert!(found.request <= found.all / workers as u64 && found.request <= found.client, "{what}");
                assert!(found.all <= MOST && (mib < 4 || found.all == part(mib * MIB)), "{what}");
                assert!(mib < 32 || found.request >= LEAST, "{what}");
            }
        }
        let of = |workers, mib| {
            let RequestMemory { request, client, all } = RequestMemory::new(Set::default(), workers, mib * MIB);
            [all, client, request].map(|bytes| bytes / MIB)
        };
        assert_eq!([of(2, 64), of(8, 64), of(8, 2048)], [[16, 8, 4], [16, 2, 1], [512, 64, 32]]);
        assert_eq!([of(1, 1 << 14), of(8, 1 << 14)], [[512, 64, 32]; 2], "where there is plenty");
    }

    #[test]
    fn what_is_set_stays_and_the_rest_fits_to_it() {
        let of = |request: u64, client: u64, all: u64| {
            let set = |mib: u64| (mib > 0).then_some(mib * MIB);
            let set = Set { request: set(request), client: set(client), all: set(all) };
            let RequestMemory { request, client, all } = RequestMemory::new(set, 2, 64 * MIB);
            [request, client, all].map(|bytes| bytes / MIB)
        };
        assert_eq!(of(32, 0, 0), [32, 32, 64], "room for one in each worker");
        assert_eq!(of(0, 3, 0), [2, 3, 16]);
        assert_eq!(of(0, 0, 256), [32, 64, 256]);
        assert_eq!(of(0, 100, 4), [1, 100, 4]);
        assert_eq!(of(7, 8, 9), [7, 8, 9]);
    }

    #[test]
    fn a_limit_leaves_room_for_what_is_not_the_process() {
        let limit = |group| Available::limit(group, Held::default(), 16 * MIB);
        assert_eq!(limit(64 * MIB), Some(48 * MIB));
        assert_eq!(limit(8 << 30), Some((8 << 30) - MOST));
        let available = Available { group: Some(64 * MIB), machine: 1 << 34 };
        let lowest = [None, Some(0), Some(MIB), Some(128 * MIB)];
        let lowest = lowest.map(|limit| available.for_requests(limit, Held::default()) / MIB);
        assert_eq!(lowest, [64, 64, 1, 64]);
    }

    #[test]
    fn a_limit_that_is_there_to_reclaim_is_none() {
        let of = |group| {
            let available = Available { group: Some(group), machine: 1 << 34 };
            let requests = RequestMemory::new(Set::default(), 2, available.for_requests(None, Held::default()));
            (requests.all, Available::limit(group, Held::default(), requests.all))
        };
        for group in [0, 4096, MIB - 1] {
            assert_eq!(of(group), (UNKNOWN / 4, None), "{group}");
        }
        assert_eq!(of(MIB), (MIB / 4, None), "the limit would be less than that");
        assert_eq!(of(2 * MIB), (MIB / 2, Some(2 * MIB - MIB / 2)));
        // Nor is one of less beside what is held.
        let held = Held { locked: 63 * MIB, exports: 0 };
        assert_eq!(Available::limit(64 * MIB, held, MIB / 4), None);
    }

    #[test]
    fn what_the_server_holds_anyway_is_no_part_of_what_it_shares_out() {
        let of = |group: u64, locked: u64, exports: u64, set: u64| {
            let available = Available { group: Some(group * MIB), machine: 1 << 34 };
            let held = Held { locked: locked * MIB, exports: exports.saturating_mul(MIB) };
            let set = Set { all: (set > 0).then_some(set * MIB), ..Set::default() };
            let requests = RequestMemory::new(set, 2, available.for_requests(None, held)).all;
            let limit = Available::limit(group * MIB, held, requests);
            (requests / MIB, limit.map(|limit| limit / MIB))
        };
        assert_eq!(of(2048, 1536, 0, 0), (128, Some(1536 + 384)));
        assert_eq!(of(4352, 0, 4096, 0), (64, Some(192)), "an export in memory is not resident");
        assert_eq!(of(4352, 128, 4096, 0), (32, Some(128 + 96)));
        assert_eq!(of(8192, 1024, 1024, 0), (512, Some(1024 + 6144 - 512)));
        assert_eq!(of(2048, 1536, 0, 512), (512, Some(1920)), "it just fits");
        assert_eq!(of(2048, 1536, 0, 513), (513, None));
        assert_eq!(of(2048, 2048, 0, 0), (512, None));
        assert_eq!(of(2048, 0, u64::MAX, 0), (512, None), "little of it is written");
    }
}
