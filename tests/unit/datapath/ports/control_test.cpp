// The control socket and the end of the process.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ControlTest : public NicTest {
protected:
    ControlTest() {
        char name[] = "/tmp/ovsdr-control-XXXXXX";
        folder_ = mkdtemp(name);
    }
    ~ControlTest() override {
        nic_.reset();
        std::filesystem::remove_all(folder_);
    }

    [[nodiscard]] std::string socket_path() const { return folder_ + "/softnic.sock"; }
    [[nodiscard]] std::string options() const { return R"("control_socket": ")" + socket_path() + '"'; }
    [[nodiscard]] bool socket_exists() const {
        struct stat status {};
        return lstat(socket_path().c_str(), &status) == 0;
    }

    [[nodiscard]] sockaddr_un address() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        socket_path().copy(address.sun_path, sizeof address.sun_path - 1);
        return address;
    }

    json ask(const std::string& request) {
        const int client = socket(AF_UNIX, SOCK_STREAM, 0);
        const sockaddr_un to = address();
        EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
        const std::string line = request + '\n';
        EXPECT_EQ(send(client, line.data(), line.size(), MSG_NOSIGNAL), static_cast<ssize_t>(line.size()));
        std::string answer;
        char byte;
        while (recv(client, &byte, 1, 0) == 1 && byte != '\n') answer += byte;
        close(client);
        return json::parse(answer, nullptr, false);
    }

    std::string refusal(const std::string& request) {
        const json answer = ask(request);
        EXPECT_EQ(answer["ok"], false) << request;
        return answer.value("error", "");
    }

    std::string folder_;
};

TEST_F(ControlTest, ListsAddsSetsAndDeletes) {
    start("", options());
    EXPECT_EQ(ask(R"({"command": "add", "port": {"vport": 3, "dpdk": "net_ring", "mtu": 1400}})")["ok"], true);
    json vport = ask(R"({"command": "list"})")["devices"][0]["vports"][1];
    EXPECT_EQ(vport["vport"], 3);
    EXPECT_EQ(vport["mtu"], 1400);
    EXPECT_EQ(ask(R"({"command": "set", "vport": 3, "mtu": 1300, "link": "down", "mac": "02:00:00:00:00:07"})")["ok"],
              true);
    vport = ask(R"({"command": "list"})")["devices"][0]["vports"][1];
    EXPECT_EQ(vport["mtu"], 1300);
    EXPECT_EQ(vport["admin"], "down");
    EXPECT_EQ(vport["mac"], "02:00:00:00:00:07");
    EXPECT_EQ(ask(R"({"command": "stats"})")["devices"][0]["vports"].size(), 2U);
    EXPECT_EQ(ask(R"({"command": "del", "vport": 3, "device": "mlx5_0"})")["ok"], true);
    EXPECT_EQ(ask(R"({"command": "list"})")["devices"][0]["vports"].size(), 1U);
    EXPECT_EQ(ask(R"({"command": "fault", "call": "ibv_dealloc_pd", "errno": "EBUSY", "nth": 2})")["ok"], true);
}

TEST_F(ControlTest, ShowsAndChangesLimits) {
    start(R"("limits": {"rules": 9})", options());
    const auto of = [](const json& answer, const char* name) { return answer["devices"][0]["limits"][name]; };
    json limits = ask(R"({"command": "limits"})");
    EXPECT_EQ(of(limits, "rules"), (json{{"taken", 0}, {"most", 9}}));
    EXPECT_EQ(of(limits, "flow_counters"), (json{{"taken", 0}, {"most", nullptr}}));
    limits = ask(R"({"command": "limits", "set": {"tables": 3, "rules": null}})");
    EXPECT_EQ(of(limits, "rules")["most"], nullptr);
    EXPECT_EQ(of(limits, "tables")["most"], 3);
    EXPECT_EQ(room_of(device().steering()).most(Resource::tables), 3U);
    EXPECT_THAT(refusal(R"({"command": "limits", "set": {"table": 3}})"), HasSubstr("set.table: no such option"));
    EXPECT_THAT(refusal(R"({"command": "limits", "set": 3})"), HasSubstr("set: 3"));
}

