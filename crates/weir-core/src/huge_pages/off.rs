//! A program that switches huge pages off for itself while it runs, as redis does (`PR_SET_THP_DISABLE`).

use super::watch::Watch;
use crate::pages::cool::slices;
use crate::platform::Platform;

impl<P: Platform> Watch<'_, P> {
    /// Memory comes in single pages from now on, and no pageblock counts as a huge page any more. Those that are huge pages
    /// from before are found as what khugepaged fills is; the other way round, free pages that are not there would count as
    /// resident, and those that are would be kept together for a huge page's sake.
    pub(crate) fn forget_huge(&self) {
        self.caches.pages.platform.set_huge_on_touch(false);
        for site in self.caches.pages.sites() {
            for blocks in slices(site.window) {
                site.zone.lock(&self.caches.pages.platform).forget_huge(site.window, blocks);
            }
        }
        self.look_again();
    }
}
