"""Where the process does not run on Weir; and the command that starts one that does."""

import os
import subprocess
import sys
import tempfile
import threading
import unittest

import weir
from support import PATIENCE, python

MAPS = "print(open('/proc/self/maps').read())"
#: A malloc that is not Weir's, and keeps what is freed.
MALLOC = """
#include <string.h>
static _Alignas(4096) char heap[256 << 20];
static size_t used;
void *memalign(size_t align, size_t size) {
    size_t at = __atomic_fetch_add(&used, size + align + 16, __ATOMIC_RELAXED);
    char *block = (char *)(((size_t)heap + at + 16 + align - 1) / align * align);
    if (at + size + align + 16 > sizeof heap) return 0;
    memcpy(block - 16, &size, sizeof size);
    return block;
}
size_t malloc_usable_size(void *block) { size_t size = 0; if (block) memcpy(&size, (char *)block - 16, sizeof size); return size; }
void *malloc(size_t size) { return memalign(16, size); }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    size_t kept = malloc_usable_size(old);
    return block ? memcpy(block, old ? old : "", kept < size ? kept : size) : 0;
}
void free(void *block) {}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **to, size_t align, size_t size) { return (*to = memalign(align, size)) ? 0 : 12; }
"""


class Without(unittest.TestCase):
    def test_what_needs_weir_says_how_to_get_it(self):
        self.assertFalse(weir.is_loaded())
        for call in (
            weir.stats,
            weir.trim,
            weir.version,
            weir.pressure.latest,
            lambda: weir.settings["limit"],
            lambda: weir.settings.__setitem__("limit", 1),
            lambda: weir.pressure.subscribe(print),
        ):
            with self.assertRaisesRegex(weir.NotLoaded, "python -m weir run"):
                call()
        self.assertIsNone(weir.resume_after_fork())

    def test_a_cache_is_bounded(self):
        @weir.cache(weigh=len, bound=100_000)
        def text(size):
            return bytes(size)

        for size in range(10_000, 10_020):
            text(size)
            text(10_000)  # it stays, as it was used
        info = text.cache_info()
        self.assertLessEqual(info.bytes, 100_000)
        self.assertEqual((info.entries, info.evicted), (9, 11))
        misses = info.misses
        text(10_000), text(10_019)
        self.assertEqual(text.cache_info().misses, misses)
        text(10_005)
        self.assertEqual(text.cache_info().misses, misses + 1)
        # What does not fit at all is not kept, and nothing goes for it.
        held = text.cache_info()[2:]
        self.assertEqual(len(text(200_000)), 200_000)
        self.assertEqual(text.cache_info()[2:], held)

    def test_what_goes_is_finalized_without_the_lock(self):
        class Argument:
            def __del__(self):
                # Another thread uses the function meanwhile.
                thread = threading.Thread(target=number, args=(None,))
                thread.start()
                thread.join(PATIENCE)
                is_stuck.append(thread.is_alive())

        is_stuck = []
        number = weir.cache(lambda argument: 1, weigh=lambda _: 1000, bound=5000)
        for _ in range(10):
            number(Argument())
        # Not when Python ends, where there are no more threads.
        number.cache_clear()
        self.assertGreater(len(is_stuck), 4)
        self.assertFalse(any(is_stuck))

    def test_the_bound_is_for_each_cache(self):
        small, large = (weir.cache(bytes, bound=bound) for bound in (10_000, 1_000_000))
        for size in range(1000, 1100):
            small(size), large(size)
        self.assertEqual((small.cache_info().entries, large.cache_info().entries), (7, 100))

    def test_many_caches_give_no_more_than_is_asked_for(self):
        caches = [weir.cache(lambda number: bytes(10_000)) for _ in range(100)]
        for function in caches:
            for number in range(10):
                function(number)
        for _ in range(20):
            self.assertIn(weir._cache._evict_all(100_000), range(100_000, 120_000))
        # Each in its turn.
        self.assertLess(max(function.cache_info().evicted for function in caches), 6)


