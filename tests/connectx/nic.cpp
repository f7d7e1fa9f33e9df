#include "tests/connectx/nic.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "tests/connectx/open_file.hpp"

namespace ovsdr::connectx {

int Nic::add_event_file() {
    auto events = std::make_shared<EventFile>();
    const int fd = events->fd();
    if (on_event_file != nullptr && !on_event_file(fd)) {
        close(fd);
        throw Refused{EMFILE, "too many files"};
    }
    event_files[fd] = std::move(events);
    return fd;
}

void Nic::set_vport(std::uint16_t number, bool present) {
    firmware.vports().set_present(number, present);
    std::erase_if(vport_watchers, [](const auto& watcher) { return watcher.first.expired(); });
    for (const auto& [watcher, cookie] : vport_watchers) {
        const auto events = watcher.lock();
        // One that nobody has read yet stands for all, as in the kernel's files without data.
        (void)events->take_back(cookie);
        events->send(cookie);
    }
    note_lost_events();
}

void Nic::note_lost_events() {
    std::uint64_t lost = 0;
    for (const auto& [fd, events] : event_files) lost += events->lost();
    if (lost > events_lost) log.not_emulated("event file", "more unread events than it holds: some are lost");
    events_lost = lost;
}

void Nic::ring_queue_pair(std::uint32_t number) {
    for (const ObjectKind kind : {ObjectKind::queue_pair, ObjectKind::send_queue}) {
        FirmwareObject* const object = firmware.find({kind, number});
        if (object == nullptr || !object->send_queue) continue;
        object->send_queue->run(*object->completions, *this, figures);
        return note_lost_events();
    }
    for (auto& [fd, file] : files) {
        bool found = false;
        file->objects.for_each<QueuePair>([&](std::uint32_t, QueuePair& queue_pair) {
            if (queue_pair.number != number) return;
            queue_pair.send_queue->run(*queue_pair.completions, *this, figures);
            found = true;
        });
        if (found) return note_lost_events();
    }
    log.not_emulated("doorbell", fmt::format("queue pair {:#x} is not there", number));
}

void Nic::ring_completion_queue(std::uint32_t number, std::uint32_t consumer, bool errors_only) {
    const auto found = host.completion_queues.find(number);
    if (found == host.completion_queues.end()) {
        return log.not_emulated("doorbell", fmt::format("completion queue {:#x} is not there", number));
    }
    found->second->arm(consumer, errors_only);
    note_lost_events();
}

std::uint8_t* Nic::argument(std::uint32_t id) {
    FirmwareObject* object = firmware.find({ObjectKind::modify_argument, id});
    return object == nullptr ? nullptr : object->images[id - object->name.id].data();
}

bool Nic::must_fail(std::string_view opcode) {
    log.called(opcode);
    return faults.due(opcode, false).has_value();
}

}   // namespace ovsdr::connectx
