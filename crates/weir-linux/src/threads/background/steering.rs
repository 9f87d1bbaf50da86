//! The control channel as the background thread has it: when it is open, and what requests do.

use core::sync::atomic::Ordering::Relaxed;
use weir_core::evict::callback::Class;
use weir_core::platform::Memory as _;
use weir_core::telemetry::stats::Opening;
use weir_core::telemetry::tunables::{Effect, Tunables};

use crate::control::answer::Host;
use crate::control::channel::{Channel, End};
use crate::os::rights::sandbox::Sandbox;
use crate::os::syscall::Errno;
use crate::platform::linux::Engine;
use crate::platform::other_malloc;
use crate::platform::statics::{STATS, TUNABLES};
use crate::pressure::sources::Sources;
use crate::pressure::wake::Waker;
use crate::profile::{guard, switch};
use crate::threads::background::figures::Figures;

/// The channel, while the setting `control` wants one.
#[derive(Debug, Default)]
pub(super) struct Steering {
    channel: Option<Channel>,
    /// While there is a channel.
    sandbox: Option<Sandbox>,
    /// The setting, as it was followed last.
    followed: Option<u64>,
    /// A limit refused the channel.
    is_refused: bool,
}

impl Steering {
    /// Opens the channel or closes it, as the setting says now.
    pub fn follow_setting(&mut self, sources: &mut Sources) {
        let wanted = TUNABLES.control.get();
        if self.followed == Some(wanted) {
            return;
        }
        self.followed = Some(wanted);
        if wanted == 0 {
            return self.close(sources, Opening::Off, None);
        }
        // No descriptor is opened in a table that the program shares.
        let sandbox = sources.is_private().then(Sandbox::look);
        if let Some(Err(error @ (Errno::EMFILE | Errno::ENFILE))) = sandbox {
            return self.close(sources, Opening::Refused, Some(error));
        }
        self.sandbox = sandbox.and_then(Result::ok);
        if is_in_sandbox(self.sandbox.as_ref()) {
            self.close(sources, Opening::Sandbox, None);
        } else {
            match Channel::open(&STATS) {
                Ok(channel) => self.begin(channel, sources),
                Err(error) => self.close(sources, Opening::Refused, Some(error)),
            }
        }
    }

    fn begin(&mut self, channel: Channel, sources: &mut Sources) {
        let (name, is_heard) = (channel.name(), sources.watch_control(Some(channel.descriptor())));
        self.channel = Some(channel);
        if !is_heard {
            // There is no listener: its thread was refused.
            return self.close(sources, Opening::Refused, Some(Errno::EAGAIN));
        }
        STATS.control.name.iter().zip(name).for_each(|(to, word)| to.store(word, Relaxed));
        STATS.control.error.store(0, Relaxed);
        STATS.control.state.store(Opening::Open as u32, Relaxed);
        self.is_refused = false;
    }

    /// Whether a limit refused the channel, which may be tried again.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Has the setting followed anew.
    pub fn try_again(&mut self) {
        self.followed = None;
    }

    fn close(&mut self, sources: &mut Sources, state: Opening, error: Option<Errno>) {
        sources.watch_control(None);
        let _ = sources.set_target(None);
        if let Some(channel) = self.channel.take() {
            channel.close();
        }
        self.sandbox = None;
        let limits = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EAGAIN];
        self.is_refused = state == Opening::Refused && error.is_some_and(|error| limits.contains(&error));
        STATS.control.error.store(error.map_or(0, |error| error.0 as u32), Relaxed);
        STATS.control.state.store(state as u32, Relaxed);
    }

    /// When clients are to be served although nothing reports them, ns of the monotonic clock.
    pub fn due(&self) -> Option<u64> {
        self.channel.as_ref()?.due()
    }

    /// Answers what came.
    pub fn serve(&mut self, heap: &Engine, waker: &Waker, figures: &mut Figures, sources: &mut Sources) {
        let Some(channel) = &mut self.channel else { return };
        let mut host = BackgroundHost { heap, waker, figures, sources, sandbox: self.sandbox.as_ref() };
        let served = channel.serve(&mut host, &STATS);
        self.follow_clients(served, waker, sources);
    }

    /// Sends subscribers what happened since the last time.
    pub fn tell_subscribers(&mut self, waker: &Waker, sources: &mut Sources) {
        let Some(channel) = &mut self.channel else { return };
        let sandbox = self.sandbox.as_ref();
        let told = channel.tell_subscribers(&STATS, || is_in_sandbox(sandbox));
        // One that has gone may be found out here first. Its socket is closed then, and nothing more is heard of it.
        self.follow_clients(told, waker, sources);
    }

    /// Has the target be that of the clients which are there now. A client that has gone leaves none behind.
    fn follow_clients(&mut self, outcome: Result<(), End>, waker: &Waker, sources: &mut Sources) {
        // What limits are is read anew.
        if sources.set_target(self.channel.as_ref().and_then(Channel::target)) {
            waker.wake();
        }
        if let Err(end) = outcome {
            self.end(end, sources);
        }
    }

    /// Closes a channel that cannot go on: under a filter set since, by no call more than its end takes.
    fn end(&mut self, end: End, sources: &mut Sources) {
        match end {
            End::Sandbox => self.close(sources, Opening::Sandbox, None),
            End::Refused(error) => self.close(sources, Opening::Refused, Some(error)),
        }
    }
}

