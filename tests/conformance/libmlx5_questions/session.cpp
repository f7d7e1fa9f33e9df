#include "tests/conformance/libmlx5_questions/session.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace ovsdr::oracle {
namespace {

/// A DEVX command: fields by their first bit, counted from the most significant of the first byte.
class Command {
public:
    explicit Command(std::size_t size) : bytes_(size) {}

    Command& put(unsigned bit, unsigned bits, std::uint64_t value) {
        for (unsigned i = 0; i < bits; ++i) {
            if ((value >> (bits - 1 - i) & 1) != 0)
                bytes_[(bit + i) / 8] |= static_cast<std::uint8_t>(0x80U >> (bit + i) % 8);
        }
        return *this;
    }
    [[nodiscard]] DevxObject create(ibv_context* context) const {
        std::uint8_t answer[64] = {};
        return DevxObject(mlx5dv_devx_obj_create(context, bytes_.data(), bytes_.size(), answer, sizeof answer));
    }

private:
    std::vector<std::uint8_t> bytes_;
};

constexpr std::uint16_t alloc_flow_counter = 0x939, create_general_object = 0xa00;
constexpr std::uint16_t object_first_hit = 0x25, object_flow_meter = 0x24, object_connections = 0x31;

template <typename Made>
Made needed(Made made, const char* what) {
    if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    return made;
}

[[nodiscard]] Context open_device(std::string_view name) {
    int length = 0;
    ibv_device** list = ibv_get_device_list(&length);
    Context context;
    for (int i = 0; i < length && context == nullptr; ++i) {
        if (name == ibv_get_device_name(list[i])) context.reset(ibv_open_device(list[i]));
    }
    if (list != nullptr) ibv_free_device_list(list);
    return needed(std::move(context), "no such device, or it does not open");
}

[[nodiscard]] Queue raw_packet_queue(ibv_pd* pd, ibv_cq* completions) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions;
    attributes.qp_type = IBV_QPT_RAW_PACKET;
    attributes.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return Queue(ibv_create_qp(pd, &attributes));
}

}  // namespace

std::string domain_name(mlx5dv_dr_domain_type type) {
    constexpr const char* names[] = {"NIC_RX", "NIC_TX", "FDB"};
    return names[type];
}

Session::Session(std::string_view device)
    : context(open_device(device)),
      pd(needed(ProtectionDomain(ibv_alloc_pd(context.get())), "no protection domain")),
      completions(
          needed(CompletionQueue(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0)), "no completion queue")),
      queue(needed(raw_packet_queue(pd.get(), completions.get()), "no raw packet queue")),
      counter(needed(Command(16).put(0, 16, alloc_flow_counter).create(context.get()), "no flow counter")),
      first_hit(aso_object(object_first_hit)),
      flow_meter(aso_object(object_flow_meter)),
      connections(aso_object(object_connections)) {}

Domain Session::domain(mlx5dv_dr_domain_type type) const {
    return needed(Domain(mlx5dv_dr_domain_create(context.get(), type)), "no domain");
}

/// A general object whose second double word of parameters names the PD that ASO accesses use.
DevxObject Session::aso_object(std::uint16_t type) const {
    mlx5dv_pd domain{};
    mlx5dv_obj object{};
    object.pd = {.in = pd.get(), .out = &domain};
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_PD) != 0) return {};
    constexpr unsigned header = 128, access_pd = header + 136;
    return Command(144)
        .put(0, 16, create_general_object)
        .put(48, 16, type)
        .put(access_pd, 24, domain.pdn)
        .create(context.get());
}

}  // namespace ovsdr::oracle
