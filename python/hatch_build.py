"""Puts the library into the wheel, and names the machines on which that runs."""

import os
import re
import struct
import sys

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = {62: "x86_64", 183: "aarch64"}
# glibc's version on manylinux2014.
OLDEST = 17
# musl's version that Debian 12 and 13 build with: 1.2.
MUSL = "1_2"


def tag(library):
    """The tag of a wheel with this library: it needs its processor, and musl or the newest version of glibc's that it names."""
    with open(library, "rb") as file:
        content = file.read()
    machine = MACHINES.get(struct.unpack_from("<H", content, 18)[0]) if content[:4] == b"\x7fELF" else None
    if machine is None:
        sys.exit(f"{library} is no library for {' or '.join(MACHINES.values())}")
    if b"\0libc.musl-" in content:  # Alpine's name of musl's C library
        return f"py3-none-musllinux_{MUSL}_{machine}"
    newest = max((int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", content)), default=0)
    if newest <= OLDEST:
        # The older name is for installers that do not know the newer one.
        return f"py3-none-manylinux2014_{machine}.manylinux_2_{OLDEST}_{machine}"
    return f"py3-none-manylinux_2_{newest}_{machine}"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        project = os.path.dirname(self.root)
        library = os.environ.get("WEIR_LIB") or os.path.join(project, "target", "release", "libweir.so")
        if not os.path.isfile(library):
            sys.exit(f"{library} is missing: `cargo build --release -p weir-malloc` makes it, or WEIR_LIB names another")
        build_data["pure_python"] = False
        build_data["tag"] = tag(library)
        build_data["force_include"][library] = "weir/libweir.so.0"
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            build_data["force_include"][os.path.join(project, name)] = f"weir/{name}"
