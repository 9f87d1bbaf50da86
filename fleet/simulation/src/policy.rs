//! The policies that are compared.

use crate::agent::Settings;

/// Who says what a pod asks for. A limit is as high as the request, if the agent does not set it by the day.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Its owner, once.
    Owner,
    /// The VPA, in the mode `InPlaceOrRecreate`.
    Vpa,
    /// Weir's agent.
    Agent(Settings),
}

/// A way to run a fleet.
#[derive(Clone, Debug)]
pub struct Policy {
    /// As a row of a table has it.
    pub name: String,
    /// Programs run under Weir; else under glibc's malloc.
    pub weir: bool,
    /// Who says what a pod asks for.
    pub who: Who,
    /// The agent goes by what is in use, which Weir's processes tell; else by what is resident, as everybody else does.
    pub by_use: bool,
    /// Whether processes are asked for their memory before a limit is lowered.
    pub handshake: bool,
}

/// Limit and request are the same: a window of an hour, and the VPA's margin.
const SAME: Settings = Settings { window: 360, margin: 0.15, limit_by_day: false };
/// The limit stays at a day's peak, and the request follows what is in use by ten minutes.
const APART: Settings = Settings { window: 60, margin: 0.05, limit_by_day: true };

/// Those of the main table. The rows between the second and the third show which part does what.
pub fn all() -> Vec<Policy> {
    let malloc =
        |name: &str, who, by_use| Policy { name: name.to_string(), weir: false, who, by_use, handshake: false };
    let weir = |name: &str, who| Policy { name: name.to_string(), weir: true, who, by_use: true, handshake: true };
    let (same, apart) = (Who::Agent(SAME), Who::Agent(APART));
    vec![
        malloc("1: requests that stand", Who::Owner, false),
        malloc("2: VPA, usage as malloc leaves it", Who::Vpa, false),
        weir("2, but programs under Weir", Who::Vpa),
        malloc("3a, but malloc, by what is resident", same, false),
        malloc("3a, but malloc, by what is in use, without asking", same, true),
        weir("3a: Weir and the handshake; limit = request, by 1 h", same),
        malloc("3b, but malloc, by what is resident", apart, false),
        weir("3b: Weir and the handshake; limit by the day, request by 10 min", apart),
    ]
}

/// The third policy with another window and margin.
pub fn with(settings: Settings) -> Policy {
    let Settings { window, margin, limit_by_day } = settings;
    let time = if window < 360 { format!("{:.1} min", f64::from(window) / 6.0) } else { format!("{} h", window / 360) };
    let limit = if limit_by_day { "limit by the day" } else { "limit = request" };
    Policy {
        name: format!("{limit}, {time}, {:.0} %", 100.0 * margin),
        weir: true,
        who: Who::Agent(settings),
        by_use: true,
        handshake: true,
    }
}
