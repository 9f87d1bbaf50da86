//! The policies that are compared.

use crate::agent::Settings;

/// Who says what a pod asks for. Limits are equal to requests.
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
    /// Whether processes are asked for their memory before a limit is lowered.
    pub handshake: bool,
}

/// The agent's settings of the main table: the window, and the margin that the VPA has.
pub const AGENT: Settings = Settings { window: 360, margin: 0.15 };

/// The five of the main table. The third of the issue is the last one; the two before it show which part does what.
pub fn all() -> Vec<Policy> {
    let policy = |name: &str, weir, who, handshake| Policy { name: name.to_string(), weir, who, handshake };
    vec![
        policy("1: requests that stand", false, Who::Owner, false),
        policy("2: VPA, usage as malloc leaves it", false, Who::Vpa, false),
        policy("2, but programs under Weir", true, Who::Vpa, false),
        policy("the agent's targets, but malloc and no handshake", false, Who::Agent(AGENT), false),
        policy("3: Weir's figures and the handshake", true, Who::Agent(AGENT), true),
    ]
}

/// The third policy with another window and margin.
pub fn with(settings: Settings) -> Policy {
    let Settings { window, margin } = settings;
    let time = if window < 360 { format!("{} min", window / 6) } else { format!("{} h", window / 360) };
    Policy { name: format!("{time}, {:.0} %", 100.0 * margin), weir: true, who: Who::Agent(settings), handshake: true }
}
