#include "datapath/ports/pci_function.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "datapath/ports/drivers.hpp"

namespace ovsdr::soft {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* address = "0000:03:00.0";

// A sysfs of one device, an Intel 82599 as the kernel's driver has it, which tests change.
class PciFunctionTest : public testing::Test {
protected:
    PciFunctionTest() {
        char folder[] = "/tmp/ovsdr-sysfs-XXXXXX";
        root_ = mkdtemp(folder);
        write("vendor", "0x8086\n");
        write("device", "0x10fb\n");
        write("class", "0x020000\n");
        bind("ixgbe");
        fs::create_directories(root_ / "groups/7");
        fs::create_directory_symlink(root_ / "groups/7", device() / "iommu_group");
    }
    ~PciFunctionTest() override { fs::remove_all(root_); }

    fs::path device() const { return root_ / "bus/pci/devices" / address; }
    void write(const fs::path& name, std::string_view text) const { write_file(device() / name, text); }
    static void write_file(const fs::path& file, std::string_view text) {
        fs::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
    }
    void bind(const std::string& driver) const {
        fs::remove(device() / "driver");
        if (driver.empty()) return;
        fs::create_directories(root_ / "bus/pci/drivers" / driver);
        fs::create_directory_symlink(root_ / "bus/pci/drivers" / driver, device() / "driver");
    }
    PciFunction read() const {
        const auto function = read_pci_function(address, root_);
        EXPECT_TRUE(function);
        return function.value_or(PciFunction{});
    }
    std::string problem(bool physical = false) const { return pci_problem(read(), physical); }

