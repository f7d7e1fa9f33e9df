#include "datapath/rdma/completion/event_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace ovsdr::soft {
namespace {

class EventQueueTest : public ::testing::Test {
protected:
    bool readable() {
        pollfd waiting{queue.fd(), POLLIN, 0};
        return poll(&waiting, 1, 0) == 1;
    }
    void make_non_blocking() { fcntl(queue.fd(), F_SETFL, fcntl(queue.fd(), F_GETFL) | O_NONBLOCK); }

    EventQueue<int> queue;
};

TEST_F(EventQueueTest, IsReadableWhileEventsWait) {
    EXPECT_FALSE(readable());
    queue.push(1);
    queue.push(2);
    int event = 0;
    EXPECT_TRUE(readable());
    EXPECT_EQ(queue.pop(event), 0);
    EXPECT_EQ(event, 1);
    EXPECT_TRUE(readable());
    EXPECT_EQ(queue.pop(event), 0);
    EXPECT_EQ(event, 2);
    EXPECT_FALSE(readable());
}

TEST_F(EventQueueTest, GivesEagainWhenNonBlocking) {
    make_non_blocking();
    int event = 0;
    EXPECT_EQ(queue.pop(event), EAGAIN);
}

TEST_F(EventQueueTest, WakesABlockedReader) {
    int event = 0;
    std::thread reader([&] { EXPECT_EQ(queue.pop(event), 0); });
    queue.push(7);
    reader.join();
    EXPECT_EQ(event, 7);
}

TEST_F(EventQueueTest, ARemovedEventIsNeitherReadNorReadable) {
    make_non_blocking();
    queue.push(1);
    queue.push(2);
    queue.remove_if([](int event) { return event == 1; });
    int event = 0;
    EXPECT_EQ(queue.pop(event), 0);
    EXPECT_EQ(event, 2);
    EXPECT_FALSE(readable());
    EXPECT_EQ(queue.pop(event), EAGAIN);
}

}  // namespace
}  // namespace ovsdr::soft
