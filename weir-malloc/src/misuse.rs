//! What follows a wrong call that has no result to say so by: a line on standard error, and the end of the process.

use crate::fatal::Message;
use crate::text::Text;

unsafe extern "C" {
    safe fn abort() -> !;
}

/// Says what the program did wrong with `address`, and aborts. Returns if the setting `abort_on_misuse` is 0: then the call
/// is to be ignored.
#[cold]
#[inline(never)]
pub fn misuse(message: &Message, address: usize) {
    Text::<384>::new()
        .str("weir: ")
        .str(message.what)
        .str(": ")
        .address(address)
        .str(": ")
        .str(message.remedy)
        .str("\n")
        .to_stderr();
    if weir_linux::platform::statics::TUNABLES.abort_on_misuse.get() != 0 {
        abort()
    }
}
