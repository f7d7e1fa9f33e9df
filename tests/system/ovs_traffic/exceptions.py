"""What stands in the way of tests of OVS's system-traffic.at (3.1.0), by number: in ours, and in stock OVS."""

# Stock passes them, and a port in a NIC cannot.
PHYSICAL: dict[int, str] = {
    50: "a dr port has no egress QoS, and the test reads the kernel's queueing discipline of the port's interface",
}

_NO_VLAN_DEVICE = "the kernel here has no VLAN devices"
_NO_GENEVE = "the kernel here has no Geneve devices"

# Stock OVS's userspace datapath fails them here.
STOCK_FAILS: dict[int, str] = {
    **dict.fromkeys((3, 6, 12, 79, 80, 88, 89, 153, 154, 155, 156, 157), _NO_VLAN_DEVICE),
    **dict.fromkeys((20, 21, 22, 23, 24), _NO_GENEVE),
    10: "the kernel here has no bonds",
    163: "the kernel here has no GRE devices",
}
