//! Settings by name, while the program runs. The same names, in capitals behind `WEIR_`, are read from the environment
//! at the start; `weir settings` prints the table.
//!
//! ```
//! use weir::settings;
//!
//! settings::set("limit", "512M")?;
//! assert_eq!(settings::get("limit")?, 512 << 20);
//!
//! let error = settings::set("limit", "12X").unwrap_err();
//! assert_eq!(error.to_string(), "limit=12X: not a size (such as 64M); 0 or more bytes");
//!
//! for setting in settings::all() {
//!     println!("{} = {} {}", setting.name, settings::get(setting.name)?, setting.unit);
//! }
//! # Ok::<(), settings::SettingError>(())
//! ```
//!
//! A value counts from the next decision on. The calls wait for nothing, with two exceptions:
//! - `report` set to 0 waits for the release in flight, after which there is none. That is for a program that is about
//!   to pin memory, or to measure.
//! - `headroom_percent` waits for the end of the background thread, which is replaced by another.

use weir_core::telemetry::tunables::{Effect, TABLE, effect};
use weir_linux::platform::statics::TUNABLES;
use weir_linux::process::heap::{BACKGROUND, HEAP, on_first_use};
use weir_linux::threads::background::steering;

pub use weir_core::telemetry::tunables::{Setting, SettingError, SettingErrorKind, Unit};

/// All settings.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    TABLE.iter()
}

/// The current value of a setting, in its unit.
///
/// # Errors
/// [`SettingErrorKind::Unknown`].
pub fn get(name: &str) -> Result<u64, SettingError> {
    on_first_use();
    TUNABLES.get(name)
}

/// Sets a setting from text: a number in its unit. For bytes, text such as `64M` is taken as well.
///
/// # Errors
/// The setting is not there, or the text not a value of it; then nothing has changed.
pub fn set(name: &str, value: &str) -> Result<(), SettingError> {
    on_first_use();
    TUNABLES.set(name, value).map(take_effect)
}

/// Sets a setting from a number in its unit.
///
/// # Errors
/// [`SettingErrorKind::Unknown`], [`SettingErrorKind::OutOfRange`]; then nothing has changed.
///
/// ```
/// weir::settings::set_number("idle_ms", 500).unwrap();
/// assert_eq!(weir::settings::get("idle_ms"), Ok(500));
/// ```
pub fn set_number(name: &str, value: u64) -> Result<(), SettingError> {
    on_first_use();
    TUNABLES.set_number(name, value).map(take_effect)
}

/// Does what follows from a new value.
fn take_effect(setting: &Setting) {
    if effect(setting) == Effect::Rearm {
        // The thread that is started in place of this one arms with what is set now.
        return BACKGROUND.program_has_changed();
    }
    steering::take_effect(&HEAP, effect(setting));
    // It may be there no more, or not yet, by a value that is another now.
    BACKGROUND.listen();
}
