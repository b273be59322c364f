"""Machines of a small cluster: network namespaces on one bridge, nothing of which is seen outside.

They belong to processes and end with them. The bridge has a namespace of its own, so that no
interface of this machine is touched; addresses are used in there only.
"""

import contextlib
import os
import signal
import subprocess
import time


class Refused(Exception):
    """This machine does not let us make namespaces."""


class Network:
    BASE = "10.77.0"

    def __init__(self, nodes: int):
        self.held = []
        try:
            self.hub = self._namespace()
            self.in_hub("ip", "link", "add", "br0", "type", "bridge")
            self._up(self.hub, "br0", 1)
            self.nodes = [self._node(n) for n in range(nodes)]
        except Refused:
            self.close()
            raise

    def address(self, node: int) -> str:
        return f"{self.BASE}.{11 + node}"

    def argv(self, where: int, *command) -> list[str]:
        """The command, to be run in the namespace held by process `where`."""
        return ["nsenter", "-t", str(where), "-n", "--", *map(str, command)]

    def in_hub(self, *command) -> str:
        return self._run(self.argv(self.hub, *command))

    def on(self, node: int, *command) -> list[str]:
        return self.argv(self.nodes[node], *command)

    def close(self):
        for holder in self.held:
            holder.kill()
            holder.wait()

    def _node(self, n: int) -> int:
        pid = self._namespace()
        self.in_hub("ip", "link", "add", f"v{n}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.in_hub("ip", "link", "set", f"v{n}", "master", "br0", "up")
        self._up(pid, "eth0", 11 + n)
        return pid

    def _up(self, pid: int, interface: str, last: int):
        for command in (
            ("ip", "address", "add", f"{self.BASE}.{last}/24", "dev", interface),
            ("ip", "link", "set", interface, "up"),
            ("ip", "link", "set", "lo", "up"),
        ):
            self._run(self.argv(pid, *command))

    def _namespace(self) -> int:
        ours = os.readlink("/proc/self/ns/net")
        holder = subprocess.Popen(
            ["unshare", "-n", "sleep", "600"], stderr=subprocess.PIPE, text=True
        )
        self.held.append(holder)
        while holder.poll() is None:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{holder.pid}/ns/net") != ours:
                    return holder.pid
            time.sleep(0.01)
        raise Refused(holder.stderr.read().strip())

    def _run(self, argv: list[str]) -> str:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Refused(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout


class Program:
    """Something that runs in the background until it is stopped; its output is kept in a file."""

    def __init__(self, argv: list[str], log, **options):
        self.log = log
        with open(log, "a") as out:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options
            )

    def runs(self) -> bool:
        return self.process.poll() is None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.runs():
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def output(self) -> str:
        with open(self.log) as text:
            return text.read()
