#include "tools/drcompile/input.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace ovsdr::drcompile {
namespace {

bool read_port(void* ports, const char* text, std::size_t length, ovsdr_port_role role,
               std::uint32_t* number) noexcept {
    const auto port = static_cast<Ports*>(ports)->number_of({text, length}, role);
    if (port) *number = port->value;
    return port.has_value();
}

using Freed = std::unique_ptr<void, decltype(&std::free)>;

}  // namespace

dr::StoredMegaflow Input::megaflow_of(const DumpLine& line) {
    const ovsdr_dump_reader reader{read_port, &ports_, vlan_limit_};
    ovsdr_megaflow megaflow;
    void* storage = nullptr;
    char* error = nullptr;
    const bool done =
        megaflow_from_text(line.match.c_str(), line.actions.c_str(), &reader, &megaflow, &storage, &error);
    const Freed storage_owner(storage, std::free), error_owner(error, std::free);
    if (!done) throw BadLine(error != nullptr ? error : "not understood");
    return {megaflow, parts_};
}

void Input::read(std::istream& stream, const std::string& name) {
    std::string text;
    for (Place place{name, 1}; std::getline(stream, text); ++place.line) read_line(text, place);
    if (stream.bad() || !stream.eof()) throw std::runtime_error(fmt::format("{}: cannot be read", name));
}

void Input::read_line(const std::string& text, Place place) {
    try {
        auto line = take_apart(text);
        if (!line) return;
        values_.push_back(megaflow_of(*line));
        megaflows_.push_back({std::move(place), std::move(line->ufid), line->packets});
    } catch (const BadLine& bad) {
        faults_.push_back({std::move(place), bad.what()});
    }
}

}  // namespace ovsdr::drcompile
