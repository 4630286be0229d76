//go:build linux

package namespace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MTU is the MTU of every device, in bytes.
const MTU = 1500

// An End is one end of a cable.
type End struct {
	Namespace *Namespace
	Device    string
}

// Connect creates a pair of virtual Ethernet devices and brings them up with offloads disabled, so
// that the cable carries packets of at most MTU bytes with valid checksums.
func Connect(a, b End) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = a.Device
	attributes.MTU = MTU
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: b.Device, PeerNamespace: b.Namespace.FD(), PeerMTU: MTU}
	if err := a.Namespace.Handle.LinkAdd(pair); err != nil {
		return fmt.Errorf("devices %s and %s: %w", a.Device, b.Device, err)
	}
	for _, end := range []End{a, b} {
		if err := end.prepare(); err != nil {
			return fmt.Errorf("device %s: %w", end.Device, err)
		}
	}
	return nil
}

func (e End) prepare() error {
	if err := e.Namespace.Do(func() error { return noOffloads(e.Device) }); err != nil {
		return err
	}
	link, err := e.Link()
	if err != nil {
		return err
	}
	return e.Namespace.Handle.LinkSetUp(link)
}

// Link looks the device up.
func (e End) Link() (netlink.Link, error) { return e.Namespace.Handle.LinkByName(e.Device) }

// noOffloads disables the offloads that produce packets longer than the MTU or without checksum, in
// the namespace of the calling thread.
func noOffloads(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	for _, feature := range []struct {
		name    string
		command uint32 // struct ethtool_value with data 0
	}{
		{"receive offload", unix.ETHTOOL_SGRO},
		{"TCP segmentation offload", unix.ETHTOOL_STSO},
		{"segmentation offload", unix.ETHTOOL_SGSO},
		{"checksum offload", unix.ETHTOOL_STXCSUM},
	} {
		value := struct{ command, data uint32 }{command: feature.command}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // the rest of the union
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("%s cannot be turned off: %w", feature.name, errno)
		}
	}
	return nil
}

// Steer makes the given CPUs process the packets that the device receives (receive packet steering)
// instead of the CPU that sent them.
func (e End) Steer(cpus []int) error {
	result := make(chan error, 1)
	go func() {
		// A device's files exist only in a sysfs mounted in its namespace. The thread that mounts
		// one is never unlocked and ends here, together with its mount namespace.
		runtime.LockOSThread()
		result <- func() error {
			if err := unix.Setns(int(e.Namespace.fd), unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
				return err
			}
			if err := unix.Mount("netlab", "/sys", "sysfs", 0, ""); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join("/sys/class/net", e.Device, "queues/rx-0/rps_cpus"), []byte(mask(cpus)),
				0)
		}()
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("packet steering of device %s: %w", e.Device, err)
	}
	return nil
}

// mask formats a set of CPUs as sysfs does: groups of 32, the highest first.
func mask(cpus []int) string {
	groups := make([]uint32, slices.Max(cpus)/32+1)
	for _, cpu := range cpus {
		groups[cpu/32] |= 1 << (cpu % 32)
	}
	text := make([]string, 0, len(groups))
	for _, group := range slices.Backward(groups) {
		text = append(text, fmt.Sprintf("%08x", group))
	}
	return strings.Join(text, ",")
}
