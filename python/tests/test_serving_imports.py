"""What `import zeus.serving` costs: nothing but itself."""

from __future__ import annotations

import subprocess
import sys


def test_the_import_pulls_in_neither_asyncio_nor_the_core_nor_anything_installed() -> None:
    code = (
        "import zeus.serving, sys; "
        "print(*{'asyncio', 'numpy', 'httpx', 'ssl', 'multiprocessing', 'zeus._core', "
        "'zeus.monitor', 'zeus.device'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == []
