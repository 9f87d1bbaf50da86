//! What can be set of page pools, for all of them, while the server runs.

use crate::base::Failure;
use weir::settings;

/// What can be set of pools, while the server runs; `None`: as it was when the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Pages that each connection keeps for its next requests.
    pub max_idle_pages: Option<u64>,
    /// Milliseconds after memory pressure in which it keeps none.
    pub squeeze_ms: Option<u64>,
}

impl PoolSettings {
    /// The values with their names in Weir's settings.
    fn named(self) -> [(&'static str, Option<u64>); 2] {
        [("max_idle_pages", self.max_idle_pages), ("squeeze_ms", self.squeeze_ms)]
    }

    /// Whether all can be set: they are outside of no range.
    pub fn check(self) -> Result<(), Failure> {
        for (name, value) in self.named() {
            let setting = settings::all().find(|setting| setting.name == name).expect("a setting of Weir's");
            if value.is_some_and(|value| !(setting.min..=setting.max).contains(&value)) {
                let (name, value) = (name.replace('_', "-"), value.unwrap_or_default());
                return Err(Failure::new(format!(
                    "{name}: {value} is not between {} and {}",
                    setting.min, setting.max
                )));
            }
        }
        Ok(())
    }
}

/// The settings of all pools, with what they were before the server set any.
pub struct SettingsAtStart(PoolSettings);

impl SettingsAtStart {
    /// As they are now: Weir's defaults, or the environment's.
    pub fn read() -> Self {
        let now = |name| settings::get(name).ok();
        Self(PoolSettings { max_idle_pages: now("max_idle_pages"), squeeze_ms: now("squeeze_ms") })
    }

    /// Sets what is given, and the rest as it was at the start. It counts from the next request on.
    pub fn set(&self, wanted: PoolSettings) -> Result<(), Failure> {
        for ((name, value), (_, start)) in wanted.named().into_iter().zip(self.0.named()) {
            if let Some(value) = value.or(start) {
                settings::set_number(name, value).map_err(Failure::because("page pools"))?;
            }
        }
        Ok(())
    }
}
