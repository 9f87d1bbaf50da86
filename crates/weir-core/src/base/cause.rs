//! Why memory is released.

/// Why memory went back to the system below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// Memory lay idle above the working set.
    Idle = 0,
    /// Somebody signalled memory pressure.
    Pressure = 1,
    /// The process came near the limit its user set.
    Limit = 2,
    /// The program asked for it.
    Asked = 3,
}
