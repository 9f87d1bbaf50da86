//! Programs that run in a container and are told to load, peak and serve.

use crate::base::prelude::*;

/// A program that runs in a container.
pub trait Subject {
    fn load(&mut self) -> Result<()>;
    /// Needs three times the data besides, replaces one record in a hundred, and frees what it needed.
    fn peak(&mut self) -> Result<()>;
    /// Serves a fixed number of requests.
    fn work(&mut self) -> Result<()>;
}