class Run(unittest.TestCase):
    def test_it_runs_python_with_the_arguments_on_weir(self):
        path = weir_command("library").stdout.strip()
        self.assertTrue(os.path.isfile(path))
        self.assertIn(os.path.realpath(path), python(MAPS, "-m", "weir", "run"))
        said = python("import sys; print(sys.argv, sys.flags.isolated)", "-m", "weir", "run", "-I")
        self.assertEqual(said, "['-c'] 1\n")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as app:
            app.write("import sys; print(sys.argv[1:]); sys.exit(7)")
            app.flush()
            done = weir_command("run", app.name, "--flag", "a b")
        self.assertEqual((done.stdout, done.returncode), ("['--flag', 'a b']\n", 7))

    def test_a_preload_that_is_there_stays_behind_weir(self):
        preload = "import os; print(os.environ['LD_PRELOAD'])"
        path = weir_command("library").stdout.strip()
        with tempfile.TemporaryDirectory() as folder:
            other = built(folder, "")
            said = python(preload, "-m", "weir", "run", environment={"LD_PRELOAD": other})
            self.assertEqual(said, f"{path}:{other}\n")
            # Once is enough, and a Weir that is there comes first.
            said = python(preload, "-m", "weir", "run", "-m", "weir", "run", environment={"LD_PRELOAD": other})
            self.assertEqual(said, f"{path}:{other}\n")
            said = python(preload, "-m", "weir", "run", environment={"LD_PRELOAD": f"{other} {path}"})
            self.assertEqual(said, f"{path}:{other}\n")

    def test_behind_another_malloc_weir_is_not_called(self):
        is_loaded = "import weir; print(weir.is_loaded())"
        path = weir_command("library").stdout.strip()
        with tempfile.TemporaryDirectory() as folder:
            other = built(folder, MALLOC)
            said = python(is_loaded, environment={"LD_PRELOAD": f"{other}:{path}"})
            self.assertEqual(said, "False\n")
            said = python(is_loaded, "-m", "weir", "run", environment={"LD_PRELOAD": other})
            self.assertEqual(said, "True\n")

    def test_a_cache_is_bounded_where_pressure_is_not_heard(self):
        script = """
            import weir
            function = weir.cache(bytes, bound=1_000_000)
            for number in range(100):
                function(100_000 + number)
            print(weir.is_loaded(), function.cache_info().bytes <= 1_000_000)
        """
        for background, is_bounded in (("0", True), ("1", False)):
            said = python(script, "-m", "weir", "run", environment={"WEIR_BACKGROUND": background})
            self.assertEqual(said, f"True {is_bounded}\n")

    def test_what_cannot_be_is_said_in_a_line(self):
        for library, why in (("/nowhere/libweir.so", "is missing"), ("/proc/self/exe", None)):
            done = weir_command("library", WEIR_LIB=library)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1) if why else (0, 0))
            self.assertIn(why or "", done.stderr)
        # The program may change its directory.
        self.assertEqual(weir_command("library", WEIR_LIB=os.path.relpath(__file__)).stdout, f"{os.path.abspath(__file__)}\n")
        with tempfile.TemporaryDirectory(prefix="a blank") as folder:
            library = os.path.join(folder, "libweir.so")
            open(library, "w").close()
            done = weir_command("run", WEIR_LIB=library)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("cannot hold a path with a blank", done.stderr)
        for wrong in ([], ["walk"], ["library", "more"]):
            done = weir_command(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("usage: ", done.stderr)
        self.assertIn("usage: ", weir_command("--help").stdout)


def built(folder, source):
    """A library of C."""
    path = os.path.join(folder, "other.so")
    command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", path, "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def weir_command(*arguments, **environment):
    command = [sys.executable, "-m", "weir", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


if __name__ == "__main__":
    unittest.main()
