"""Runs the test files of an upstream checkout against our package, and says what became of each.

usage: upstream.py CHECKOUT SITE

CHECKOUT: a checkout of upstream's repository; nothing of it is kept. SITE: the folder of our package.
tests/compat/upstream.toml says what cannot pass and why. Fails where something else does not pass,
or where something that is said not to pass does.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as tree

TABLE = pathlib.Path(__file__).with_suffix(".toml")


def outcomes(junit: pathlib.Path) -> dict[str, list[str]]:
    """The names of tests by outcome, without their parameters."""
    found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for case in tree.parse(junit).iter("testcase"):
        name = case.get("name", "").partition("[")[0]
        if case.find("failure") is not None or case.find("error") is not None:
            found["failed"].append(name)
        elif case.find("skipped") is not None:
            found["skipped"].append(name)
        else:
            found["passed"].append(name)
    return found


def run(folder: pathlib.Path, file: str, said: dict, site: str) -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONPATH": site}
    if "key" in said:
        # It must be the very key of the URL that the test expects.
        key = re.search(r"api_key=(\w+)", (folder / file).read_text())
        environment[said["key"]] = key[1] if key else ""
    junit = folder / "results.xml"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    out = subprocess.run(
        [*command, "--junitxml", junit, file],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )
    if not junit.exists():
        sys.exit(f"{file} could not be run:\n{out.stdout}{out.stderr}")
    (folder / "out.txt").write_text(out.stdout)
    return outcomes(junit)


def main(checkout: pathlib.Path, site: str) -> int:
    table = tomllib.loads(TABLE.read_text())
    files = sorted(p.relative_to(checkout).as_posix() for p in (checkout / "tests").rglob("test_*.py"))
    if not files:
        sys.exit(f"{checkout} has no tests/test_*.py: name a checkout of upstream's repository")
    bad = 0
    print(f"{'file':50}{'passed':>8}{'failed':>8}{'skipped':>8}  what is to be known")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for part in ("tests", "skills"):
            if (checkout / part).exists():
                shutil.copytree(checkout / part, folder / part)
        shutil.copy(checkout / "pyproject.toml", folder)
        for file in files:
            said = next((said for path, said in table.items() if file.startswith(path)), None)
            if said is None:
                bad += 1
                print(f"{file:50}{'':24}  NOT IN {TABLE.name}")
                continue
            if "why" in said and "fails" not in said:
                print(f"{file:50}{'-':>8}{'-':>8}{'-':>8}  {said['why']}")
                continue
            found = run(folder, file, said, site)
            expected = set(said.get("fails", ()))
            unexpected = set(found["failed"]) - expected
            mended = expected - set(found["failed"])
            bad += len(unexpected) + len(mended)
            note = said.get("why", "")
            note += f"  FAILED: {', '.join(sorted(unexpected))}" if unexpected else ""
            note += f"  PASSES, though said not to: {', '.join(sorted(mended))}" if mended else ""
            counts = "".join(f"{len(found[o]):8}" for o in ("passed", "failed", "skipped"))
            print(f"{file:50}{counts}  {note}".rstrip())
            if unexpected:
                print((folder / "out.txt").read_text()[-4000:])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())))
