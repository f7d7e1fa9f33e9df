// What `drnic add` and `drnic del` changed since the NIC started, and how it gets into the configuration file.
//
// A NIC reads its file once, so that a vport added later is gone after a restart, and a removed one back, until
// save() writes the changes into the file as it is then: each added port takes the place of the one with its number,
// or comes last among its device's; removed ones go. All else in the file stays, and so do the file's owner and mode;
// the text is laid out anew. What cannot be read back as a configuration is not written. MACs, MTUs and links that
// were set are no part of it: OVS sets them, too.
//
// Threads: the control thread.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class ConfigChanges {
public:
    /// `port`: as in the configuration, checked.
    void added(std::string_view device, VportId vport, const nlohmann::json& port);
    void removed(std::string_view device, VportId vport);

    /// Writes them into the file and forgets them. Throws ConfigError; the file is then as it was, and they are kept.
    void save(const std::string& path);

private:
    using Key = std::pair<std::string, VportId>;
    std::map<Key, std::optional<std::string>> ports_;  ///< the port's JSON; nothing: removed
};

}  // namespace ovsdr::soft
