//! The policies that are compared.

use crate::load::{DAY, STEP};
use std::time::Duration;
use weir_policy::limits::Rules;

/// Who says what a pod asks for. A limit is as high as the request, but where the agent has a window for requests.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Its owner, once.
    Owner,
    /// The VPA, in the mode `InPlaceOrRecreate`.
    Vpa,
    /// Weir's agent, by these rules of its own.
    Agent(Rules),
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

/// The agent's defaults: limit and request go by the peak of a day.
const SAME: Rules = Rules {
    window: Duration::from_secs((STEP * DAY as f64) as u64),
    requests: None,
    margin: 0.15,
    least: 32 << 20,
    above: 1.5,
};
/// `--window 1h`.
const HOUR: Rules = Rules { window: Duration::from_secs(3600), ..SAME };
/// `--request-window 10m`: the limit goes by the day, and the request follows what is in use.
const APART: Rules = Rules { requests: Some(Duration::from_secs(600)), ..SAME };

/// Those of the main table. The rows between the second and the third show which part does what.
pub fn all() -> Vec<Policy> {
    let malloc =
        |name: &str, who, by_use| Policy { name: name.to_string(), weir: false, who, by_use, handshake: false };
    let weir = |name: &str, who| Policy { name: name.to_string(), weir: true, who, by_use: true, handshake: true };
    let [same, hour, apart] = [SAME, HOUR, APART].map(Who::Agent);
    vec![
        malloc("1: requests that stand", Who::Owner, false),
        malloc("2: VPA, usage as malloc leaves it", Who::Vpa, false),
        weir("2, but programs under Weir", Who::Vpa),
        malloc("3a, but malloc, by what is resident", same, false),
        malloc("3a by 1 h, but malloc, by what is in use, without asking", hour, true),
        weir("3a by 1 h: Weir and the handshake; limit = request", hour),
        weir("3a: Weir and the handshake; limit = request, by 24 h", same),
        malloc("3b, but malloc, by what is resident", apart, false),
        weir("3b: Weir and the handshake; limit by 24 h, request by 10 min", apart),
    ]
}

/// The agent's policy with another window for requests, and another margin.
pub fn with(seconds: u64, margin: f64) -> Policy {
    Policy {
        name: format!("limit by 24 h, request by {:.1} min, {:.0} %", seconds as f64 / 60.0, 100.0 * margin),
        weir: true,
        who: Who::Agent(Rules { requests: Some(Duration::from_secs(seconds)), margin, ..SAME }),
        by_use: true,
        handshake: true,
    }
}
