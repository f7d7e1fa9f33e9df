// Any bytes as DEVX commands: general ones, and objects that are made, queried, modified, and destroyed. A mailbox ends
// where its memory ends. An answer that says that the device refused has a status in it.
#include <cerrno>
#include <vector>

#include "tests/fuzz/check.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

using namespace ovsdr::soft;

namespace {

test::OpenDevice& open_device() {
    static auto* open = new test::OpenDevice;
    return *open;
}

struct Mailboxes {
    std::vector<std::uint8_t> in, out;
};

Mailboxes mailboxes(FuzzedDataProvider& input) {
    Mailboxes made;
    const auto opcode = input.PickValueInArray<std::uint16_t>(
        {0x100, 0x400, 0x401, 0x402, 0x500, 0x750, 0x751, 0x754, 0x755, 0x770, 0x800, 0x802, 0x900, 0x902,
         0x903, 0x904, 0x908, 0x914, 0x92f, 0x939, 0x93a, 0x93b, 0x93d, 0xa00, 0xa01, 0xa02, 0xffff});
    made.in = input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 512));
    if (input.ConsumeProbability<float>() < 0.9F && made.in.size() >= 2) {
        made.in[0] = static_cast<std::uint8_t>(opcode >> 8);
        made.in[1] = static_cast<std::uint8_t>(opcode);
    }
    made.out.resize(input.ConsumeIntegralInRange<std::size_t>(0, 4200));
    return made;
}

void check(int result, const Mailboxes& boxes) {
    FUZZ_CHECK(result >= 0);
    if (result == EREMOTEIO && !boxes.out.empty()) FUZZ_CHECK(boxes.out[0] != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    ibv_context* context = open_device().context;
    std::vector<mlx5dv_devx_obj*> objects;
    while (input.remaining_bytes() > 0) {
        const auto what = input.ConsumeIntegralInRange<unsigned>(0, 4);
        Mailboxes boxes = mailboxes(input);
        auto& [in, out] = boxes;
        const auto some_object = [&] {
            return objects.empty() ? nullptr
                                   : objects[input.ConsumeIntegralInRange<std::size_t>(0, objects.size() - 1)];
        };
        if (what == 0) {
            check(mlx5dv_devx_general_cmd(context, in.data(), in.size(), out.data(), out.size()), boxes);
        } else if (what == 1) {
            errno = 0;
            mlx5dv_devx_obj* object = mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size());
            if (object == nullptr) {
                FUZZ_CHECK(errno != 0);
            } else {
                objects.push_back(object);
            }
        } else if (mlx5dv_devx_obj* object = some_object(); object == nullptr) {
            continue;
        } else if (what == 2) {
            check(mlx5dv_devx_obj_query(object, in.data(), in.size(), out.data(), out.size()), boxes);
        } else if (what == 3) {
            check(mlx5dv_devx_obj_modify(object, in.data(), in.size(), out.data(), out.size()), boxes);
        } else if (mlx5dv_devx_obj_destroy(object) == 0) {
            std::erase(objects, object);
        }
    }
    while (!objects.empty()) {
        FUZZ_CHECK(mlx5dv_devx_obj_destroy(objects.back()) == 0);
        objects.pop_back();
    }
    return 0;
}
