"""@weir.cache, on Weir and without it."""

import signal
import sys
import threading
import unittest
from unittest import mock

import weir
from support import Interrupted, in_child, interruptions, python


class Results(unittest.TestCase):
    def setUp(self):
        self.calls = []

    def test_what_was_returned_is_kept_by_its_arguments(self):
        @weir.cache
        def join(*parts, **named):
            """Joins."""
            self.calls.append(parts)
            return [parts, named]

        first = join(1, 2, a=3)
        self.assertIs(join(1, 2, a=3), first)
        self.assertEqual(join(1, 2), [(1, 2), {}])
        # Positional arguments are not taken for named ones.
        self.assertEqual(join(1, 2, "a", 3), [(1, 2, "a", 3), {}])
        self.assertEqual(len(self.calls), 3)
        self.assertEqual((join.__name__, join.__doc__), ("join", "Joins."))
        self.assertIsNot(join.__wrapped__(1, 2, a=3), first)
        self.assertEqual(join.cache_info()[:4], (1, 3, 0, 3))
        join.cache_clear()
        self.assertEqual(join.cache_info(), (0, 0, 0, 0, 0))
        self.assertIsNot(join(1, 2, a=3), first)

    def test_none_is_a_value(self):
        function = weir.cache(self.calls.append)
        self.assertEqual([function(1), function(1)], [None, None])
        self.assertEqual(self.calls, [1])

    def test_types_count_where_they_are_to(self):
        self.assertEqual([weir.cache(str)(3), weir.cache(str)(3.0)], ["3", "3.0"])
        alike, typed = weir.cache(str), weir.cache(str, typed=True)
        self.assertEqual([alike(3), alike(3.0)], ["3", "3"])
        self.assertEqual([typed(3), typed(3.0), typed(object=3), typed(object=3.0)], ["3", "3.0", "3", "3.0"])

    def test_what_raises_is_not_kept(self):
        @weir.cache
        def fails(_):
            self.calls.append(1)
            raise KeyError("as it does")

        for _ in range(2):
            with self.assertRaisesRegex(KeyError, "as it does"):
                fails(1)
        self.assertEqual((len(self.calls), fails.cache_info().entries), (2, 0))
        with self.assertRaisesRegex(TypeError, "unhashable"):
            fails([])

    def test_methods_and_functions_that_call_themselves(self):
        class Adder:
            @weir.cache
            def add(this, number):
                self.calls.append(number)
                return (this, number)

        one, other = Adder(), Adder()
        self.assertIs(one.add(1), one.add(1))
        self.assertIsNot(one.add(1), other.add(1))
        self.assertEqual(self.calls, [1, 1])

        @weir.cache
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        self.assertEqual(fibonacci(90), 2880067194370816120)

    def test_a_recursion_that_is_too_deep_is_named_so(self):
        @weir.cache
        def deep(n):
            return n if n == 0 else deep(n - 1)

        self.addCleanup(sys.setrecursionlimit, sys.getrecursionlimit())
        sys.setrecursionlimit(400)
        is_ended = []
        for depth in range(100, 220):
            deep.cache_clear()
            try:
                is_ended.append(deep(depth) == 0)
            except RecursionError:
                pass
        self.assertTrue(all(is_ended) and 0 < len(is_ended) < 120)

    def test_entries_are_weighed(self):
        plain, weighed = weir.cache(bytes), weir.cache(bytes, weigh=len)
        for size in (10_000, 20_000):
            plain(size), weighed(size)
        self.assertIn(plain.cache_info().bytes - weighed.cache_info().bytes, range(2 * 16, 2 * 64))
        self.assertIn(weighed.cache_info().bytes, range(30_000, 31_000))
        for wrong, error in ((-1, ValueError), ("1", TypeError)):
            with self.assertRaises(error):
                weir.cache(bytes, weigh=lambda _, wrong=wrong: wrong)(1)
        with self.assertRaises(TypeError):
            weir.cache(3)
        with self.assertRaisesRegex(TypeError, "integer"):
            weir.cache(bound="x")


