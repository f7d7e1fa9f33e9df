"""drexporter: what ovs-vswitchd and the soft NIC count, for Prometheus."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Callable, Iterable
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from collector import Collector
from control import Daemon, SoftNic, default_folder, default_softnic
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

PATH = "/metrics"


class Handler(WSGIRequestHandler):
    timeout = 30   # seconds for a request to come in

    def log_message(self, format: str, *args: Any) -> None:   # noqa: A002 (the base class calls it so)
        """A scrape every few seconds is nothing to tell."""

    def address_string(self) -> str:
        return self.client_address[0]   # without asking for its name


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Server6(Server):
    address_family = socket.AF_INET6


def application(registry: CollectorRegistry) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environment.get("PATH_INFO") == PATH:
            return metrics(environment, start)
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [f"The metrics are at {PATH}.\n".encode()]
    return answer


def address(text: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and host[0] != "["):
        raise argparse.ArgumentTypeError(f"{text} is not ADDRESS:PORT, such as 127.0.0.1:9981 or [::1]:9981")
    return host.strip("[]"), int(port)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0, 3600 at most")
    return value


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drexporter", description="Tells Prometheus what ovs-vswitchd and the soft "
                                     "NIC count. Each scrape asks them anew.")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", type=address, default=("127.0.0.1", 9981),
                        help="where scrapes come to (default 127.0.0.1:9981)")
    parser.add_argument("--rundir", metavar="FOLDER", type=Path, default=Path(default_folder()),
                        help="where ovs-vswitchd has its pidfile and control socket (default %(default)s)")
    parser.add_argument("--socket", metavar="FILE", default=default_softnic(),
                        help="control socket of the soft NIC; '' where there is none (default %(default)s)")
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=5.0,
                        help="how long each of the two may take to answer (default 5)")
    parser.add_argument("--once", action="store_true",
                        help="print the metrics, and end: 1 if one of the two did not answer")
    return parser.parse_args(arguments)


def print_once(registry: CollectorRegistry) -> int:
    text = generate_latest(registry).decode()
    sys.stdout.write(text)
    return int(any(line.startswith("ovsdr_up{") and line.endswith(" 0.0") for line in text.splitlines()))


def serve(registry: CollectorRegistry, host: str, port: int) -> int:
    try:
        server = make_server(host, port, application(registry), Server6 if ":" in host else Server, Handler)
    except OSError as error:
        print(f"drexporter: {host}:{port}: {error}", file=sys.stderr)
        return 1
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 130


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    softnic = SoftNic(Path(options.socket), options.timeout) if options.socket else None
    registry = CollectorRegistry()
    # Without describe(), registering would ask the daemon.
    registry.register(Collector(Daemon(options.rundir, options.timeout), softnic))
    return print_once(registry) if options.once else serve(registry, *options.listen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
