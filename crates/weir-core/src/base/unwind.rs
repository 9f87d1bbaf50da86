//! Undoes work when a panic of a program's own code passes through the engine.

/// Calls its function when it is dropped, unless that is prevented by [`core::mem::forget`].
pub(crate) struct OnUnwind<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
