#include "datapath/control/capture_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "datapath/control/request.hpp"
#include "datapath/control/session.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/soft_nic.hpp"

namespace ovsdr::soft {
namespace {

using nlohmann::json;

constexpr std::size_t most_captures = 16;
constexpr std::uint64_t largest_snap_length = 65535;
constexpr std::uint64_t smallest_buffer = 64 << 10;  // some of the largest packets
constexpr std::uint64_t largest_buffer = 1 << 30;

std::uint64_t number(const json& request, const char* name, std::uint64_t least, std::uint64_t most,
                     std::uint64_t otherwise) {
    const auto found = request.find(name);
    if (found == request.end()) return otherwise;
    if (!found->is_number_unsigned() || *found < least || *found > most) {
        throw ConfigError(fmt::format("{}: {} is not a whole number from {} to {}", name, found->dump(), least, most));
    }
    return found->get<std::uint64_t>();
}

std::string direction_of(const json& request) {
    const json value = request.value("direction", json("both"));
    if (value == "in" || value == "out" || value == "both") return value.get<std::string>();
    throw ConfigError(fmt::format("direction: {} is not \"in\", \"out\" or \"both\"", value.dump()));
}

std::string filter_text_of(const json& request) {
    const json value = request.value("filter", json(""));
    if (value.is_string()) return value.get<std::string>();
    throw ConfigError(fmt::format("filter: {} is no text", value.dump()));
}

bpf_insn instruction(const json& value) {
    static constexpr std::uint64_t most[] = {0xffff, 0xff, 0xff, 0xffffffff};
    if (!value.is_array() || value.size() != std::size(most)) {
        throw ConfigError("program: an instruction is four numbers");
    }
    for (std::size_t i = 0; i < std::size(most); ++i) {
        if (!value[i].is_number_unsigned() || value[i] > most[i]) {
            throw ConfigError(fmt::format("program: {} is no instruction", value.dump()));
        }
    }
    return {.code = value[0].get<u_short>(), .jt = value[1].get<u_char>(), .jf = value[2].get<u_char>(),
            .k = value[3].get<bpf_u_int32>()};
}

BpfFilter filter_of(const json& request) {
    const json program = request.value("program", json::array());
    if (!program.is_array()) throw ConfigError("program: a list of instructions");
    std::vector<bpf_insn> instructions;
    for (const json& value : program) instructions.push_back(instruction(value));
    std::string error;
    auto filter = BpfFilter::make(std::move(instructions), error);
    if (!filter) throw ConfigError("program: " + error);
    return *std::move(filter);
}

Capture::Spec spec_of(const json& request, const std::string& direction) {
    const Capture::Spec usual;
    const std::uint64_t buffer = number(request, "buffer", smallest_buffer, largest_buffer, usual.ring_size);
    if (!std::has_single_bit(buffer)) throw ConfigError(fmt::format("buffer: {} is not a power of two", buffer));
    return {.in = direction != "out",
            .out = direction != "in",
            .snap_length =
                static_cast<std::uint32_t>(number(request, "snap_length", 1, largest_snap_length, usual.snap_length)),
            .ring_size = buffer,
            .filter = filter_of(request)};
}

}  // namespace

CaptureSession::CaptureSession(SoftNic& nic, SoftDevice& device, const json& request, pid_t peer)
    : nic_(nic),
      device_(device),
      vport_(port_of(device, request)),
      peer_(peer),
      direction_(direction_of(request)),
      filter_(filter_text_of(request)),
      capture_(spec_of(request, direction_), static_cast<unsigned>(nic.workers().size())) {
    nic_.captures().push_back(this);
    const int error = device_.add_capture(vport_, capture_);
    if (error == 0) return;
    nic_.captures().pop_back();
    if (error != EOPNOTSUPP) throw ConfigError(fmt::format("port: vport {} is gone", vport_.value));
    throw ConfigError(
        "port: 0 is the eSwitch manager, which has no port; its packets are seen at the vports that they go to and "
        "come from");
}

CaptureSession::~CaptureSession() {
    device_.remove_capture(vport_, capture_);
    std::erase(nic_.captures(), this);
}

json CaptureSession::started() const {
    VportInfo info;
    (void)device_.query(vport_, info);
    const std::string name = info.name.empty() ? fmt::format("vport {}", vport_.value) : info.name;
    json interfaces = json::array();
    for (std::size_t port = 1; port <= info.lag.size(); ++port) {
        interfaces.push_back(fmt::format("{} port {}", name, port));
    }
    if (interfaces.empty()) interfaces.push_back(name);
    return {{"device", device_.name()},
            {"vport", vport_.value},
            {"interfaces", std::move(interfaces)},
            {"layout", capture::layout_version}};
}

json CaptureSession::statistics() const {
    const capture::Counts counts = capture_.counts();
    return {{"device", device_.name()}, {"vport", vport_.value},    {"direction", direction_},
            {"filter", filter_},        {"process", peer_},         {"seen", counts.seen},
            {"accepted", counts.accepted}, {"dropped", counts.dropped}};
}

std::optional<std::string> CaptureSession::take_end() {
    if (end_told_ || device_.has_capture(vport_, capture_)) return std::nullopt;
    end_told_ = true;
    return fmt::format("vport {} of {} was removed", vport_.value, device_.name());
}

json capture_command(SoftNic& nic, Session& session, const json& request) {
    if (request.contains("stop")) {
        allow_only(request, {"stop"});
        if (request["stop"] != true) throw ConfigError("stop: it can only be true");
        if (!session.capture) throw ConfigError("stop: this connection has no capture");
        session.capture.reset();
        session.descriptor = -1;  // if it has not been passed yet
        return json::object();
    }
    allow_only(request, {"device", "port", "direction", "snap_length", "buffer", "program", "filter"});
    if (session.capture) throw ConfigError("this connection has a capture already; each needs one of its own");
    if (nic.captures().size() >= most_captures) {
        throw ConfigError(fmt::format("{} captures are running, and more are not possible", most_captures));
    }
    try {
        session.capture = std::make_unique<CaptureSession>(nic, device_of(nic, request), request, session.peer);
    } catch (const std::system_error& error) {
        throw ConfigError(fmt::format("buffer: {}", error.what()));
    }
    session.descriptor = session.capture->descriptor();
    return session.capture->started();
}

json capture_list(const SoftNic& nic) {
    json list = json::array();
    for (const CaptureSession* session : nic.captures()) list.push_back(session->statistics());
    return list;
}

}  // namespace ovsdr::soft
