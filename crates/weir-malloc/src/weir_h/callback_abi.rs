//! `weir.h`'s callbacks: shrinkers, subscribers to memory pressure, and the queues that call them. The header is the
//! documentation; the two are kept alike by a test that compiles it.

use crate::errno::{EINVAL, ENOMEM, fail, refuse};
use crate::misuse::WrongCall;
use crate::weir_h::handle::{self, Home, Named, named, retire, take};
use crate::weir_h::structs::{read, tell};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use weir_linux::os::catch::{Function, catch, uncancelled};
use weir_linux::process::callbacks::{
    self, Callback, CallbackSpec, Class, DEFAULT_BATCH, DEFAULT_SEEKS, FdError, Panicked, ProgramQueue, RegisterError,
    Registration, ScanReason, Thread,
};
use weir_linux::process::heap::HEAP;
use weir_linux::process::limit::{self, LimitCallback};
use weir_linux::process::pressure::{self, Event, Level, Message, Reader};

/// `weir_callback`.
pub type Handle = handle::Handle<Registration>;

impl Named for Registration {
    const KIND: usize = 0x7765_6972_0063_616c;
    /// Not whether it is being unregistered: a call of it that still runs may ask for its figures.
    const LOOKED_AT: usize = !1;
    const WRONG: WrongCall = WrongCall::NoCallback;
}

/// `weir_queue`.
pub type WeirQueue = handle::Handle<ProgramQueue>;

impl Named for ProgramQueue {
    const KIND: usize = 0x7765_6972_7175_6575;
    const WRONG: WrongCall = WrongCall::NoQueue;
}

/// `struct weir_shrinker`. What a program of an older header does not have is zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShrinkerSpec {
    name: *const c_char,
    count: Option<unsafe extern "C-unwind" fn(*mut c_void) -> usize>,
    scan: Option<unsafe extern "C-unwind" fn(usize, c_int, *mut c_void) -> usize>,
    relieved: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    data: *mut c_void,
    batch: usize,
    seeks: c_uint,
    thread: c_uint,
    queue: *mut WeirQueue,
}

/// `WEIR_SEEKS_NONE`.
const SEEKS_NONE: c_uint = c_uint::MAX;

/// A program's functions and the pointer that they take.
struct Functions {
    spec: ShrinkerSpec,
}

// SAFETY: the pointer is the program's, which says that its functions may be called on another thread with it.
unsafe impl Send for Functions {}
// SAFETY: nothing is done with the pointer here but to pass it on, to one call at a time.
unsafe impl Sync for Functions {}

/// Calls a function of the program's. A thread of the program's that is cancelled meanwhile ends after it: the call has to be over
/// for others.
///
/// # Safety
/// The function, of whatever type, takes these arguments.
unsafe fn call(function: usize, arguments: [usize; 3]) -> Result<usize, Panicked> {
    // SAFETY: the caller's promise. Integers and pointers are passed alike, and arguments too many do no harm. What a function
    // without a result leaves in the register is not used.
    let function = unsafe { core::mem::transmute::<usize, Function>(function) };
    let [a, b, c] = arguments;
    // SAFETY: as above.
    uncancelled(|| unsafe { catch(function, [a, b, c, 0, 0, 0]) }).map_err(|_| Panicked)
}

impl Callback for Functions {
    fn count(&self) -> Result<usize, Panicked> {
        let Some(count) = self.spec.count else { return Ok(0) };
        // SAFETY: the program's function, which takes its data.
        unsafe { call(count as usize, [self.spec.data.addr(), 0, 0]) }
    }
    fn scan(&self, bytes: usize, reason: ScanReason) -> Result<usize, Panicked> {
        let Some(scan) = self.spec.scan else { return Ok(callbacks::STOP) };
        // SAFETY: the program's function, which takes the bytes, the reason and its data.
        unsafe { call(scan as usize, [bytes, reason as usize, self.spec.data.addr()]) }
    }
    fn relieved(&self) -> Result<(), Panicked> {
        let Some(relieved) = self.spec.relieved else { return Ok(()) };
        // SAFETY: the program's function, which takes its data.
        unsafe { call(relieved as usize, [self.spec.data.addr(), 0, 0]) }.map(|_| ())
    }
}

