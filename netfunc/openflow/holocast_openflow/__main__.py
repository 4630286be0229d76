"""The launcher: holocast_openflow CONFIG. os-ken no longer ships one."""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_handler

from . import config, rest
from .switch import Duplication

LOG = logging.getLogger("holocast_openflow")


def main() -> int:
    """Run until SIGINT or SIGTERM."""
    options = argparse.ArgumentParser(prog="holocast_openflow", description="Duplicates packets on OpenFlow switches.")
    options.add_argument("config", type=Path, help="configuration file; see openflow.yaml")
    options.add_argument("--verbose", action="store_true", help="log calls and OpenFlow messages too")
    arguments = options.parse_args()
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.INFO,
                        format="%(asctime)s %(levelname)s %(name)s: %(message)s")  # fmt: skip
    if not arguments.verbose:
        logging.getLogger("os_ken").setLevel(logging.WARNING)
    try:
        conf = config.load(arguments.config)
    except config.ConfigError as e:
        print(f"holocast_openflow: {e}", file=sys.stderr)
        return 2

    cfg.CONF(args=[], project="holocast_openflow", default_config_files=[])
    cfg.CONF.set_override("ofp_listen_host", conf.openflow[0])
    cfg.CONF.set_override("ofp_tcp_listen_port", conf.openflow[1])
    # Echo requests detect a switch that vanished.
    cfg.CONF.set_override("echo_request_interval", 5.0)
    cfg.CONF.set_override("maximum_unreplied_echo_requests", 2)
    manager = app_manager.AppManager.get_instance()
    manager.load_apps([ofp_handler.__name__])
    app = manager.instantiate(Duplication, conf=conf)
    manager.instantiate_apps()

    try:
        server = rest.Server(conf, app.control)
    except OSError as e:
        print(f"holocast_openflow: listen {conf.listen[0]}:{conf.listen[1]}: {e}", file=sys.stderr)
        os._exit(1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=app.control.run, daemon=True).start()
    LOG.info("REST on %s:%d, OpenFlow on %s:%d", *server.server_address[:2], *conf.openflow)

    def stop(number: int, _: FrameType | None) -> None:
        LOG.info("%s: stopping, the switches keep their rules", signal.Signals(number).name)
        # Exit at once: the state is written on every change, and os-ken's threads cannot be stopped
        # from outside.
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
