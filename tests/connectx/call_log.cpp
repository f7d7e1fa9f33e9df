#include "tests/connectx/call_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ovsdr::connectx {

CallLog::CallLog() {
    // "e": a program that the process starts does not inherit it.
    if (const char* name = std::getenv("OVSDR_CONNECTX_LOG"); name != nullptr && *name != 0)
        file_ = std::fopen(name, "ae");
    const char* verbose = std::getenv("OVSDR_CONNECTX_VERBOSE");
    is_verbose_ = verbose != nullptr && std::strcmp(verbose, "1") == 0;
}

CallLog::~CallLog() {
    if (file_ != nullptr) std::fclose(file_);
}

void CallLog::called(std::string_view name) {
    if (const auto found = calls_.find(name); found != calls_.end()) {
        ++found->second;
    } else {
        calls_.emplace(name, 1);
    }
    if (is_verbose_) line(name);
}

void CallLog::failed(std::string_view name, int error, std::string_view why) {
    line(fmt::format("{}: {}: {}", name, strerrorname_np(error) == nullptr ? "?" : strerrorname_np(error), why));
}

void CallLog::not_emulated(std::string_view name, std::string_view what) {
    const std::string text = fmt::format("{}: {}", name, what);
    line("not emulated: " + text);
    if (std::find(not_emulated_.begin(), not_emulated_.end(), text) != not_emulated_.end()) return;
    not_emulated_.push_back(text);
    fmt::print(stderr, "connectx: not emulated: {}\n", text);
}

void CallLog::line(std::string_view text) {
    if (file_ == nullptr) return;
    fmt::print(file_, "{} {}\n", getpid(), text);
    std::fflush(file_);
}

}   // namespace ovsdr::connectx
