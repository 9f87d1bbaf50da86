"""What there is on Weir. Pressure begins and ends with a limit far below what is in use."""

import contextlib
import ctypes
import functools
import gc
import io
import mmap
import signal
import subprocess
import sys
import textwrap
import threading
import types
import unittest
from unittest import mock

import weir
from support import PATIENCE, Interrupted, in_child, interruptions, python, wait_until

try:
    import _interpreters
except ImportError:
    _interpreters = None

LIMIT = 16 << 20


def block(number):
    """Some 100 kB that are written, and so resident: what was never touched takes no memory."""
    return b"x" * (100_000 + number)


def fill(function, entries=600):
    for number in range(entries):
        function(number)


class OnWeir(unittest.TestCase):
    def setUp(self):
        weir.settings["relief_ms"] = 100
        wait_until("the relief of the test before", lambda: not weir._cache._is_short())
        self.addCleanup(weir.settings.__setitem__, "limit", 0)

    def gives_way(self, function, below=30 << 20):
        weir.settings["limit"] = LIMIT
        wait_until("the cache to give way", lambda: function.cache_info().bytes < below)
        weir.settings["limit"] = 0
        # Until then what has begun goes on, and what comes evicts.
        wait_until("relief", lambda: not weir._cache._is_short())
        return True

    def test_figures(self):
        self.assertTrue(weir.is_loaded())
        self.assertRegex(weir.version(), r"^\d+\.\d+\.\d+$")
        before = weir.stats()
        held = [block(number) for number in range(100)]
        during = weir.stats()
        self.assertGreater(during.live_bytes, before.live_bytes + 9_000_000)
        self.assertGreater(during.resident_bytes, 9_000_000)
        del held
        self.assertIsInstance(weir.trim(), bool)
        after = weir.stats()
        self.assertLess(after.live_bytes, before.live_bytes + 5_000_000)
        self.assertLess(after.idle_bytes, 5_000_000)
        resident = ctypes.c_uint64()
        place = ctypes.byref(resident), ctypes.byref(ctypes.c_size_t(8))
        self.assertEqual(ctypes.CDLL(None).weir_ctl(b"stats.resident_bytes", *place, None, 0), 0)
        self.assertLess(abs(weir.stats().resident_bytes - resident.value), 1_000_000)

    def test_settings(self):
        self.assertTrue("limit" in weir.settings and "idle_ms" in weir.settings)
        weir.settings["limit"] = 1 << 40
        self.assertEqual(weir.settings["limit"], 1 << 40)
        for name in ("no such setting", "stats.live_bytes", "limit\0", "", "\ud800", 3):
            self.assertFalse(name in weir.settings)
            with self.assertRaises(KeyError):
                weir.settings[name] = 1
        for value in (-1, 1 << 64, (1 << 64) - 1):
            with self.assertRaisesRegex(ValueError, "idle_ms: .* is out of range"):
                weir.settings["idle_ms"] = value
        with self.assertRaisesRegex(TypeError, "as an integer"):
            weir.settings["limit"] = "512M"
        # Whole numbers of other libraries are some, too.
        weir.settings["limit"] = mock.MagicMock(__index__=lambda _: 2 << 40)
        self.assertEqual(weir.settings["limit"], 2 << 40)
        with self.assertRaisesRegex(TypeError, "not iterable"):
            list(weir.settings)

    def test_subscribers_hear_of_pressure_and_relief(self):
        events, others, held = [], [], [block(number) for number in range(400)]
        subscription = weir.pressure.subscribe(events.append)

        def fails(event):
            others.append(event)
            raise SystemExit("it fails")

        said = io.StringIO()
        redirect = contextlib.redirect_stderr(said)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)
        broken = weir.pressure.subscribe(fails)
        with self.assertRaises(OSError):
            weir.pressure.subscribe(print, level=99)
        with self.assertRaisesRegex(TypeError, "calls a function"):
            weir.pressure.subscribe(None)
        with self.assertRaisesRegex(TypeError, "integer"):
            weir.pressure.subscribe(print, "severe")
        weir.settings["limit"] = LIMIT
        wait_until("pressure", lambda: any(event.cause == 2 and event.level >= weir.pressure.SOME for event in events))
        wait_until("the other one", lambda: len(others) > 1)
        self.assertGreater(weir.pressure.latest().generation, 0)
        weir.settings["limit"] = 0
        wait_until("relief", lambda: events[-1].level == weir.pressure.NONE)
        broken.close()
        self.assertIn("SystemExit: it fails", said.getvalue())
        subscription.close()
        subscription.close()
        with weir.pressure.subscribe(events.append, weir.pressure.SEVERE):
            pass
        self.assertEqual(len(held), 400)

    def test_a_second_close_ends_no_other_subscription(self):
        held = [block(number) for number in range(400)]
        first = weir.pressure.subscribe(print)
        first.close()
        heard = [[] for _ in range(20)]
        # One of these has the handle of the first.
        others = [weir.pressure.subscribe(events.append) for events in heard]
        for other in others:
            self.addCleanup(other.close)
        first.close()
        weir.settings["limit"] = LIMIT
        wait_until("all of them to hear", lambda: all(heard))
        self.assertEqual(len(held), 400)
        weir.settings["limit"] = 0
        wait_until("relief", lambda: all(events[-1].level == weir.pressure.NONE for events in heard))

    def test_a_cache_has_no_size_and_gives_way(self):
        function = weir.cache(block, bound=1000)
        fill(function)
        info = function.cache_info()
        self.assertEqual((info.entries, info.evicted), (600, 0))
        self.gives_way(function)
        info = function.cache_info()
        self.assertEqual(info.entries + info.evicted, 600)
        self.assertEqual(info.bytes, sum(len(block(number)) + 311 for number in range(600 - info.entries, 600)))
        # What was used last is there still.
        hits = info.hits
        for number in range(600 - info.entries, 600):
            function(number)
        self.assertEqual(function.cache_info().hits, hits + info.entries)

    def test_while_memory_is_short_no_cache_grows(self):
        # What stays is above the limit, so that pressure does not end.
        held = [block(number) for number in range(400)]
        other = weir.cache(block)
        fill(other, 10)
        weir.settings["limit"] = LIMIT
        wait_until("pressure", lambda: weir.pressure.latest().level != weir.pressure.NONE)
        function = weir.cache(block)
        for number in range(600):
            function(number)
            self.assertLess(function.cache_info().entries, 20)
        weir.settings["limit"] = 0
        wait_until("relief", lambda: weir.pressure.latest().level == weir.pressure.NONE)
        wait_until("growth", lambda: fill(function, 100) or function.cache_info().entries >= 100)
        self.assertEqual(len(held), 400)

    def test_what_is_taken_counts_before_any_thread_hears_of_it(self):
        # Weir hears of limits for its sake.
        weir.cache(block)(0)
        # What is idle now would go later, and leave more room.
        weir.trim()
        with open("/proc/self/statm") as statm:
            resident = int(statm.read().split()[1]) * mmap.PAGESIZE
        weir.settings["limit"] = resident + (64 << 20)
        wait_until("the limit", lambda: weir._cache._is_short(256 << 20))
        self.assertFalse(weir._cache._is_short(1 << 20))
        held = [b"x" * ((4 << 20) + number) for number in range(10)]
        self.assertTrue(weir._cache._is_short(40 << 20))
        self.assertEqual(len(held), 10)

    def test_what_comes_while_memory_is_short_takes_the_place_of_as_much(self):
        function = weir.cache(lambda number: block(number * 7919 % 100_000 - 99_000))
        fill(function, 1500)
        held = function.cache_info().bytes
        with mock.patch.object(weir._cache, "_is_short", lambda size: True):
            for number in range(2000, 12_000):
                function(number)
        # Entries weigh differently, and go whole.
        self.assertIn(function.cache_info().bytes, range(held // 2, held + 1))

    def test_each_cache_gives_its_share_and_one_that_is_gone_none(self):
        large, small, gone = (weir.cache(block) for _ in range(3))
        fill(large), fill(small, 200), fill(gone)
        del gone
        gc.collect()
        self.gives_way(large)
        self.assertGreater(small.cache_info().evicted, 0)

    def test_a_value_may_use_its_cache_where_it_is_finalized(self):
        class Value:
            def __init__(self, number):
                self.text = block(number)

            def __del__(self):
                threads.add(threading.get_ident())
                numbers(len(self.text))

        threads = set()
        numbers = weir.cache(lambda number: number)
        values = weir.cache(Value, weigh=lambda value: len(value.text))
        fill(values)
        self.gives_way(values)
        wait_until("finalizers", lambda: numbers.cache_info().misses >= values.cache_info().evicted)
        self.assertNotIn(threading.get_ident(), threads)

    def test_what_a_handler_raises_loses_no_callback(self):
        # As Weir's functions do, it gives a handle. Python's handler comes after it.
        library = types.SimpleNamespace(weir_test=ctypes.PyDLL(None)["raise"], weir_unregister=ctypes.PyDLL(None).abs)
        library.weir_test.restype = functools.partial(max, 7)
        number = next(weir._library.numbers)
        with mock.patch.object(weir._library, "_library", library), interruptions():
            with self.assertRaises(Interrupted):
                weir._library.register(number, "weir_test", signal.SIGALRM)
            self.assertEqual(weir._library._handles[number], 7)
            # It is registered once.
            weir._library.register(number, "weir_test", signal.SIGALRM)
            weir._library.unregister(number)
        self.assertNotIn(number, weir._library._handles)
        function = weir.cache(block)
        with mock.patch.object(weir._cache, "_is_registered", False):
            with mock.patch.object(weir._cache, "register", side_effect=Interrupted), self.assertRaises(Interrupted):
                function(1)
            with mock.patch.object(weir._cache, "register") as register:
                fill(function, 3)
            self.assertEqual(register.call_count, 1)

    def test_a_signal_at_the_end_leaves_no_callback(self):
        script = """
            import atexit, ctypes, functools, signal
            left = []
            # What is registered first is called last. The handler comes at the latest in the second.
            atexit.register(print, left)
            atexit.register(lambda: None)
            import weir
            atexit.register(functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGALRM))
            left.append(weir._library._handles)
            subscriptions = [weir.pressure.subscribe(print) for _ in range(3)]
            function = weir.cache(str)
            function(1)
            assert len(weir._library._handles) == 5
            signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
        """
        # What the handler raises is said on standard error.
        command = [sys.executable, "-c", textwrap.dedent(script)]
        # What is called after Python's end may wait for ever.
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.stdout, done.returncode), ("[{}]\n", 0), done.stderr)

    def test_in_a_forked_child_a_cache_gives_way_too(self):
        function = weir.cache(block)
        fill(function)
        self.assertTrue(in_child(lambda: function(601) and self.gives_way(function)))
        events = []
        with weir.pressure.subscribe(events.append):

            def child():
                weir.resume_after_fork()
                weir.settings["limit"] = LIMIT
                wait_until("pressure in the child", lambda: any(event.cause == 2 for event in events))
                return True

            self.assertTrue(in_child(child))
        self.assertEqual(function.cache_info().entries + function.cache_info().evicted, 600)

    def test_a_cache_is_bounded_while_pressure_is_not_heard(self):
        function = weir.cache(block, bound=1_000_000)
        self.addCleanup(weir.settings.__setitem__, "background", 1)
        for number in range(20, 22):
            wait_until("growth", lambda: fill(function, 20) or function.cache_info().entries >= 20)
            weir.settings["background"] = 0
            function(number)
            self.assertLessEqual(function.cache_info().bytes, 1_000_000)
            weir.settings["background"] = 1

    @unittest.skipIf(_interpreters is None, "Python 3.13 has a module for them")
    def test_other_interpreters_are_not_called(self):
        script = """
            import weir
            function = weir.cache(bytes, bound=1_000_000)
            for number in range(100):
                function(100_000 + number)
            assert weir.is_loaded() and function.cache_info().bytes <= 1_000_000, function.cache_info()
            try:
                weir.pressure.subscribe(print)
            except RuntimeError as error:
                assert "main interpreter" in str(error), error
            else:
                raise AssertionError("it is subscribed")
        """
        interpreter = _interpreters.create()
        self.addCleanup(_interpreters.destroy, interpreter)
        self.assertIsNone(_interpreters.exec(interpreter, textwrap.dedent(script)))

    def test_threads_forks_and_pressure_together(self):
        function = weir.cache(block)
        is_over, wrong = threading.Event(), []

        def use(seed):
            number = 0
            while not is_over.is_set():
                number = (number + seed) % 1000
                if len(function(number)) != 100_000 + number:
                    wrong.append(number)

        threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 7, 13)]
        for thread in threads:
            thread.start()
        try:
            weir.settings["limit"] = 48 << 20
            for _ in range(20):
                self.assertTrue(in_child(lambda: len(function(7)) == 100_007))
            wait_until("evictions", lambda: function.cache_info().evicted > 1000)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        info = function.cache_info()
        self.assertEqual(info.bytes, sum(size for _, size in function.cache_info.__self__.by_key.values()))

    def test_a_program_may_end_while_it_gives_way(self):
        for end in ("", "import sys; sys.exit()", "raise SystemExit(0)", "import os; os._exit(0)"):
            for pause in range(3):
                script = f"""
                    import threading, time, weir
                    function = weir.cache(lambda number: b"x" * (100_000 + number))
                    weir.pressure.subscribe(lambda event: function(0))
                    def use():
                        number = 0
                        while True:
                            number += 1
                            function(number % 1000)
                    for _ in range(2):
                        threading.Thread(target=use, daemon=True).start()
                    weir.settings["limit"] = 16 << 20
                    time.sleep({pause} / 20)
                """
                python(textwrap.dedent(script) + end)


if __name__ == "__main__":
    unittest.main()
