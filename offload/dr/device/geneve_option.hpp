// The option that a device's parser looks for in Geneve headers (GENEVE_TLV_OPT, a DEVX object).
//
// Model. Matchers name it as geneve_tlv_option_0, whatever class and type it has: a device has one at a time, with one
// word of data. Who needs it holds a GeneveOptionRef; the object goes with the last of them, and another option can
// follow. Nobody is told of that here (tunnel_rules.hpp tells). Refs must not outlive the parser.
//
// Threads: any; what others ask waits while the firmware makes or destroys the object. Errors: EBUSY: the device has
// another option; those of CREATE_GENERAL_OBJECT. Source: PRM GENEVE_TLV_OPTION; linux/mlx5/mlx5_ifc.h
// geneve_tlv_option.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "offload/dr/device/device.hpp"

namespace ovsdr::dr {

struct GeneveOption {
    std::uint16_t option_class;
    std::uint8_t type;            ///< with its critical bit
    friend auto operator<=>(const GeneveOption&, const GeneveOption&) = default;
};

using GeneveOptionRef = std::shared_ptr<const GeneveOption>;

class GeneveParser {
public:
    explicit GeneveParser(std::shared_ptr<Device> device) noexcept;
    ~GeneveParser();

    /// What the device looks for now.
    [[nodiscard]] std::optional<GeneveOption> current() const noexcept;
    [[nodiscard]] Result<GeneveOptionRef> acquire(GeneveOption option);   ///< may throw std::bad_alloc

private:
    struct Object;
    struct Ref;
    [[nodiscard]] Result<std::unique_ptr<Object>> make(GeneveOption option) const;
    void let_go() noexcept;

    std::shared_ptr<Device> device_;
    mutable std::mutex mutex_;
    std::unique_ptr<Object> object_;
    std::uint32_t refs_ = 0;
};

}  // namespace ovsdr::dr