TEST_F(ControlTest, ShowsBothPortsOfALag) {
    start(R"("ports": [{"vport": 65535, "dpdk": ["net_ring", "net_null,no-rx=1"]}, {"vport": 1, "dpdk": "net_ring"}])",
          options());
    const json vports = ask(R"({"command": "list"})")["devices"][0]["vports"];
    EXPECT_FALSE(vports[1].contains("lag"));
    EXPECT_EQ(vports[2]["dpdk"], json::array({"net_ring", "net_null,no-rx=1"}));
    EXPECT_EQ(vports[2]["lag"], (json::array({{{"port", 1}, {"link", "up"}}, {{"port", 2}, {"link", "up"}}})));
    TestQueue queue(device(), 77, uplink_vport);
    device().steering().set_lag_port(77, 2);
    queue.send(60);
    ASSERT_TRUE(eventually([&] { return counters(65535).received_packets == 1; }));
    const json stats = ask(R"({"command": "stats"})")["devices"][0]["vports"];
    EXPECT_FALSE(stats[1].contains("lag"));
    EXPECT_EQ(stats[2]["received_packets"], 1);
    ASSERT_EQ(stats[2]["lag"].size(), 2U);
    EXPECT_EQ(stats[2]["lag"][0]["port"], 1);
    EXPECT_EQ(stats[2]["lag"][0]["received_packets"], 0);
    EXPECT_EQ(stats[2]["lag"][1]["received_packets"], 1);
    EXPECT_EQ(stats[2]["lag"][1].at("overruns"), 0);
    device().steering().set_lag_port(77, 0);
    EXPECT_EQ(ask(R"({"command": "del", "vport": 65535})")["ok"], true);
    EXPECT_THAT(refusal(R"({"command": "add", "port": {"vport": 2, "dpdk": ["net_ring", "net_ring"]}})"),
                HasSubstr("one port's"));
    EXPECT_EQ(ask(R"({"command": "add", "port": {"vport": 65535, "dpdk": ["net_ring", "net_ring"]}})")["ok"], true);
    EXPECT_EQ(ask(R"({"command": "list"})")["devices"][0]["vports"][2]["lag"].size(), 2U);
}

TEST_F(ControlTest, NamesOptionValueAndRemedy) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])", options());
    EXPECT_THAT(refusal("nonsense"), HasSubstr("not JSON"));
    EXPECT_THAT(refusal("[]"), HasSubstr("JSON object"));
    EXPECT_THAT(refusal("{}"), HasSubstr("command: missing"));
    EXPECT_THAT(refusal(R"({"command": "lsit"})"), HasSubstr("\"lsit\" is not list, stats"));
    EXPECT_THAT(refusal(R"({"command": "list", "x": 1})"), HasSubstr("x: no such option"));
    EXPECT_THAT(refusal(R"({"command": "del", "vport": 9})"), HasSubstr("9 is no vport of mlx5_0; there are 0, 1"));
    EXPECT_THAT(refusal(R"({"command": "del", "vport": 0})"), HasSubstr("manager"));
    EXPECT_THAT(refusal(R"({"command": "del", "vport": 1, "device": "a"})"), HasSubstr("there are mlx5_0"));
    EXPECT_THAT(refusal(R"({"command": "set", "vport": 1})"), HasSubstr("nothing to set"));
    EXPECT_THAT(refusal(R"({"command": "set", "vport": 1, "link": "on"})"), HasSubstr("\"on\" is not \"up\""));
    EXPECT_THAT(refusal(R"({"command": "set", "vport": 1, "mtu": 1})"), HasSubstr("68 to 9978"));
    EXPECT_THAT(refusal(R"({"command": "set", "vport": 1, "mac": 7})"), HasSubstr("mac"));
    EXPECT_THAT(refusal(R"({"command": "set", "vport": 1, "mac": "03:00:00:00:00:01"})"), HasSubstr("mac: \"03:"));
    EXPECT_THAT(refusal(R"({"command": "add", "port": {"vport": 1, "dpdk": "net_ring"}})"), HasSubstr("already"));
    EXPECT_THAT(refusal(R"({"command": "add", "port": {"vport": 2, "dpdk": "net_tap"}})"), HasSubstr("net_tap"));
    EXPECT_THAT(refusal(R"({"command": "fault", "call": "ibv_alloc_pd", "errno": "EFOO"})"),
                HasSubstr("\"EFOO\" is no errno"));
    EXPECT_THAT(refusal(R"({"command": "fault", "call": "ibv_alloc_pd", "errno": 5, "nth": 0})"), HasSubstr("nth: 0"));
}

