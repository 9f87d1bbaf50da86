//! The traces: made from a seed, each of one family of use, or read from files.

use crate::harness::prelude::*;

/// Most accesses that are read of a file.
const MOST_OF_A_FILE: usize = 1_500_000;

/// Keys in the order in which they are asked for.
pub struct Trace {
    pub name: String,
    pub keys: Vec<u64>,
    /// What the value of a key weighs, bytes; where nothing says so, 1.
    pub weigh: Weigh,
}

type Make = fn(&mut Maker);
type Weigh = fn(u64) -> u64;

/// The traces of values that weigh differently, and what each weighs.
pub const WEIGHTED: [(&str, Make, Weigh); 8] = [
    ("zipf-0.7-sizes", |maker| maker.zipf(0.7), log_normal),
    ("zipf-0.9-sizes", |maker| maker.zipf(0.9), log_normal),
    ("zipf-0.9-tail", |maker| maker.zipf(0.9), pareto),
    ("two-sizes", |maker| maker.zipf(0.9), two_sizes),
    ("cdn", Maker::cdn, pareto),
    ("drift-sizes", Maker::drift, log_normal),
    ("loop-sizes", Maker::one_loop, log_normal),
    ("latest-sizes", Maker::latest, log_normal),
];

/// The other traces that are made.
pub const MADE: [(&str, Make); 11] = [
    ("zipf-0.8", |maker| maker.zipf(0.8)),
    ("zipf-0.99", |maker| maker.zipf(0.99)),
    ("zipf-scan", Maker::zipf_with_scans),
    ("loop", Maker::one_loop),
    ("loops", Maker::many_loops),
    ("hot-sets", Maker::hot_sets),
    ("drift", Maker::drift),
    ("bursts", Maker::bursts),
    ("frequent", Maker::frequent),
    ("database", Maker::database),
    ("phases", Maker::phases),
];

/// Makes the trace of a name.
pub fn make(name: &str, is_quick: bool) -> Trace {
    let (accesses, keys) = if is_quick { (50_000, 10_000) } else { (1_000_000, 200_000) };
    let mut maker = Maker { random: Random::new(0x5eed, 0), accesses, keys, out: Vec::with_capacity(accesses) };
    let all = MADE.map(|(name, make)| (name, make, even as Weigh)).into_iter().chain(WEIGHTED);
    let (_, make, weigh) = all.into_iter().find(|made| made.0 == name).expect("one of those that were chosen from");
    make(&mut maker);
    maker.out.truncate(accesses);
    Trace { name: name.into(), keys: maker.out, weigh }
}

/// Reads a file of keys, of 64 bits each, little-endian.
pub fn read(path: &Path) -> Result<Trace> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let (words, rest) = bytes.as_chunks::<8>();
    ensure!(!words.is_empty() && rest.is_empty(), "{} is no file of 64-bit keys", path.display());
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let keys = words.iter().take(MOST_OF_A_FILE).map(|word| u64::from_le_bytes(*word)).collect();
    Ok(Trace { name, keys, weigh: even })
}

fn even(_: u64) -> u64 {
    1
}

/// A number between 0 and 1 that is a key's own, another one for each `which`.
fn part(key: u64, which: u64) -> f64 {
    Random::new(key, which as usize).unit().max(1e-12)
}

/// Sizes of a log-normal distribution, as objects of key-value stores have them: median 4 KiB, sigma 1.5.
fn log_normal(key: u64) -> u64 {
    let normal = (-2.0 * part(key, 1).ln()).sqrt() * (std::f64::consts::TAU * part(key, 2)).cos();
    ((4096.0 * (1.5 * normal).exp()) as u64).clamp(64, 16 << 20)
}

/// Sizes with a heavier tail, as files on the web have them: Pareto, 2 KiB at least, alpha 1.1.
fn pareto(key: u64) -> u64 {
    ((2048.0 / part(key, 1).powf(1.0 / 1.1)) as u64).clamp(64, 64 << 20)
}

/// One value in twenty is of 1 MiB, the others of 1,000 bytes.
fn two_sizes(key: u64) -> u64 {
    if part(key, 1) < 0.05 { 1 << 20 } else { 1000 }
}

/// Keys that come once, apart from all others.
const ONCE: u64 = 1 << 40;

/// Makes a trace of about `accesses` over about `keys`.
pub struct Maker {
    random: Random,
    accesses: usize,
    keys: usize,
    out: Vec<u64>,
}

impl Maker {
    fn zipf(&mut self, skew: f64) {
        let zipf = Zipf::new(skew, self.keys);
        for _ in 0..self.accesses {
            let key = zipf.rank(&mut self.random);
            self.out.push(key);
        }
    }

    /// Zipf 0.8, and three accesses in ten are to keys that come once.
    fn cdn(&mut self) {
        let zipf = Zipf::new(0.8, self.keys);
        for at in 0..self.accesses {
            let is_once = self.random.below(10) < 3;
            let key = if is_once { ONCE + at as u64 } else { zipf.rank(&mut self.random) };
            self.out.push(key);
        }
    }

