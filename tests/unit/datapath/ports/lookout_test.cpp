// A worker's deputy: whoever waits for completions receives in its place, on taps in a network namespace of the test's
// own. Needs root.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <numeric>
#include <optional>

#include "datapath/steering/dr_rule.hpp"
#include "guest_socket.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// What verbs make of a completion queue with a channel, with the event loop of whoever waits for it. A request gives
/// one event, and none for what the thread has found by its own look.
class Application {
public:
    struct Frame {
        std::uint32_t number;
        std::thread::id by;  ///< who has received it
    };

    explicit Application(SoftDevice& device, int flags = O_NONBLOCK) : device_(device) {
        EXPECT_EQ(fcntl(lookout->fd(), F_SETFL, flags), 0);
    }
    ~Application() {
        lookout->end();
        close(events_);
    }
    Application(const Application&) = delete;
    Application& operator=(const Application&) = delete;

    /// Of whoever steers the frame.
    void take(std::uint32_t number) noexcept {
        {
            const std::lock_guard lock(mutex_);
            frames_.push_back({number, std::this_thread::get_id()});
        }
        if (looking_ == this || !armed_.exchange(false)) return;
        device_.woke(lookout);
        const std::uint64_t one = 1;
        EXPECT_EQ(write(events_, &one, sizeof one), 8);
    }

    /// The next frame gives an event.
    void request() {
        lookout->about_to_wait();
        armed_ = true;
    }
    /// One turn of the event loop; whether the descriptor was readable.
    bool turn(std::chrono::milliseconds patience) {
        request();
        const bool woken = seen_ == arrived() && readable(patience);
        drain();
        (void)look();
        seen_ = arrived();
        return woken;
    }
    bool look() noexcept {
        looking_ = this;
        lookout->looks();
        const bool came = device_.look_out();
        looking_ = nullptr;
        return came;
    }
    [[nodiscard]] bool readable(std::chrono::milliseconds patience) const {
        pollfd polled{.fd = lookout->fd(), .events = POLLIN, .revents = 0};
        return poll(&polled, 1, static_cast<int>(patience.count())) == 1;
    }
    /// From now on frames give no events.
    void want_no_events() {
        armed_ = false;
        drain();
    }

    [[nodiscard]] std::vector<Frame> frames() const {
        const std::lock_guard lock(mutex_);
        return frames_;
    }
    [[nodiscard]] std::vector<std::uint32_t> numbers() const {
        std::vector<std::uint32_t> numbers;
        for (const Frame& frame : frames()) numbers.push_back(frame.number);
        return numbers;
    }
    [[nodiscard]] std::size_t arrived() const {
        const std::lock_guard lock(mutex_);
        return frames_.size();
    }
    [[nodiscard]] std::size_t received_by(std::thread::id thread) const {
        const std::lock_guard lock(mutex_);
        return static_cast<std::size_t>(
            std::ranges::count_if(frames_, [&](const Frame& frame) { return frame.by == thread; }));
    }

private:
    void drain() {
        lookout->found_nothing();   // in the end
        std::uint64_t count;
        [[maybe_unused]] const ssize_t size = read(events_, &count, sizeof count);
    }

    static thread_local const Application* looking_;
    SoftDevice& device_;
    const int events_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<bool> armed_{false};
    std::size_t seen_ = 0;
    mutable std::mutex mutex_;
    std::vector<Frame> frames_;

public:
    const std::shared_ptr<Lookout> lookout = std::make_shared<Lookout>(events_);
};

thread_local const Application* Application::looking_ = nullptr;

/// A rule that takes what comes from one vport to another.
class Forwarding {
public:
    Forwarding(Steering& steering, std::uint16_t from, std::uint16_t to)
        : fdb_(steering, DomainType::fdb, nullptr), root_(fdb_, 0U), table_(fdb_, 1U) {
        EXPECT_EQ(Action::table(table_, jump_), 0);
        EXPECT_EQ(Action::vport(fdb_, to, to_), 0);
        std::array<std::uint8_t, match_param_size> source{};
        store_be16(&source[source_port_at], 0xffff);
        EXPECT_EQ(Matcher::create(root_, 0, criteria::misc, source, from_), 0);
        store_be16(&source[source_port_at], from);
        EXPECT_EQ(Rule::create(*from_, source, std::array{jump_.get()}, enter_), 0);
        EXPECT_EQ(Matcher::create(table_, 0, 0, {}, all_), 0);
        EXPECT_EQ(Rule::create(*all_, {}, std::array{to_.get()}, forward_), 0);
    }
    ~Forwarding() {
        forward_.reset();
        all_.reset();
        enter_.reset();
        from_.reset();
    }
    Forwarding(const Forwarding&) = delete;
    Forwarding& operator=(const Forwarding&) = delete;

private:
    static constexpr unsigned source_port_at = 70;
    Domain fdb_;
    Table root_, table_;
    Action::Created jump_, to_;
    std::unique_ptr<Matcher> from_, all_;
    std::unique_ptr<Rule> enter_, forward_;
};

