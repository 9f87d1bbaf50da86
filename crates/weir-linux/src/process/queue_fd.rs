//! The descriptor of a queue that a program's own threads serve.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use weir_core::evict::callback::{Callback, CallbackSpec, Class};

use crate::os::bell::Bell;
use crate::os::fd::close;
use crate::os::syscall::Errno;
use crate::process::callbacks::{RegisterError, Thread, register};
use crate::process::heap::HEAP;
use crate::process::program_queue::ProgramQueue;

/// Why there is no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdError {
    /// The system refused it.
    Os(Errno),
    /// Nothing could be registered that makes it readable.
    Register(RegisterError),
}

/// Makes a queue's descriptor readable.
struct QueueBell(Bell);

impl Callback for QueueBell {
    fn ring(&self) {
        self.0.put(&1u64.to_ne_bytes());
    }
}

impl ProgramQueue {
    /// A descriptor that is readable while a callback may wait: then the program calls [`ProgramQueue::serve`], which takes
    /// the message. The same one at each call; the queue closes it when it ends.
    pub fn fd(&self) -> Result<i32, FdError> {
        let shared = self.shared();
        if shared.fd.load(Acquire) < 0 {
            let (bell, fd) = Bell::open().map_err(FdError::Os)?;
            let spec = CallbackSpec { name: b"queue", class: Class::Bell, ..CallbackSpec::default() };
            let registered = register(&spec, QueueBell(bell), Thread::Shared);
            let registration = registered.map_err(|why| {
                let _ = close(fd);
                FdError::Register(why)
            })?;
            if shared.fd.compare_exchange(-1, fd, AcqRel, Acquire).is_err() {
                // Another thread was faster.
                registration.unregister();
                let _ = close(fd);
            } else {
                let entry = registration.into_raw();
                shared.bell.store(entry.as_ptr(), Release);
                HEAP.callbacks().set_bell(HEAP.platform(), &shared.queue, Some(entry));
            }
        }
        Ok(shared.fd.load(Acquire))
    }
}
