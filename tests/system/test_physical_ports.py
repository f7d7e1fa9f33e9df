"""Ports on network controllers: QEMU's emulated ones in a guest, lent to the soft NIC by vfio-pci behind an emulated
IOMMU, and by uio_pci_generic where there is none."""

from __future__ import annotations

import re
import socket
import time
from typing import Iterator

import pytest

from helpers import figure
from lab import traffic
from lab.command import wait_until
from lab.nic_guest import Controller, NicGuest
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

VFIO = "irqbypass vfio_virqfd vfio vfio_iommu_type1 vfio-pci-core vfio-pci"
E1000 = Controller("e1000", 2, host_mtu=9000)
E1000E = Controller("e1000e", 3, host_mtu=9000)
VIRTIO = Controller("virtio-net-pci", 4, "iommu_platform=on,disable-legacy=on,mq=on,rss=on,vectors=8", queues=2,
                    host_mtu=9000)
VMXNET3 = Controller("vmxnet3", 5, host_mtu=9000)
KERNELS = Controller("vmxnet3", 6)
FAR = Controller("vmxnet3", 7, bus=("farport", 0x81))   # on another NUMA node
INNER = 9   # the vport of a network interface in the guest, which all others are bridged with


def subnet(controller: Controller) -> str:
    return f"10.9.{controller.slot}"


def port(controller: Controller, options: str = "", **more: object) -> dict[str, object]:
    return {"vport": controller.slot, "dpdk": controller.address + options, "name": controller.tap, **more}


def inner(mtu: int) -> dict[str, object]:
    return {"vport": INNER, "dpdk": "net_tap,iface=inner", "name": "inner", "mtu": mtu}


def row(guest: NicGuest, name: str) -> str:
    """drnic's line of a port."""
    found = re.search(rf"^.*\b{name}\b.*$", guest.drnic("list"), re.MULTILINE)
    return found.group(0) if found else ""


def ping(guest: NicGuest, controller: Controller, size: int = 56, count: int = 3) -> int:
    """From the controller's wire to the guest's interface; how many answers came. Larger packets are not cut."""
    return traffic.ping(guest.outside, f"{subnet(controller)}.2", count=count, wait=5, size=size,
                        device=controller.tap).received


def give_addresses(guest: NicGuest) -> None:
    """All wires end in one namespace of the host: each answers for its own address only."""
    guest.outside.run(["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2",
                       "net.ipv4.conf.all.rp_filter=0"])
    for controller in guest.controllers:
        guest.outside.run(["ip", "address", "add", f"{subnet(controller)}.1/24", "dev", controller.tap])


def give_inner_addresses(guest: NicGuest) -> None:
    for controller in guest.controllers:
        guest.run(f"ip address add {subnet(controller)}.2/24 dev inner")
    guest.run("ip link set inner up")


@pytest.fixture(scope="module")
def booted() -> Iterator[NicGuest]:
    """The guest with all controllers, bound to vfio-pci but for the last, and the soft NIC on them."""
    with Workspace("nics") as workspace:
        guest = NicGuest(workspace, [E1000, E1000E, VIRTIO, VMXNET3, KERNELS])
        seconds = guest.boot()
        guest.run(f"load {VFIO} tun vmxnet3")
        for controller in (E1000, E1000E, VIRTIO, VMXNET3):
            guest.bind(controller, "vfio-pci")
        guest.start([port(E1000, mtu=9000), port(E1000E, mtu=9000), port(VIRTIO, ",queues=2", mtu=9000),
                     port(VMXNET3, mtu=9000), port(KERNELS), inner(9000)])
        give_addresses(guest)
        give_inner_addresses(guest)
        figure(f"guest booted in {seconds:.1f} s")
        yield guest


