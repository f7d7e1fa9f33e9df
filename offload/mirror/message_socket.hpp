// A TCP connection that carries messages of the handshake, plain or through TLS.
//
// Model. Nothing here waits but connect() and await(): send() keeps what the kernel does not take yet, and flush() goes
// on when poll() says so. With TLS no message comes or leaves before the peer has shown its certificate: connect()
// waits for that; of a socket that was taken, receive() and await() do the TLS handshake before the first message. A
// peer that is gone without a word is noticed within some ten seconds: by keep-alive, or by what it does not
// acknowledge.
//
// Threads: one at a time. Errors: ECONNRESET when the peer has closed, EPROTO with the reason when it speaks no
// handshake, ETIMEDOUT, ECANCELED when `stop` was asked for.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/dr/result.hpp"
#include "offload/mirror/own_connections.hpp"
#include "offload/mirror/tls_filter.hpp"
#include "offload/mirror/wire/handshake.hpp"

namespace ovsdr::mirror {

class MessageSocket {
public:
    /// Tries each address of the host, which share the time that is left; looking it up counts into it. `stop`: a
    /// descriptor that becomes readable when nobody wants it any more. `tls`: a client's; none: plain.
    [[nodiscard]] static Result<MessageSocket> connect(const std::string& host, const std::string& service,
                                                       std::chrono::milliseconds within, int stop,
                                                       std::unique_ptr<TlsFilter> tls = nullptr);
    /// Takes a connected socket. It is plain unless secure() follows before anything else.
    explicit MessageSocket(int descriptor) noexcept;
    /// As the server.
    [[nodiscard]] Result<void> secure(const TlsFiles& files);
    ~MessageSocket();
    MessageSocket(MessageSocket&& from) noexcept;
    MessageSocket& operator=(MessageSocket&&) = delete;

    [[nodiscard]] int fd() const noexcept { return descriptor_; }
    /// For poll().
    [[nodiscard]] short events() const noexcept;

    [[nodiscard]] Result<void> send(const Message& message);
    [[nodiscard]] Result<void> flush();
    /// The next message that is complete.
    [[nodiscard]] Result<std::optional<Message>> receive();
    /// The next message, within a time.
    [[nodiscard]] Result<Message> await(std::chrono::milliseconds within, int stop);
    /// What receive() has found wrong with the peer's bytes, to be told to it.
    [[nodiscard]] const std::optional<Malformed>& malformed() const noexcept { return malformed_; }

private:
    [[nodiscard]] Result<void> shake_hands(std::chrono::steady_clock::time_point end, int stop);
    /// Whether something has come.
    [[nodiscard]] Result<bool> read_some();

    int descriptor_;
    OwnConnections::Registered own_;   ///< of connect()
    std::unique_ptr<TlsFilter> tls_;   ///< none: plain
    MessageReader reader_;
    std::optional<Malformed> malformed_;
    std::vector<std::byte> received_;   ///< plain
    std::size_t received_begin_ = 0;
    std::vector<std::byte> to_send_;
};

}  // namespace ovsdr::mirror
