#include "tools/drcompile/input.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tools/drcompile/dump_line.hpp"

namespace ovsdr::drcompile {
namespace {

bool read_port(void* ports, const char* text, std::size_t length, ovsdr_port_role role,
               std::uint32_t* number) noexcept {
    const auto port = static_cast<Ports*>(ports)->number_of({text, length}, role);
    if (port) *number = port->value;
    return port.has_value();
}

ovsdr_megaflow megaflow_of(const DumpLine& line, Ports& ports) {
    const ovsdr_port_reader reader{read_port, &ports};
    ovsdr_megaflow megaflow;
    char* error = nullptr;
    const bool done = megaflow_from_text(line.match.c_str(), line.actions.c_str(), &reader, &megaflow, &error);
    const std::unique_ptr<char, decltype(&std::free)> owner(error, std::free);
    if (!done) throw BadLine(error != nullptr ? error : "not understood");
    return megaflow;
}

}  // namespace

void Input::read(std::istream& stream, const std::string& name) {
    std::string text;
    for (Place place{name, 1}; std::getline(stream, text); ++place.line) read_line(text, place);
    if (stream.bad() || !stream.eof()) throw std::runtime_error(fmt::format("{}: cannot be read", name));
}

void Input::read_line(const std::string& text, Place place) {
    try {
        auto line = take_apart(text);
        if (!line) return;
        values_.emplace_back(megaflow_of(*line, ports_), parts_);
        megaflows_.push_back({std::move(place), std::move(line->ufid), line->packets});
    } catch (const BadLine& bad) {
        faults_.push_back({std::move(place), bad.what()});
    }
}

}  // namespace ovsdr::drcompile
