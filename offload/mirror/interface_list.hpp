// The interfaces of a mirror's session, which packets name by their place in the list: one for each port of the
// datapath that frames have come in by, and in front of them one for frames of no port that is known.
//
// Model. The list only grows, for what is in the ring names interfaces by place. A frame of a port whose name is not in
// it makes it grow by all names that are known then: the sender has to connect again for a longer list, and does so
// once for many ports. A port that comes back under its name has its interface again, whatever its number.
//
// Limits: most_interfaces of the handshake, names of longest_name printable characters. What is beyond is of the first
// interface, "other".
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "offload/mirror/port_names.hpp"
#include "offload/mirror/wire/handshake.hpp"

namespace ovsdr::mirror {

class InterfaceList {
public:
    static constexpr std::uint32_t other = 0;

    /// With the ports there are. `names` outlives the list.
    InterfaceList(const PortNames& names, std::uint32_t snap_length);

    /// Place of the port's interface. May make the list longer, and then throw std::bad_alloc.
    [[nodiscard]] std::uint32_t place_of(dr::OdpPort port) {
        if (seen_ == names_.version()) {
            if (const auto found = places_.find(port.value); found != places_.end()) return found->second;
        }
        return look_up(port);
    }
    [[nodiscard]] const std::vector<MirrorInterface>& all() const noexcept { return interfaces_; }

private:
    [[nodiscard]] std::uint32_t look_up(dr::OdpPort port);
    void read(bool grow);

    const PortNames& names_;
    const std::uint32_t snap_length_;
    std::vector<MirrorInterface> interfaces_;
    std::unordered_map<std::uint32_t, std::uint32_t> places_;   ///< of ports, of names as of `seen_`
    std::uint64_t seen_ = 0;
};

}  // namespace ovsdr::mirror