class LookoutTest : public NicTest {
protected:
    static void SetUpTestSuite() {
        own_namespace_ = geteuid() == 0 && unshare(CLONE_NEWNET) == 0;
        if (own_namespace_) shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    }
    void SetUp() override {
        if (!own_namespace_) GTEST_SKIP() << "no network namespace of its own: not root";
        if (access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/net/tun";
    }
    void TearDown() override {
        if (nic_ != nullptr) device().steering().set_cotenant_sink({});
    }

    /// Vports 1 to `taps` on interfaces tap1 to tap`taps`; what no rule takes goes up, to an application.
    void start_taps(unsigned taps, int flags = O_NONBLOCK, const std::string& options = "\"control_socket\": \"\"") {
        std::string ports;
        for (unsigned i = 1; i <= taps; ++i) {
            const std::string number = std::to_string(i), comma = i > 1 ? "," : "";
            ports += comma + R"({"vport": )" + number + R"(, "dpdk": "net_tap,iface=tap)" + number + "\"}";
        }
        start("\"ports\": [" + ports + "]", options);
        for (unsigned i = 1; i <= taps; ++i) ASSERT_EQ(info(i).error, "");
        for (auto& application : applications_) application = std::make_unique<Application>(device(), flags);
        device().steering().set_cotenant_sink({.deliver = deliver, .self = this});
    }
    /// The highest bits of a frame's number say whose it is.
    static constexpr unsigned whose_at = 24;
    static void deliver(void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
        auto& inside = static_cast<LookoutTest*>(self)->inside_;
        EXPECT_FALSE(inside.exchange(true)) << "whoever has the turn is alone";
        for (unsigned i = 0; i < length; ++i) {
            std::uint32_t number = 0;
            std::memcpy(&number, rte_pktmbuf_mtod_offset(packets[i], char*, Guest::number_at), sizeof number);
            static_cast<LookoutTest*>(self)->applications_[number >> whose_at & 1]->take(number);
            rte_pktmbuf_free(packets[i]);
        }
        inside = false;
    }

    Application& application() { return *applications_[0]; }
    void send(Guest& guest) { guest.send(60, next_++); }

    /// Sends a frame after a pause, and goes on as the application until it is there; whether this thread itself has
    /// received it.
    bool receives_itself(Guest& guest) {
        application().request();
        std::this_thread::sleep_for(3ms);
        const std::size_t before = application().arrived();
        send(guest);
        const auto end = Clock::now() + 10s;
        do application().turn(100ms);
        while (application().arrived() == before && Clock::now() < end);
        const auto frames = application().frames();
        EXPECT_EQ(frames.size(), before + 1);
        return frames.back().by == std::this_thread::get_id();
    }
    /// Frames come one by one until this thread is the worker's deputy.
    bool becomes_deputy(Guest& guest) {
        for (unsigned frames = 0; frames < 500; ++frames) {
            if (receives_itself(guest)) return true;
        }
        return false;
    }
    /// Whether a frame that gives no event makes the descriptor readable, for as long as nobody takes it.
    bool shows_ports(Guest& guest) {
        application().want_no_events();
        std::this_thread::sleep_for(15ms);
        const std::size_t before = application().arrived();
        send(guest);
        const bool shown = application().readable(50ms);
        EXPECT_TRUE(eventually([&] { return application().arrived() == before + 1; }));
        return shown;
    }
    bool arrive(std::size_t frames) {
        return eventually([&] { return application().arrived() == frames; });
    }
    void expect_each_once_in_order() {
        std::vector<std::uint32_t> sent(next_);
        std::iota(sent.begin(), sent.end(), 0U);
        EXPECT_EQ(application().numbers(), sent);
    }
    std::uint64_t sleeps() { return nic_->workers()[0]->statistics().sleeps; }

