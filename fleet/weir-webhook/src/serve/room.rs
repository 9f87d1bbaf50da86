//! Who can reach the port can send, and no client shows who it is. So what clients make this program hold has bounds.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{MutexGuard, Notify, OwnedSemaphorePermit, Semaphore};

/// Bytes of requests that are not answered yet and of answers that are not sent yet.
const BYTES: usize = 16 << 20;

/// Room for those bytes, and for one review that is read: that takes much more than its text.
#[derive(Debug, Clone)]
pub struct Room {
    bytes: Arc<Semaphore>,
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: Arc::new(Semaphore::new(BYTES)), reading: Arc::default() }
    }
}

impl Room {
    /// Takes room for so many, until it is dropped. None: there is no room now. No request waits for some, as an API server waits
    /// for two seconds only.
    pub fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.bytes.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Waits until no other review is read.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().await
    }
}

/// An answer, which takes room until it is sent.
#[derive(Debug)]
pub struct Held {
    /// Its text.
    pub text: Vec<u8>,
    /// Its room.
    pub room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Connections at a time.
const CONNECTIONS: usize = 64;

/// The connections that are open and where they come from, the oldest first.
#[derive(Debug, Default)]
pub struct Connections(Mutex<Vec<(IpAddr, Arc<Notify>)>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Connection {
    all: Arc<Connections>,
    ends: Arc<Notify>,
}

impl Connections {
    /// A place for one more. Where all are taken, the address that has most of them loses its oldest: so a few pods cannot keep
    /// API servers and kubelets out.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Connection {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= CONNECTIONS {
            let of_address = |from| open.iter().filter(|it| it.0 == from).count();
            // Of those with as many, the last one is taken.
            let oldest = open.iter().enumerate().rev().max_by_key(|(_, it)| of_address(it.0)).map(|(at, _)| at);
            if let Some(oldest) = oldest {
                open.remove(oldest).1.notify_one();
            }
        }
        let ends = Arc::new(Notify::new());
        open.push((from, ends.clone()));
        Connection { all: self.clone(), ends }
    }
}

impl Connection {
    /// Waits until another has its place.
    pub async fn ended(&self) {
        self.ends.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, ends)| !Arc::ptr_eq(ends, &self.ends));
    }
}

/// Objects that a body may have. `{}` is two bytes, and as a container it takes some KiB. A pod has five to eight of them for a
/// variable of its environment, with what the API server notes of who wrote it.
const OBJECTS: usize = 8192;
/// Values that a body may have: those that are no objects take up to 100 bytes each.
const VALUES: usize = 131_072;

/// Whether a text of JSON takes no more memory, once it is read, than pods do.
pub fn is_modest(text: &[u8]) -> bool {
    let (mut objects, mut values, mut in_string, mut is_escaped) = (0, 0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' if !in_string => objects += 1,
            b',' if !in_string => values += 1,
            _ => {}
        }
    }
    objects <= OBJECTS && values <= VALUES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn has_ended(it: &Connection) -> bool {
        pin!(it.ended()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let all = Arc::new(Connections::default());
        let from = |last: u8| all.enter(IpAddr::from([10, 0, 0, last]));
        let mut open = vec![from(1)];
        open.extend((0..CONNECTIONS - 3).map(|_| from(2)));
        open.extend([from(3), from(3)]);
        assert!(!open.iter().any(has_ended) && open.len() == CONNECTIONS);
        // Who has most loses its oldest, whoever comes.
        for (newcomer, expected) in [(4, 1), (2, 2), (3, 3)] {
            open.push(from(newcomer));
            assert_eq!(open.iter().position(has_ended), Some(expected), "it is told once");
        }
        drop(open);
        assert!(all.0.lock().unwrap().is_empty());
    }

    #[test]
    fn of_as_many_the_oldest_ends() {
        let all = Arc::new(Connections::default());
        let open: Vec<_> = (0..=CONNECTIONS).map(|last| all.enter(IpAddr::from([10, 0, 0, last as u8]))).collect();
        assert!(has_ended(&open[0]) && !has_ended(&open[1]));
        assert_eq!(all.0.lock().unwrap().len(), CONNECTIONS);
    }

    #[test]
    fn room_is_taken_and_given_back() {
        let room = Room::default();
        let taken = room.take(BYTES - 1).unwrap();
        assert!(room.take(2).is_none() && room.take(1).is_some() && room.take(usize::MAX).is_none());
        drop(taken);
        assert!(room.take(BYTES).is_some());
    }

    #[test]
    fn what_is_in_strings_counts_for_nothing() {
        let of = |part: &str, times: usize| is_modest(format!("[{}0]", part.repeat(times)).as_bytes());
        assert!(of("{},", OBJECTS) && !of("{},", OBJECTS + 1));
        assert!(of("0,", VALUES) && !of("0,", VALUES + 1));
        assert!(is_modest(format!("\"\\\"{}\"", "{,".repeat(VALUES + 1)).as_bytes()));
        assert!(!is_modest(format!("\"\\\\\"{}", "{".repeat(OBJECTS + 1)).as_bytes()), "the string has ended");
    }
}
