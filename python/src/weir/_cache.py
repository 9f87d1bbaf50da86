"""``cache``: functools.lru_cache without a size, which gives way when memory is short.

All caches of the process are one shrinker to Weir. It is told how much to free, and takes that from each cache in
proportion to what it holds, what was not used for longest first. Weir calls it on a thread of its own, which ctypes gives
Python's lock (the GIL) for the call. That thread may wait for the lock while others insert. So each insertion evicts for itself
as long as memory is short, or too little is left for it by Weir's estimate. A cache that the program has dropped is not among them any more.

Each cache has a lock of its own, as the program's code runs under it: keys are compared there. A thread waits for the lock of
one cache at most, and whoever evicts from other caches than its own goes without those that are busy.
"""

import functools
import os
import sys
import threading
import traceback
from collections import OrderedDict
from ctypes import byref, c_size_t, sizeof
from itertools import count
from operator import index, itemgetter
from typing import NamedTuple
from weakref import WeakSet

from ._library import Shrinker, hears_pressure, lock, may_grow, numbers, register, resume_after_fork

#: WEIR_SCAN_STOP: nothing can be freed now.
STOP = c_size_t(-1).value
#: Bytes of an entry beside its value and its arguments: the places in the table, the tuples of key and entry.
OVERHEAD = 250
#: Bytes that Weir asks for at a time. Each call waits for Python's lock, so they are few.
BATCH = 1 << 20
#: Seconds after which whoever wants the lock of another's cache takes it for busy: what reclaim waits for a callback.
BUSY = 0.05

# Between the positional arguments of a key and the named ones.
_NAMED = object()

_caches = WeakSet()
_is_registered = False
# Caches have been asked to give way, and Weir has not said yet that the shortage is over.
_is_pressed = False
# Where evictions from all caches begin.
_turns = count()


class CacheInfo(NamedTuple):
    """What a cache did and holds."""

    hits: int
    misses: int
    #: Entries that gave way.
    evicted: int
    #: Entries now,
    entries: int
    #: and their bytes, as they were weighed.
    bytes: int


class _Entries:
    """The entries of one cache. All but the weighing is done under its lock.

    A thread may come back while it has the lock: what runs under it allocates, so that the collector may call a finalizer there,
    and asks keys whether they are equal. Both are the program's code, and may use the cache. Whoever comes back finds nothing
    there, and changes nothing but by `clear`, which puts another table in place: an OrderedDict that changes while it compares
    keys ends the process.

    A handler of signals may raise after each call, and where a loop begins anew. From Python 3.10 on it does so nowhere else. So
    there is no call between a lock and the `with` or `try` that gives it back, nor between steps that belong together.
    """

    def __init__(self, weigh, bound):
        self.weigh, self.bound = weigh, bound
        self.lock = threading.RLock()
        self.by_key = OrderedDict()
        self.bytes = self.hits = self.misses = self.evicted = 0
        # What went while memory was short beyond what came: entries go whole.
        self.spare = 0
        with lock:
            _caches.add(self)

    def get(self, key):
        if self.lock._is_owned():  # as threading.Condition asks
            self.misses += 1
            return None
        with self.lock:
            by_key = self.by_key
            entry = by_key.get(key)
            if entry is None:
                self.misses += 1
                return None
            by_key.move_to_end(key)
            self.hits += 1
            return entry

    def insert(self, key, value):
        if self.lock._is_owned():
            return
        weight = index(self.weigh(value))
        if weight < 0:
            raise ValueError(f"weigh() says {weight} bytes")
        size = weight + sum(map(_size, key)) + OVERHEAD
        is_bounded = not _register_once()
        if is_bounded and size > self.bound:
            return
        is_short = not is_bounded and _is_short(size)
        victims = []
        with self.lock:
            by_key = self.by_key
            if key in by_key:
                return
            missing = self.bytes + size - self.bound if is_bounded else size - self.spare if is_short else 0
            missing -= self._evict(missing, victims)
            self.spare = max(-missing, 0) if is_short else 0
            by_key[key] = (value, size)
            if by_key is self.by_key:
                self.bytes += size
        # Finalizers of what went, arguments and values, run here without the lock.
        del victims
        if is_short and missing > 0:
            missing -= _evict_all(missing, but=self)
            with self.lock:
                self.spare += max(-missing, 0)

    def evict(self, size, wait=BUSY):
        """Evicts entries of that size in all; the bytes that went. None: the cache is busy for that many seconds."""
        victims = []
        if self.lock._is_owned():
            return 0
        # As `with` does it: up to `try` there is no call but C's, after which no handler comes in between.
        for is_held in map(self.lock.acquire, [True], [wait]):
            try:
                return self._evict(size, victims) if is_held else None
            finally:
                if is_held:
                    self.lock.release()

    def _evict(self, size, victims):
        freed, by_key = 0, self.by_key
        try:
            while freed < size and by_key:
                victims.append(by_key.popitem(last=False))
                _, (_, taken) = victims[-1]
                freed += taken
                self.evicted += 1
                if by_key is self.by_key:
                    self.bytes -= taken
        except BaseException:
            # What went last may not be taken off.
            self.bytes = sum(map(itemgetter(1), self.by_key.values()))
            raise
        return freed

    def clear(self):
        with self.lock:
            victims, self.by_key = self.by_key, OrderedDict()
            self.bytes = self.hits = self.misses = self.evicted = 0
        del victims

    def info(self):
        with self.lock:
            return CacheInfo(self.hits, self.misses, self.evicted, len(self.by_key), self.bytes)

    def inherit(self):
        """In a forked child: another thread had the lock at the fork, and is not there to end what it was about to do."""
        table, lock = OrderedDict(), threading.RLock()
        # Nothing is called in between, so no handler of signals raises. What the cache had is dropped last: a finalizer may call
        # the cached function.
        victims, self.by_key, self.bytes, self.lock = self.by_key, table, 0, lock
        return victims


