//! The handshake: the processes of a group give memory back first, and the limit is set when they have.
//!
//! First each process with Weir releases what is free. While that is not enough, each gets a target by its control channel,
//! and reclaims below it in the order of cost. What is missing is shared out among them by their cost curves, the cheapest bytes
//! first. What the curves do not cover is shared out by what else the processes may be able to give. Nothing is asked for that
//! would not do. A target ends with its connection: with this process at the latest.
//!
//! More is asked for than is missing, by what the processes' own balancers will keep free below the limit. A process learns of
//! the limit some time after it was set, and keeps to its target until then, which it may exceed by as much at most. One that
//! takes memory at that moment would be killed if there were less. Where there is no more to be had, it is not waited for.
//!
//! Whoever sets the limit may take long: a kubelet, seconds to a minute. So once the group is below, those of whom nothing was
//! asked get a target as well, with their part of the room that is left: a cache that fills meanwhile stays below it.

use super::member::{Holder, Member, ROUNDS, Stock};
use crate::around::cgroup::charged_to;
use crate::around::frozen::Frozen;
use crate::around::group::Group;
use crate::base::failure::{Failure, Kind};
use crate::base::json;
use crate::base::parallel::each;
use crate::base::units::bytes;
use crate::inspect::control::{AT_ONCE, ONES_PATIENCE, apart};
use serde::Serialize;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weir_core::base::cost::Cost;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::telemetry::tunables::Tunables;

/// For so long the group must have been below the limit that is to be. It begins anew after each round, in which nobody looks.
const STEADY: Duration = Duration::from_millis(100);
/// Between two looks at what the group uses.
const LOOK: Duration = Duration::from_millis(10);
/// Between two rounds of requests: a process looks at its target once in that time.
const ROUND: Duration = Duration::from_millis(250);
/// So long after the time of all the last questions are asked.
const GRACE: Duration = Duration::from_secs(6);
/// The kernel gets on that has dropped so many bytes more.
const STEP: u64 = 64 << 10;
/// One process may take this part of the time of all for an answer, so that the others are asked as well.
const ONES_PART: u32 = 3;

/// The outcome of a request for memory.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The group.
    #[serde(serialize_with = "json::path")]
    pub directory: PathBuf,
    /// What the group was to be below, bytes.
    pub to_bytes: u64,
    /// The limit before; none: there was none.
    pub limit_before_bytes: Option<u64>,
    /// Memory that is charged to the group now.
    pub charged_bytes: u64,
    /// File pages among it that the kernel drops by itself.
    pub droppable_bytes: u64,
    /// All file pages among it, those of files in memory (tmpfs) as well.
    pub file_bytes: u64,
    /// The kernel's own memory among it, as far as the kernel tells it.
    pub kernel_bytes: u64,
    /// Memory that still had to go, and was not given: the limit is as it was. 0: all was given, and a limit that was to be
    /// set is.
    pub missing_bytes: u64,
    /// How long it took.
    pub took_ns: u64,
    /// The group's processes, those that hold most first.
    pub processes: Vec<Holder>,
}

/// Lowers the limit of the cgroup of `directory` to `to` bytes once its processes have given enough back, for which they have
/// `patience`. Otherwise what was asked of them is taken back, and the outcome says how much is missing and who holds it. A limit
/// that is lower already is a failure, and stays.
pub fn shrink(directory: &Path, to: u64, patience: Duration) -> Result<Outcome, Failure> {
    let group = Group::of(directory)?;
    group.may_be_limited()?;
    if let Some(limit) = group.limit().filter(|&limit| limit < to) {
        let [limit, to] = [limit, to].map(bytes);
        let say = format!("the limit of {} is {limit} already, below {to}: it is only lowered", directory.display());
        return Err(Failure::of(Kind::Usage, say));
    }
    refuse_frozen(&group, to)?;
    apart(|| Handshake::begin(&group, to, patience).run(|group| group.set_limit(to), || true))
        .map(|given| given.outcome)
}

/// As [`shrink`], for whoever sets the limit by other means: none is set here, and none need be allowed. What was asked of the
/// processes stays asked until the answer is dropped. Once `is_wanted` says no, all is taken back, which is a failure.
pub fn give(
    directory: &Path,
    to: u64,
    patience: Duration,
    is_wanted: impl Fn() -> bool + Send,
) -> Result<Given, Failure> {
    let group = Group::of(directory)?;
    refuse_frozen(&group, to)?;
    apart(|| Handshake::begin(&group, to, patience).run(|_| Ok(true), is_wanted))
}

