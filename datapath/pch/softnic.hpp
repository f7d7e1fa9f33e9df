// As common/pch/standard.hpp, for the soft NIC: with verbs and DPDK.
#include "common/pch/standard.hpp"

#include <infiniband/mlx5dv.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
