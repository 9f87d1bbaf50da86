"""The functions of weir.h, in the library that this process was started with.

The library is a malloc. So it is not loaded from here, where the program has memory of another malloc already: what a
preload or the linker brought is looked up, and without that there is none. Nor is there one where another malloc was named before
it: then the program has no memory of Weir's.
"""

import _thread
import atexit
import ctypes
import functools
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from itertools import count
from operator import itemgetter

NOT_LOADED = (
    "this process does not run on Weir: start it by `python -m weir run`, or with"
    " LD_PRELOAD=$(python -m weir library), before any other malloc"
)


class NotLoaded(RuntimeError):
    """The process does not run on Weir."""


class Shrinker(ctypes.Structure):
    """struct weir_shrinker"""

    COUNT = ctypes.CFUNCTYPE(c_size_t, c_void_p)
    SCAN = ctypes.CFUNCTYPE(c_size_t, c_size_t, c_int, c_void_p)
    RELIEVED = ctypes.CFUNCTYPE(None, c_void_p)
    _fields_ = [
        ("name", c_char_p),
        ("count", COUNT),
        ("scan", SCAN),
        ("relieved", RELIEVED),
        ("data", c_void_p),
        ("batch", c_size_t),
        ("seeks", c_uint),
        ("thread", c_uint),
        ("queue", c_void_p),
    ]


class PressureEvent(ctypes.Structure):
    """struct weir_pressure_event"""

    _fields_ = [("level", c_uint), ("cause", c_uint), ("generation", c_uint), ("reserved", c_uint)]


class Usage(ctypes.Structure):
    """struct weir_usage"""

    _fields_ = [
        (name, c_size_t)
        for name in (
            "live_bytes",
            "idle_bytes",
            "address_space_bytes",
            "mapped_bytes",
            "mapped_count",
            "metadata_bytes",
            "fragmented_bytes",
            "untouched_bytes",
            "merged_bytes",
        )
    ]


PRESSURE_CALLBACK = ctypes.CFUNCTYPE(None, POINTER(PressureEvent), c_void_p)

# Result and arguments. ctypes releases Python's lock (the GIL) in each call, and takes it in each callback.
FUNCTIONS = {
    "weir_version": (c_char_p, []),
    "weir_trim": (c_int, []),
    "weir_usage": (c_int, [POINTER(Usage), c_size_t]),
    "weir_ctl": (c_int, [c_char_p, POINTER(c_uint64), POINTER(c_size_t), POINTER(c_uint64), c_size_t]),
    "weir_shrinker_register": (c_void_p, [POINTER(Shrinker), c_size_t]),
    "weir_pressure_subscribe": (c_void_p, [c_uint, PRESSURE_CALLBACK, c_void_p, c_void_p]),
    "weir_pressure_latest": (c_int, [POINTER(PressureEvent), c_size_t]),
    "weir_unregister": (c_int, [c_void_p]),
    "weir_resume_after_fork": (None, []),
}


def _look_up():
    library = ctypes.CDLL(None, use_errno=True)
    try:
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    # Python has blocks of malloc by now. Weir has none of them where another malloc is called.
    usage = Usage()
    is_asked = library.weir_usage(ctypes.byref(usage), ctypes.sizeof(usage)) == 0
    return None if is_asked and usage.live_bytes == 0 else library


_library = _look_up()
if _library is not None:
    _here = ctypes.PyDLL(None)
    # Without types of arguments, which ctypes would call: that can be too deep a recursion, and then is another error.
    _latest, _ctl = _here.weir_pressure_latest, _here.weir_ctl
    # An older library has none.
    _grows = getattr(_here, "weir_may_grow", None)
    _event = PressureEvent()
    _read_event = ctypes.byref(_event), c_size_t(ctypes.sizeof(_event))
    _background = c_uint64()
    _read_background = b"background", ctypes.byref(_background), ctypes.byref(c_size_t(8)), None, c_size_t(0)

# ctypes runs every callback in the main interpreter. Another one may have a lock of its own, from Python 3.12 on: what is its
# must not be touched there.
_is_main = getattr(_thread, "_is_main_interpreter", lambda: True)()

# One lock for what this package shares between threads. A thread may take it twice: what runs under it allocates, so that
# the collector may call a finalizer there, which is the program's code. Nothing that waits for a callback is called under it,
# as a callback takes it.
lock = threading.RLock()

#: For `register`, each for one callback.
numbers = count(1)
# By number. Weir's functions are called and the handles kept in one step of C's. What a handler of signals raises comes before
# that or after it, so that no handle is lost: a callback that the end of Python does not know would be called after it.
_handles = {None: None}
# Not empty at the end of the program.
_exits = []
# Not empty in a forked child, until callbacks are called there.
_forks = []


def library():
    """The library; NotLoaded if there is none."""
    if _library is None:
        raise NotLoaded(NOT_LOADED)
    return _library


def is_loaded():
    """Whether this process runs on Weir: whether it is there, and its malloc is called."""
    return _library is not None


def hears_pressure():
    """Whether Weir may call functions of this interpreter, and hears when memory is short. Each insertion into a cache asks."""
    if _library is None or not _is_main:
        return False
    _ctl(*_read_background)
    return _background.value != 0


def may_grow(size):
    """Whether caches may have so many bytes more, where there is Weir. Each insertion asks, and keeps Python's lock (the GIL).

    There is no pressure, and so much is left below all limits. That is an estimate which needs none of Weir's threads: while
    Python's threads take memory, these may get no CPU.
    """
    if _grows is not None:
        return _grows(c_size_t(size)) != 0
    _latest(*_read_event)
    return _event.level == 0


def version():
    """The library's version."""
    return library().weir_version().decode()


def failed(function):
    """The exception for what a function of Weir's said by errno."""
    why = ctypes.get_errno()
    return OSError(why, f"{function}: {os.strerror(why)}")


def register(number, function, *arguments):
    """Registers a callback by this function, once for each number. When the program is at its end nothing is registered.

    In a forked child the threads that call callbacks are made anew.
    """
    if _exits or number in _handles:
        return
    call = getattr(library(), function)
    if not _is_main:
        raise RuntimeError("Weir calls functions of the main interpreter alone")
    resume_after_fork()
    _handles.update(zip([number], filter(None, map(call, *([argument] for argument in arguments)))))
    if number not in _handles:
        raise failed(function)


def unregister(number):
    """Ends a callback, once, and waits while another thread is in it."""
    list(map(_library.weir_unregister, map(_handles.pop, [number], [None])))


def resume_after_fork():
    """In a forked child: callbacks of the parent are called here too. Elsewhere it does nothing."""
    if _forks:
        if _library is not None:
            # Once more does nothing, whether it is another thread's call, or this one was interrupted before the next line.
            _library.weir_resume_after_fork()
        _forks.clear()


if _library is not None:
    # A thread that asks for Python's lock after this would end in the middle of Weir's code. The handle that came first,
    # None, goes last.
    _ended = map(itemgetter(1), iter(_handles.popitem, (None, None)))
    atexit.register(list, map(_library.weir_unregister, _ended))
    # What is registered last is called first.
    atexit.register(_exits.append, True)
# No thread is between two steps under the lock at a fork: a child begins with what is whole. By C's functions alone: Python
# drops one of its own where a handler of signals raises. Twice: a handler may raise while the lock is waited for, and Python
# goes on without it. Then the last release finds nothing to give back, and Python says so on standard error.
for _ in range(2):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
os.register_at_fork(after_in_child=functools.partial(_forks.append, True))
