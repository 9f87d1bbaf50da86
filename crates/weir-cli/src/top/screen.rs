//! The terminal: taken over at the start, and given back as it was at every end.
//!
//! - The program ends, or fails: [`Screen`] is dropped.
//! - It panics: a hook gives the terminal back before the message is printed.
//! - A signal ends it: the handler only counts; the loop sees it, drops the screen, and ends by the same signal. [`super::hangup`]
//!   sees to it where the loop does not come that far.
//! - It is stopped (Ctrl-Z, `SIGTSTP`): the terminal is given back before, and taken again after.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP};
use std::io::{Result, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The screen, as long as it is taken over.
pub struct Screen {
    /// Its own end would show the cursor again, and where the terminal has gone panic as it says that it cannot.
    pub terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over.
    pub fn take() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |what| {
                give_back();
                before(what);
            }));
        });
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen);
        let made = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        made.map(|terminal| Self { terminal: ManuallyDrop::new(terminal) }).inspect_err(|_| give_back())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// All of it, whatever fails: the terminal may be gone.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The modes alone, for an end in which a write may wait for ever: the terminal takes no output now.
pub fn give_back_modes() {
    let _ = disable_raw_mode();
}

/// The signals that end a program or stop it, as far as they have come.
#[derive(Clone)]
pub struct Signals {
    /// The last one that ends it; 0: none.
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on they are only counted.
    pub fn new() -> Result<Self> {
        let it = Self { end: Arc::default(), stop: Arc::default() };
        for signal in ENDING {
            signal_hook::flag::register_usize(signal, Arc::clone(&it.end), signal as usize)?;
        }
        signal_hook::flag::register_usize(SIGTSTP, Arc::clone(&it.stop), SIGTSTP as usize)?;
        Ok(it)
    }

    /// The signal that is to end this program.
    pub fn end(&self) -> Option<i32> {
        Some(self.end.load(SeqCst) as i32).filter(|&signal| signal != 0)
    }

    /// Whether the program is to stop; told once.
    pub fn stop(&self) -> bool {
        self.stop.swap(0, SeqCst) != 0
    }
}

/// Stops this program until a signal has it go on; its terminal is to be given back before.
pub fn suspend() -> Result<()> {
    signal_hook::low_level::raise(SIGSTOP)
}

/// The signals that end it, for who waits for them by a descriptor.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Ends this program as a signal does, so that its parent sees which.
pub fn end_by(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
