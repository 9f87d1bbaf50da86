//! A registered run that a request holds.

use super::fixed_table::{FixedTable, Registered};
use std::sync::Arc;
use weir::PoolPages;

/// The runs of one ring.
pub type Table = FixedTable<PoolPages>;

/// A registered run. Dropped, it goes back to its table, on any thread.
pub struct FixedRun {
    /// `None` only at its end.
    registered: Option<Registered<PoolPages>>,
    table: Arc<Table>,
}

impl FixedRun {
    /// A run that was taken from `table`, or is to go there.
    pub fn new(registered: Registered<PoolPages>, table: &Arc<Table>) -> Self {
        Self { registered: Some(registered), table: table.clone() }
    }

    /// Its slot, if it is one of `table`.
    pub fn slot_in(&self, table: &Arc<Table>) -> Option<u16> {
        self.registered.as_ref().filter(|_| Arc::ptr_eq(&self.table, table)).map(|registered| registered.slot)
    }

    /// Its memory, for as long as it is held.
    pub fn pages(&mut self) -> Option<&mut PoolPages> {
        self.registered.as_mut().map(|registered| &mut registered.run)
    }
}

impl Drop for FixedRun {
    fn drop(&mut self) {
        if let Some(registered) = self.registered.take() {
            self.table.put(registered);
        }
    }
}
