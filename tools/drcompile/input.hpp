// The megaflows of some dumps, and the lines that are none.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "offload/dr/megaflow_store.hpp"
#include "tools/drcompile/dump_line.hpp"
#include "tools/drcompile/ports.hpp"

namespace ovsdr::drcompile {

struct Place {
    std::string file;
    std::uint64_t line;   ///< from 1 on
};

class Input {
public:
    struct Megaflow {
        Place place;
        std::string ufid;                       ///< empty: not printed
        std::optional<std::uint64_t> packets;
    };
    struct Fault {
        Place place;
        std::string what;
    };

    /// `vlan_limit`: other_config:vlan-limit of the switch that printed; 0: as many tags as OVS can parse.
    explicit Input(PortWishes wishes, int vlan_limit = 1) : ports_(std::move(wishes)), vlan_limit_(vlan_limit) {}

    /// Throws std::runtime_error: the stream cannot be read to its end.
    void read(std::istream& stream, const std::string& name);

    [[nodiscard]] Ports& ports() noexcept { return ports_; }
    [[nodiscard]] const Ports& ports() const noexcept { return ports_; }
    [[nodiscard]] const std::vector<Megaflow>& megaflows() const noexcept { return megaflows_; }
    /// What they are, in the same order.
    [[nodiscard]] const std::vector<dr::StoredMegaflow>& values() const noexcept { return values_; }
    [[nodiscard]] const std::vector<Fault>& faults() const noexcept { return faults_; }

private:
    void read_line(const std::string& text, Place place);
    [[nodiscard]] dr::StoredMegaflow megaflow_of(const DumpLine& line);

    Ports ports_;
    int vlan_limit_;
    dr::MegaflowParts parts_;
    std::vector<Megaflow> megaflows_;
    std::vector<dr::StoredMegaflow> values_;
    std::vector<Fault> faults_;
};

}  // namespace ovsdr::drcompile
