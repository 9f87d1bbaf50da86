//! A fleet before the day that is measured: its pods, and what each policy has learned about them.

use std::error::Error;
use std::path::Path;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use crate::load::{DAY, Job, Load, Pod, at_a_time};
use crate::shapes::resident;
use crate::traces::{Curves, SOURCES, used_of_assigned};
use crate::vpa::Histogram;

/// What a fleet is made of.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many pods.
    pub pods: usize,
    /// What all that is drawn follows from.
    pub seed: u64,
    /// Days that the policies see before the one that is measured.
    pub learned: u32,
    /// The mean number of jobs that a pod has at a time: least and most, as likely in each octave.
    pub jobs: [f64; 2],
}

/// A pod with its past, and its jobs of the day that is measured.
#[derive(Debug)]
pub struct Member {
    /// What does not change of it.
    pub pod: Pod,
    /// The most that it ever had in use, in bytes.
    pub highest: f64,
    /// What the VPA knows of it if malloc is glibc's.
    pub under_malloc: Histogram,
    /// What the VPA knows of it under Weir.
    pub under_weir: Histogram,
    /// Its jobs at a time, in each step of the day before.
    pub yesterday: Vec<u32>,
    /// Its jobs of the day.
    pub jobs: Vec<Job>,
    /// The same, by their end.
    pub ending: Vec<Job>,
    /// What is resident under glibc, the mean of all days before.
    mean: f64,
}

/// All pods.
#[derive(Debug)]
pub struct Fleet {
    /// The day that is measured, from 0.
    pub day: u32,
    /// The pods, in the order in which they are placed.
    pub members: Vec<Member>,
    /// What owners ask for: so many times the most that a pod ever used. So that what is used of it is what Google's data centre uses.
    pub asked: f64,
}

impl Fleet {
    /// Draws pods, and lets them run for the days before.
    pub fn new(package: &Path, settings: &Settings) -> Result<Self, Box<dyn Error>> {
        let days = 1000; // all that the package has of each
        let curves: Result<Vec<Curves>, _> =
            SOURCES.iter().map(|&source| Curves::read(package, source, days)).collect();
        Ok(Self::from_curves(&curves?, used_of_assigned(package)?, settings))
    }

    /// Pods on given curves, one for each source, of which `used` is used of what is asked for.
    pub fn from_curves(curves: &[Curves], used: f64, settings: &Settings) -> Self {
        let mut random = Pcg64::seed_from_u64(settings.seed);
        let members: Vec<Member> = (0..settings.pods)
            .map(|number| {
                let pod = Pod::draw(number, settings.jobs, &mut random);
                let own = Pcg64::seed_from_u64(settings.seed << 32 | number as u64);
                Member::new(pod, Load::new(own), &curves[pod.source], settings.learned)
            })
            .collect();
        let mean: f64 = members.iter().map(|member| member.mean).sum();
        let highest: f64 = members.iter().map(|member| member.highest).sum();
        Self { day: settings.learned, asked: mean / used / highest, members }
    }

    /// Bytes in use of all pods at once, the most of the day: what no policy can do without.
    pub fn most_in_use(&self) -> f64 {
        let mut sums = vec![0.0; DAY as usize];
        for member in &self.members {
            for (sum, jobs) in sums.iter_mut().zip(at_a_time(&member.jobs)) {
                *sum += member.pod.live(jobs);
            }
        }
        sums.into_iter().fold(0.0, f64::max)
    }
}

impl Member {
    fn new(pod: Pod, mut load: Load, curves: &Curves, learned: u32) -> Self {
        let mut member = Self {
            pod,
            highest: 0.0,
            under_malloc: Histogram::default(),
            under_weir: Histogram::default(),
            yesterday: Vec::new(),
            jobs: Vec::new(),
            ending: Vec::new(),
            mean: 0.0,
        };
        load.next_day(&pod, curves); // so that jobs are under way when the first day begins
        for day in 0..learned {
            member.yesterday = at_a_time(&load.next_day(&pod, curves));
            member.learn(day);
        }
        member.mean /= f64::from(learned) * f64::from(DAY);
        member.jobs = load.next_day(&pod, curves);
        member.ending = member.jobs.clone();
        member.ending.sort_unstable_by_key(|job| (job.end, job.begin));
        member
    }

    fn learn(&mut self, day: u32) {
        let [mut malloc, mut weir] = [0.0_f64; 2];
        for &jobs in &self.yesterday {
            let live = self.pod.live(jobs);
            self.highest = self.highest.max(live);
            let usage = resident(live, self.highest, self.pod.shape.malloc_leaves);
            malloc = malloc.max(usage);
            weir = weir.max(resident(live, self.highest, self.pod.shape.weir_leaves));
            self.mean += usage;
        }
        self.under_malloc.see(day, malloc);
        self.under_weir.see(day, weir);
    }
}
