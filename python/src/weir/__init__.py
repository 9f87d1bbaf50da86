"""The memory allocator Weir, for Python programs.

``python -m weir run app.py`` starts a program on it. There ``stats()``, ``trim()``, ``settings`` and ``pressure`` are of use;
elsewhere they raise ``NotLoaded``. ``cache`` works in both: on Weir it has no size, and gives way when memory is short.
"""

from . import pressure
from ._cache import CacheInfo, cache
from ._library import NotLoaded, is_loaded, resume_after_fork, version
from ._memory import Stats, settings, stats, trim

__all__ = [
    "CacheInfo",
    "NotLoaded",
    "Stats",
    "cache",
    "is_loaded",
    "pressure",
    "resume_after_fork",
    "settings",
    "stats",
    "trim",
    "version",
]
