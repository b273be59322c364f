#!/usr/bin/env python3
"""Usage: PYTHON scripts/cpu_torch.py

Makes PyPI's PyTorch load without the libraries for GPUs that it is linked with (cuBLAS, cuDNN, NCCL ...),
in the environment of the interpreter that runs this. They are two gigabytes, and are never called where
there is no GPU. In their place come empty libraries of the same names, whose functions, where one is
called after all, say so and abort. Needs cc, nm and readelf. Does nothing where all are there.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

# The driver is no part of it: whoever asks whether it is loaded must hear that it is not.
LIBRARIES = re.compile(r"lib(cublas|cublasLt|cudnn|cufft|cusolver|cusparse|cusparseLt|nccl|nvrtc|nvshmem_host)\.so\.\d+")
FUNCTIONS = re.compile(r"(cublas|cudnn|cufft|cusolver|cusparse|nccl|nvrtc|nvshmem)\w+")
HEAD = """#include <stdio.h>
#include <stdlib.h>
static void no(const char* name) {
  fprintf(stderr, "%s: this PyTorch has no libraries for GPUs (scripts/cpu_torch.py)\\n", name);
  abort();
}
"""


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(libraries: list[Path]) -> set[str]:
    """Names of the libraries that these are linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", "".join(output("readelf", "-d", one) for one in libraries)))


def wanted(libraries: list[Path]) -> list[str]:
    """The functions that they call and none of them has."""
    called, there = set(), set()
    for one in libraries:
        for line in output("nm", "-D", one).splitlines():
            *_, kind, name = line.split()
            (called if kind == "U" else there).add(name.partition("@")[0])
    return sorted(name for name in called - there if FUNCTIONS.fullmatch(name))


def main() -> int:
    folder = Path(sysconfig.get_path("purelib")) / "torch/lib"
    libraries = sorted(folder.glob("*.so*"))
    if not libraries:
        sys.exit(f"cpu_torch.py: there is no PyTorch in {folder}")
    there = {path.name for path in folder.parents[1].rglob("*.so*")}
    absent = sorted(name for name in needed(libraries) - there if LIBRARIES.fullmatch(name))
    if not absent:
        return 0
    functions = wanted(libraries)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch, "functions.c")
        source.write_text(HEAD + "".join(f'void {name}(void) {{ no("{name}"); }}\n' for name in functions))
        empty = Path(scratch, "empty.c")
        empty.write_text("extern int nothing;\n")
        for name in absent:
            library = Path(scratch, name)
            code = source if name == absent[0] else empty
            subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library, code], check=True)
        for name in absent[::-1]:  # The first one last: where it is, all are.
            os.replace(Path(scratch, name), folder / name)
    print(f"cpu_torch.py: {len(absent)} libraries stand in {folder}, {len(functions)} functions", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
