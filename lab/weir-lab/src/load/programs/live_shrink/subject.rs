//! What runs in a container.

/// How much a program holds.
#[derive(Clone, Copy)]
pub struct Data {
    /// Of what stays. A peak needs three times as much besides, and replaces a record of what stays with each hundred
    /// of its own.
    pub bytes: u64,
}

/// A program that has data, peaks, and serves requests.
pub trait Subject {
    /// Loads the data that stays.
    fn load(&mut self) -> Result<(), String>;
    /// Peaks, and frees what that needed.
    fn peak(&mut self) -> Result<(), String>;
    /// Serves a fixed number of requests over the data that stays; the seconds that takes.
    fn work(&mut self) -> Result<f64, String>;
}