def _size(part):
    # Types, which a key has with `typed`, are there without the cache.
    return 0 if isinstance(part, type) else sys.getsizeof(part, 0)


def cache(function=None, *, weigh=sys.getsizeof, typed=False, bound=64 << 20):
    """Keeps what a function returns, by its arguments, and gives way when memory is short: ``@cache`` or ``@cache(weigh=len)``.

    ``weigh(value)`` says how many bytes an entry's value takes; ``sys.getsizeof`` looks at the object alone, not at what it
    refers to. With ``typed`` 3 and 3.0 are different arguments. Where the process does not run on Weir, in another interpreter than
    the main one, and while the setting ``background`` is 0, nothing tells when memory is short: then the entries are at most
    ``bound`` bytes, each cache's.

    As with ``functools.lru_cache`` arguments are hashable, several threads may call the function at once, also for the same
    arguments, and what raises is not kept. The function gets ``cache_info()``, ``cache_clear()`` and ``__wrapped__``. What is
    evicted may be finalized on a thread of Weir's. Arguments are compared (``__eq__``) under the cache's lock: that must not wait
    for a thread that calls the same function.
    """
    bound = index(bound)
    if function is None:
        return functools.partial(cache, weigh=weigh, typed=typed, bound=bound)
    if not callable(function):
        raise TypeError("cache is for functions: @cache or @cache(weigh=...)")
    entries = _Entries(weigh, bound)

    @functools.wraps(function)
    def cached(*positional, **named):
        key = positional
        if named:
            key += (_NAMED, *(part for item in named.items() for part in item))
        if typed:
            key += (_NAMED, *map(type, positional), *map(type, named.values()))
        entry = entries.get(key)
        if entry is not None:
            return entry[0]
        value = function(*positional, **named)
        entries.insert(key, value)
        return value

    cached.cache_info = entries.info
    cached.cache_clear = entries.clear
    return cached


def _register_once():
    """Whether Weir calls the shrinker, which is registered with the first entry of all."""
    global _is_registered
    if not hears_pressure():  # nor limits; the program may set it at any time
        return False
    resume_after_fork()
    if _is_registered:
        return True
    was_registered = True
    try:
        with lock:
            # Another thread may be about to register it: this one takes that for done.
            was_registered, _is_registered = _is_registered, True
        if not was_registered:
            register(_NUMBER, "weir_shrinker_register", byref(_SHRINKER), sizeof(_SHRINKER))
    except BaseException as error:
        if not was_registered:
            _is_registered = False
        if not isinstance(error, OSError):
            raise
    return _is_registered


def _is_short(size=0):
    """Whether no cache may grow by so much: there is pressure, or was since the last relief, or less is left."""
    return _is_pressed or not may_grow(size)


def _all():
    # Without the package's lock: a thread that waits for that may have a cache's.
    while True:
        try:
            return list(_caches)
        except RuntimeError:  # another thread has made a cache meanwhile
            pass


def _evict_all(size, but=None):
    """Evicts entries of that size in all, from each cache but one in proportion to what it holds; the bytes that went."""
    held = [(entries, share) for entries in _all() if entries is not but for share in [entries.bytes] if share > 0]
    total, due, freed = sum(share for _, share in held), 0, 0
    # Entries go whole, and what one cache gives too much the next ones need not give. So another one begins each time.
    first = next(_turns) % max(len(held), 1)
    for entries, share in held[first:] + held[:first]:
        due += size * share
        # Rounded up: a cache may be smaller than what it is asked for.
        missing = -(-due // total) - freed
        if missing > 0:
            freed += entries.evict(missing) or 0
    return freed


# These functions are never freed: nothing can take them from under a call. Nothing that they raise may reach Weir's code.


@Shrinker.COUNT
def _count(_data):
    try:
        return max(sum(entries.bytes for entries in _all()), 0)
    except BaseException:
        traceback.print_exc()
        return 0


@Shrinker.SCAN
def _scan(size, _reason, _data):
    global _is_pressed
    _is_pressed = True
    try:
        return _evict_all(size) or STOP
    except BaseException:
        traceback.print_exc()
        return STOP


@Shrinker.RELIEVED
def _relieved(_data):
    global _is_pressed
    _is_pressed = False


_NUMBER = next(numbers)
_SHRINKER = Shrinker(name=b"python caches", count=_count, scan=_scan, relieved=_relieved, batch=BATCH)


def _before_fork():
    """Waits for the threads that have caches' locks: a child begins with what is whole. No lock is kept over the fork.

    Python drops what it calls after a fork where a handler of signals raises: then nothing would give a lock back.
    """
    for entries in _all():
        entries.evict(0)


def _in_child():
    global _is_pressed
    # The relief of the parent's pressure comes to the parent alone.
    _is_pressed = False
    # Kept until all are inherited: a finalizer may use another cache.
    victims = [entries.inherit() for entries in _all() if entries.evict(0, wait=0) is None]
    del victims


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
# Once more: where a handler of signals raises in the first, Python drops that.
os.register_at_fork(after_in_child=_in_child)