/// A NIC whose configuration is a file.
class SavedConfigTest : public ControlTest {
protected:
    SavedConfigTest() {
        write(std::string(R"({"memory_mb": 128, )") + options() + R"(, "devices": [
            {"name": "mlx5_0", "profile": "connectx-7", "ports": [{"vport": 1, "dpdk": "net_ring", "name": "one"},
                                                                  {"vport": 2, "dpdk": "net_ring"}]}]})");
        setenv("OVSDR_SOFTNIC", path().c_str(), 1);
        start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}, {"vport": 2, "dpdk": "net_ring"}])", options());
    }
    ~SavedConfigTest() override { unsetenv("OVSDR_SOFTNIC"); }

    [[nodiscard]] std::string path() const { return folder_ + "/softnic.json"; }
    void write(const std::string& text) const { std::ofstream(path()) << text; }
    [[nodiscard]] std::string text() const {
        std::ifstream file(path());
        return {std::istreambuf_iterator<char>(file), {}};
    }
};

TEST_F(SavedConfigTest, HoldsWhatWasAddedAndRemovedAndAllElseThatWasThere) {
    chmod(path().c_str(), 0640);
    ASSERT_EQ(ask(R"({"command": "del", "vport": 2})")["ok"], true);
    ASSERT_EQ(
        ask(R"({"command": "add", "port": {"vport": 3, "dpdk": "net_ring", "mtu": 1400, "name": "three"}})")["ok"],
        true);
    EXPECT_EQ(json::parse(text())["devices"][0]["ports"].size(), 2U) << "nothing is written before a save";
    EXPECT_EQ(ask(R"({"command": "save"})")["saved"], path());
    EXPECT_EQ(text(), std::string("{\n  \"memory_mb\": 128,\n  ") + options() + R"(,
  "devices": [
    {
      "name": "mlx5_0",
      "profile": "connectx-7",
      "ports": [
        {"vport": 1, "dpdk": "net_ring", "name": "one"},
        {"vport": 3, "name": "three", "dpdk": "net_ring", "mtu": 1400}
      ]
    }
  ]
}
)");
    struct stat status {};
    ASSERT_EQ(stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640U);
    EXPECT_EQ(read_config(path()).devices[0].ports.size(), 2U) << "it can be read back";
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "the file and the socket";
}

TEST_F(SavedConfigTest, FollowsALinkAndReplacesAPortThatCameBack) {
    std::filesystem::rename(path(), folder_ + "/real.json");
    std::filesystem::create_symlink("real.json", path());
    ASSERT_EQ(ask(R"({"command": "del", "vport": 1, "save": true})")["saved"], path());
    ASSERT_EQ(ask(R"({"command": "add", "port": {"vport": 1, "dpdk": "net_null"}, "save": true})")["saved"], path());
    ASSERT_EQ(ask(R"({"command": "del", "vport": 2})")["ok"], true);
    ASSERT_EQ(ask(R"({"command": "add", "port": {"vport": 2, "dpdk": "net_null"}, "save": true})")["saved"], path());
    EXPECT_TRUE(std::filesystem::is_symlink(path()));
    const json ports = json::parse(text())["devices"][0]["ports"];
    EXPECT_EQ(ports, (json::array({{{"vport", 2}, {"dpdk", "net_null"}}, {{"vport", 1}, {"dpdk", "net_null"}}})));
}

