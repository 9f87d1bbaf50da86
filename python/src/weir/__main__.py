"""``python -m weir``: starts Python programs on Weir."""

import os
import sys

USAGE = """usage: python -m weir run ARGUMENTS...   Python with these arguments, on Weir: `run app.py`, `run -m gunicorn`
       python -m weir library            print the path of the library, for LD_PRELOAD
"""


def library():
    """The library's path: WEIR_LIB, or what the package carries."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.abspath(os.environ.get("WEIR_LIB") or os.path.join(here, "libweir.so.0"))
    if not os.path.isfile(path):
        sys.exit(f"weir: {path} is missing: install the wheel weir-malloc again, or set WEIR_LIB")
    if any(character in path for character in " :\n"):
        sys.exit(f"weir: LD_PRELOAD cannot hold a path with a blank or a colon: {path}")
    return path


def preload(before, path):
    """The value of LD_PRELOAD: the library, or the Weir that is there already, before all else: the first malloc is called."""
    names = before.replace(":", " ").split()
    weir = [name for name in names if os.path.basename(name).startswith("libweir.so")]
    return ":".join([*(weir[:1] or [path]), *(name for name in names if name not in weir)])


def main(arguments):
    if arguments == ["library"]:
        print(library())
    elif arguments[:1] == ["run"]:
        os.environ["LD_PRELOAD"] = preload(os.environ.get("LD_PRELOAD", ""), library())
        os.execv(sys.executable, [sys.executable, *arguments[1:]])
    elif arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
    else:
        sys.stderr.write(USAGE)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
