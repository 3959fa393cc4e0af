"""The explorer as a local page: Python's own web server on 127.0.0.1, for one person.

Every address begins with a random token, and any other request is refused, so that neither other
users of the machine nor pages of other sites can reach the model. The Host header is compared with
the address of the server, because a name of another site may be made to mean 127.0.0.1 (DNS
rebinding). The page may load its own script and style, and nothing from anywhere else.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from pgmengine.apps.explorer.explore import SCRIPT, STYLE
from pgmengine.apps.explorer.session import Session
from pgmengine.base.errors import PgmError

HOST = "127.0.0.1"

# The longest message that is read, in bytes: a stroke of paint over the largest picture has 60 kB.
MAX_MESSAGE_BYTES = 2**20

# The longest wait for the rest of a request, in seconds.
MAX_WAIT_SECONDS = 30.0

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pgmengine explorer</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="explorer.css">
<script type="module" src="explorer.js"></script>
</head>
<body class="pgm-page"><main id="pgmengine-explorer"></main></body>
</html>
"""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect x="1" y="3" width="14" '
    'height="4" fill="#2f7fb8"/><rect x="1" y="9" width="8" height="4" fill="#d55e00"/></svg>'
)


class ExplorerServer(ThreadingHTTPServer):
    """A server for one session.

    Parameters
    ----------
    session : the exploration.
    port : the port, 0 for any that is free.

    Attributes
    ----------
    address : the address of the page, with the token.
    """

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise PgmError(
                f"port {port}: {error.strerror or error}; --port 0 takes a free one"
            ) from None
        self.session, self.token, self.lock = session, secrets.token_urlsafe(24), Lock()
        self.origin = f"http://{HOST}:{self.server_port}"
        self.address = f"{self.origin}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close a connection early; report other errors."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ExplorerServer
    timeout = MAX_WAIT_SECONDS
    server_version, sys_version = "pgmengine", ""

    def do_GET(self) -> None:  # noqa: N802
        """Send the page, its script or its style."""
        if (name := self._name()) is None:
            return
        page = f"/{self.server.token}/"
        if f"{name}/" == page:
            # The page names its files beside itself, for which its address has to end with "/".
            self._send(
                HTTPStatus.PERMANENT_REDIRECT,
                "text/plain",
                "the page is at the address with / at its end\n",
                ("Location", page),
            )
            return
        files = {
            "": ("text/html", PAGE),
            "icon.svg": ("image/svg+xml", ICON),
            "explorer.js": ("text/javascript", SCRIPT.read_text(encoding="utf-8")),
            "explorer.css": ("text/css", STYLE.read_text(encoding="utf-8")),
        }
        if name in files:
            kind, text = files[name]
            self._send(HTTPStatus.OK, kind, text)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such file")

    def do_HEAD(self) -> None:  # noqa: N802
        """Send what a GET would send, without the body."""
        self.do_GET()

    def do_POST(self) -> None:  # noqa: N802
        """Answer a message; one after the other, in the order of their arrival."""
        name = self._name()
        if name is None:
            return
        if name != "ask":
            self._refuse(HTTPStatus.NOT_FOUND, "messages go to ask")
            return
        # A page of another site can send a form, but no JSON, without being asked for permission.
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind != "application/json" or self.headers.get("Origin", self.server.origin) != (
            self.server.origin
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "only the page of the explorer may ask")
            return
        size = self.headers.get("Content-Length", "")
        digits = len(str(MAX_MESSAGE_BYTES))
        if not size.isdecimal() or len(size) > digits or int(size) > MAX_MESSAGE_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the message is too long")
            return
        try:
            message = json.loads(self.rfile.read(int(size)))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "the message is no JSON object")
            return
        with self.server.lock:
            reply = self.server.session.reply(message)
        self._send(HTTPStatus.OK, "application/json", json.dumps(reply, allow_nan=False))

    def _name(self) -> str | None:
        """Return the name of the file that is asked for; refuse a request without the token."""
        own = f"{HOST}:{self.server.server_port}"
        _, token, *rest = [*self.path.partition("?")[0].split("/"), ""][:3]
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if self.headers.get("Host") != own or not known:
            self._refuse(HTTPStatus.FORBIDDEN, "take the whole address that pgmengine printed")
            return None
        return self.path.partition("?")[0].removeprefix(f"/{self.server.token}/")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, "text/plain", f"{status.value}: {why}\n")

    def _send(self, status: HTTPStatus, kind: str, text: str, *more: tuple[str, str]) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
            *more,
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the address with its token would be in the log."""