TEST_F(SavedConfigTest, IsLeftAloneWhenItCannotBeRight) {
    write("{ ");
    EXPECT_THAT(refusal(R"({"command": "add", "port": {"vport": 3, "dpdk": "net_ring"}, "save": true})"),
                HasSubstr("vport 3 is added, but not saved: " + path() + ": not JSON"));
    EXPECT_EQ(text(), "{ ");
    const std::string good = R"({"devices": [{"name": "mlx5_0", "ports": [{"vport": 2, "dpdk": "net_ring"}],
                                 "cotenant": {"vports": [2]}}]})";
    write(good);
    EXPECT_THAT(refusal(R"({"command": "del", "vport": 2, "save": true})"),
                HasSubstr("vport 2 is removed, but not saved: " + path() + ": devices[0].cotenant.vports"));
    EXPECT_EQ(text(), good);
    EXPECT_THAT(refusal(R"({"command": "save", "vport": 2})"), HasSubstr("vport: no such option"));
    EXPECT_THAT(refusal(R"({"command": "del", "vport": 1, "save": 1})"), HasSubstr("save: 1 is not true or false"));
    std::filesystem::remove(path());
    EXPECT_THAT(refusal(R"({"command": "save"})"), HasSubstr(path() + ": No such file"));
    std::filesystem::create_directory(path());
    EXPECT_THAT(refusal(R"({"command": "save"})"), HasSubstr(path() + ": cannot be read"));
}

TEST_F(ControlTest, RefusesFaultsThatWouldNeverHappen) {
    start("", options());
    for (const char* call : {"ibv_wc_status_str", "ibv_get_device_name", "ibv_alloc_dp", ""}) {
        EXPECT_THAT(refusal(std::string(R"({"command": "fault", "errno": "ENOMEM", "call": ")") + call + "\"}"),
                    HasSubstr("no call that can be made to fail"));
    }
    const json calls = ask(R"({"command": "faults"})")["calls"];
    for (const char* call : {"ibv_poll_cq", "mlx5dv_dr_rule_create", "mlx5dv_devx_general_cmd"}) {
        EXPECT_NE(std::find(calls.begin(), calls.end(), call), calls.end()) << call;
    }
}

TEST_F(ControlTest, ShowsAndForgetsFaultsThatAreArmed) {
    start("", options());
    ask(R"({"command": "faults", "disarm": true})");
    ask(R"({"command": "fault", "call": "ibv_dereg_mr", "errno": "EBUSY", "nth": 3})");
    EXPECT_EQ(ask(R"({"command": "faults"})")["armed"],
              json::array({{{"call", "ibv_dereg_mr"}, {"errno", EBUSY}, {"nth", 3}}}));
    EXPECT_EQ(ask(R"({"command": "faults", "disarm": true})")["armed"], json::array());
    EXPECT_THAT(refusal(R"({"command": "faults", "disarm": 1})"), HasSubstr("not true or false"));
}

TEST_F(ControlTest, RefusesALineWithoutEnd) {
    start("", options());
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un to = address();
    ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const std::string flood(1 << 20, 'x');
    ssize_t sent = 0;
    for (ssize_t size = 0; sent < (8 << 20) && (size = send(client, flood.data(), flood.size(), MSG_NOSIGNAL)) > 0;)
        sent += size;
    EXPECT_LT(sent, 8 << 20) << "the connection is ended";
    close(client);
    EXPECT_EQ(ask(R"({"command": "list"})")["ok"], true);
}