    static bool own_namespace_;
    std::array<std::unique_ptr<Application>, 2> applications_;
    std::uint32_t next_ = 0;
    std::atomic<bool> inside_{false};
};

bool LookoutTest::own_namespace_ = false;

TEST_F(LookoutTest, WhoIsWokenOverAndOverReceivesItself) {
    start_taps(1);
    Guest guest("tap1");
    constexpr unsigned frames = 100;
    for (unsigned i = 0; i < frames; ++i) receives_itself(guest);
    const auto received = application().frames();
    for (unsigned i = 0; i < 4; ++i) EXPECT_NE(received[i].by, std::this_thread::get_id()) << "frame " << i;
    EXPECT_GT(application().received_by(std::this_thread::get_id()), frames / 2);
    expect_each_once_in_order();
}

/// Its owner would sleep in ibv_get_cq_event() although no event came.
TEST_F(LookoutTest, ADescriptorThatBlocksShowsNoPorts) {
    start_taps(1, 0);
    Guest guest("tap1");
    for (unsigned i = 0; i < 30; ++i) EXPECT_FALSE(receives_itself(guest));
    EXPECT_FALSE(shows_ports(guest));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, OfSeveralWorkersNoneHasADeputy) {
    start_taps(1, O_NONBLOCK, R"("control_socket": "", "workers": 2)");
    Guest guest("tap1");
    for (unsigned i = 0; i < 30; ++i) EXPECT_FALSE(receives_itself(guest));
    EXPECT_FALSE(shows_ports(guest));
}

TEST_F(LookoutTest, AWorkerWithServicesHasNoDeputy) {
    start_taps(1);
    Guest guest("tap1");
    ASSERT_TRUE(becomes_deputy(guest));
    int service = 0;
    device().add_service(0, {.run = [](void*, const Outlet&, std::uint64_t) noexcept { return 0U; },
                             .deadline = [](void*, std::uint64_t) noexcept { return Service::never; },
                             .self = &service});
    for (unsigned i = 0; i < 30; ++i) EXPECT_FALSE(receives_itself(guest));
    device().remove_service(0, &service);
    EXPECT_TRUE(becomes_deputy(guest));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, WhereTheDeputyStaysAwayTheWorkerReceivesAndDismissesIt) {
    start_taps(1);
    Guest guest("tap1");
    ASSERT_TRUE(becomes_deputy(guest));
    std::vector<Clock::duration> times;
    for (unsigned i = 0; i < 9; ++i) {
        std::this_thread::sleep_for(20ms);
        const auto begin = Clock::now();
        send(guest);
        ASSERT_TRUE(arrive(next_));
        times.push_back(Clock::now() - begin);
        EXPECT_NE(application().frames().back().by, std::this_thread::get_id());
    }
    // The first three waited behind the deputy, for a nap of the worker's.
    EXPECT_LT(*std::min_element(times.begin(), times.begin() + 3), 50ms);
    EXPECT_LT(*std::ranges::max_element(times), 1s);
    EXPECT_FALSE(shows_ports(guest));
    EXPECT_TRUE(becomes_deputy(guest)) << "it is here again";
    expect_each_once_in_order();
}

/// It sleeps on its channel, and what it is woken for is another thread's, for example. To wait behind its back costs
/// milliseconds each time.
TEST_F(LookoutTest, WhoNeverLooksIsNotAppointedAgainAndAgain) {
    start_taps(1);
    Guest guest("tap1");
    constexpr unsigned frames = 200;
    unsigned waited = 0;
    (void)application().turn(0ms);   // it has been seen to
    (void)application().turn(0ms);
    for (unsigned i = 0; i < frames; ++i) {
        application().request();
        std::this_thread::sleep_for(3ms);
        send(guest);
        EXPECT_TRUE(application().readable(5s));
        waited += application().arrived() != next_;
        EXPECT_TRUE(arrive(next_));
        application().want_no_events();
    }
    EXPECT_LT(waited, frames / 5) << "of " << frames << " frames the descriptor was readable before they had come";
    expect_each_once_in_order();
}

