"""Where the memory is, and the settings."""

import ctypes
import errno
from ctypes import byref, c_size_t, c_uint64, sizeof
from operator import index
from typing import NamedTuple

from ._library import Usage, failed, library


class Stats(NamedTuple):
    """Where Weir's memory is, in bytes."""

    #: Blocks that the program holds.
    live_bytes: int
    #: Free and resident: what trim() could release.
    idle_bytes: int
    #: Address space of the heap, without the mappings below.
    address_space_bytes: int
    #: Of live: in blocks so large that each has a mapping of its own.
    mapped_bytes: int
    #: The number of those blocks; no bytes.
    mapped_count: int
    #: Weir's own, resident.
    metadata_bytes: int
    #: Free and resident, beside objects in use on the same pages.
    fragmented_bytes: int
    #: Of live: not resident.
    untouched_bytes: int
    #: As fragmented, but without memory of its own: the kernel merged its page with others.
    merged_bytes: int

    @property
    def resident_bytes(self):
        """Resident memory that is Weir's; the rest of the process is code, stacks and other mappings."""
        free = self.idle_bytes + self.fragmented_bytes + self.merged_bytes
        return max(self.live_bytes + free + self.metadata_bytes - self.untouched_bytes, 0)


def stats():
    """Where the memory is now. That takes some microseconds for each 2 MiB of the heap."""
    usage = Usage()
    if library().weir_usage(byref(usage), sizeof(usage)) != 0:
        raise failed("weir_usage")
    return Stats(*(getattr(usage, name) for name in Stats._fields))


def trim():
    """Releases all idle memory to the system now; whether there was any. Weir does so by itself when memory is short.

    ``weir ctl PID drain`` does it from outside.
    """
    return library().weir_trim() == 1


class Settings:
    """The settings of this process by name: ``settings["limit"] = 512 << 20``. docs/SETTINGS.md has names and units.

    Values are whole numbers. KeyError: there is no such setting. ValueError: the value is out of the setting's range.
    """

    def __getitem__(self, name):
        value = c_uint64()
        self._call(name, byref(value), byref(c_size_t(sizeof(value))), None, 0)
        return value.value

    def __setitem__(self, name, value):
        value = index(value)
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{name}: {value} is out of range")
        self._call(name, None, None, byref(c_uint64(value)), sizeof(c_uint64), value)

    def __contains__(self, name):
        try:
            self[name]
        except KeyError:
            return False
        return True

    # The library does not list names. Without this Python would try 0, 1, 2.
    __iter__ = None

    @staticmethod
    def _call(name, old, old_size, new, new_size, value=None):
        # What begins like this is no setting: stats() has it.
        if not isinstance(name, str) or name.startswith("stats.") or "\0" in name:
            raise KeyError(name)
        why = library().weir_ctl(name.encode(errors="replace"), old, old_size, new, new_size)
        if why == errno.ENOENT:
            raise KeyError(name)
        if why == errno.ERANGE:
            raise ValueError(f"{name}: {value} is out of range")
        if why != 0:
            ctypes.set_errno(why)
            raise failed(f"weir_ctl({name!r})")


settings = Settings()
