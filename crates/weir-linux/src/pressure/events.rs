//! The end of a wait of the background thread: how short memory is, which source says so, and other events.

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;

/// How much there may be to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Nothing to give: pressure is not heard until a slow path ends the rest.
    Empty,
    /// Nothing worth a look.
    Cold,
    /// Nothing that goes without pressure, but a heap worth the question.
    Resting,
    /// As [`Heat::Resting`], and caches of the program's hold memory. A limit that is lowered over them makes no event
    /// until the kernel has nothing else to reclaim. So limits are read.
    Caching,
    /// Something was freed lately.
    Warm,
}

/// A source of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Tasks of the whole system wait for memory.
    SystemStall,
    /// Tasks of the own control group wait for memory.
    GroupStall,
    /// The group reached a limit (`memory.events`), or reclaims (v1 `memory.pressure_level`).
    GroupEvent,
    /// Little is left below a limit of the group.
    GroupHeadroom,
    /// The service manager.
    ServiceManager,
    /// Little is left below the limit that the process's user set.
    Limit,
}

/// All that a wait ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The worst that was heard.
    pub level: Level,
    /// The source that said so; there is one whenever the level is not [`Level::None`].
    pub source: Option<Source>,
    /// The room that was read tells what a sign from that source means: it has all limits that the source may be about, as far as
    /// can be told.
    pub is_in_sight: bool,
    /// The thread was woken by [`super::wake::Waker::wake`].
    pub woken: bool,
    /// The time was up.
    pub timed_out: bool,
    /// The thread of the program that [`super::sources::Sources::watch_thread`] or
    /// [`super::wake::Waker::watch_main_thread`] watches has ended.
    pub thread_ended: bool,
    /// It is the main thread.
    pub main_thread_ended: bool,
    /// The descriptor that [`super::sources::Sources::watch_control`] watches is readable.
    pub control: bool,
}

impl Events {
    /// At one level the group's stall counts before the system's: where no limit of the group's can be read it alone is believed.
    pub(super) fn raise(&mut self, level: Level, source: Source) {
        let is_nearer = (self.source, source) == (Some(Source::SystemStall), Source::GroupStall);
        if level > self.level || is_nearer && level == self.level {
            (self.level, self.source) = (level, Some(source));
        }
    }

    /// Whether it is a sign of pressure alone: a stall, or a limit that was reached.
    pub fn is_sign(&self) -> bool {
        match self.source {
            Some(Source::SystemStall | Source::GroupStall) => true,
            Some(Source::GroupEvent) => self.level < Level::Severe,
            _ => false,
        }
    }

    /// Whether the room that is left may contradict it: a sign about limits that are in sight.
    pub fn is_doubtful(&self) -> bool {
        self.is_sign() && self.is_in_sight
    }

    /// The cause as statistics count it.
    pub fn cause(&self) -> Cause {
        if self.source == Some(Source::Limit) { Cause::Limit } else { Cause::Pressure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_same_level_the_first_source_counts_but_for_the_systems_stall() {
        let source_after = |raised: &[(Level, Source)]| {
            let mut events = Events::default();
            raised.iter().for_each(|&(level, source)| events.raise(level, source));
            events.source
        };
        use Level::{None as Calm, Severe, Some as Near};
        let (system, group) = (Source::SystemStall, Source::GroupStall);
        assert_eq!(source_after(&[(Near, system), (Near, group)]), Some(group));
        assert_eq!(source_after(&[(Near, group), (Near, system)]), Some(group));
        assert_eq!(source_after(&[(Severe, system), (Severe, group)]), Some(group));
        assert_eq!(source_after(&[(Severe, system), (Near, group)]), Some(system));
        assert_eq!(source_after(&[(Near, system), (Severe, group)]), Some(group));
        assert_eq!(source_after(&[(Near, Source::Limit), (Near, group)]), Some(Source::Limit));
        assert_eq!(source_after(&[(Calm, system), (Calm, group)]), None);
    }
}