/// Nobody in a frozen group answers. What the kernel drops by itself may do without.
fn refuse_frozen(group: &Group, to: u64) -> Result<(), Failure> {
    if group.charged()?.saturating_sub(group.droppable()) < to {
        return Ok(());
    }
    let all: Option<Vec<Frozen>> = group.processes().into_iter().map(Frozen::of).collect();
    match all.as_deref() {
        Some([first, ..]) => {
            let say = format!("the processes of {} do not answer: they are {first}", group.directory().display());
            Err(Failure::of(Kind::NotAnswering, say))
        }
        _ => Ok(()),
    }
}

/// Bytes that the group of a directory uses, without file pages that the kernel drops by itself: what its limit has to be above.
pub fn used(directory: &Path) -> Result<u64, Failure> {
    Group::of(directory)?.counted()
}

/// Memory that the processes of a group have given. They stay below their targets as long as this lives.
pub struct Given {
    /// What came of it.
    pub outcome: Outcome,
    /// Their connections, with which their targets end.
    _members: Vec<Member>,
}

struct Handshake<'a> {
    group: &'a Group,
    to: u64,
    begun: Instant,
    patience: Duration,
    members: Vec<Member>,
    is_drained: bool,
    /// What was charged to the group when the kernel was last asked to drop what was used lately; none: it was not.
    asked_kernel_at: u64,
    /// Rounds since, in each of which no more was dropped.
    asked_in_vain: u32,
    /// The last round asked for something, or waits for it.
    may_get_more: bool,
    /// Since when the group has been below.
    below_since: Option<Instant>,
}

impl<'a> Handshake<'a> {
    /// The processes have so much time from now on, in which they are connected to as well.
    fn begin(group: &'a Group, to: u64, patience: Duration) -> Self {
        let begun = Instant::now();
        let members = Vec::new();
        let (is_drained, may_get_more, below_since) = (false, true, None);
        let (asked_kernel_at, asked_in_vain) = (u64::MAX, 0);
        let mut it = Self {
            group,
            to,
            begun,
            patience,
            members,
            is_drained,
            asked_kernel_at,
            asked_in_vain,
            may_get_more,
            below_since,
        };
        it.add_newcomers();
        it
    }

