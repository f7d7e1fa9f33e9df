// An eSwitch that takes everything and does nothing: tests override what they are about.
#pragma once

#include "offload/dr/eswitch.hpp"

namespace ovsdr::ctrl::test {

class IdleEswitch : public dr::Eswitch {
public:
    [[nodiscard]] std::string_view device() const noexcept override { return "fake"; }
    [[nodiscard]] ibv_context* context() const noexcept override { return nullptr; }
    [[nodiscard]] ibv_pd* pd() const noexcept override { return nullptr; }
    [[nodiscard]] Result<void> attach_port(const dr::PortSpec&) noexcept override { return {}; }
    void detach_port(dr::VportId) noexcept override {}
    [[nodiscard]] dr::QueueSwitch switch_queue(dr::VportId, ibv_qp*, std::uint32_t,
                                               std::span<const dr::QueuePairFor>) noexcept override {
        return {};
    }
    void set_policed(dr::VportId, bool) noexcept override {}
    void forget_old_queue(dr::VportId) noexcept override {}
    Result<void> set_odp_port(dr::VportId, dr::OdpPort) noexcept override { return {}; }
    void close_entrance(dr::VportId) noexcept override {}
    Result<void> lead_copies(dr::CopyKind, ibv_qp*) noexcept override { return {}; }
    void stop_copies(dr::CopyKind) noexcept override {}
    std::shared_ptr<const dr::InstalledWork> work_of(std::uint32_t) const noexcept override { return nullptr; }
    void set_tunnel_port(const dr::TunnelPort&) noexcept override {}
    void remove_tunnel_port(dr::OdpPort) noexcept override {}
    void choose(const Choices&) noexcept override {}
    void set_meter(std::uint32_t, const meter::Spec&) noexcept override {}
    dr::MeterStats remove_meter(std::uint32_t) noexcept override { return {}; }
    bool has_meter(std::uint32_t) noexcept override { return false; }
    void on_meter_use(std::function<void()>) noexcept override {}
    Result<void> lower_meter(std::uint32_t, std::uint32_t) noexcept override { return {}; }
    dr::MeterStats meter_stats(std::uint32_t) noexcept override { return {}; }
    [[nodiscard]] bool knows(const dr::Ufid&) const noexcept override { return false; }
    using dr::Eswitch::put;
    [[nodiscard]] dr::PutOutcome put(const dr::Ufid&, const ovsdr_megaflow&, std::uint16_t) noexcept override {
        return {};
    }
    using dr::Eswitch::del;
    void del(std::span<Deletion>) noexcept override {}
    [[nodiscard]] std::optional<Status> status(const dr::Ufid&) noexcept override { return std::nullopt; }
    [[nodiscard]] std::optional<dr::TableKey> table_of(std::uint32_t) const noexcept override { return std::nullopt; }
    void flush(std::optional<dr::OdpPort>) noexcept override {}
    [[nodiscard]] std::string show(bool, const dr::PortNames&) const override { return {}; }
    [[nodiscard]] dr::Graph graph() const override { return {}; }
    [[nodiscard]] std::optional<dr::FlowReport> explain(const dr::Ufid&, const dr::PortNames&) const override {
        return std::nullopt;
    }
    [[nodiscard]] std::vector<ReasonCount> reasons(std::span<const InSoftware>) const override { return {}; }
    [[nodiscard]] Totals totals() const noexcept override { return {}; }
};

}  // namespace ovsdr::ctrl::test
