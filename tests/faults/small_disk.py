"""A small disk that only this process and its children see: fills it up while a command works, then lets it go on.

    unshare --map-root-user --mount python small_disk.py '{…}'

Takes JSON with disk (an empty folder to mount on), size (as tmpfs takes it), seconds (until the disk is full), room
(bytes left then), shared_memory (fill /dev/shm instead, from the start), begin and again (commands; the latter where
`work` on the disk is a run already), keep (where `work` is copied to in the end) and limit (seconds of a command).
Prints JSON with exit code and words of both attempts; the code is null where one did not end.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def fill(file: Path, room: int) -> None:
    """Write until nothing fits any more, then leave so much room."""
    with file.open("ab", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            pass
        filler.truncate(max(filler.tell() - room, 0))


def run(given: dict[str, Any], disturbed: bool) -> tuple[int | None, str]:
    """Run the command that is due, the disk full from some moment on if it is disturbed; return code and words."""
    disk = Path(given["disk"])
    command = given["again" if (disk / "work" / "config.yaml").exists() else "begin"]
    began, full = time.monotonic(), not disturbed or given["shared_memory"]
    with open(f"{given['keep']}.words", "wb+") as words:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        while process.poll() is None and time.monotonic() < began + given["limit"]:
            if disturbed and time.monotonic() > began + given["seconds"] and not (full and given["room"]):
                fill(disk / "filler", given["room"])
                full = True
            time.sleep(0.02)
        ended = process.poll() is not None
        if not ended:
            process.kill()
            process.wait()
        words.seek(0)
        return process.returncode if ended else None, words.read().decode(errors="replace")


def main() -> None:
    given = json.loads(sys.argv[1])
    disk = Path(given["disk"])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={given['size']}", "none", disk], check=True)
    if given["shared_memory"]:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", "/dev/shm"], check=True)
        fill(Path("/dev/shm/filler"), 0)
        given["seconds"] = given["limit"]  # the disk itself stays as it is
    first = run(given, disturbed=True)
    (disk / "filler").unlink(missing_ok=True)
    second = run(given, disturbed=False)
    if (disk / "work").exists():
        shutil.copytree(disk / "work", given["keep"])
    print(json.dumps([first, second]))


if __name__ == "__main__":
    main()