@pytest.mark.parametrize("controller", [E1000, E1000E, VIRTIO, VMXNET3], ids=lambda controller: controller.model)
def test_frames_pass_in_both_directions_up_to_the_mtu(booted: NicGuest, controller: Controller) -> None:
    wait_until(lambda: " up " in row(booted, controller.tap), 10, lambda: f"link: {row(booted, controller.tap)}")
    assert controller.mac in row(booted, controller.tap), "the controller's own address"
    assert ping(booted, controller) == 3
    assert ping(booted, controller, size=9000 - 28) == 3


def interrupts(guest: NicGuest, controller: Controller) -> dict[int, int]:
    """How many came by each of the controller's vectors."""
    found = re.findall(rf"^ *\d+: +(\d+) .*vfio-msix\[(\d+)\]\({controller.address}\)",
                       guest.run("cat /proc/interrupts"), re.MULTILINE)
    return {int(vector): int(count) for count, vector in found}


def test_flows_are_spread_over_two_queues_and_each_wakes_its_worker(booted: NicGuest) -> None:
    before = interrupts(booted, VIRTIO)
    with booted.outside.entered():
        for port_number in range(5000, 5032):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind((f"{subnet(VIRTIO)}.1", port_number))
                sender.sendto(b"flow", (f"{subnet(VIRTIO)}.2", 7))
            time.sleep(0.02)
    after = interrupts(booted, VIRTIO)
    assert sorted(after) == [0, 1, 2], "one for the device, one for each queue"
    for queue in (1, 2):
        assert after[queue] > before[queue], f"{before}, {after}"


def test_a_larger_mtu_opens_the_device_anew(booted: NicGuest) -> None:
    booted.drnic("set", str(VMXNET3.slot), "--mtu", "1500")
    assert ping(booted, VMXNET3, size=1500 - 28) == 3
    assert ping(booted, VMXNET3, size=1509 - 28) == 0, "two VLAN tags have room beside the MTU, and that is all"
    booted.drnic("set", str(VMXNET3.slot), "--mtu", "9000")
    wait_until(lambda: " up " in row(booted, VMXNET3.tap), 10, lambda: f"link: {row(booted, VMXNET3.tap)}")
    assert ping(booted, VMXNET3, size=9000 - 28) == 3
    assert "9978 cannot be set" in booted.drnic("set", str(VMXNET3.slot), "--mtu", "9978", check=False)
    assert ping(booted, VMXNET3) == 3, "as it was"


def test_only_the_named_devices_are_opened(booted: NicGuest) -> None:
    opened = booted.run("ls -l /proc/$(pidof ibv_asyncwatch)/fd 2>/dev/null | "
                        "grep -o '/dev/vfio/[0-9][0-9]*' | sort -u").split()
    groups = [booted.run(f"basename $(readlink /sys/bus/pci/devices/{controller.address}/iommu_group)").strip()
              for controller in (E1000, E1000E, VIRTIO, VMXNET3)]
    assert sorted(opened) == sorted(f"/dev/vfio/{group}" for group in groups)


def test_a_link_that_goes_down_is_seen(booted: NicGuest) -> None:
    for controller in (E1000, E1000E, VIRTIO, VMXNET3):
        booted.set_link(controller, False)
        wait_until(lambda: " down " in row(booted, controller.tap), 5, lambda: f"down: {row(booted, controller.tap)}")
        booted.set_link(controller, True)
        wait_until(lambda: " down " not in row(booted, controller.tap), 10,
                   lambda: f"up: {row(booted, controller.tap)}")
        assert ping(booted, controller) > 0


