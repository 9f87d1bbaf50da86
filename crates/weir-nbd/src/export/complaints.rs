//! Which failed requests the log tells of: a client can have requests fail as often as it likes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines about one export.
const PAUSE: Duration = Duration::from_secs(1);

/// The failed requests of an export.
#[derive(Default)]
pub struct Complaints(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the last one was told.
    last: Option<Instant>,
    /// How many were not told since then.
    untold: u64,
}

impl Complaints {
    /// One more, at `now`. `None`: it is not to be told; else how many before it were not.
    pub fn add(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now < last + PAUSE) {
            state.untold += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_told_with_the_number_of_the_others() {
        let (complaints, began) = (Complaints::default(), Instant::now());
        let told = [0, 1, 999, 1000, 1001, 5000, 6000].map(|ms| complaints.add(began + Duration::from_millis(ms)));
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1), Some(0)]);
    }
}
