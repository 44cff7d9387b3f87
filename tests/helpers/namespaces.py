"""Two machines in one: network namespaces with an address each, connected by a virtual cable."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from torchrun import environment

PORT = 29500
IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")


@dataclass(frozen=True)
class Machine:
    """A network namespace, the end of the cable in it, and its address."""

    name: str
    interface: str
    address: str

    def start(self, *command: str | Path, first: "Machine", log: Path) -> "subprocess.Popen[bytes]":
        """`torchrun -m COMMAND…` with one process on each of two machines, of which `first` has the store."""
        options = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "x", "--rdzv-backend", "c10d"]
        options += ["--rdzv-endpoint", f"{first.address}:{PORT}", "--local-addr", self.address]
        options += ["--rdzv-conf", f"is_host={int(self == first)}"]  # by its name, it could not know
        run = [str(IP), "netns", "exec", self.name, sys.executable, "-m", "torch.distributed.run"]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*run, *options, "-m", *map(str, command)],
                env=environment(GLOO_SOCKET_IFNAME=self.interface),
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """Kill everything that runs on it, as a power cut does."""
        while running := ip("netns", "pids", self.name).split():
            subprocess.run(["kill", "-KILL", *running], check=False, stderr=subprocess.DEVNULL)  # some may have ended
            time.sleep(0.05)


def ip(*arguments: str) -> str:
    return subprocess.run([str(IP), *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two connected machines; the test is skipped where they cannot be made."""
    if IP is None:
        pytest.skip("needs the program ip (apt install iproute2)")
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    prefix = f"rm{os.getpid()}"
    machines = tuple(Machine(f"{prefix}{end}", f"{prefix}{end}", f"10.77.0.{end}") for end in (1, 2))
    made = []
    try:
        try:
            for machine in machines:
                ip("netns", "add", machine.name)
                made.append(machine)
            first, second = machines
            ends = ("type", "veth", "peer", "name", second.interface, "netns", second.name)
            ip("link", "add", first.interface, "netns", first.name, *ends)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces and a cable cannot be made here: {error.stderr.strip()}")
        for machine in machines:
            ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", machine.interface)
            ip("-n", machine.name, "link", "set", machine.interface, "up")
            ip("-n", machine.name, "link", "set", "lo", "up")
        yield first, second
    finally:
        for machine in made:
            machine.kill()
            ip("netns", "delete", machine.name)  # with its end of the cable
