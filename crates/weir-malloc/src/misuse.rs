//! The consequence of a wrong call that has no result to say so by.

use weir_linux::messages;
use weir_linux::platform::statics::TUNABLES;

pub use weir_linux::messages::WrongCall;

/// Says what the program did wrong with `address`, and aborts. Returns if the setting `abort_on_misuse` is 0: then the
/// call is to be ignored.
#[cold]
#[inline(never)]
pub fn misuse(call: WrongCall, address: usize) {
    messages::wrong_call(call, address, TUNABLES.abort_on_misuse.get() != 0);
}
