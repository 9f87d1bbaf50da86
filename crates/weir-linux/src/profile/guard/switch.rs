//! Switches guarding on and off, as the setting `guard_every` says.

use super::{choice, fault, own_stack, slots};
use crate::messages;
use crate::platform::fast_path::rseq;
use crate::platform::statics::TUNABLES;

/// Does what the setting says. Where the pool cannot be mapped, it says so, and the setting goes back to 0. Blocks that are
/// guarded stay so until they are freed.
pub fn follow_setting() {
    loop {
        let every = TUNABLES.guard_every.get();
        if every != 0
            && let Err(why) = slots::map()
        {
            messages::guarded::stays_off(why);
            TUNABLES.guard_every.set(0);
            continue;
        }
        choice::restart();
        fault::set_installed(every != 0);
        rseq::set_guarded(every != 0);
        // Another thread may have set it meanwhile, and been faster with the rest.
        if TUNABLES.guard_every.get() == every {
            return;
        }
    }
}

/// In a forked child: what threads of the parent's were at with the handler has ended.
pub fn leave_parents() {
    fault::leave_parents();
    own_stack::leave_parents();
}
