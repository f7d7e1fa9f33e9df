"""The switches that are compared, by the names that the report has."""

OURS, STOCK, TSO, KERNEL = "ovs-dr", "userspace datapath", "with userspace-tso", "kernel's bridge"
ALL = (OURS, STOCK, TSO, KERNEL)
