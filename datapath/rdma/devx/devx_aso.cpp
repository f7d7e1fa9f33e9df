// General objects: ASO flow meters, first hits and tracked connections, in bulks. (Geneve options: devx_geneve.cpp.)
#include <algorithm>

#include "datapath/rdma/aso_access.hpp"
#include "datapath/rdma/devx/devx.hpp"
#include "datapath/rdma/devx/devx_geneve.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/steering/room.hpp"

namespace ovsdr::soft::devx {

using prm::Status;

namespace {

namespace general = prm::general_object;
namespace aso = prm::aso_object;

[[nodiscard]] bool kind_of(std::uint64_t type, AsoKind& kind) noexcept {
    switch (type) {
        case general::flow_meter_aso: kind = AsoKind::flow_meter; return true;
        case general::first_hit_aso: kind = AsoKind::first_hit; return true;
        case general::conn_track_offload: kind = AsoKind::connection; return true;
        default: return false;
    }
}

}  // namespace

Status create_general_object(mlx5dv_devx_obj& object, Input in, Output out) {
    if (prm::get(in, general::type) == general::geneve_tlv_option) return create_geneve_option(object, in, out);
    AsoKind kind{};
    // Crypto and other types: as a device without that capability.
    if (!object.state.device().profile().aso || !kind_of(prm::get(in, general::type), kind)) return Status::bad_param;
    if (in.size() < aso::in_size) return Status::bad_inp_len;
    const auto log_length = static_cast<unsigned>(prm::get(in, general::log_range));
    if (log_length > aso::max_log_length) return Status::bad_param;
    Room::Share room;
    if (kind == AsoKind::flow_meter) {
        const std::uint32_t meters = AsoBulk::meters_per_object << log_length;
        room = room_of(object.state.device().steering()).take(soft::Resource::meters, meters);
        if (!room) return Status::lim_err;
    }
    auto bulk = std::make_unique<AsoBulk>(kind, log_length, object.context);
    // Meters are there until the last packet has met them.
    object.aso = {bulk.release(), [room = std::move(room)](AsoBulk* gone) { delete gone; }};
    AsoBulk::Image image;
    std::transform(in.data() + aso::image, in.data() + aso::image + image.size(), image.begin(),
                   [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
    for (unsigned i = 0; i < object.aso->length(); ++i) object.aso->exchange(i, image, ~0ULL);
    object.number = object.state.aso_numbers().take_run(object.aso->length());
    object.state.aso().add(object.number, object.aso, static_cast<std::uint32_t>(prm::get(in, aso::access_pd)));
    prm::set(out, general::number, object.number);
    return Status::ok;
}

Status query_general_object(mlx5dv_devx_obj& object, Input in, Output out) {
    const auto wanted = static_cast<std::uint32_t>(prm::get(in, general::number));
    const AsoTable::Found found = object.state.aso().find(wanted);
    if (found.bulk != object.aso) return Status::bad_res;
    if (out.size() < aso::in_size) return Status::bad_outp_len;
    prm::set(out, general::number, wanted);
    prm::set(out, aso::access_pd, found.access_pd);
    const AsoBulk::Image image = found.bulk->read(found.index);
    std::transform(image.begin(), image.end(), out.data() + aso::image,
                   [](std::uint8_t byte) { return std::byte{byte}; });
    return Status::ok;
}

bool is_general_object(const mlx5dv_devx_obj& object, Input in) {
    AsoKind kind{};
    if (object.aso == nullptr || !kind_of(prm::get(in, general::type), kind) || kind != object.aso->kind()) {
        return false;
    }
    const auto wanted = static_cast<std::uint32_t>(prm::get(in, general::number));
    return wanted - object.number < object.aso->length();
}

void retire_general_object(mlx5dv_devx_obj& object) {
    if (object.aso != nullptr) object.state.aso().remove(object.number);
}

}  // namespace ovsdr::soft::devx
