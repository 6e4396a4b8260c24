"""Messages between the learner and its pool: one private socket pair, Python objects.

A message goes out with one call, and all that have arrived come in with one: to wake a thread costs more than to read
most messages.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

HEAD = struct.Struct("<QQ")  # how many buffers, and the length of all that follows
AT_ONCE = 2**20  # bytes that are read with one call, at most
GATHERED = 2**16  # bytes that a reader waits for, a third of what a socket holds,
GATHER_SECONDS = 0.1  # but no longer than that


def send(sock: socket.socket, message: Any) -> None:
    """Send a message; block until the other side has room for it."""
    found: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, protocol=5, buffer_callback=found.append)
    buffers = [buffer.raw() for buffer in found]
    sizes = [buffer.nbytes for buffer in buffers]
    length = 8 * len(sizes) + sum(sizes) + len(body)
    padding = -length % 8  # so that the next message's numbers are aligned; the pickle knows its own end
    head = struct.pack(f"<{2 + len(sizes)}Q", len(sizes), length + padding, *sizes)
    sock.sendall(b"".join([head, *buffers, body, bytes(padding)]))


def gather(sock: socket.socket, seconds: float = GATHER_SECONDS) -> None:
    """Let the system wait until several messages have arrived before it wakes the reader."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, GATHERED)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(seconds), int(1e6 * (seconds % 1))))


def receive(sock: socket.socket) -> Any:
    """Wait for a message; raise EOFError where the other side is gone."""
    count, length = HEAD.unpack(_read(sock, HEAD.size))
    return _load(_read(sock, length), count)


def receive_all(sock: socket.socket) -> Iterator[Any]:
    """Yield all messages that have arrived, none after a while; raise EOFError where the other side is gone."""
    data = memoryview(_receive(sock))
    while data:
        data = _complete(sock, data, HEAD.size)
        count, length = HEAD.unpack_from(data)
        data = _complete(sock, data, HEAD.size + length)
        yield _load(data[HEAD.size : HEAD.size + length], count)
        data = data[HEAD.size + length :]


def _load(rest: memoryview, count: int) -> Any:
    """Return a message without its head; its arrays are views."""
    begin, buffers = 8 * count, []
    for size in struct.unpack_from(f"<{count}Q", rest):
        buffers.append(rest[begin : begin + size])
        begin += size
    return pickle.loads(rest[begin:], buffers=buffers)


def _complete(sock: socket.socket, data: memoryview, size: int) -> memoryview:
    """Return data of at least this size: where it has not all arrived, wait for the rest."""
    return data if len(data) >= size else memoryview(bytes(data) + _read(sock, size - len(data)))


def _read(sock: socket.socket, size: int) -> memoryview:
    parts = list[bytes]()
    while size:
        parts.append(_receive(sock, size))
        size -= len(parts[-1])
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def _receive(sock: socket.socket, most: int = AT_ONCE) -> bytes:
    """Return what has arrived, which may be nothing while the reader gathers."""
    try:
        data = sock.recv(most)
    except BlockingIOError:
        return b""
    except OSError:
        data = b""
    if not data:
        raise EOFError
    return data
