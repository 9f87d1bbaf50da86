//! Writing dirty blocks to the file.

use super::medium::Medium;
use crate::cache::CachedFile;
use crate::io::Reactor;
use futures_util::future::join_all;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

/// Runs that are written at a time.
const AT_ONCE: usize = 4;

/// Writes all blocks that are dirty now. Those that cannot be written stay dirty, and the first error is returned; the
/// others are written all the same.
pub async fn write_back(medium: &Medium, cached: &CachedFile, reactor: &Rc<Reactor>) -> Result<()> {
    let Some(dirty) = cached.dirty() else { return Ok(()) };
    // Another has it where the file is exported twice.
    let _turn = loop {
        match dirty.turn() {
            Some(turn) => break turn,
            None => reactor.sleep(Duration::from_millis(1)).await,
        }
    };
    let (mut from, mut result) = (0, Ok(()));
    loop {
        let mut runs = Vec::new();
        while runs.len() < AT_ONCE
            && let Some(run) = dirty.next_run(from, u64::MAX)?
        {
            from = run.first + run.versions.len() as u64;
            runs.push(run);
        }
        if runs.is_empty() {
            return result;
        }
        let writes = runs.into_iter().map(async |mut run| {
            let noted = cached.before_writing_back(&run);
            let length = run.data.filled().len();
            let offset = run.first * crate::cache::BLOCK as u64;
            run.data = medium.write(reactor, offset, run.data, 0..length).await?;
            cached.clean(&run, &noted);
            Ok(())
        });
        result = join_all(writes).await.into_iter().fold(result, Result::and);
    }
}

/// The same at the server's end, without a worker.
pub fn write_back_at_end(medium: &Medium, cached: &CachedFile) -> Result<()> {
    let Some(dirty) = cached.dirty() else { return Ok(()) };
    // A worker has it only where its requests have not ended in time. If they hang below, this does too.
    let _turn = loop {
        match dirty.turn() {
            Some(turn) => break turn,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let file = std::fs::File::from(medium.file.try_clone()?);
    let mut from = 0;
    while let Some(run) = dirty.next_run(from, u64::MAX)? {
        let noted = cached.before_writing_back(&run);
        file.write_all_at(run.data.filled(), run.first * crate::cache::BLOCK as u64)?;
        cached.clean(&run, &noted);
        from = run.first + run.versions.len() as u64;
    }
    Ok(())
}