    /// One access in twenty adds a key, and the newest keys are asked for most: Zipf 0.9 by age.
    fn latest(&mut self) {
        let zipf = Zipf::new(0.9, self.keys);
        for at in 0..self.accesses {
            let newest = (self.keys + at / 20) as u64;
            let key = newest - zipf.rank(&mut self.random);
            self.out.push(key);
        }
    }

    /// Zipf 0.99, and of each ten parts four are a scan of keys that never come again.
    fn zipf_with_scans(&mut self) {
        let zipf = Zipf::new(0.99, self.keys);
        for at in 0..self.accesses {
            let is_scan = at * 10 / self.accesses % 5 < 2;
            let key = if is_scan { ONCE + at as u64 } else { zipf.rank(&mut self.random) };
            self.out.push(key);
        }
    }

    /// One loop over a quarter of the keys.
    fn one_loop(&mut self) {
        self.out.extend((0..self.accesses as u64).map(|at| at % (self.keys / 4) as u64));
    }

    /// Loops of different lengths, a few rounds of each in turn.
    fn many_loops(&mut self) {
        while self.out.len() < self.accesses {
            let which = self.random.below(6) as u64;
            let len = (self.keys as u64 >> (which + 2)).max(10);
            for _ in 0..2 + self.random.below(4) {
                self.out.extend((0..len).map(|at| (which << 32) + at));
            }
        }
    }

    /// A hot set takes four accesses in five; twenty times it is replaced by another.
    fn hot_sets(&mut self) {
        let (each, hot) = (self.accesses / 20, self.keys / 50);
        for set in 0..20 {
            for _ in 0..each {
                let is_hot = self.random.below(5) < 4;
                let key = self.random.below(if is_hot { hot } else { hot * 5 }) as u64;
                self.out.push(set * self.keys as u64 + key);
            }
        }
    }

    /// Zipf 0.9, and the keys of all ranks move on slowly.
    fn drift(&mut self) {
        let zipf = Zipf::new(0.9, self.keys / 4);
        for at in 0..self.accesses {
            let key = zipf.rank(&mut self.random) + (at / 8) as u64;
            self.out.push(key);
        }
    }

    /// Each key is used four times within a short while, and never again.
    fn bursts(&mut self) {
        for at in 0..self.accesses {
            let key = (at / 4) as u64 + self.random.below(self.keys / 20) as u64;
            self.out.push(key);
        }
    }

    /// A stable Zipf 1.0 takes half of the accesses, keys that come once the other half.
    fn frequent(&mut self) {
        let zipf = Zipf::new(1.0, self.keys / 4);
        for at in 0..self.accesses {
            let key = if at % 2 == 0 { zipf.rank(&mut self.random) } else { ONCE + at as u64 };
            self.out.push(key);
        }
    }

    /// Pages of a database. An index (root, inner and leaf pages) leads to a row's page, some rows far hotter than others.
    /// Now and then a report scans a table, and new rows go to the newest page.
    fn database(&mut self) {
        let (rows, tables) = (Zipf::new(0.85, self.keys), 4_u64);
        let pages = self.keys as u64 / 2;
        while self.out.len() < self.accesses {
            match self.random.below(2000) {
                0 => {
                    let table = self.random.below(tables as usize) as u64;
                    self.out.extend((0..pages / tables).map(|page| table * (pages / tables) + page));
                }
                1..200 => self.out.push((1 << 36) + self.out.len() as u64 / 500),
                _ => {
                    // The rank of a row says nothing about its place.
                    let row = rows.rank(&mut self.random).wrapping_mul(0x9e37_79b9) % self.keys as u64;
                    self.out.extend([1 << 32, (2 << 32) + row / 4096, (3 << 32) + row / 64, row / 2]);
                }
            }
        }
    }

    /// A few of the others, one after another, twice.
    fn phases(&mut self) {
        let all = self.accesses;
        for make in [Maker::one_loop, Maker::bursts, Maker::frequent, Maker::one_loop, Maker::bursts, Maker::frequent] {
            let random = Random::new(self.random.next(), 0);
            let mut part = Maker { random, accesses: all / 6, keys: self.keys / 4, out: Vec::new() };
            make(&mut part);
            self.out.append(&mut part.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_is_as_long_as_asked_and_the_same_each_time() {
        for name in MADE.map(|made| made.0).into_iter().chain(WEIGHTED.map(|made| made.0)) {
            let first = make(name, true).keys;
            assert!(first.len() > 49_900, "{name}: {} accesses", first.len());
            assert_eq!(first, make(name, true).keys, "{name}");
        }
    }

    #[test]
    fn a_file_is_read_as_little_endian_keys_and_a_broken_one_refused() {
        let path = std::env::temp_dir().join(format!("weir-lab-trace-{}", std::process::id()));
        std::fs::write(&path, [1_u64.to_le_bytes(), (7_u64 << 40).to_le_bytes()].concat()).unwrap();
        assert_eq!(read(&path).unwrap().keys, [1, 7 << 40]);
        std::fs::write(&path, [1, 2, 3]).unwrap();
        assert!(read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
