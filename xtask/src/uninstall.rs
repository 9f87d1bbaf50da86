//! Takes away what the list says was installed.

use crate::command_line::Place;
use crate::manifest::{self, Manifest};
use anyhow::{Context, Result};
use std::io::ErrorKind;

/// Removes the files, their list last, so that it can be done again where one could not be removed. Then it
/// removes the directories that were made for them, if nothing else is in them by now.
pub fn uninstall(place: &Place) -> Result<()> {
    let list = place.real(&place.prefix.join(manifest::PATH));
    let manifest = Manifest::read(&list, &place.prefix)?;
    let manifest = manifest.with_context(|| format!("nothing is installed there: no {}", list.display()))?;
    for path in manifest.files.iter().map(|path| place.real(path)).chain([list]) {
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(why).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    for directory in manifest.directories.iter().rev() {
        // Not empty: others use it by now. Not removable: it was no part of what others see of Weir.
        let _ = std::fs::remove_dir(place.real(directory));
    }
    println!("Weir is removed from {}", place.real(&place.prefix).display());
    Ok(())
}