TEST_F(LookoutTest, WhileNothingComesTheProcessSleepsAndAfterTwoSecondsTheWorkerIsOnItsOwn) {
    start_taps(1);
    Guest guest("tap1");
    ASSERT_TRUE(becomes_deputy(guest));
    EXPECT_TRUE(eventually([&] { return !application().look() && Lookout::in_vain_until != 0; }));
    std::this_thread::sleep_for(50ms);
    const std::uint64_t before = sleeps();
    const auto begin = Clock::now();
    const double cpu = cpu_seconds();
    EXPECT_FALSE(application().readable(1500ms));
    EXPECT_LT(cpu_seconds() - cpu, 0.3) << "of 1.5 s; somebody does not sleep";
    EXPECT_EQ(sleeps(), before) << "it is behind its deputy still";
    EXPECT_TRUE(eventually([&] { return sleeps() != before; }, 20s));
    EXPECT_GT(Clock::now() - begin, 1800ms);
    EXPECT_FALSE(shows_ports(guest));
    expect_the_worker_to_sleep();
    EXPECT_TRUE(becomes_deputy(guest));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, WhenTheChannelGoesTheWorkerReceives) {
    start_taps(1);
    Guest guest("tap1");
    ASSERT_TRUE(becomes_deputy(guest));
    application().want_no_events();
    application().lookout->end();
    for (unsigned i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(3ms);
        send(guest);
        EXPECT_TRUE(arrive(next_));
    }
    expect_each_once_in_order();
}

TEST_F(LookoutTest, WhenItsVportGoesTheOthersFramesArrive) {
    start_taps(2);
    std::optional<Guest> gone("tap1");
    ASSERT_TRUE(becomes_deputy(*gone));
    gone.reset();
    ASSERT_EQ(device().remove_vport(VportId{1}), 0);
    application().want_no_events();
    EXPECT_FALSE(application().readable(20ms));
    EXPECT_FALSE(application().look());
    Guest guest("tap2");
    EXPECT_FALSE(shows_ports(guest));
    EXPECT_TRUE(becomes_deputy(guest));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, TheFramesOfAVportThatComesArriveAndShow) {
    start_taps(1);
    Guest first("tap1");
    ASSERT_TRUE(becomes_deputy(first));
    std::string error;
    ASSERT_EQ(device().add_vport({.vport = VportId{2}, .dpdk = "net_tap,iface=tap2"}, true, error), 0) << error;
    EXPECT_FALSE(shows_ports(first)) << "the worker has to look at both first";
    Guest second("tap2");
    ASSERT_TRUE(becomes_deputy(second));
    unsigned mine = 0;
    for (unsigned i = 0; i < 40; ++i) mine += receives_itself(i % 2 == 0 ? first : second);
    EXPECT_GT(mine, 20U);
    expect_each_once_in_order();
}

TEST_F(LookoutTest, AnotherThreadsLookFindsNothing) {
    start_taps(1);
    Guest guest("tap1");
    ASSERT_TRUE(becomes_deputy(guest));
    std::atomic<bool> stop{false}, found{false};
    std::thread other([&] {
        while (!stop) {
            if (application().look()) found = true;
            std::this_thread::sleep_for(20us);
        }
    });
    const std::thread::id id = other.get_id();
    for (unsigned i = 0; i < 50; ++i) {
        std::this_thread::sleep_for(2ms);
        send(guest);
        std::this_thread::sleep_for(1ms);
        while (application().arrived() != next_) application().turn(100ms);
    }
    stop = true;
    other.join();
    EXPECT_FALSE(found);
    EXPECT_EQ(application().received_by(id), 0U);
    expect_each_once_in_order();
}

/// It has said that it sleeps, and looks once more.
TEST_F(LookoutTest, WhileTheWorkerHasTheTurnItsDeputyReceivesNothing) {
    start_taps(1);
    Guest guest("tap1");
    struct Source {
        std::atomic<unsigned> polls_to_go{0};
        std::promise<void> held, let_go;
    } source;
    constexpr std::uint32_t sqn = 99;
    device().add_send_source({.poll = [](void* self, rte_mbuf**, unsigned) noexcept {
                                  auto& from = *static_cast<Source*>(self);
                                  if (from.polls_to_go == 0 || --from.polls_to_go != 0) return 0U;
                                  from.held.set_value();
                                  from.let_go.get_future().wait();
                                  return 0U;
                              },
                              .self = &source,
                              .sqn = sqn});
    EXPECT_TRUE(becomes_deputy(guest));
    application().want_no_events();
    std::this_thread::sleep_for(15ms);
    source.polls_to_go = 2;  // once when it has woken, once before it sleeps again
    device().ring_worker(0);
    source.held.get_future().wait();
    const std::size_t before = application().arrived();
    send(guest);
    EXPECT_TRUE(application().readable(1s));
    EXPECT_FALSE(application().look());
    EXPECT_EQ(application().arrived(), before);
    source.let_go.set_value();
    EXPECT_TRUE(arrive(next_));
    device().remove_send_source(sqn);
    expect_each_once_in_order();
}

