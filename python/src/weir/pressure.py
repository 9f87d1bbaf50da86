"""Memory pressure: who subscribes is told when memory is short, and when that is over."""

import traceback
from ctypes import byref, sizeof
from operator import index
from typing import NamedTuple

from ._library import PRESSURE_CALLBACK, PressureEvent, failed, library, numbers, register, unregister

#: Pressure has ended.
NONE = 0
#: Somebody waits for memory, or soon will.
SOME = 1
#: Tasks suffer for want of memory.
SEVERE = 2


class Event(NamedTuple):
    """An event of memory pressure."""

    #: NONE, SOME or SEVERE.
    level: int
    #: 1: from outside; 2: the setting ``limit``.
    cause: int
    #: The number of the event; a gap means that some were missed.
    generation: int


class Subscription:
    """What subscribe() returns; close() ends it, and so does the end of a ``with``."""

    def __init__(self, number):
        self._number = number

    def close(self):
        """Ends the subscription. Waits while its callback runs in another thread; the caller may hold no lock that it takes."""
        unregister(self._number)
        _callbacks.pop(self._number, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_callbacks = {}


@PRESSURE_CALLBACK
def _call(event, number):
    # There is one of this for all, and for ever: it cannot be freed while it is called.
    try:
        callback = _callbacks.get(number)
        if callback is not None:
            callback(_event(event.contents))
    except BaseException:  # nothing of Python's may reach Weir's code
        traceback.print_exc()


def _event(event):
    return Event(event.level, event.cause, event.generation)


def subscribe(callback, level=SOME):
    """Calls ``callback(event)`` with each event of ``level`` or above, and with the relief that follows.

    It is called on a thread of Weir's, one after another. What it raises is printed. RuntimeError: this is not the main
    interpreter, where alone it could be called.
    """
    if not callable(callback):
        raise TypeError("subscribe() calls a function: subscribe(callback, level)")
    level = index(level)
    library()
    number = next(numbers)
    subscription = Subscription(number)
    _callbacks[number] = callback
    try:
        register(number, "weir_pressure_subscribe", level, _call, number, None)
    except BaseException:
        subscription.close()
        raise
    return subscription


def latest():
    """The latest event. From the first call on pressure is listened for."""
    event = PressureEvent()
    if library().weir_pressure_latest(byref(event), sizeof(event)) != 0:
        raise failed("weir_pressure_latest")
    return _event(event)
