//! Children, which are forked and waited for.

use super::filled_block::corrupt;

/// `work` in a child, which is waited for.
pub fn forked(work: impl FnOnce()) {
    // SAFETY: the child allocates, checks and ends; the parent waits for it.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        match libc::fork() {
            0 => {
                libc::alarm(300);
                work();
                libc::_exit(0);
            }
            -1 => _ = libc::usleep(10_000),
            pid => {
                let mut status = 0;
                while libc::waitpid(pid, &mut status, 0) != pid {}
                if status != 0 {
                    corrupt(&format!("a child ended with status {status:#x}"));
                }
            }
        }
    }
}