def test_what_the_soft_nic_cannot_have_is_refused_with_the_reason(booted: NicGuest) -> None:
    listed = booted.drnic("list")
    assert "driver vmxnet3 has it, network interface eth" in listed
    assert f"dpdk-devbind.py -b vfio-pci {KERNELS.address}" in listed

    def refusal(dpdk: str) -> str:
        return booted.drnic("add", "7", "--dpdk", dpdk, check=False)

    assert "there is no such device" in refusal("0000:00:1e.0")
    assert "no network controller" in refusal("0000:00:1f.2")
    assert "not the whole address of a PCI device" in refusal("00:02.0")
    assert "another port has it" in refusal(E1000.address)
    vendor = f"/sys/bus/pci/devices/{KERNELS.address}/vendor"
    booted.run(f"echo 0x15b3 >/run/vendor && mount --bind /run/vendor {vendor}")
    try:
        assert "15b3:07b0 is a device for mlx5" in refusal(KERNELS.address)
    finally:
        booted.run(f"umount {vendor}")


def test_a_device_that_is_bound_later_is_found_and_given_back_when_the_kernel_wants_it(booted: NicGuest) -> None:
    booted.bind(KERNELS, "vfio-pci")
    wait_until(lambda: " up " in row(booted, KERNELS.tap), 10, lambda: f"the port: {booted.drnic('list')}")
    assert ping(booted, KERNELS) == 3
    booted.bind(KERNELS, "vmxnet3")
    wait_until(lambda: "driver vmxnet3 has it" in booted.drnic("list"), 10, "the port's error")
    assert ping(booted, E1000) == 3, "the others go on"


def test_without_an_iommu_a_device_takes_physical_addresses_and_hugepages(workspace: Workspace) -> None:
    guest = NicGuest(workspace, [E1000, VMXNET3], iommu=False, memory_mb=2304,
                     command_line="hugepagesz=1G hugepages=1")
    seconds = guest.boot()
    guest.run("load uio uio_pci_generic tun")
    for controller in guest.controllers:
        guest.bind(controller, "uio_pci_generic")
    ports = [port(E1000, mtu=9000), port(VMXNET3), inner(9000)]
    guest.start(ports)
    assert 'uio_pci_generic without an IOMMU, and so needs "hugepages": true' in guest.drnic("list")
    guest.stop()
    free = "cat /sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages"
    assert guest.run(free).strip() == "1"
    guest.start(ports, hugepages=True)
    assert guest.run(free).strip() == "0", "a page of 1 GB was at hand, and nothing else"
    give_addresses(guest)
    give_inner_addresses(guest)
    for controller in guest.controllers:
        wait_until(lambda: " up " in row(guest, controller.tap), 10, lambda: f"link: {row(guest, controller.tap)}")
        assert ping(guest, controller) == 3
    assert ping(guest, E1000, size=9000 - 28) == 3
    figure(f"guest booted in {seconds:.1f} s")


def test_a_port_has_its_memory_on_the_numa_node_of_its_device(workspace: Workspace) -> None:
    argv = ["-smp", "2,sockets=2"]
    for node in (0, 1):
        argv += ["-object", f"memory-backend-ram,id=memory{node},size=768M",
                 "-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}"]
    argv += ["-device", "pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node=1,addr=8",
             "-device", "pcie-root-port,id=farport,bus=far,chassis=1"]
    guest = NicGuest(workspace, [FAR], more_argv=argv, memory_mb=2 * 768)
    seconds = guest.boot()
    guest.run(f"load {VFIO} tun")
    guest.bind(FAR, "vfio-pci")

    def pages(node: int, name: str) -> str:
        return f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/{name}_hugepages"

    guest.run(f"echo 220 >{pages(0, 'nr')}")
    ports = [port(FAR), inner(1500)]
    guest.start(ports, hugepages=True)
    assert "the device is on NUMA node 1: no packet memory" in guest.drnic("list")
    guest.stop()
    guest.run(f"echo 40 >{pages(1, 'nr')}")
    guest.start(ports, hugepages=True)
    assert int(guest.run(f"cat {pages(1, 'free')}")) < 40
    give_addresses(guest)
    give_inner_addresses(guest)
    wait_until(lambda: " up " in row(guest, FAR.tap), 10, lambda: f"link: {row(guest, FAR.tap)}")
    assert ping(guest, FAR) == 3
    figure(f"guest booted in {seconds:.1f} s")
