// GENEVE_TLV_OPT: the option that the device's flexible parser looks for in Geneve headers. A device has one, of four
// bytes of data; matchers name it as geneve_tlv_option_0.
#include "datapath/rdma/devx/devx_geneve.hpp"

#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/steering/tunnel.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

namespace general = prm::general_object;
namespace tlv = prm::geneve_tlv_option;

class GeneveTlvOption final : public Resource {
public:
    GeneveTlvOption(DeviceState& state, const GeneveOption& option)
        : Resource(state.aso_numbers().take()), state_(state), option_(option) {}
    ~GeneveTlvOption() override {
        (void)state_.device().steering().set_geneve_option({});
        state_.aso_numbers().give_back(number());
    }

    bool takes(Opcode opcode) const noexcept override { return opcode == Opcode::query_general_object; }
    Status execute(Opcode, Input in, Output out) override {
        if (prm::get(in, general::type) != general::geneve_tlv_option) return Status::bad_param;
        if (out.size() < tlv::mailbox) return Status::bad_outp_len;
        prm::set(out, general::number, number());
        prm::set(out, tlv::option_class, option_.option_class);
        prm::set(out, tlv::type, option_.type);
        prm::set(out, tlv::length, option_.length);
        return Status::ok;
    }

private:
    DeviceState& state_;
    const GeneveOption option_;
};

}  // namespace

Status create_geneve_option(mlx5dv_devx_obj& object, Input in, Output out) {
    Device& device = object.state.device();
    if (!device.profile().has_parser(flex_parser::geneve_option)) return Status::bad_param;
    if (in.size() < tlv::mailbox) return Status::bad_inp_len;
    const GeneveOption option{.option_class = static_cast<std::uint16_t>(prm::get(in, tlv::option_class)),
                              .type = static_cast<std::uint8_t>(prm::get(in, tlv::type)),
                              .length = static_cast<std::uint8_t>(prm::get(in, tlv::length))};
    const bool fits = option.length == tlv::max_length && prm::get(in, tlv::index) < tlv::max_options;
    if (!fits || prm::get(in, general::log_range) != 0) return Status::bad_param;
    if (device.steering().set_geneve_option(option) != 0) return Status::lim_err;
    object.resource = std::make_unique<GeneveTlvOption>(object.state, option);
    object.number = object.resource->number();
    prm::set(out, general::number, object.number);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
