//! Tasks of unit tests.

use tokio::runtime::{Builder, LocalOptions};

/// Runs a task to its end.
pub fn run(task: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build_local(LocalOptions::default()).expect("a runtime").block_on(task);
}