TEST_F(LookoutTest, WhoOnlyForwardsForOthersIsDismissed) {
    start_taps(3);
    const Forwarding rule(device().steering(), 2, 3);
    Guest up("tap1"), from("tap2"), to("tap3");
    ASSERT_TRUE(becomes_deputy(up));
    constexpr unsigned frames = 60;
    unsigned shown = 0;
    for (unsigned i = 0; i < frames; ++i) {
        std::this_thread::sleep_for(1ms);
        from.send(60);
        shown += application().turn(10ms);
        EXPECT_EQ(to.receive(), 60U) << "frame " << i;
    }
    EXPECT_GT(shown, 0U) << "at first it is the deputy";
    EXPECT_LT(shown, 30U);
    from.send(60);
    EXPECT_FALSE(application().readable(50ms));
    EXPECT_EQ(to.receive(), 60U);
    EXPECT_TRUE(becomes_deputy(up));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, MoreThanABatchIsTheWorkers) {
    start_taps(1);
    Guest guest("tap1");
    constexpr unsigned burst = 100;
    bool had_a_batch = false;
    // The worker's own look at the ports may come first.
    for (unsigned tries = 0; tries < 20 && !had_a_batch; ++tries) {
        ASSERT_TRUE(becomes_deputy(guest));
        application().want_no_events();
        std::this_thread::sleep_for(15ms);
        const std::size_t mine = application().received_by(std::this_thread::get_id());
        for (unsigned i = 0; i < burst; ++i) send(guest);
        application().look();
        EXPECT_TRUE(arrive(next_));
        had_a_batch = application().received_by(std::this_thread::get_id()) == mine + poll_length;
    }
    EXPECT_TRUE(had_a_batch);
    EXPECT_FALSE(shows_ports(guest));
    expect_each_once_in_order();
}

TEST_F(LookoutTest, TwoThreadsAndTheWorkerUnderLoadGiveEachFrameOnce) {
    constexpr unsigned rounds = 400, most_in_a_burst = 90;
    start_taps(2);
    std::atomic<bool> stop{false};
    std::vector<std::thread> waiting;
    for (unsigned whose = 0; whose < 2; ++whose) {
        waiting.emplace_back([&, whose] {
            while (!stop) applications_[whose]->turn(5ms);
        });
    }
    // The worker wakes in the middle of its deputy's turns.
    waiting.emplace_back([&] {
        for (; !stop; std::this_thread::sleep_for(30us)) device().ring_worker(0);
    });
    // By turns one of them gets frame after frame, which makes it the deputy, and both get bursts.
    Guest first("tap1"), second("tap2");
    std::array<std::vector<std::uint32_t>, 2> sent;
    for (unsigned round = 0; round < rounds; ++round) {
        const bool alone = round % 50 < 40;
        const unsigned length = alone ? 1 : 1 + round * 37 % most_in_a_burst;
        for (unsigned i = 0; i < length; ++i) {
            const unsigned whose = alone ? round / 50 % 2 : i % 2;
            sent[whose].push_back(whose << whose_at | static_cast<std::uint32_t>(sent[whose].size()));
            (whose == 0 ? first : second).send(60, sent[whose].back());
        }
        std::this_thread::sleep_for(std::chrono::microseconds(round * 211 % 3000));
        ASSERT_TRUE(eventually([&] {
            return applications_[0]->arrived() >= sent[0].size() && applications_[1]->arrived() >= sent[1].size();
        }));
    }
    stop = true;
    for (std::thread& thread : waiting) thread.join();
    for (unsigned whose = 0; whose < 2; ++whose) EXPECT_EQ(applications_[whose]->numbers(), sent[whose]);
}

}  // namespace
}  // namespace ovsdr::soft
