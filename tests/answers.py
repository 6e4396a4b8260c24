"""How the real command line must answer: a mistake or a failure is one line, success is silent on stderr."""

import subprocess


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check the form of an error and give its line."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("sparc: ") and "Traceback" not in lines[0]
    return lines[0].removeprefix("sparc: ")


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "sparc: " not in done.stderr
    return done.stdout