/// The `errno` of a refused registration.
fn errno_of(why: RegisterError) -> c_int {
    match why {
        RegisterError::NoMemory => ENOMEM,
        RegisterError::NoThread => crate::errno::EAGAIN,
    }
}

/// A registration as C has it.
fn hand_out(registered: Result<Registration, RegisterError>) -> *mut Handle {
    match registered {
        Err(why) => fail(errno_of(why)).cast(),
        Ok(registration) => match Home::new() {
            Some(home) => home.hand_out(registration),
            None => {
                registration.unregister();
                fail(ENOMEM).cast()
            }
        },
    }
}

/// The thread that calls a callback.
///
/// # Safety
/// Null, or a queue.
unsafe fn thread_of<'a>(thread: c_uint, queue: *mut WeirQueue) -> Option<Thread<'a>> {
    match thread {
        0 if queue.is_null() => Some(Thread::Shared),
        1 if queue.is_null() => Some(Thread::Own),
        // SAFETY: the caller's promise.
        2 => unsafe { named(queue) }.map(Thread::Program),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_shrinker_register(shrinker: *const ShrinkerSpec, size: usize) -> *mut Handle {
    // SAFETY: the caller's promise: null, or `size` bytes that may be read. Zeros are null pointers, no functions and numbers.
    let spec = unsafe { read(shrinker, size) };
    // SAFETY: the caller's promise: null, or a queue.
    let thread = unsafe { thread_of(spec.thread, spec.queue) };
    let (Some(_), Some(_), Some(thread)) = (spec.count, spec.scan, thread) else { return fail(EINVAL).cast() };
    // SAFETY: the caller's promise: null, or a string.
    let name = if spec.name.is_null() { b"" } else { unsafe { CStr::from_ptr(spec.name) }.to_bytes() };
    let seeks = match spec.seeks {
        0 => DEFAULT_SEEKS,
        SEEKS_NONE => 0,
        seeks => seeks,
    };
    let batch = if spec.batch == 0 { DEFAULT_BATCH } else { spec.batch };
    let how = CallbackSpec { name, class: Class::Program, seeks, batch, ..CallbackSpec::default() };
    hand_out(callbacks::register(&how, Functions { spec }, thread))
}

/// `weir_pressure_callback`.
pub type PressureCallback = unsafe extern "C-unwind" fn(*const Message, *mut c_void);

struct Subscriber {
    callback: PressureCallback,
    data: *mut c_void,
}

// SAFETY: the pointer is the program's, which says that its function may be called on another thread with it.
unsafe impl Send for Subscriber {}
// SAFETY: nothing is done with the pointer here but to pass it on, to one call at a time.
unsafe impl Sync for Subscriber {}

impl Callback for Subscriber {
    fn event(&self, event: Event) -> Result<(), Panicked> {
        let message = Message::from(event);
        // SAFETY: the program's function, which takes an event and its data.
        unsafe { call(self.callback as usize, [&raw const message as usize, self.data.addr(), 0]) }.map(|_| ())
    }
}

fn level_of(level: c_uint) -> Option<Level> {
    match level {
        1 => Some(Level::Some),
        2 => Some(Level::Severe),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_pressure_subscribe(
    level: c_uint,
    callback: Option<PressureCallback>,
    data: *mut c_void,
    queue: *mut WeirQueue,
) -> *mut Handle {
    let thread = if queue.is_null() { 0 } else { 2 };
    // SAFETY: the caller's promise: null, or a queue.
    let thread = unsafe { thread_of(thread, queue) };
    let (Some(level), Some(callback), Some(thread)) = (level_of(level), callback, thread) else {
        return fail(EINVAL).cast();
    };
    let spec = CallbackSpec { name: b"pressure", class: Class::Subscriber, level, ..CallbackSpec::default() };
    hand_out(callbacks::register(&spec, Subscriber { callback, data }, thread))
}

/// Sets the `errno` of a refused descriptor.
fn refuse_fd(why: FdError) -> c_int {
    refuse(match why {
        FdError::Os(why) => why.0,
        FdError::Register(why) => errno_of(why),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_pressure_fd(level: c_uint, callback: *mut *mut Handle) -> c_int {
    let Some(level) = level_of(level) else { return refuse(EINVAL) };
    match pressure::open_fd(level) {
        Err(why) => refuse_fd(why),
        Ok((end, registration)) => {
            let handle = hand_out(Ok(registration));
            if handle.is_null() {
                end.close();
                return -1;
            }
            if !callback.is_null() {
                // SAFETY: the caller's promise: null, or room for a pointer.
                unsafe { callback.write(handle) };
            }
            end.fd()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_pressure_latest(out: *mut Message, size: usize) -> c_int {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static LISTENS: AtomicBool = AtomicBool::new(false);
    if !out.is_null() && size > 0 && !LISTENS.swap(true, Relaxed) {
        // From the first question on, for as long as the process.
        core::mem::forget(Reader::new());
    }
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, Some(Message::from(pressure::latest()))) }
}

/// 1 if a cache of the program's may take so much more.
#[unsafe(no_mangle)]
pub extern "C" fn weir_may_grow(bytes: usize) -> c_int {
    c_int::from(HEAP.may_grow(bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_unregister(handle: *mut Handle) -> c_int {
    if handle.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise: a registered callback.
    if unsafe { named(handle) }.is_none() {
        return refuse(EINVAL);
    }
    // SAFETY: the handle is the caller's, who gives it up.
    let Some(registration) = (unsafe { take(handle) }) else { return refuse(EINVAL) };
    registration.unregister();
    // SAFETY: the same handle. The copy that `take` left there is a pointer, which is not used any more.
    unsafe { retire(handle) };
    0
}

/// `struct weir_callback_stats`.
#[repr(C)]
pub struct Stats {
    calls: u64,
    freed_bytes: u64,
    deferred_bytes: u64,
    is_late: c_int,
    is_disabled: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_callback_stats(handle: *mut Handle, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's promise: a registered callback, or null.
    let stats = unsafe { named(handle) }.map(Registration::stats);
    let answer = stats.map(|stats| Stats {
        calls: stats.calls,
        freed_bytes: stats.freed,
        deferred_bytes: stats.deferred as u64,
        is_late: stats.is_late.into(),
        is_disabled: stats.is_disabled.into(),
    });
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, answer) }
}

#[unsafe(no_mangle)]
pub extern "C" fn weir_queue_create() -> *mut WeirQueue {
    match Home::new().zip(ProgramQueue::new()) {
        Some((home, queue)) => home.hand_out(queue),
        None => fail(ENOMEM).cast(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_destroy(queue: *mut WeirQueue) {
    // SAFETY: the caller's promise: a queue, or null.
    if let Some(found) = unsafe { named(queue) } {
        found.end();
        // SAFETY: from `weir_queue_create`, and given up by the caller.
        drop(unsafe { retire(queue) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_fd(queue: *mut WeirQueue) -> c_int {
    // SAFETY: the caller's promise: a queue, or null.
    match unsafe { named(queue) } {
        Some(queue) => queue.fd().unwrap_or_else(refuse_fd),
        None => refuse(EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_serve(queue: *mut WeirQueue, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise: a queue, or null.
    // One of the owners while it serves: a callback, or another thread, may destroy the queue.
    let Some(queue) = unsafe { named(queue) }.cloned() else { return refuse(EINVAL) };
    let timeout = u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000);
    let calls = queue.wait_and_serve(timeout);
    c_int::try_from(calls).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn weir_on_limit(callback: Option<LimitCallback>) -> Option<LimitCallback> {
    limit::on_limit(callback)
}

#[unsafe(no_mangle)]
pub extern "C" fn weir_resume_after_fork() {
    callbacks::resume();
}