/// Whether the program is in a sandbox of its own, or may be.
fn is_in_sandbox(sandbox: Option<&Sandbox>) -> bool {
    sandbox.is_none_or(Sandbox::is_programs_own)
}

/// Does what follows from a setting's new value, but for [`Effect::Rearm`]: the thread that waits for sources arms them.
pub fn take_effect(heap: &Engine, effect: Effect) {
    match effect {
        Effect::Wake | Effect::Rearm | Effect::AtStart => {}
        Effect::Reporting => heap.reclaim().set_reporting(TUNABLES.report.get() != 0),
        Effect::HugeHeap => heap.reclaim().follow_huge_heap(),
        Effect::Profile => switch::follow_setting(heap),
        Effect::Guard => guard::switch::follow_setting(),
        Effect::Check => heap.reclaim().follow_check(),
    }
}

/// The background thread, as requests are carried out by it.
struct BackgroundHost<'a> {
    heap: &'a Engine,
    waker: &'a Waker,
    figures: &'a mut Figures,
    sources: &'a mut Sources,
    sandbox: Option<&'a Sandbox>,
}

impl BackgroundHost<'_> {
    /// Root may have switched the kernel's merging on since the heap came to rest. Then the first pass only notes what there
    /// is, and windows begin again for the second.
    fn look_at_merging(&self) {
        self.heap.platform().merging.look_if_wanted();
        if self.heap.platform().merges() {
            self.waker.wake();
        }
    }
}

impl Host for BackgroundHost<'_> {
    fn tunables(&self) -> &Tunables {
        &TUNABLES
    }

    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Rearm => self.sources.rearm(),
            effect => take_effect(self.heap, effect),
        }
        // The next wait ends at once: a heap at rest is looked at again.
        self.waker.wake();
    }

    fn trim(&mut self) -> usize {
        self.look_at_merging();
        self.heap.reclaim().balance_rest()
    }

    fn drain(&mut self) -> usize {
        self.look_at_merging();
        self.heap.reclaim().purge()
    }

    fn mergeable(&mut self) -> usize {
        self.heap.reclaim().mergeable()
    }

    fn callbacks(&self) -> usize {
        let callbacks = self.heap.callbacks();
        let called = [Class::Program, Class::Subscriber].map(|class| callbacks.count(class));
        called.iter().sum::<usize>() + usize::from(callbacks.events().is_read()) + other_malloc::owners()
    }

    fn report(&mut self) -> [(&'static str, usize); 7] {
        // What is left below the limits is told as well, and others have taken of it since this process came to rest.
        let room = self.sources.measure(&TUNABLES);
        let others = self.heap.reclaim().read_room(room);
        self.sources.note_others(room, others);
        // And so is the pressure, which may have ended since.
        self.heap.reclaim().relieve_if_due();
        let usage = self.figures.bring_up_to_date(self.heap, self.sources);
        [
            ("live", usage.live),
            ("idle", usage.idle),
            ("fragmented", usage.fragmented),
            ("merged", usage.merged),
            ("metadata", usage.metadata),
            ("untouched", usage.untouched),
            ("resident", usage.resident()),
        ]
    }
    fn is_in_sandbox(&self) -> bool {
        is_in_sandbox(self.sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::channel::with_gone_subscriber;

    #[test]
    fn a_subscriber_that_is_found_to_have_gone_leaves_no_target_behind() {
        let (sandbox, mut sources, waker) = (Sandbox::look().ok(), Sources::new(), Waker::new());
        let mut steering =
            Steering { channel: Some(with_gone_subscriber(&STATS, 1 << 20)), sandbox, ..Steering::default() };
        assert!(sources.set_target(steering.channel.as_ref().unwrap().target()));
        steering.tell_subscribers(&waker, &mut sources);
        assert_eq!(steering.channel.as_ref().unwrap().target(), None, "it was found out");
        assert!(!sources.set_target(None), "its target is gone");
        steering.channel.unwrap().close();
    }

    #[test]
    fn without_a_listener_the_channel_is_refused_and_not_in_a_sandbox() {
        let channel = Channel::open(&STATS).unwrap();
        let mut steering = Steering::default();
        steering.begin(channel, &mut Sources::new());
        let state = [&STATS.control.state, &STATS.control.error].map(|word| word.load(Relaxed));
        assert_eq!(state, [Opening::Refused as u32, Errno::EAGAIN.0 as u32]);
        assert!(steering.is_refused(), "it is tried again");
        steering.close(&mut Sources::new(), Opening::Sandbox, None);
        assert!(!steering.is_refused());
    }

    #[test]
    fn a_report_tells_what_is_left_now() {
        let (heap, waker) = (crate::process::heap::HEAP.engine(), Waker::new());
        let (mut figures, mut sources) = (Figures::default(), Sources::new());
        let mut host =
            BackgroundHost { heap, waker: &waker, figures: &mut figures, sources: &mut sources, sandbox: None };
        host.report();
        assert!(heap.reclaim().budget_figures().capacity > 0, "the machine's memory is a limit");
    }
}
