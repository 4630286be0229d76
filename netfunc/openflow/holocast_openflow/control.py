"""The engine, shared by the threads of switches, REST calls and the clock."""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .config import Config
from .messages import Json
from .policy import Effects, Engine, Flow

LOG = logging.getLogger(__name__)

TICK = 0.02  # seconds
BACKLOG = 256  # undelivered updates per watcher


class Watcher:
    """One watch stream."""

    def __init__(self, edge: str) -> None:
        """Watch an edge's flows."""
        self.edge = edge
        self.updates: queue.Queue[Json | None] = queue.Queue(BACKLOG)
        self.known: set[str] = set()  # destinations sent to it


class Control:
    """Runs an engine. All access goes through act()."""

    def __init__(
        self, conf: Config, route: Callable[[list[Flow]], None], forget: Callable[[list[object]], None]
    ) -> None:
        """Take the callbacks that update the switch: for changed flows and for ended ones."""
        started = time.time() - time.monotonic()
        self.conf = conf
        self.started = time.time()
        self._route, self._forget = route, forget
        self._engine = Engine(conf, lambda now: now + started)
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._saved = ""
        self._load()

    @contextmanager
    def act(self) -> Iterator[tuple[Engine, float]]:
        """Lock the engine, and carry out its effects afterwards."""
        with self._lock:
            try:
                yield self._engine, time.monotonic()
            finally:
                self._do(self._engine.take())

    def watch(self, edge: str) -> Watcher:
        """Open a watch stream; its first update is a snapshot."""
        with self.act() as (engine, now):
            engine.edge(edge)
            watcher = Watcher(edge)
            flows = [f for f in engine.flows.values() if f.receiver == edge]
            watcher.known = {str(f.destination) for f in flows}
            watcher.updates.put({"snapshot": True, "flows": [engine.flow_json(now, f) for f in flows]})
            self._watchers.append(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Close a watch stream."""
        with self._lock, suppress(ValueError):
            self._watchers.remove(watcher)

    def run(self) -> None:
        """Run the clock forever."""
        while True:
            time.sleep(TICK)
            with self.act() as (engine, now):
                engine.tick(now)

    def _do(self, effects: Effects) -> None:
        if effects.rerouted:
            self._route(effects.rerouted)
        if effects.removed:
            self._forget(list(effects.removed))
        for d in effects.decisions:
            LOG.info(
                "%s %s: %s → %s: %s",
                d["kind"],
                d.get("destination", d.get("edge", "")),
                d["from"],
                d["to"],
                d["reason"],
            )
        if effects.flows or effects.removed:
            self._tell(effects)
        if effects.decisions or effects.removed:
            self._save()

    def _tell(self, effects: Effects) -> None:
        now = time.monotonic()
        for watcher in list(self._watchers):
            update: Json = {}
            for flow in effects.flows:
                name = str(flow.destination)
                if flow.receiver == watcher.edge and flow.destination in self._engine.flows:
                    watcher.known.add(name)
                    update.setdefault("flows", {})[name] = self._engine.flow_json(now, flow)
                elif name in watcher.known:
                    watcher.known.remove(name)
                    update.setdefault("removed", []).append(name)
            for destination in effects.removed:
                if str(destination) in watcher.known:
                    watcher.known.remove(str(destination))
                    update.setdefault("removed", []).append(str(destination))
            if not update:
                continue
            if "flows" in update:
                update["flows"] = list(update["flows"].values())
            try:
                watcher.updates.put_nowait(update)
            except queue.Full:  # it restarts with a snapshot
                self._watchers.remove(watcher)
                with suppress(queue.Empty):
                    watcher.updates.get_nowait()
                watcher.updates.put_nowait(None)

    def _load(self) -> None:
        path = self.conf.state
        if path is None or not path.exists():
            return
        try:
            with self.act() as (engine, now):
                engine.restore(now, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as e:
            LOG.warning("ignoring invalid state %s: %s", path, e)

    def _save(self) -> None:
        path, text = self.conf.state, json.dumps(self._engine.state(), indent=1)
        if path is None or text == self._saved:
            return
        temporary = Path(f"{path}.new")
        try:
            with temporary.open("w", encoding="utf-8") as f:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
            temporary.replace(path)
        except OSError as e:
            LOG.error("cannot write state %s: %s", path, e)
            return
        self._saved = text
