#include "datapath/capture/filter.hpp"

#include <fmt/format.h>

namespace ovsdr::soft {

std::optional<BpfFilter> BpfFilter::make(std::vector<bpf_insn> program, std::string& error) {
    if (program.size() > longest_filter) {
        error = fmt::format("a filter of {} instructions is longer than the {} that are possible", program.size(),
                            longest_filter);
        return std::nullopt;
    }
    for (std::size_t at = 0; at < program.size(); ++at) {
        // A jump's distance is unsigned, and one that wraps around leads backwards.
        if (program[at].code == (BPF_JMP | BPF_JA) && program[at].k >= program.size() - at) {
            error = "a filter that goes back (protochain does) could hold packets up; it is not taken";
            return std::nullopt;
        }
    }
    if (!program.empty() && bpf_validate(program.data(), static_cast<int>(program.size())) == 0) {
        error = "the filter is no valid program";
        return std::nullopt;
    }
    return BpfFilter(std::move(program));
}

}  // namespace ovsdr::soft
