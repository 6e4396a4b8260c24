"""Messages between the learner and its pool: one private socket pair, Python objects, arrays without a copy."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

HEAD = struct.Struct("<IQ")  # how many buffers, and the length of the pickle


def send(sock: socket.socket, message: Any) -> None:
    """Send a message; block until the other side has room for it."""
    found: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, protocol=5, buffer_callback=found.append)
    buffers = [buffer.raw() for buffer in found]
    sizes = struct.pack(f"<{len(buffers)}Q", *(buffer.nbytes for buffer in buffers))
    sock.sendall(HEAD.pack(len(buffers), len(body)) + sizes + body)
    for buffer in buffers:
        sock.sendall(buffer)


def receive(sock: socket.socket) -> Any:
    """Wait for a message; raise EOFError where the other side is gone."""
    count, length = HEAD.unpack(_read(sock, HEAD.size))
    sizes = struct.unpack(f"<{count}Q", _read(sock, 8 * count))
    body = _read(sock, length)
    return pickle.loads(body, buffers=[_read(sock, size) for size in sizes])


def _read(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view.nbytes:
        try:
            got = sock.recv_into(view)
        except OSError:
            got = 0
        if not got:
            raise EOFError
        view = view[got:]
    return data
