//! Requests carried out, and their answers: `ok` and lines of figures, or one line that begins with `error:`.

use arrayvec::ArrayString;
use core::fmt::{self, Write};
use weir_core::telemetry::tunables::{Effect, Setting, SettingError, TABLE, Tunables, effect};

use super::request::Request;
use super::{LONGEST_ANSWER, VERSION};

/// Why nothing is released.
const RELEASING_IS_OFF: &str = "nothing was released: releasing is switched off: set the setting report to 1 first";

/// An answer.
pub type Answer = ArrayString<LONGEST_ANSWER>;

/// Whoever carries requests out: the background thread.
pub trait Host {
    /// The settings.
    fn tunables(&self) -> &Tunables;
    /// Does what follows from a setting's new value.
    fn take_effect(&mut self, effect: Effect);
    /// Releases what is idle, and trims caches to what they will want again; bytes.
    fn trim(&mut self) -> usize;
    /// Releases all that is free; bytes.
    fn drain(&mut self) -> usize;
    /// Where the memory is now, bytes by name.
    fn report(&mut self) -> [(&'static str, usize); 7];
    /// How many functions of the program's may give what is in use: shrinkers, and those that hear of pressure.
    fn callbacks(&self) -> usize;
    /// Bytes that merging would release: a dry run.
    fn mergeable(&mut self) -> usize;
    /// Whether the program has put itself into a sandbox, which may end the process for a call.
    fn is_in_sandbox(&self) -> bool;
}

/// The first message that a client gets.
pub fn write_greeting(answer: &mut Answer) -> fmt::Result {
    writeln!(answer, "weir control {VERSION}")
}

/// Says why a request, or a client, is refused.
pub fn write_error(answer: &mut Answer, why: impl fmt::Display) -> fmt::Result {
    writeln!(answer, "error: {why}")
}

/// Carries a request out. [`Request::Subscribe`] and [`Request::Target`] are the channel's.
pub fn write_answer(answer: &mut Answer, request: Request<'_>, host: &mut impl Host) -> fmt::Result {
    match request {
        Request::Get(None) => {
            answer.write_str("ok\n")?;
            TABLE.iter().try_for_each(|setting| write_setting(answer, setting, host))
        }
        Request::Get(Some(name)) => match host.tunables().get(name).map(|_| find(name)) {
            Ok(setting) => {
                answer.write_str("ok\n")?;
                setting.map_or(Ok(()), |setting| write_setting(answer, setting, host))
            }
            Err(error) => write_error(answer, error),
        },
        Request::Set(name, value) => match set(name, value, host) {
            Ok(setting) => {
                answer.write_str("ok\n")?;
                write_setting(answer, setting, host)
            }
            Err(error) => write_error(answer, error),
        },
        Request::Trim | Request::Drain if host.tunables().report.get() == 0 => write_error(answer, RELEASING_IS_OFF),
        Request::Trim => write!(answer, "ok\nreleased {} bytes\n", host.trim()),
        Request::Drain => write!(answer, "ok\nreleased {} bytes\n", host.drain()),
        Request::Report => {
            answer.write_str("ok\n")?;
            host.report().into_iter().try_for_each(|(name, bytes)| writeln!(answer, "{name} {bytes} bytes"))?;
            writeln!(answer, "callbacks {}", host.callbacks())
        }
        Request::Mergeable => write!(answer, "ok\nmergeable {} bytes\n", host.mergeable()),
        Request::Subscribe | Request::Target(_) => answer.write_str("ok\n"),
    }
}

fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.name == name)
}

fn set(name: &str, value: &str, host: &mut impl Host) -> Result<&'static Setting, SettingError> {
    let setting = host.tunables().set(name, value)?;
    host.take_effect(effect(setting));
    Ok(setting)
}

fn write_setting(answer: &mut Answer, setting: &Setting, host: &impl Host) -> fmt::Result {
    let value = host.tunables().get(setting.name).unwrap_or(setting.default);
    writeln!(answer, "{} {value} {}", setting.name, setting.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    struct Fake {
        tunables: Tunables,
        effects: Vec<Effect>,
    }

    impl Host for Fake {
        fn tunables(&self) -> &Tunables {
            &self.tunables
        }
        fn take_effect(&mut self, effect: Effect) {
            self.effects.push(effect);
        }
        fn trim(&mut self) -> usize {
            1
        }
        fn drain(&mut self) -> usize {
            2
        }
        fn report(&mut self) -> [(&'static str, usize); 7] {
            let names = ["live", "idle", "fragmented", "merged", "metadata", "untouched", "resident"];
            core::array::from_fn(|i| (names[i], i + 1))
        }
        fn callbacks(&self) -> usize {
            8
        }
        fn mergeable(&mut self) -> usize {
            3
        }
        fn is_in_sandbox(&self) -> bool {
            false
        }
    }

    fn said(request: &str, host: &mut Fake) -> String {
        let mut answer = Answer::new();
        write_answer(&mut answer, Request::parse(request.as_bytes()).unwrap(), host).unwrap();
        answer.to_string()
    }

    #[test]
    fn every_setting_is_read_and_set_and_its_effect_follows() {
        let mut host = Fake { tunables: Tunables::new(), effects: Vec::new() };
        assert_eq!(said("set limit 64M", &mut host), "ok\nlimit 67108864 bytes\n");
        assert_eq!(said("get limit", &mut host), "ok\nlimit 67108864 bytes\n");
        assert_eq!(said("set report 0", &mut host), "ok\nreport 0 bool\n");
        assert_eq!(host.effects, [Effect::Wake, Effect::Reporting]);
        assert_eq!(said("set limit lots", &mut host), "error: limit=lots: not a size (such as 64M); 0 or more bytes\n");
        assert_eq!(said("get limti", &mut host), "error: limti: no such setting (see `weir settings`)\n");
        assert_eq!(host.effects.len(), 2);
        let all = said("get", &mut host);
        assert_eq!(all.lines().count(), TABLE.len() + 1);
        assert!(all.len() < LONGEST_ANSWER / 2, "there is room for as many again");
    }

    #[test]
    fn what_is_done_is_said() {
        let mut host = Fake { tunables: Tunables::new(), effects: Vec::new() };
        assert_eq!(said("trim", &mut host), "ok\nreleased 1 bytes\n");
        assert_eq!(said("drain", &mut host), "ok\nreleased 2 bytes\n");
        assert!(said("report", &mut host).ends_with("untouched 6 bytes\nresident 7 bytes\ncallbacks 8\n"));
        assert_eq!(said("mergeable", &mut host), "ok\nmergeable 3 bytes\n");
    }

    #[test]
    fn with_releasing_switched_off_it_is_said_that_nothing_was_released() {
        let mut host = Fake { tunables: Tunables::new(), effects: Vec::new() };
        said("set report 0", &mut host);
        for request in ["trim", "drain"] {
            let answer = said(request, &mut host);
            assert!(answer.starts_with("error: nothing was released: releasing is switched off"), "{answer}");
        }
        said("set report 1", &mut host);
        assert_eq!(said("trim", &mut host), "ok\nreleased 1 bytes\n");
    }
}