class Signals(unittest.TestCase):
    @unittest.skipIf(sys.version_info < (3, 10), "a handler that raises there comes between a lock and its `with`")
    def test_what_a_handler_raises_leaves_caches_whole(self):
        function = weir.cache(lambda number: number, weigh=lambda _: 1000, bound=20_000)
        entries, number, interrupted = function.cache_info.__self__, 0, 0
        with interruptions():
            while interrupted < 500:
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.0002)
                        while True:
                            number += 1
                            function(number)
                            weir._cache._evict_all(1 + number % 2000)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    interrupted += 1
        self.assertFalse(entries.lock._is_owned())
        self.assertEqual(entries.bytes, sum(size for _, size in entries.by_key.values()))

    def test_what_a_handler_raises_at_a_fork_locks_no_cache(self):
        script = """
            import ctypes, functools, os, signal
            # By C alone, after what else is done before a fork. Python's handler comes after the fork.
            os.register_at_fork(before=functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGALRM))
            import weir
            from support import Interrupted, interruptions
            function = weir.cache(str)
            function(1)
            with interruptions():
                try:
                    if os.fork() == 0:
                        function(1)
                        os._exit(function.cache_info().hits)
                except Interrupted:
                    pass
            function(1)
            print(os.WEXITSTATUS(os.wait()[1]), function.cache_info().hits)
        """
        self.assertEqual(python(script, "-W", "ignore"), "1 1\n")

    def test_what_a_handler_raises_in_a_forked_child_loses_nothing(self):
        script = """
            import ctypes, functools, os, signal, sys, threading, types
            # By C alone, before what else is done in a child. Python's handler comes with the first step of Python's.
            os.register_at_fork(after_in_child=functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGALRM))
            import weir
            from support import interruptions
            function = weir.cache(str)
            function(1)
            entries, is_held, is_over = function.cache_info.__self__, threading.Event(), threading.Event()
            def hold():
                with entries.lock:
                    is_held.set()
                    is_over.wait()
            thread = threading.Thread(target=hold)
            thread.start()
            is_held.wait()
            raised, resumed = [], []
            with interruptions():
                # Python says there what was raised in what it drops.
                sys.unraisablehook = lambda error: raised.append(error.exc_type.__name__)
                if os.fork() == 0:
                    is_free = entries.lock.acquire(blocking=False)
                    weir._library._library = types.SimpleNamespace(weir_resume_after_fork=lambda: resumed.append(True))
                    weir.resume_after_fork()
                    weir.resume_after_fork()
                    print(raised, is_free, len(entries.by_key), entries.bytes, resumed, flush=True)
                    os._exit(0)
            is_over.set()
            thread.join()
            print(os.wait()[1], function.cache_info().entries)
        """
        self.assertEqual(python(script, "-W", "ignore"), "['Interrupted'] True 0 0 [True]\n0 1\n")

    def test_what_a_handler_raises_before_a_fork_leaves_the_child_its_lock(self):
        script = """
            import functools, os, signal, sys, threading, time
            import weir
            from support import Interrupted
            here, lock, forks, raised, dropped = sys._getframe(), weir._library.lock, [], [], []
            os.register_at_fork(before=functools.partial(forks.append, True))
            sys.unraisablehook = lambda error: dropped.append(error.exc_type.__name__)
            def interrupt(_, frame):
                # In the fork, and in no function of Python's: where the lock is waited for.
                if forks and frame is here and not raised:
                    raised.append(True)
                    raise Interrupted
            signal.signal(signal.SIGALRM, interrupt)
            is_held = threading.Event()
            def hold(waiting):
                with lock:
                    is_held.set()
                    while not raised:
                        signal.pthread_kill(waiting, signal.SIGALRM)
                        time.sleep(0.001)
            thread = threading.Thread(target=hold, args=(threading.get_ident(),))
            thread.start()
            is_held.wait()
            if os.fork() == 0:
                os._exit(0 if not lock._is_owned() and lock.acquire(blocking=False) else 1)
            thread.join()
            print(os.wait()[1], lock._is_owned(), dropped)
        """
        self.assertEqual(python(script, "-W", "ignore"), "0 False ['Interrupted', 'RuntimeError']\n")

    def test_what_a_handler_raises_leaves_a_cache_to_be_inherited(self):
        entries = weir.cache(str).cache_info.__self__
        for place, step in ((weir._cache, "OrderedDict"), (threading, "RLock")):
            lock = entries.lock
            with mock.patch.object(place, step, side_effect=Interrupted), self.assertRaises(Interrupted):
                entries.inherit()
            self.assertIs(entries.lock, lock)


