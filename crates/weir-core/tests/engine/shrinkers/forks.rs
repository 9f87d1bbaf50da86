//! A fork while callbacks run or are unregistered.

use super::*;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// This is the child from then on.
fn fork(heap: TheHeap) {
    heap.fork().freeze();
    // SAFETY: froze it above, on this thread.
    unsafe { heap.fork().thaw_child() };
}

/// A thread is in the callback from then on, and ends: in a forked child it is not there.
fn take_on_a_thread_that_is_not_in_the_child(heap: TheHeap, queue: &'static Queue) {
    thread::spawn(move || {
        let Taken::Job(_never_run) = heap.callbacks().take(heap.platform(), queue) else { panic!("posted above") };
    })
    .join()
    .unwrap();
}

#[test]
fn in_a_forked_child_a_callback_that_ran_elsewhere_can_be_called_and_unregistered() {
    let (heap, queue) = (heap(), queue());
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    let (late, late_told) = register(heap, queue, shrinker("late", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    // A thread that is in a callback as another one forks: in the child it does not go on.
    take_on_a_thread_that_is_not_in_the_child(heap, queue);
    fork(heap);
    // The queue goes on, and nothing is waited for. What the parent was to do is void; both hear of relief.
    assert_eq!(serve(heap, queue), 2);
    assert_eq!([&told, &late_told].map(|told| (told.relieved.load(SeqCst), sum(told))), [(1, 0); 2]);
    cache.unregister(heap);
    late.unregister(heap);
    assert!(told.disposed.load(SeqCst) && late_told.disposed.load(SeqCst));
}

#[test]
fn a_thread_that_forks_in_a_handler_while_it_unregisters_goes_on_in_the_child() {
    let (heap, queue) = (heap(), queue());
    let (cache, told) = register(heap, queue, shrinker("cache", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    // A thread that is in the callback, and is not there in the child.
    take_on_a_thread_that_is_not_in_the_child(heap, queue);
    heap.platform().interrupt_the_next_wait(move || fork(heap));
    cache.unregister(heap);
    assert!(told.disposed.load(SeqCst));
}

#[test]
fn in_a_child_that_a_callback_forked_while_another_one_is_late_the_queue_is_still_at_it() {
    let (heap, queue) = (heap(), queue());
    let (late, _) = register(heap, queue, shrinker("late", Class::Program), SIZE, None);
    pressure(heap, Level::Some);
    take_on_a_thread_that_is_not_in_the_child(heap, queue);
    // Waits in vain for the one that does not return, which is late then.
    pressure(heap, Level::Some);
    assert!(late.entry().stats().is_late);
    let in_child = move |_bytes| {
        fork(heap);
        let (hears, told) = register(heap, queue, shrinker("hears", Class::Subscriber), 0, None);
        heap.callbacks().catch_up(heap.platform(), hears.entry(), u32::MAX);
        let taken = heap.callbacks().take(heap.platform(), queue);
        assert!(matches!(taken, Taken::Sleep(_)), "two at once: {taken:?}");
        assert!(told.events.lock().unwrap().is_empty());
        Ok(STOP)
    };
    let (_forks, told) = register(heap, queue, shrinker("forks", Class::Program), SIZE, Some(Box::new(in_child)));
    pressure(heap, Level::Some);
    serve(heap, queue);
    assert!(sum(&told) > 0, "it was called");
}

#[test]
fn a_thread_that_forks_in_a_handler_while_it_waits_for_pressure_leaves_the_next_to_be_woken() {
    let heap = heap();
    let events = heap.callbacks().events();
    heap.platform().interrupt_the_next_wait(move || {
        fork(heap);
        heap.reclaim().note_pressure(Level::Some, Cause::Pressure);
    });
    events.wait(heap.platform(), events.latest().generation, None);
    let (say, said) = channel();
    let asleep = say.clone();
    heap.platform().interrupt_the_next_wait(move || asleep.send(false).unwrap());
    let seen = events.latest().generation;
    thread::spawn(move || {
        events.wait(heap.platform(), seen, None);
        say.send(true).unwrap();
    });
    assert_eq!(said.recv_timeout(PATIENCE), Ok(false));
    // Between the hook and the sleep the event would be seen, and none have to be woken.
    thread::sleep(Duration::from_millis(20));
    heap.reclaim().note_pressure(Level::Severe, Cause::Pressure);
    assert_eq!(said.recv_timeout(PATIENCE), Ok(true), "it is not woken");
}
