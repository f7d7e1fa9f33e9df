// What the control socket understands: one JSON object in, one out.
//
//   {"command": "list"}                     devices with their vports: state, addresses, errors; captures
//   {"command": "stats"}                    counters of vports, steering drops, flow caches, co-tenants, workers,
//                                           captures
//   {"command": "add", "port": {…}}         as in the configuration's `ports`; a port that does not open is not added
//   {"command": "del", "vport": N}
//   {"command": "save"}                     writes what add and del changed into the configuration file; see
//                                           config_changes.hpp
//   {"command": "set", "vport": N, …}       any of "link": "up" | "down" (administrative), "mac": "…", "mtu": N
//   {"command": "limits"}                   objects of each kind that each device has, and the most it has room for;
//                                           "set": {…}, as in the configuration's `limits`, changes those of one
//                                           device until the process ends (null: no limit)
//   {"command": "capture", "port": N, …}    see capture_session.hpp
//   {"command": "fault", "call": "ibv_create_qp", "errno": "ENOMEM" | 12, "nth": 1}
//   {"command": "faults"}                   calls that can be made to fail, and the faults that are armed;
//                                           "disarm": true forgets these
//
// add, del, set, capture and limits take "device": "mlx5_0", which may be left out where there is only one; add and del
// take "save": true, which is a save afterwards. An answer has "ok": true and what was asked for, or "ok": false and
// "error", which names the option, its value, and what would be right. A set that fails changes nothing of what comes
// after the failing part: mtu, link and mac are checked first and done in that order.
#pragma once

#include <string>
#include <string_view>

namespace ovsdr::soft {

class ConfigChanges;
class SoftNic;
struct Session;

/// The answer to one request, without a newline; what the connection is to hold goes into its `session`. Takes as long
/// as opening a port takes. Threads: the control thread.
[[nodiscard]] std::string answer(SoftNic& nic, ConfigChanges& changes, Session& session,
                                 std::string_view request);

}  // namespace ovsdr::soft