class Threads(unittest.TestCase):
    def test_what_several_threads_do_adds_up(self):
        @weir.cache(weigh=lambda _: 1)
        def twice(number):
            return 2 * number

        wrong = []

        def work(seed):
            for step in range(5000):
                number = (seed * step) % 1000
                if twice(number) != 2 * number:
                    wrong.append(number)
                if step % 1000 == 999:
                    twice.cache_clear()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        twice.cache_clear()
        one = twice(1) and twice.cache_info().bytes
        for number in range(1, 11):
            twice(number)
        self.assertEqual(twice.cache_info()[3:], (10, 10 * one))

    def test_keys_and_finalizers_may_use_the_cache(self):
        class Key:
            def __init__(self, number):
                self.number = number

            def __hash__(self):
                return 1

            def __eq__(self, other):
                numbers(0)
                return self.number == other.number

        class Value:
            def __del__(self):
                ended.append(numbers(1))

        ended = []
        numbers = weir.cache(lambda number: number)
        values = weir.cache(lambda key: Value())
        for number in range(20):
            values(Key(number))
        self.assertIs(values(Key(3)), values(Key(3)))
        values.cache_clear()
        self.assertEqual(ended, [1] * 20)

    def test_keys_may_use_the_function_that_compares_them(self):
        class Key:
            def __init__(self, number):
                self.number = number

            def __hash__(self):
                return 1

            def __eq__(self, other):
                # One comparison in 3 comes back, and one in 200 empties the cache.
                count.append(1)
                if len(depth) < 2 and len(count) % 3 == 0:
                    depth.append(1)
                    values(Key(len(count) % 50))
                    depth.pop()
                if len(count) % 200 == 0:
                    values.cache_clear()
                return self.number == other.number

        count, depth = [], []
        values = weir.cache(lambda key: [key.number], bound=12_000)
        for step in range(20_000):
            number = step * step % 61
            self.assertEqual(values(Key(number)), [number])
            if len(count) > 300_000:
                break
        info = values.cache_info()
        self.assertGreater(info.entries, 0)
        self.assertEqual(info.bytes, sum(size for _, size in values.cache_info.__self__.by_key.values()))

    def test_keys_that_wait_for_a_lock_keep_no_other_cache(self):
        class Key:
            def __hash__(self):
                return 1

            def __eq__(self, other):
                is_asked.set()
                with program:
                    return self is other

        program, is_asked = threading.Lock(), threading.Event()
        keys, numbers = weir.cache(lambda key: 1), weir.cache(lambda number: number)
        keys(Key())
        thread = threading.Thread(target=lambda: keys(Key()))
        with program:
            thread.start()
            is_asked.wait()
            # A thread that has the program's lock can use another cache, and make one, and fork.
            self.assertEqual([numbers(1), weir.cache(str)(2)], [1, "2"])
            self.assertTrue(in_child(lambda: numbers.cache_info().hits == 0 and keys.cache_info().entries == 0))
        thread.join()
        self.assertEqual(keys.cache_info().entries, 2)

    def test_a_child_can_use_what_another_thread_used_at_the_fork(self):
        function = weir.cache(lambda number: [number])
        is_over = threading.Event()

        def use():
            number = 0
            while not is_over.is_set():
                number = (number + 1) % 5000
                function(number)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                self.assertTrue(in_child(lambda: function(7) == [7] and function("new") == ["new"]))
        finally:
            is_over.set()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    unittest.main()