    fs::path root_;
};

TEST(PciAddress, IsAWholeAddressInLowerCase) {
    for (const char* good : {"0000:03:00.0", "0000:ff:1f.7", "10000:01:00.0", "ffffffff:0a:19.3"}) {
        EXPECT_TRUE(is_pci_address(good)) << good;
    }
    for (const char* bad : {"", "03:00.0", "0000:03:00", "0000:03:00.", "0000:03:00.8", "0000:03:20.0", "000:03:00.0",
                            "0000:3:00.0", "0000:03:0.0", "0000:0A:00.0", "0000:03:00.0 ", "0000:03:00.00",
                            "123456789:03:00.0", "0000-03-00.0", "pci:0000:03:00.0", "0000:03:00,0"}) {
        EXPECT_FALSE(is_pci_address(bad)) << bad;
    }
}

TEST(PciAddress, IsADriverOfItsOwn) {
    const Driver* driver = driver_of("0000:03:00.0,queues=4");
    ASSERT_NE(driver, nullptr);
    EXPECT_EQ(driver->kind, PortKind::pci);
    EXPECT_EQ(driver->backing, Backing::device);
    EXPECT_EQ(driver_of("03:00.0"), nullptr);
}

TEST(PciAddress, ArgumentsAreChecked) {
    EXPECT_EQ(dpdk_arguments_problem("0000:03:00.0"), "");
    EXPECT_EQ(dpdk_arguments_problem("0000:03:00.0,queues=16"), "");
    EXPECT_THAT(dpdk_arguments_problem("03:00.0"), HasSubstr("\"03:00.0\" is not the whole address of a PCI device"));
    EXPECT_THAT(dpdk_arguments_problem("0000:03:00.8,queues=2"), HasSubstr("0000:03:00.0"));
    EXPECT_THAT(dpdk_arguments_problem("0000:03:00.0,queues=0"), HasSubstr("queues=0: it must be a whole number"));
    EXPECT_THAT(dpdk_arguments_problem("0000:03:00.0,queues=17"), HasSubstr("from 1 to 16"));
    EXPECT_THAT(dpdk_arguments_problem("0000:03:00.0,queues=2,queues=2"), HasSubstr("there twice"));
    EXPECT_THAT(dpdk_arguments_problem("0000:03:00.0,representor=[0]"), HasSubstr("no option \"representor\""));
    EXPECT_THAT(dpdk_arguments_problem("net_e1000"), HasSubstr("the addresses of PCI devices"));
}

TEST_F(PciFunctionTest, IsReadFromSysfs) {
    write("net/eth7/mtu", "1500\n");
    const PciFunction function = read();
    EXPECT_EQ(function.address, address);
    EXPECT_EQ(function.vendor, 0x8086);
    EXPECT_EQ(function.device, 0x10fb);
    EXPECT_EQ(function.kernel_driver, "ixgbe");
    EXPECT_EQ(function.interface, "eth7");
    EXPECT_TRUE(function.has_iommu);
    EXPECT_TRUE(function.has_network);
    EXPECT_FALSE(function.has_msix);
}

TEST_F(PciFunctionTest, IsNotReadWhereThereIsNone) {
    EXPECT_FALSE(read_pci_function("0000:04:00.0", root_));
    EXPECT_FALSE(read_pci_function("../devices/0000:03:00.0", root_)) << "only an address names a device";
}

TEST_F(PciFunctionTest, StateChangesWithTheDriver) {
    const unsigned kernels = pci_state(address, root_);
    EXPECT_NE(kernels, 0U);
    EXPECT_EQ(pci_state(address, root_), kernels);
    bind("vfio-pci");
    const unsigned lent = pci_state(address, root_);
    EXPECT_NE(lent, kernels);
    bind("");
    EXPECT_NE(pci_state(address, root_), lent);
    EXPECT_NE(pci_state(address, root_), 0U);
    EXPECT_EQ(pci_state("0000:04:00.0", root_), 0U);
}

TEST_F(PciFunctionTest, MsixIsAmongTheCapabilities) {
    std::string config(256, '\0');
    config[0x06] = 0x10;   // it has capabilities,
    config[0x34] = 0x40;   // the first, power management, here
    config[0x40] = 0x01;
    config[0x41] = 0x50;
    config[0x50] = 0x11;
    write("config", config);
    EXPECT_TRUE(read().has_msix);
    config[0x50] = 0x05;   // MSI alone
    write("config", config);
    EXPECT_FALSE(read().has_msix);
    config[0x51] = 0x40;   // in a circle
    write("config", config);
    EXPECT_FALSE(read().has_msix);
    config[0x50] = 0x11;
    config[0x06] = 0;
    write("config", config);
    EXPECT_FALSE(read().has_msix) << "without a list";
}

TEST_F(PciFunctionTest, OneThatTheKernelHasIsRefusedWithItsDriverAndInterface) {
    EXPECT_THAT(problem(),
                AllOf(HasSubstr("driver ixgbe has it"), HasSubstr("dpdk-devbind.py -b vfio-pci 0000:03:00.0")));
    write("net/eth7/mtu", "1500\n");
    EXPECT_THAT(problem(), HasSubstr("network interface eth7"));
    fs::remove_all(device() / "net");
    write("virtio0/net/eth8/mtu", "1500\n");
    EXPECT_THAT(problem(), HasSubstr("network interface eth8")) << "below a device of virtio's";
    bind("");
    EXPECT_THAT(problem(), AllOf(HasSubstr("bound to no driver"), HasSubstr("vfio-pci 0000:03:00.0")));
    bind("vfio-pci");
    EXPECT_EQ(problem(), "");
    EXPECT_EQ(problem(true), "") << "an IOMMU takes physical addresses too";
}

TEST_F(PciFunctionTest, MellanoxCardsAreRefusedWhoeverHasThem) {
    write("vendor", "0x15b3\n");
    write("device", "0x101d\n");
    for (const char* driver : {"mlx5_core", "vfio-pci", ""}) {
        bind(driver);
        EXPECT_THAT(problem(), AllOf(HasSubstr("15b3:101d"), HasSubstr("OVSDR_HARDWARE=1"))) << driver;
    }
}

TEST_F(PciFunctionTest, WhatIsNoNetworkControllerIsRefused) {
    write("class", "0x010802\n");
    bind("vfio-pci");
    EXPECT_THAT(problem(), HasSubstr("no network controller"));
}

TEST_F(PciFunctionTest, WithoutAnIommuItTakesPhysicalAddresses) {
    fs::remove(device() / "iommu_group");
    for (const char* driver : {"vfio-pci", "uio_pci_generic", "igb_uio"}) {
        bind(driver);
        EXPECT_TRUE(read().sees_physical_addresses()) << driver;
        EXPECT_THAT(problem(), AllOf(HasSubstr(driver), HasSubstr("\"hugepages\": true"))) << driver;
        EXPECT_EQ(problem(true), "") << driver;
    }
}

TEST_F(PciFunctionTest, VfiosUnsafeModeIsOneWithoutAnIommu) {
    bind("vfio-pci");
    EXPECT_FALSE(read().sees_physical_addresses());
    write_file(root_ / "groups/7/name", "vfio-noiommu\n");
    EXPECT_TRUE(read().sees_physical_addresses()) << "a group that vfio made up";
    fs::remove(root_ / "groups/7/name");
    write_file(root_ / "module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    EXPECT_TRUE(read().sees_physical_addresses()) << "then DPDK takes all for such";
    write_file(root_ / "module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
    EXPECT_FALSE(read().sees_physical_addresses());
}

}  // namespace
}  // namespace ovsdr::soft
