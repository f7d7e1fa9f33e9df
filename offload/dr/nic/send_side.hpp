// A plain function's NIC_TX: what its port's queue sends, on the way to the wire.
//
//   root  everything                                     → port
//   port  first, while the function is down: everything  → count, drop
//         everything                                     → count, push the port's VLAN tag if it has one; it leaves
//
// OVS has done all actions of a megaflow when it sends, so there is nothing of megaflows here. It is everything that
// the function sends: a rule of NIC_TX cannot tell queues apart.
//
// A device whose NIC_TX has no table but its root has no rules here, and counts nothing.
//
// Threads: one at a time. Errors: the device's; may throw std::bad_alloc and leaves nothing behind then.
#pragma once

#include <memory>
#include <vector>

#include "offload/dr/device/rule.hpp"
#include "offload/dr/install/counter.hpp"

namespace ovsdr::dr {

class SendSide {
public:
    [[nodiscard]] static Result<std::unique_ptr<SendSide>> create(const std::shared_ptr<Device>& device,
                                                                  const DeviceCaps& caps);

    /// Counts what leaves by `counter`, and gives it the VLAN's tag; 0: none.
    [[nodiscard]] Result<void> let_out(std::uint16_t vlan, const Counter& counter);
    void shut() noexcept;

    /// Drops all that is sent, counted by `counter`.
    [[nodiscard]] Result<Rule> drop_everything(const Counter& counter);

    [[nodiscard]] Domain& domain() noexcept { return *domain_; }
    [[nodiscard]] std::vector<std::pair<const char*, const MatcherSet*>> tables() const;

private:
    SendSide() = default;

    std::shared_ptr<Domain> domain_;
    std::shared_ptr<MatcherSet> root_, port_;   ///< the latter perhaps none
    ActionRef to_port_, drop_;
    Rule leave_, enter_;
};

}  // namespace ovsdr::dr
