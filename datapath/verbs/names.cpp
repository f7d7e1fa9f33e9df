// Names of verbs constants, and static rates.
// Source: ibv_event_type_str(3), ibv_wc_status_str(3), ibv_rate_to_mbps(3), ibv_rate_to_mult(3).
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace {

constexpr std::array node_types{"InfiniBand channel adapter",
                                "InfiniBand switch",
                                "InfiniBand router",
                                "iWARP NIC",
                                "usNIC",
                                "usNIC UDP",
                                "unspecified"};
constexpr std::array port_states{"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
constexpr std::array event_types{"CQ error",
                                 "local work queue catastrophic error",
                                 "invalid request local work queue error",
                                 "local access violation work queue error",
                                 "communication established",
                                 "send queue drained",
                                 "path migrated",
                                 "path migration request error",
                                 "local catastrophic error",
                                 "port active",
                                 "port error",
                                 "LID change",
                                 "P_Key change",
                                 "SM change",
                                 "SRQ catastrophic error",
                                 "SRQ limit reached",
                                 "last WQE reached",
                                 "client reregistration",
                                 "GID table change",
                                 "WQ catastrophic error"};
constexpr std::array wc_statuses{"success",
                                 "local length error",
                                 "local QP operation error",
                                 "local EE context operation error",
                                 "local protection error",
                                 "Work Request Flushed Error",
                                 "memory management operation error",
                                 "bad response error",
                                 "local access error",
                                 "remote invalid request error",
                                 "remote access error",
                                 "remote operation error",
                                 "transport retry counter exceeded",
                                 "RNR retry counter exceeded",
                                 "local RDD violation error",
                                 "remote invalid RD request",
                                 "aborted error",
                                 "invalid EE context number",
                                 "invalid EE context state",
                                 "fatal error",
                                 "response timeout error",
                                 "general error",
                                 "tag matching error",
                                 "tag matching rendezvous incomplete"};

template <std::size_t length>
[[nodiscard]] const char* name_of(const std::array<const char*, length>& names, int value) {
    return value >= 0 && static_cast<std::size_t>(value) < length ? names[static_cast<std::size_t>(value)] : "unknown";
}

/// A static rate: its multiple of 2.5 Gb/s where that is a whole number, and its Mb/s.
struct Rate {
    ibv_rate rate;
    int multiple, mbps;
};
constexpr std::array rates{
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},     Rate{IBV_RATE_5_GBPS, 2, 5000},        Rate{IBV_RATE_10_GBPS, 4, 10000},
    Rate{IBV_RATE_20_GBPS, 8, 20000},     Rate{IBV_RATE_30_GBPS, 12, 30000},     Rate{IBV_RATE_40_GBPS, 16, 40000},
    Rate{IBV_RATE_60_GBPS, 24, 60000},    Rate{IBV_RATE_80_GBPS, 32, 80000},     Rate{IBV_RATE_120_GBPS, 48, 120000},
    Rate{IBV_RATE_28_GBPS, 11, 28125},    Rate{IBV_RATE_50_GBPS, 20, 53125},     Rate{IBV_RATE_400_GBPS, 160, 425000},
    Rate{IBV_RATE_600_GBPS, 240, 637500}, Rate{IBV_RATE_14_GBPS, -1, 14062},     Rate{IBV_RATE_56_GBPS, -1, 56250},
    Rate{IBV_RATE_112_GBPS, -1, 112500},  Rate{IBV_RATE_168_GBPS, -1, 168750},   Rate{IBV_RATE_25_GBPS, -1, 25781},
    Rate{IBV_RATE_100_GBPS, -1, 103125},  Rate{IBV_RATE_200_GBPS, -1, 206250},   Rate{IBV_RATE_300_GBPS, -1, 309375},
    Rate{IBV_RATE_800_GBPS, -1, 850000},  Rate{IBV_RATE_1200_GBPS, -1, 1275000},
};

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) {
    return type < IBV_NODE_CA ? "unknown" : name_of(node_types, type - 1);
}
const char* ibv_port_state_str(ibv_port_state state) {
    return name_of(port_states, state);
}
const char* ibv_event_type_str(ibv_event_type event) {
    return name_of(event_types, event);
}
const char* ibv_wc_status_str(ibv_wc_status status) {
    return name_of(wc_statuses, status);
}

int ibv_rate_to_mult(ibv_rate rate) {
    for (const Rate& known : rates) {
        if (known.rate == rate) return known.multiple;
    }
    return -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
    for (const Rate& known : rates) {
        if (known.multiple == multiple && multiple > 0) return known.rate;
    }
    return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
    for (const Rate& known : rates) {
        if (known.rate == rate) return known.mbps;
    }
    return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
    for (const Rate& known : rates) {
        if (known.mbps == mbps) return known.rate;
    }
    return IBV_RATE_MAX;
}

const char* ibv_get_sysfs_path(void) {
    return "/sys";
}

/// The first `size` bytes of a file without its last newline; -1 where it cannot be read.
int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, std::size_t size) {
    char path[4096];
    if (std::snprintf(path, sizeof path, "%s/%s", directory, file) >= static_cast<int>(sizeof path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    std::FILE* const stream = std::fopen(path, "re");
    if (!stream) return -1;
    std::size_t length = std::fread(buffer, 1, size, stream);
    std::fclose(stream);
    if (length > 0 && buffer[length - 1] == '\n') buffer[--length] = '\0';
    if (length < size) buffer[length] = '\0';
    return static_cast<int>(length);
}

}  // extern "C"
