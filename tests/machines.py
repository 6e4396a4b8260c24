"""Machines that are not there: each has a network, processes, shared memory and a host name of its own on this one.

They are namespaces of the kernel, without names, held by one process each: when that ends, whatever happens to the
test, everything in it ends as well. Their network is a cable between them, and leads nowhere else.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from conftest import skip_or_fail

from sparc.training.workers import processes

CARD = "eth0"
KINDS = ("net", "pid", "mount", "uts", "ipc")


class Machine:
    """A machine with a network card that nothing is plugged into yet."""

    def __init__(self, name: str, temporary: Path):
        """Start it; `temporary` is a folder that every machine has for itself."""
        self.name = name
        own = f"hostname {name} && mount -t tmpfs sparc /dev/shm && mount -t tmpfs sparc {temporary}"
        self.holder = subprocess.Popen(
            ["unshare", *(f"--{kind}" for kind in KINDS), "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", f"{own} && ip link set lo up && echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.holder.stdout is not None and self.holder.stderr is not None
        if self.holder.stdout.readline() != "ready\n":
            skip_or_fail(f"needs namespaces of its own: {self.holder.stderr.read().strip()}")
        (first,) = processes.descendants(self.holder.pid)
        self.pid = first.pid

    def command(self, *words: object) -> list[str]:
        """Return the words of a command as it is called from here, to run there."""
        return ["nsenter", "--target", str(self.pid), *(f"--{kind}" for kind in KINDS), "--", *map(str, words)]

    def run(self, *words: object, **options: Any) -> str:
        """Run a command there to its end; return what it prints."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 120, **options}
        done = subprocess.run(self.command(*words), check=False, **how)
        assert done.returncode == 0, f"{words} on {self.name}: {done.stdout}"
        return str(done.stdout)

    def ip(self, *words: object) -> None:
        """Set up the network there; process numbers are those of this machine."""
        subprocess.run(["nsenter", "--target", str(self.pid), "--net", "ip", *map(str, words)], check=True)

    def processes(self) -> dict[int, str]:
        """Return the live processes there and their names, besides the one that holds the machine."""
        inside = os.readlink(f"/proc/{self.pid}/ns/pid")
        there = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                same = os.readlink(folder / "ns" / "pid") == inside
                alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue  # it has just ended
            if same and alive and int(folder.name) not in (self.pid, self.holder.pid):
                there[int(folder.name)] = name
        return there

    def switch_off(self) -> None:
        """End everything there."""
        self.holder.kill()  # and with it, by --kill-child, the first process, and with that all others
        self.holder.communicate()
        for _ in range(100):
            if not Path(f"/proc/{self.pid}").exists():
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.name} is still there")


@contextmanager
def two_machines(addresses: tuple[str, str], temporary: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines with a cable between them."""
    if os.geteuid() != 0:
        skip_or_fail("needs root, to make networks")
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            skip_or_fail(f"needs {program}: apt-get install {package}")
    with ExitStack() as started:
        found = []
        for name in ("first", "second"):
            machine = Machine(name, temporary)
            started.callback(machine.switch_off)
            found.append(machine)
        first, second = found
        first.ip("link", "add", CARD, "type", "veth", "peer", "name", CARD, "netns", second.pid)
        for machine, address in zip(found, addresses, strict=True):
            machine.ip("address", "add", f"{address}/24", "dev", CARD)
            machine.ip("link", "set", CARD, "up")
        yield first, second
