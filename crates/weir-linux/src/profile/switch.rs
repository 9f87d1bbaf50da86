//! Switches samples on and off, as the setting `profile_bytes` says.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::messages;
use crate::os::clock;
use crate::os::syscall::Errno;
use crate::platform::fast_path::rseq;
use crate::platform::linux::Engine;
use crate::platform::statics::TUNABLES;
use weir_core::base::time::Time;

/// Mean of the bytes between two samples; 0: off. What allocations look at.
static MEAN: AtomicU64 = AtomicU64::new(0);

/// Mean of the bytes between two samples; 0: there are none.
#[inline(always)]
pub fn mean() -> u64 {
    MEAN.load(Relaxed)
}

/// Does what the setting says. Where the tables cannot be mapped, it says so, and the setting goes back to 0.
pub fn follow_setting(heap: &Engine) {
    loop {
        let mean = TUNABLES.profile_bytes.get();
        if let Err(why) = heap.profile().switch(heap.platform(), mean, Time(clock::realtime_ns())) {
            messages::profile_stays_off(Errno(why.error as i32));
            TUNABLES.profile_bytes.set(0);
            continue;
        }
        MEAN.store(mean, Relaxed);
        rseq::set_counted(mean != 0);
        // Another thread may have set it meanwhile, and been faster with the rest.
        if TUNABLES.profile_bytes.get() == mean {
            return;
        }
    }
}
