"""How the real command line must answer: a mistake or a failure is one line, success is silent on stderr."""

import subprocess


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check the form of an error and return its line; before it, a training may have said that it begins."""
    assert done.returncode == code, done.stderr
    *before, last = done.stderr.splitlines()
    assert all(": loading JAX" in line for line in before), done.stderr
    assert last.startswith("sparc: ") and "Traceback" not in last
    return last.removeprefix("sparc: ")


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "sparc: " not in done.stderr
    return done.stdout
