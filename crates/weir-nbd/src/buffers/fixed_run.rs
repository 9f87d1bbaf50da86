//! A registered run that a request holds.

use super::fixed_table::{FixedTable, Registered};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use weir::PoolPages;

/// The runs of one ring.
pub type Table = FixedTable<PoolPages>;

/// See the module. Dropped, it goes back to its table, on any thread.
pub struct FixedRun {
    registered: ManuallyDrop<Registered<PoolPages>>,
    table: Arc<Table>,
}

impl FixedRun {
    /// A run that was taken from `table`, or is to go there.
    pub fn new(registered: Registered<PoolPages>, table: &Arc<Table>) -> Self {
        Self { registered: ManuallyDrop::new(registered), table: table.clone() }
    }

    /// Its slot, if it is one of `table`.
    pub fn slot_in(&self, table: &Arc<Table>) -> Option<u16> {
        Arc::ptr_eq(&self.table, table).then_some(self.registered.slot)
    }

    /// Its first byte.
    pub fn memory(&mut self) -> *mut u8 {
        self.registered.run.as_mut_ptr()
    }

    /// Bytes of it.
    pub fn length(&self) -> usize {
        self.registered.run.capacity()
    }
}

impl Drop for FixedRun {
    fn drop(&mut self) {
        // SAFETY: taken once, as the value is gone after this.
        let registered = unsafe { ManuallyDrop::take(&mut self.registered) };
        self.table.put(registered);
    }
}
