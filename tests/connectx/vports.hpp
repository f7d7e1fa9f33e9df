// The vports of the embedded switch: the wire (uplink), the manager, and VFs; and the IB ports that stand for them.
//
// IB port 1 is the wire, 2 the manager, 3 and up the VFs, as the kernel numbers representors in switchdev mode.
// Threads: the device's lock.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx {

class Vports {
public:
    explicit Vports(unsigned vfs);

    [[nodiscard]] std::uint32_t ib_ports() const { return 2 + vfs_; }
    [[nodiscard]] bool has(std::uint32_t number) const;
    /// Throws Refused: no such IB port.
    [[nodiscard]] Vport of_ib_port(std::uint32_t port) const;
    /// Those that are present.
    [[nodiscard]] std::vector<Vport> all() const;
    void set_present(std::uint16_t number, bool present);
    void configure(std::uint16_t number, VportSettings settings);
    /// Throws std::out_of_range.
    [[nodiscard]] VportSettings settings(std::uint16_t number) const { return states_.at(number).settings; }

    // Commands, as firmware gets them; the kernel lets nobody change a vport by DEVX. They throw BadStatus.
    void query_hca_cap(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const;   ///< of another function
    void query_eswitch_context(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const;
    void query_nic_context(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const;
    void query_state(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const;
    void query_counter(std::span<const std::uint8_t> in) const;   ///< the answer's counters stay 0

private:
    struct State {
        bool present = true;
        VportSettings settings;
    };
    [[nodiscard]] Vport described(std::uint16_t number) const;
    /// The vport that a command names. Throws BadStatus.
    [[nodiscard]] std::uint16_t named(std::span<const std::uint8_t> in) const;
    /// As the process was told, or as vport_feed.hpp's file says.
    [[nodiscard]] VportSettings current(std::uint16_t number) const;

    unsigned vfs_;
    std::map<std::uint16_t, State> states_;
};

}   // namespace ovsdr::connectx
