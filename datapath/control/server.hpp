// The control socket: a Unix stream socket on which `drnic` talks to a running NIC, one JSON object a line each way.
//
// Taking the path over. A socket file that nobody listens on, left by a process that was killed, is replaced. One that
// another process serves is left alone: the NIC then runs without a control socket and says so once on stderr. The
// steps are taken under a lock on the socket's folder, so that two processes that start together cannot both win. The
// file is removed when the server ends, if it is still its own.
//
// Commands and answers: see commands.hpp. What a connection holds (a capture) ends with it. A client may send several
// requests; a line of more than 64 KiB ends its connection, and so does a client that does not read its answers.
//
// Threads: the control thread only.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "datapath/control/config_changes.hpp"
#include "datapath/control/session.hpp"
#include "datapath/ports/socket_path.hpp"

namespace ovsdr::soft {

class SoftNic;

class ControlServer {
public:
    /// Listens on `path`; on "" or when it cannot (reported on stderr) it serves nobody.
    ControlServer(SoftNic& nic, const std::string& path);
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    /// Adds what it waits for to `polled`, behind what is there.
    void watch(std::vector<pollfd>& polled) const;

    /// Serves what poll() has found; `polled` is the list that watch() added to.
    void handle(const std::vector<pollfd>& polled);

private:
    struct Client {
        int socket;
        std::string in, out;
        Session session;
        bool done = false;
    };

    int listen_on(const std::string& path);
    void accept_clients();
    void read_requests(Client& client);
    static void write_answers(Client& client);
    static ssize_t send_some(Client& client) noexcept;

    SoftNic& nic_;
    ConfigChanges changes_;
    std::string path_;
    int listener_ = -1;
    SocketFile file_;
    std::vector<Client> clients_;
};

}  // namespace ovsdr::soft
