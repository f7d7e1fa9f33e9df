// Direct Rules actions: what a rule does with a packet. Those that count are their bulk's (counter_bulk.hpp).
//
// Owns the provider's action and holds what it refers to (domain, table, counter object, other actions), so that those
// outlive it; a Rule holds its Actions. Shared, since one action serves many rules.
//
// Threads: any. Errors: errno of the mlx5dv_dr_action_create_*() call. Those that a port's rules use may throw
// std::bad_alloc and leave nothing behind then. Source: mlx5dv_dr_flow(3), "Actions".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/dr/device/header_field.hpp"
#include "offload/dr/device/table.hpp"
#include "offload/dr/ids.hpp"
#include "offload/meter/meter_pool.hpp"

namespace ovsdr::dr {

class Action;
using ActionRef = std::shared_ptr<Action>;
/// What a rule does, in order; one list serves many rules.
using ActionList = std::shared_ptr<const std::vector<ActionRef>>;

class Action {
    struct Key {};   // only the factories below make one

public:
    [[nodiscard]] static Result<ActionRef> drop() noexcept;
    /// The domain's default; in FDB: to the eSwitch manager.
    [[nodiscard]] static Result<ActionRef> default_miss() noexcept;
    /// `tag`: 24 bits, host order, read from the completion.
    [[nodiscard]] static Result<ActionRef> tag(std::uint32_t tag) noexcept;
    [[nodiscard]] static Result<ActionRef> to_queue_pair(ibv_qp* queue_pair);
    /// `holds`: what the table needs to be of use, destroyed after the action.
    [[nodiscard]] static Result<ActionRef> to_table(std::shared_ptr<Table> table,
                                                    std::shared_ptr<void> holds = nullptr) noexcept;
    [[nodiscard]] static Result<ActionRef> to_vport(std::shared_ptr<Domain> domain, VportId vport);
    /// A copy to each; at least two.
    [[nodiscard]] static Result<ActionRef> to_all(std::shared_ptr<Domain> domain,
                                                  std::span<const ActionRef> destinations) noexcept;
    [[nodiscard]] static Result<ActionRef> pop_vlan() noexcept;
    /// Host order; `tci` without OVS's VLAN_CFI.
    [[nodiscard]] static Result<ActionRef> push_vlan(std::shared_ptr<Domain> domain, std::uint16_t tpid,
                                                     std::uint16_t tci) noexcept;
    /// Not for root tables.
    [[nodiscard]] static Result<ActionRef> modify_header(std::shared_ptr<Domain> domain,
                                                         std::span<const HeaderWrite> writes);
    /// `header`: whole headers from Ethernet on, a multiple of two bytes; the device fills in the lengths and the IPv4
    /// header's checksum, and makes UDP's 0. A firmware object. Not for root tables.
    [[nodiscard]] static Result<ActionRef> encapsulate(std::shared_ptr<Domain> domain,
                                                       std::span<const std::uint8_t> header);
    /// Takes off what an L2 tunnel (VXLAN, Geneve, GRE) has in front of the frame inside. In FDB: of packets from the
    /// wire only. Not for root tables.
    [[nodiscard]] static Result<ActionRef> decapsulate(std::shared_ptr<Domain> domain);
    /// Where packets go on that an action has looked at.
    struct Next {
        std::shared_ptr<Table> table;
        std::shared_ptr<void> holds;   ///< what it needs to be of use, destroyed after the action
    };
    /// A copy of one of so many packets goes where what misses goes, at random; all go on in the table, which is above
    /// that of the rule. A firmware object. Not for root tables.
    [[nodiscard]] static Result<ActionRef> sample(std::uint32_t one_of, Next next);
    /// Writes the colour that the meter gives a packet into the low byte of reg_c_`reg_c`: 1, 3 or 5. Packets come in
    /// green. Not for root tables.
    [[nodiscard]] static Result<ActionRef> colour(std::shared_ptr<Domain> domain, std::shared_ptr<meter::Meter> meter,
                                                  std::uint8_t reg_c);
    /// A legacy meter, a firmware object: writes the colour likewise, and leads each packet to `next`. Not for root
    /// tables, nor to one.
    [[nodiscard]] static Result<ActionRef> police(std::shared_ptr<Table> next, const meter::Parameters& parameters,
                                                  std::uint8_t reg_c);
    enum class MeterChange : std::uint64_t { rate = 1 << 2, rate_and_burst = 1 << 1 | 1 << 2 };
    /// Of a legacy meter. Its bucket keeps what it holds, as far as that fits.
    [[nodiscard]] Result<void> change_meter(meter::Parameters parameters, MeterChange change) noexcept;

    Action(Key, mlx5dv_dr_action* action, std::shared_ptr<void> holds) noexcept;
    ~Action();
    Action(const Action&) = delete;
    Action& operator=(const Action&) = delete;

    [[nodiscard]] mlx5dv_dr_action* get() const noexcept { return action_; }

private:
    /// `action` NULL: the Error of errno and `call`.
    [[nodiscard]] static Result<ActionRef> wrap(mlx5dv_dr_action* action, StaticName call,
                                                std::shared_ptr<void> holds = nullptr);

    mlx5dv_dr_action* action_;
    std::shared_ptr<void> holds_;
};

}  // namespace ovsdr::dr
