"""The REST interface of netfunc/api, as far as receivers and operators need it."""

import hmac
import json
import logging
import queue
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from . import messages
from .config import Config
from .control import Control
from .messages import Elimination, Json, Refused
from .policy import Engine

LOG = logging.getLogger(__name__)

MAX_BODY = 1 << 20
MAX_CALLS = 64  # concurrent connections, including watch streams
KEEP_ALIVE = 5.0  # seconds between lines of a watch stream
IDLE = 30.0  # seconds of silence before a connection is closed


def problem(e: Refused) -> Json:
    """Return problem details (RFC 9457)."""
    return {"type": e.kind, "title": HTTPStatus(e.status).phrase, "status": e.status, "detail": e.detail}


def outcome(engine: Engine, now: float, name: str, e: Elimination) -> Json:
    """Return the outcome of an elimination: the resulting flow, or the reason for refusal."""
    engine.edge(name)  # an unknown edge fails the whole call
    try:
        return {"destination": str(e.destination), "flow": engine.flow_json(now, engine.eliminate(now, name, e))}
    except Refused as refused:
        return {"destination": str(e.destination), "problem": problem(refused)}


class Server(ThreadingHTTPServer):
    """Answers each call in its own thread."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_CALLS

    def __init__(self, conf: Config, control: Control) -> None:
        """Listen; OSError if that fails."""
        self.conf, self.control = conf, control
        self.slots = threading.BoundedSemaphore(MAX_CALLS)
        self.tls: ssl.SSLContext | None = None
        if conf.tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self.tls.load_cert_chain(conf.tls.certificate, conf.tls.key)
            if conf.tls.client_ca:
                self.tls.load_verify_locations(conf.tls.client_ca)
                self.tls.verify_mode = ssl.CERT_OPTIONAL if conf.token else ssl.CERT_REQUIRED
        super().__init__(conf.listen, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection within the limit."""
        if self.slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Perform the TLS handshake in the connection's own thread."""
        try:
            request.settimeout(IDLE)
            if self.tls:
                request = self.tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError as e:
            LOG.debug("call from %s: %s", client_address, e)
            self.shutdown_request(request)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors without a trace for clients that disconnected."""
        LOG.debug("call from %s failed", client_address, exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "holocast-openflow"
    sys_version = ""

    def handle_one_request(self) -> None:
        """Ignore how connections end."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        try:
            body = self._body()
            if not self._allowed():
                self.close_connection = True
                raise Refused(401, "the token or client certificate is missing or wrong")
            answer = self._call(body)
        except Refused as e:
            self._send(e.status, problem(e), "application/problem+json")
        except OSError:
            raise
        except Exception:
            LOG.exception("%s %s", self.command, self.path)
            self._send(
                500,
                {"type": "about:blank", "title": "Internal Server Error", "status": 500},
                "application/problem+json",
            )
        else:
            if isinstance(answer, dict):
                self._send(200, answer)
            elif answer is None:
                self._send(204, None)

    def _call(self, body: Json) -> Json | bool | None:
        """Execute a call. Return JSON, None for no content, or True if the response was already written."""
        url = urlsplit(self.path)
        parts = [unquote(p) for p in url.path.strip("/").split("/")]
        control = self.control
        match (self.command, parts):
            case "GET", ["v1", "edges", name, "watch"]:
                return self._watch(name)
            case "GET", ["v1", "decisions"]:
                since = parse_qs(url.query).get("since", ["0"])[0]
                if not since.isdecimal():
                    raise Refused(400, "since is not a whole number")
                with control.act() as (engine, _):
                    return {"decisions": [d for d in engine.decisions if d["sequence"] > int(since)]}
        with control.act() as (engine, now):
            match (self.command, parts):
                case "POST", ["v1", "edges"]:
                    hello = messages.hello(body)
                    engine.hello(now, hello)
                    flows = [engine.flow_json(now, f) for f in engine.flows.values() if f.receiver == hello.name]
                    return {"report_interval_ms": int(control.conf.report * 1000), "flows": flows}
                case "POST", ["v1", "edges", name, "report"]:
                    engine.report(now, name, messages.path_reports(body))
                    return None
                case "POST", ["v1", "edges", name, "uplink"]:
                    engine.edge(name)
                    for seen in messages.observations(body):
                        engine.observe(now, name, seen)
                    return None
                case "POST", ["v1", "edges", name, "eliminations"]:
                    return {"outcomes": [outcome(engine, now, name, e) for e in messages.eliminations(body)]}
                case "DELETE", ["v1", "edges", name]:
                    engine.leave(now, name)
                    return None
                case "GET", ["v1", "edges"]:
                    return {"edges": [engine.edge_json(e) for _, e in sorted(engine.edges.items())]}
                case "GET", ["v1", "flows"]:
                    return {"flows": [engine.flow_json(now, f) for f in engine.flows.values()]}
                case "PUT", ["v1", "flows", destination]:
                    mode, allowed = messages.setting(body)
                    return engine.flow_json(now, engine.set(now, messages.address(destination), mode, allowed))
                case "GET", ["v1", "status"]:
                    return self._status(engine.sequence, len(engine.edges), len(engine.flows), engine.stamp(now))
        raise Refused(404, f"unknown call {self.command} {url.path[:80]}")

    def _status(self, sequence: int, edges: int, flows: int, now: str) -> Json:
        t = self.control.conf.trigger
        return {
            "version": "openflow", "now": now, "edges": edges, "flows": flows, "sequence": sequence,
            "mode": self.control.conf.mode,
            "trigger": {"interval_ms": t.interval * 1000, "count": t.count, "silence_ms": t.silence * 1000},
        }  # fmt: skip

    def _watch(self, name: str) -> bool:
        watcher = self.control.watch(name)
        self.close_connection = True
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Connection", "close")
            self.end_headers()
            while True:
                try:
                    update = watcher.updates.get(timeout=KEEP_ALIVE)
                except queue.Empty:
                    update = {}
                if update is None:
                    return True
                self.wfile.write(json.dumps(update).encode() + b"\n")
        finally:
            self.control.unwatch(watcher)

    @property
    def control(self) -> Control:
        """The control of the server."""
        return cast(Server, self.server).control

    def _allowed(self) -> bool:
        if isinstance(self.connection, ssl.SSLSocket) and self.connection.getpeercert():
            return True
        token = self.control.conf.token
        given = self.headers.get("Authorization", "")
        return token is not None and hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _body(self) -> Json:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise Refused(413, f"the body needs a Content-Length of at most {MAX_BODY} bytes")
        raw = self.rfile.read(int(length))
        if not raw:
            return {}
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as e:
            raise Refused(400, f"the body is not JSON: {e}") from e
        if not isinstance(body, dict):
            raise Refused(400, "the body is not an object")
        return body

    def _send(self, status: int, body: Json | None, kind: str = "application/json") -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Log calls at level debug."""
        LOG.debug("%s %s", self.address_string(), format % args)
