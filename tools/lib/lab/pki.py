"""Certificates by ovs-pki, as an operator makes them: a CA for switches and one for controllers, of which a collector
is one."""

from __future__ import annotations

import shutil
from pathlib import Path

from .command import run


class Pki:
    """The CAs and what they sign are in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._ovs_pki("init")

    def _ovs_pki(self, *words: str) -> None:
        run(["sh", "-c", 'cd "$0" && exec ovs-pki -d "$@"', str(self.folder), str(self.folder / "ca"), *words])

    def _end(self, name: str, kind: str, peers: str) -> tuple[str, str, str]:
        key, certificate = self.folder / f"{name}-privkey.pem", self.folder / f"{name}-cert.pem"
        if not certificate.exists():
            self._ovs_pki("-b", "req+sign", name, kind)
        return str(key), str(certificate), str(self.folder / "ca" / peers / "cacert.pem")

    def switch(self, name: str = "switch") -> tuple[str, str, str]:
        """Private key, certificate, and the CA that its collectors have: in the order of ovs-vsctl set-ssl."""
        return self._end(name, "switch", "controllerca")

    def collector(self, name: str = "collector") -> tuple[str, str, str]:
        """The same of a collector, with the CA of its switches."""
        return self._end(name, "controller", "switchca")

    def replace(self, other: "Pki", name: str) -> None:
        """What this one has made for `name` is the other's from now on, in the same files; CAs too."""
        for file in (f"{name}-privkey.pem", f"{name}-cert.pem", "ca/controllerca/cacert.pem", "ca/switchca/cacert.pem"):
            shutil.copy(other.folder / file, self.folder / file)


def drcollect_options(files: tuple[str, str, str]) -> tuple[str, ...]:
    return tuple(word for pair in zip(("--private-key", "--certificate", "--ca-cert"), files) for word in pair)