TEST_F(ControlTest, TakesAStaleSocketOver) {
    const int left = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un to = address();
    ASSERT_EQ(bind(left, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    close(left);  // as kill -9 leaves it: the file is there, and nobody listens
    start("", options());
    EXPECT_EQ(ask(R"({"command": "list"})")["ok"], true);
}

TEST_F(ControlTest, DoesNotReplaceAFile) {
    std::ofstream(socket_path()) << "precious";
    testing::internal::CaptureStderr();
    start("", options());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is no socket"));
    nic_.reset();
    EXPECT_TRUE(std::filesystem::is_regular_file(socket_path()));
}

TEST_F(ControlTest, RemovesItsSocket) {
    start("", options());
    EXPECT_TRUE(socket_exists());
    nic_.reset();
    EXPECT_FALSE(socket_exists());
}

// A process of its own, as the daemon is: Nic::start() by environment, then `end`. Returns how it ended.
int run_process(const std::string& folder, const char* end) {
    const pid_t child = fork();
    if (child == 0) {
        setenv("OVSDR_SOFTNIC", (folder + "/softnic.json").c_str(), 1);
        setenv("OVSDR_TEST_END", end, 1);
        execl("/proc/self/exe", "ports_control_test", nullptr);
        _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

TEST_F(ControlTest, EndsCleanlyByExit) {
    std::ofstream(folder_ + "/softnic.json")
        << "{" << options() << R"(, "memory_mb": 128, "devices": [{"name": "mlx5_0",
        "ports": [{"vport": 1, "dpdk": "net_ring"}], "cotenant": {"vports": [1], "period_ms": 10}}]})";
    const int status = run_process(folder_, "exit");
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_FALSE(socket_exists());
}

TEST_F(ControlTest, LeavesAnotherProcessItsSocket) {
    start("", options());
    std::ofstream(folder_ + "/softnic.json")
        << "{" << options() << R"(, "memory_mb": 128, "devices": [{"name": "second"}]})";
    testing::internal::CaptureStderr();
    const int status = run_process(folder_, "exit");
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("another port or process listens there"));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it goes on without: " << status;
    EXPECT_TRUE(socket_exists());
    EXPECT_EQ(ask(R"({"command": "list"})")["devices"][0]["name"], "mlx5_0");
}

TEST_F(ControlTest, AForkedChildDoesNotStopTheParentsNic) {
    std::ofstream(folder_ + "/softnic.json")
        << "{" << options() << R"(, "memory_mb": 128, "devices": [{"name": "mlx5_0"}]})";
    const int status = run_process(folder_, "fork");
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ControlTest, SaysWhyItDoesNotStartAndTriesAgain) {
    std::ofstream(folder_ + "/softnic.json") << R"({"devices": 1})";
    const int status = run_process(folder_, "retry");
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

bool forked_child = false;

// What the process of run_process() does.
int act(const std::string& end) {
    Nic* nic = nullptr;
    const std::string file = std::getenv("OVSDR_SOFTNIC");
    if (end == "retry") {
        if (Nic::start(nic) != EINVAL || Nic::start(nic) != EINVAL) return 1;
        std::ofstream(file) << R"({"control_socket": "", "memory_mb": 128, "devices": [{"name": "mlx5_0"}]})";
        return Nic::start(nic) == 0 ? 0 : 2;
    }
    if (Nic::start(nic) != 0) return 3;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (sigismember(&mask, SIGTERM) != 0) return 4;  // the application's own mask is as it was
    const std::string socket = std::filesystem::path(file).parent_path() / "softnic.sock";
    if (!std::filesystem::exists(socket)) return 5;
    if (end == "fork") {
        const pid_t child = fork();
        if (child == 0) {
            forked_child = true;
            std::exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 6;
        if (!std::filesystem::exists(socket)) return 7;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return 0;
}

}  // namespace
}  // namespace ovsdr::soft

/// LeakSanitizer asks before it looks: a forked child has lost its parent's threads, and with them what their stacks
/// held.
extern "C" int __lsan_is_turned_off() { return ovsdr::soft::forked_child ? 1 : 0; }

int main(int argc, char** argv) {
    if (const char* end = std::getenv("OVSDR_TEST_END")) std::exit(ovsdr::soft::act(end));
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
