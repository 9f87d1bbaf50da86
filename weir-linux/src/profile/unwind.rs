//! Stub.
/// Return addresses from the caller outwards.
pub fn capture(frames: &mut [usize]) -> usize {
    let _ = frames;
    0
}