    /// `set` is called when the group has been below for long enough. `false`: the limit cannot be set yet.
    fn run(
        mut self,
        set: impl Fn(&Group) -> Result<bool, Failure>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Given, Failure> {
        let limit_before = self.group.limit();
        let mut next_round = self.begun;
        let (missing, charged, droppable) = loop {
            if !is_wanted() {
                return Err(Failure::of(Kind::Refused, "it is wanted no longer".into()));
            }
            let now = Instant::now();
            let (above, short) = self.missing()?;
            if above > 0 {
                self.below_since = None;
            } else if self.below_since.is_none() {
                self.hold()?;
                self.below_since = Some(Instant::now());
            }
            let is_late = now.duration_since(self.begun) >= self.patience;
            if short > 0 && !is_late && now >= next_round {
                self.may_get_more = self.round(above, short);
                next_round = Instant::now() + ROUND;
                // It may have taken seconds, in which nobody looked at what the group uses.
                self.below_since = None;
                continue;
            }
            let may_come = short > 0 && !is_late && self.may_get_more;
            if above > 0 && !may_come {
                // The processes go on giving. What is said is of one moment, and of one at which something is missing.
                let (charged, droppable) = self.charged()?;
                match (self.group.counts(charged, droppable) + 1).saturating_sub(self.to) {
                    0 => continue,
                    missing => break (missing, charged, droppable),
                }
            }
            // Read again: above it, a limit of version 2 kills.
            if above == 0 && self.is_steady() && !may_come && self.missing()?.0 == 0 && set(self.group)? {
                let (charged, droppable) = self.charged()?;
                break (0, charged, droppable);
            }
            if is_late && self.below_since.is_none_or(|since| now.duration_since(since) >= 2 * STEADY) {
                // The kernel does not get below it, by dropping file pages.
                let (charged, droppable) = self.charged()?;
                break (charged.saturating_sub(self.to).max(1), charged, droppable);
            }
            thread::sleep(LOOK);
        };
        let took = self.begun.elapsed();
        let mut processes: Vec<Holder> = each(&mut self.members, AT_ONCE, Member::holder);
        processes.sort_by_key(|holder| std::cmp::Reverse(holder.resident_bytes));
        let outcome = Outcome {
            directory: self.group.directory().to_owned(),
            to_bytes: self.to,
            limit_before_bytes: limit_before,
            charged_bytes: charged,
            droppable_bytes: droppable,
            file_bytes: self.group.files(),
            kernel_bytes: charged_to(self.group.directory().to_owned()).map_or(0, |it| it.kernel_bytes),
            missing_bytes: missing,
            took_ns: took.as_nanos() as u64,
            processes,
        };
        Ok(Given { outcome, _members: self.members })
    }

    /// What is charged to the group now, and what of it the kernel drops by itself.
    fn charged(&self) -> Result<(u64, u64), Failure> {
        Ok((self.group.charged()?, self.group.droppable()))
    }

    /// Bytes that the group has to lose to be below, and to have room there.
    fn missing(&self) -> Result<(u64, u64), Failure> {
        let used = self.group.counted()? + 1;
        // By the setting as a process has it at first.
        let scale = Tunables::new().watermark_scale.get() as usize;
        let high = Marks::of(Pages::in_bytes(self.to as usize), scale).high.bytes().0 as u64;
        Ok((used.saturating_sub(self.to), (used + high).saturating_sub(self.to)))
    }

    fn is_steady(&self) -> bool {
        self.below_since.is_some_and(|since| since.elapsed() >= STEADY)
    }

    /// The group is below. Those without a target get one, and share out the room that is left by what they hold.
    fn hold(&mut self) -> Result<(), Failure> {
        self.add_newcomers();
        let room = self.to.saturating_sub(self.group.counted()?);
        let free: Vec<&mut Member> = self.members.iter_mut().filter(|member| member.is_free()).collect();
        let resident: Vec<u64> = free.iter().map(|member| member.resident()).collect();
        let parts = parts(room, &resident);
        each(free.into_iter().zip(parts), AT_ONCE, |(member, part)| member.hold(part));
        Ok(())
    }

    /// Asks for what is missing: `above` to be below, and `short` to have room. `false`: nobody is left who might give it.
    fn round(&mut self, above: u64, short: u64) -> bool {
        self.group.drop_files(short);
        self.add_newcomers();
        if !self.is_drained {
            self.is_drained = true;
            each(&mut self.members, AT_ONCE, Member::drain);
            return true;
        }
        let owed: u64 = self.members.iter_mut().map(Member::owes).sum();
        let wanted = short.saturating_sub(owed);
        if wanted == 0 {
            return true;
        }
        let (mut able, others): (Vec<&mut Member>, Vec<&mut Member>) =
            self.members.iter_mut().partition(|member| member.is_able());
        let stocks: Vec<Stock> = each(&mut able, AT_ONCE, |member| member.stock());
        let of_others = others.iter().map(|member| member.most());
        let may_come: u64 = stocks.iter().map(|stock| stock.most).chain(of_others).sum();
        if above > may_come {
            // All of it would not do without what the kernel has: no cache is emptied in vain.
            return self.ask_kernel(above - may_come);
        }
        let shares = shares(wanted, above.saturating_sub(owed), &stocks);
        let has_asked = shares.iter().any(|&share| share > 0);
        let asked = able.into_iter().zip(shares).filter(|&(_, share)| share > 0);
        each(asked, AT_ONCE, |(member, share)| member.take(share));
        owed > 0 || has_asked || above > 0 && self.ask_kernel(above)
    }

    /// Has the kernel drop so much of what was used lately: file pages, and names of files. `false`: it was not asked, as that would
    /// not do, or as it has not got on since it was asked last.
    fn ask_kernel(&mut self, bytes: u64) -> bool {
        let charged = self.group.charged().unwrap_or(u64::MAX);
        let gets_on = charged.saturating_add(STEP) <= self.asked_kernel_at;
        self.asked_in_vain = if gets_on { 0 } else { self.asked_in_vain + 1 };
        self.asked_kernel_at = charged;
        self.asked_in_vain < ROUNDS && self.group.drop_more(bytes)
    }

    /// Processes that came into the group since.
    fn add_newcomers(&mut self) {
        let known: Vec<i32> = self.members.iter().map(Member::pid).collect();
        let new = self.group.processes().into_iter().filter(|pid| !known.contains(pid));
        let patience = (self.patience / ONES_PART).clamp(ROUND, ONES_PATIENCE);
        let until = self.begun.checked_add(self.patience.saturating_add(GRACE));
        self.members.extend(each(new, AT_ONCE, |pid| Member::of(pid, patience, until)).into_iter().flatten());
    }
}

/// What each is asked for of `wanted` bytes: the cheapest of all, by their cost curves. Where those are less than is `needed`, the
/// rest as well, by what else each may give. Room alone is not worth what a program has in use, nor the wait for it, nor what it
/// frees and takes again and again: for that caches are asked alone, of which hits are all that is lost.
fn shares(wanted: u64, needed: u64, stocks: &[Stock]) -> Vec<u64> {
    let each_part = stocks.iter().enumerate().flat_map(|(of, stock)| stock.parts.iter().map(move |&part| (part, of)));
    let mut all: Vec<(Cost, usize)> = each_part.filter(|(part, _)| needed > 0 || part.once_ns == 0).collect();
    all.sort_by(|(one, _), (other, _)| by_price(one, other));
    let (mut shares, mut left) = (vec![0; stocks.len()], wanted);
    for alike in all.chunk_by(|(one, _), (other, _)| by_price(one, other).is_eq()) {
        let bytes: Vec<u64> = alike.iter().map(|(part, _)| part.bytes).collect();
        for (share, &(_, of)) in parts_of(left, &bytes).into_iter().zip(alike) {
            shares[of] += share;
            left = left.saturating_sub(share);
        }
    }
    if wanted - left < needed {
        let others: Vec<u64> =
            stocks.iter().zip(&shares).map(|(stock, share)| stock.most.saturating_sub(*share)).collect();
        shares.iter_mut().zip(parts_of(left, &others)).for_each(|(share, more)| *share += more);
    }
    // A process is not talked to for less, unless that is missing.
    shares.iter_mut().filter(|share| needed == 0 && **share < STEP).for_each(|share| *share = 0);
    shares
}

fn by_price(one: &Cost, other: &Cost) -> Ordering {
    other.is_cheaper(one).cmp(&one.is_cheaper(other))
}

/// `wanted` in parts of these bytes, and no more than there are.
fn parts_of(wanted: u64, bytes: &[u64]) -> Vec<u64> {
    parts(wanted.min(bytes.iter().copied().fold(0, u64::saturating_add)), bytes)
}

/// `wanted` in parts that are as the weights.
fn parts(wanted: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let wanted = u128::from(wanted);
    let part = |&weight: &u64| (wanted * u128::from(weight)).div_ceil(sum.max(1)) as u64;
    weights.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};
    use std::cell::Cell;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::FileTypeExt;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn what_is_wanted_no_longer_ends() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("memory.max", "max"), ("memory.current", "1000"), ("cgroup.procs", "")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let group = Group::of(directory.path()).unwrap();
        // The kernel never takes the limit, and there is an hour left: it would be tried again and again.
        let (looks, tries) = (Cell::new(0), Cell::new(0));
        let set = |_: &Group| {
            tries.set(tries.get() + 1);
            Ok(false)
        };
        let is_wanted = || {
            looks.set(looks.get() + 1);
            tries.get() < 3
        };
        let why = Handshake::begin(&group, 2000, Duration::from_secs(3600)).run(set, is_wanted).err().unwrap();
        assert_eq!((why.to_string().as_str(), tries.get()), ("it is wanted no longer", 3));
        assert!(looks.get() > 3);
    }

    /// The limit that is to be, bytes.
    const TO: u64 = 64 << 20;

    /// A group of version 2 whose second round of requests lasts until `meanwhile` is done, which gets the group's directory.
    /// Of each time that the limit was set: what was used then, and how many looks after that round.
    fn set_after_a_long_round(meanwhile: impl FnOnce(&Path) + Send) -> (Vec<(u64, usize)>, u64) {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        // Below the limit, and there is no room there: more is asked for.
        for (name, text) in [("memory.max", "max"), ("memory.current", "67104768"), ("cgroup.procs", "")] {
            std::fs::write(file(name), text).unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, file("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let group = Group::of(directory.path()).unwrap();
        let (looks, looks_before) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let sets = Mutex::new(Vec::new());
        let set = |group: &Group| {
            sets.lock().unwrap().push((group.counted().unwrap(), looks.load(SeqCst) - looks_before.load(SeqCst)));
            Ok(true)
        };
        // Only rounds read these figures. The first one has ended.
        let is_wanted = || {
            if looks.fetch_add(1, SeqCst) == 1 {
                std::fs::rename(file("fifo"), file("memory.stat")).unwrap();
            }
            true
        };
        std::fs::write(file("new"), "inactive_file 0\n").unwrap();
        let given = thread::scope(|scope| {
            scope.spawn(|| {
                while !std::fs::metadata(file("memory.stat")).is_ok_and(|it| it.file_type().is_fifo()) {
                    thread::sleep(LOOK);
                }
                // It opens once the round reads, which ends when it is closed.
                let stat = std::fs::OpenOptions::new().write(true).open(file("memory.stat")).unwrap();
                looks_before.store(looks.load(SeqCst), SeqCst);
                std::fs::rename(file("new"), file("memory.stat")).unwrap();
                meanwhile(directory.path());
                drop(stat);
            });
            Handshake::begin(&group, TO, Duration::from_secs(3600)).run(set, is_wanted).unwrap()
        });
        (sets.into_inner().unwrap(), given.outcome.missing_bytes)
    }

    #[test]
    fn a_group_that_grew_while_it_was_asked_gets_no_limit() {
        let grow = |group: &Path| std::fs::write(group.join("memory.current"), (TO + 4096).to_string()).unwrap();
        assert_eq!(set_after_a_long_round(grow), (vec![], 4097));
    }

    #[test]
    fn the_time_of_a_round_is_not_time_below_the_limit() {
        let (sets, missing) = set_after_a_long_round(|_| ());
        // At the first look after it, it is not known to have been below; at a later one it may be.
        let is_later = matches!(sets[..], [(67_104_768, looks)] if looks > 1);
        assert!(is_later && missing == 0, "{sets:?}");
    }

    /// It comes below between the last look at what it uses and the one for what is said.
    #[test]
    fn a_group_that_comes_below_at_the_end_gets_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        for (name, text) in [("memory.max", "max"), ("new", "1000"), ("cgroup.procs", "")] {
            std::fs::write(file(name), text).unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, file("memory.current"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let group = Group::of(directory.path()).unwrap();
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                // It opens once it is read, and that ends when it is closed.
                let mut current = std::fs::OpenOptions::new().write(true).open(file("memory.current")).unwrap();
                std::fs::rename(file("new"), file("memory.current")).unwrap();
                std::io::Write::write_all(&mut current, b"2000").unwrap();
            });
            let it = Handshake::begin(&group, 2000, Duration::ZERO);
            it.run(|group| group.set_limit(2000), || true).unwrap().outcome
        });
        assert_eq!((outcome.missing_bytes, outcome.charged_bytes, group.limit()), (0, 1000, Some(2000)));
    }

    #[test]
    fn a_limit_is_never_raised() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("memory.max", "629145600"), ("memory.current", "1000"), ("cgroup.procs", "")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let why = shrink(directory.path(), 900 << 20, Duration::ZERO).err().unwrap();
        assert_eq!(why.status, Kind::Usage as i32);
        assert!(why.to_string().contains("is 600.0 MiB already, below 900.0 MiB"), "{why}");
        assert_eq!(Group::of(directory.path()).unwrap().limit(), Some(600 << 20));
    }

    #[test]
    fn a_group_of_any_name_is_written_as_json() {
        let outcome = Outcome {
            directory: PathBuf::from(std::ffi::OsString::from_vec(b"/sys/fs/cgroup/a\xff".to_vec())),
            to_bytes: 1,
            limit_before_bytes: None,
            charged_bytes: 1,
            droppable_bytes: 0,
            file_bytes: 0,
            kernel_bytes: 0,
            missing_bytes: 0,
            took_ns: 1,
            processes: Vec::new(),
        };
        assert!(json::line(&outcome).unwrap().starts_with("{\"directory\":\"/sys/fs/cgroup/a\u{fffd}\","));
    }

    #[test]
    fn what_is_missing_is_taken_by_what_each_holds() {
        assert_eq!(parts(100, &[300, 100, 0]), [75, 25, 0]);
        assert_eq!(parts(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2 + 1; 2]);
        assert_eq!(parts(0, &[1, 2]), [0, 0]);
        assert_eq!(parts(5, &[]), [0; 0]);
        assert_eq!(parts(5, &[0]), [0]);
        assert_eq!(parts(100, &[10, 30]), [25, 75], "weights are no bound");
        assert_eq!(parts_of(5, &[1, 2]), [1, 2], "no more than there is");
    }

    /// Who has so many MiB at these prices, and may give so many more.
    fn stock(costs: &[(u64, u64)], more: u64) -> Stock {
        let part = |&(mib, price): &(u64, u64)| Cost { bytes: mib << 20, once_ns: mib * price, ..Cost::default() };
        let parts: Vec<Cost> = costs.iter().map(part).collect();
        let most = parts.iter().map(|part| part.bytes).sum::<u64>() + (more << 20);
        Stock { parts, most }
    }

    #[test]
    fn the_cheapest_bytes_of_all_go_first_and_then_what_else_there_is() {
        let (dear, cheap) = (stock(&[(20, 500), (80, 9000)], 50), stock(&[(100, 10)], 0));
        let of = |wanted: u64, needed: u64, stocks: &[Stock]| -> Vec<u64> {
            shares(wanted << 20, needed << 20, stocks).into_iter().map(|bytes| bytes >> 20).collect()
        };
        let both = [dear, cheap];
        assert_eq!(of(60, 60, &both), [0, 60]);
        assert_eq!(of(110, 110, &both), [10, 100]);
        assert_eq!(of(230, 210, &both), [130, 100], "they have no more that is cheap");
        assert_eq!(of(230, 200, &both), [100, 100], "room is not worth what is in use");
        // Of what has one price each gives as it has of it.
        assert_eq!(of(40, 40, &[stock(&[(30, 7)], 0), stock(&[(90, 7)], 500)]), [10, 30]);
        // A small cache beside caches that no curve knows yet: none is asked for what it has not.
        assert_eq!(of(300, 300, &[stock(&[], 500), stock(&[(10, 7)], 0)]), [290, 10]);
        assert_eq!(of(300, 300, &[stock(&[], 0), stock(&[], 100)]), [0, 100]);
        assert_eq!(shares(300, 0, &[stock(&[(0, 0)], 100)]), [0]);
        assert_eq!(
            of(30, 0, &[stock(&[(50, 1)], 0), stock(&[(50, 0)], 0)]),
            [0, 30],
            "what is idle comes back at once"
        );
    }

    /// Once the kernel is asked, it drops all that the files have. It may be asked for so much.
    #[test]
    fn the_kernel_is_asked_for_files_in_use_before_it_is_said_that_they_are_missing() {
        for (in_use, is_enough) in [(100 << 20, true), (1 << 20, false)] {
            let directory = tempfile::tempdir().unwrap();
            let file = |name: &str| directory.path().join(name);
            let stat = format!("file {in_use}\nkernel 9\ninactive_file 0\nactive_file {in_use}\n");
            let files =
                [("memory.max", "max"), ("memory.current", "157286400"), ("cgroup.procs", ""), ("memory.reclaim", "")];
            for (name, text) in files.into_iter().chain([("memory.stat", stat.as_str()), ("new", "52428800")]) {
                std::fs::write(file(name), text).unwrap();
            }
            let group = Group::of(directory.path()).unwrap();
            let is_over = std::sync::atomic::AtomicBool::new(false);
            let outcome = thread::scope(|scope| {
                scope.spawn(|| {
                    while std::fs::read_to_string(file("memory.reclaim")).unwrap().is_empty() && !is_over.load(SeqCst) {
                        thread::sleep(LOOK);
                    }
                    let _ = std::fs::rename(file("new"), file("memory.current"));
                });
                let it = Handshake::begin(&group, TO, Duration::from_secs(3600));
                let outcome = it.run(|group| group.set_limit(TO), || true).unwrap().outcome;
                is_over.store(true, SeqCst);
                outcome
            });
            let asked = std::fs::read_to_string(file("memory.reclaim")).unwrap();
            if is_enough {
                assert_eq!(asked.split(' ').next(), Some("90177537"), "what is missing, and no room");
                assert_eq!((outcome.missing_bytes, group.limit()), (0, Some(TO)));
            } else {
                assert_eq!((asked.as_str(), outcome.missing_bytes), ("", 90_177_537), "dropped in vain");
                assert_eq!((outcome.file_bytes, outcome.kernel_bytes, group.limit()), (1 << 20, 9, None));
            }
        }
    }
}
