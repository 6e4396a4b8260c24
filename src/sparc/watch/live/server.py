"""The live page's server: a few files and one WebSocket on 127.0.0.1, behind a token in the address."""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import secrets
import signal
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sparc.errors import UserError
from sparc.watch.live.session import Session
from sparc.watch.live.simulation import Contender

HOST = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
MOST_INCOMING = 4096  # bytes of a message of the page
UNSEEN = 2  # frames sent to a tab that it has not drawn yet
MISSING = "sparc live needs the package websockets: pip install 'sparc-rl[live]'."
WRONG_TOKEN = b"Wrong token: use the address that sparc live printed.\n"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self' ws://{host}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Server:
    """Serves one session. Every tab gets the newest frame when it has taken the one before; none are queued."""

    def __init__(self, contenders: Sequence[Contender], seed: int = 0, debug: bool = False) -> None:
        try:
            import websockets  # noqa: F401
        except ImportError:
            raise UserError(MISSING) from None
        self.token = secrets.token_urlsafe(16)
        self.files = {file.name: file.read_bytes() for file in sorted(PAGE.iterdir()) if file.suffix in TYPES}
        self.session = Session(contenders, seed, self._notify, debug)
        self.address = self.host = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: set[asyncio.Event] = set()
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End serving; to be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _notify(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        for event in self._news:
            event.set()

    async def run(self, port: int, started: Callable[[str], None]) -> None:
        """Serve until `end` is called."""
        from websockets.asyncio.server import serve

        self._loop = asyncio.get_running_loop()
        quiet = logging.getLogger("sparc.live")  # a closed tab in mid-handshake is not worth a traceback
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        try:
            server = await serve(
                self._talk, HOST, port, process_request=self._respond, max_size=MOST_INCOMING, compression=None,
                logger=quiet,
            )  # fmt: skip
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise UserError(f"port {port} is in use: choose another with --port, or leave it out.") from None
        self.host = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        self.address = f"http://{self.host}/{self.token}/"
        self.session.start()
        try:
            await asyncio.to_thread(started, self.address)  # a browser in the terminal would block the server
            await self._ended.wait()
        finally:
            self.session.stop()
            server.close()
            await asyncio.to_thread(self.session.join, 5.0)
            await server.wait_closed()

    def _respond(self, connection: Any, request: Any) -> Any:
        """Answer with a file of the page; None lets the WebSocket be opened."""
        from websockets.datastructures import Headers
        from websockets.http11 import Response

        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        folder, _, name = request.path.partition("?")[0].removeprefix("/").partition("/")
        name = name or "page.html"
        known = host in (self.host, self.host.replace(HOST, "localhost"))  # else a stranger's name for this machine
        if not known or not hmac.compare_digest(folder.encode(), self.token.encode()):
            status, kind, body = HTTPStatus.FORBIDDEN, "text/plain", WRONG_TOKEN
        elif name == "socket" and origin in (f"http://{host}", None):
            return None
        elif name in self.files:
            status, kind, body = HTTPStatus.OK, TYPES[Path(name).suffix], self.files[name]
        else:
            status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", b"There is no such file.\n"
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": POLICY.format(host=host if known else self.host),
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        return Response(status, status.phrase, Headers(headers), body)

    async def _talk(self, connection: Any) -> None:
        """Talk to one tab until it is closed."""
        from websockets.exceptions import ConnectionClosed

        news, room = asyncio.Event(), asyncio.BoundedSemaphore(UNSEEN)
        news.set()
        self._news.add(news)
        self.session.watched(+1)
        sender = asyncio.create_task(self._send(connection, news, room))
        try:
            async for text in connection:
                with suppress(ValueError, RecursionError):  # no JSON, too deep, or more frames seen than sent
                    message = json.loads(text)
                    if message == "seen":
                        room.release()
                    else:
                        self.session.tell(message)
        except ConnectionClosed:
            pass
        finally:
            self._news.discard(news)
            self.session.watched(-1)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self, connection: Any, news: asyncio.Event, room: asyncio.Semaphore) -> None:
        """Send the newest frame whenever there is one and the tab keeps up; what came in between is dropped."""
        number, greeted = 0, ""
        while True:
            await news.wait()
            await room.acquire()
            news.clear()
            frame, hello = self.session.frame, self.session.hello
            if hello is not None and hello != greeted:
                greeted = hello
                await connection.send(f'{{"hello": {hello}}}')
            if frame is None:
                room.release()
                continue
            samples = self.session.since(number)
            number = max(number, frame.number)
            await connection.send(f'{{"frame": {frame.state}, "samples": [{", ".join(samples)}]}}')


def serve(
    contenders: Sequence[Contender], port: int = 0, seed: int = 0, open_browser: bool = True, debug: bool = False
) -> None:
    """Serve the page until Ctrl-C; with `debug`, failures of an environment are printed with their traceback."""
    server = Server(contenders, seed, debug)

    def started(address: str) -> None:
        print(f"live: {address}\nCtrl-C ends it.", flush=True)
        if open_browser:
            webbrowser.open(address)

    async def run() -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, server.end)
        await server.run(port, started)

    asyncio.run(run())
