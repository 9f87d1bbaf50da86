//! What pods have in use over time: jobs that come at a rate that follows a public curve, each with memory of its own.
//!
//! A curve of the package is the mean of a data centre, which hardly moves: it says nothing of a single process. Here each pod serves
//! jobs that come independently of each other (a Poisson process), at a rate in proportion to the curve, and last an exponential time.
//! So the sum of all pods follows the curve, and one pod varies the more, the fewer jobs it has at a time.

use rand_distr::{Distribution, Exp, Poisson, Uniform};
use rand_pcg::Pcg64;

use crate::shapes::{MIB, SHAPES, Shape};
use crate::traces::{Curves, SOURCES};

/// Seconds of a step: how often the agent looks.
pub const STEP: f64 = 10.0;
/// Steps of a day.
pub const DAY: u32 = 8640;

/// Part of a pod's mean memory that no job has: of 40 MiB at the peak 8 are data that stay (E12, lab/results/limits.md).
const BASE: f64 = 0.2;
/// A pod's mean memory, least and most; as likely in each octave.
const SIZES: [f64; 2] = [256.0 * MIB, 4096.0 * MIB];
/// How long a job lasts on average, seconds, least and most; as likely in each octave: batches, builds, queries,
/// sessions. Shorter ones would come and go within a few looks of the agent.
const LASTING: [f64; 2] = [60.0, 3600.0];

/// A job: the step in which it begins, and the first in which it is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Its first step.
    pub begin: u32,
    /// The step after its last; it may be of a later day.
    pub end: u32,
}

/// What does not change of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Pod {
    /// Which data centre's curves its rate follows.
    pub source: usize,
    /// What its heap keeps.
    pub shape: Shape,
    /// Its memory, on average, in bytes.
    pub size: f64,
    /// The jobs that it has at a time, on average.
    pub jobs: f64,
    /// How long a job lasts on average, in seconds.
    pub lasting: f64,
}

impl Pod {
    /// The pod of a number. `jobs` is the range of the mean number of jobs at a time.
    pub fn draw(number: usize, jobs: [f64; 2], random: &mut Pcg64) -> Self {
        let mut within = |[low, high]: [f64; 2]| {
            let exponent: f64 =
                Uniform::new_inclusive(low.ln(), high.ln()).expect("low is not above high").sample(random);
            exponent.exp()
        };
        let (size, jobs, lasting) = (within(SIZES), within(jobs), within(LASTING));
        Self {
            source: number % SOURCES.len(),
            shape: SHAPES[number / SOURCES.len() % SHAPES.len()],
            size,
            jobs,
            lasting,
        }
    }

    /// Bytes in use with so many jobs.
    pub fn live(&self, jobs: u32) -> f64 {
        self.size * (BASE + (1.0 - BASE) * f64::from(jobs) / self.jobs)
    }
}

/// A pod's jobs, day after day.
#[derive(Debug)]
pub struct Load {
    random: Pcg64,
    /// Jobs of earlier days that go on, by the step of the next day in which they are gone.
    going_on: Vec<u32>,
}

impl Load {
    /// No job goes on.
    pub fn new(random: Pcg64) -> Self {
        Self { random, going_on: Vec::new() }
    }

    /// The jobs of the next day, by their first step. Which day of the curves it follows is drawn.
    pub fn next_day(&mut self, pod: &Pod, curves: &Curves) -> Vec<Job> {
        let curve = Uniform::new(0, curves.days()).expect("there is a day").sample(&mut self.random);
        let lasting = Exp::new(STEP / pod.lasting).expect("a positive rate");
        let mut jobs: Vec<Job> = self.going_on.drain(..).map(|end| Job { begin: 0, end }).collect();
        for step in 0..DAY {
            let rate = pod.jobs * STEP / pod.lasting * curves.at(curve, f64::from(step) / f64::from(DAY));
            let came: f64 = Poisson::new(rate).expect("a positive rate").sample(&mut self.random);
            for _ in 0..came as u32 {
                let steps: f64 = lasting.sample(&mut self.random);
                // Of a whole day at most: the rest of the exponential distribution is 4e-11 of all.
                jobs.push(Job { begin: step, end: step + (steps.ceil() as u32).clamp(1, DAY) });
            }
        }
        self.going_on.extend(jobs.iter().filter(|job| job.end > DAY).map(|job| job.end - DAY));
        jobs
    }
}

/// How many jobs there are in each step of their day.
pub fn at_a_time(jobs: &[Job]) -> Vec<u32> {
    let mut change = vec![0_i32; DAY as usize + 1];
    for job in jobs {
        change[job.begin as usize] += 1;
        change[job.end.min(DAY) as usize] -= 1;
    }
    let mut now = 0;
    change[..DAY as usize].iter().map(|change| (now += change, now as u32).1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::POINTS;
    use rand_pcg::rand_core::SeedableRng;

    fn pod(jobs: f64) -> Pod {
        Pod { source: 0, shape: SHAPES[0], size: 1000.0, jobs, lasting: 60.0 }
    }

    #[test]
    fn jobs_of_a_step_are_counted_also_those_of_the_day_before() {
        let jobs = [Job { begin: 0, end: 2 }, Job { begin: 1, end: 3 }, Job { begin: 8639, end: 9000 }];
        let counted = at_a_time(&jobs);
        assert_eq!(counted[..4], [1, 2, 1, 0]);
        assert_eq!(counted[8639], 1);
    }

    #[test]
    fn the_mean_is_what_was_asked_for_and_a_seed_gives_the_same_day() {
        let curves = Curves::from_days(&[[1.0; POINTS]]);
        let day = |seed| {
            let mut load = Load::new(Pcg64::seed_from_u64(seed));
            load.next_day(&pod(20.0), &curves);
            load.next_day(&pod(20.0), &curves)
        };
        let counted = at_a_time(&day(1));
        let mean = counted.iter().map(|&jobs| f64::from(jobs)).sum::<f64>() / counted.len() as f64;
        // A job takes up whole steps: half a step more than it lasts, on average.
        assert!((mean - 20.0 * 65.0 / 60.0).abs() < 1.0, "{mean}");
        assert_eq!(day(1), day(1));
        assert_ne!(day(1), day(2));
    }

    #[test]
    fn what_is_in_use_has_its_mean_and_its_base() {
        assert_eq!(pod(10.0).live(10), 1000.0);
        assert_eq!(pod(10.0).live(0), 200.0);
    }
}
