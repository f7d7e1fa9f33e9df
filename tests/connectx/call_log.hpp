// What the process asked of the device: calls counted by name, failures and what is not emulated line by line.
//
// A name is the kernel's method, for DEVX with the command: `QP_CREATE`, `DEVX_OBJ_CREATE:CREATE_FLOW_TABLE`.
// Lines go to the file that OVSDR_CONNECTX_LOG names, and with OVSDR_CONNECTX_VERBOSE=1 each call does too. What is not
// emulated is said on standard error as well. Threads: the device's lock.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ovsdr::connectx {

class CallLog {
public:
    CallLog();
    ~CallLog();
    CallLog(const CallLog&) = delete;
    CallLog& operator=(const CallLog&) = delete;

    void called(std::string_view name);
    void failed(std::string_view name, int error, std::string_view why);
    void not_emulated(std::string_view name, std::string_view what);
    void line(std::string_view text);

    [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& calls() const { return calls_; }
    [[nodiscard]] const std::vector<std::string>& not_emulated() const { return not_emulated_; }

private:
    std::FILE* file_ = nullptr;
    bool is_verbose_ = false;
    std::map<std::string, std::uint64_t, std::less<>> calls_;
    std::vector<std::string> not_emulated_;
};

}   // namespace ovsdr::connectx
