package tcpcc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"holocast/internal/bpfload"
)

// requirements lists the kernel features needed.
func requirements() []bpfload.Requirement {
	return []bpfload.Requirement{
		{Name: "TCP congestion control by eBPF (STRUCT_OPS links)", Since: "6.4", Have: func() error {
			if v, err := features.LinuxVersionCode(); err != nil || v < 6<<16|4<<8 {
				return ebpf.ErrNotSupported
			}
			return features.HaveMapType(ebpf.StructOpsMap)
		}},
	}
}

// Controllers are TCP congestion controllers in the kernel.
type Controllers struct {
	links []link.Link
	names map[string]string
}

// Add adds Vegas and YeAH. It needs root and Linux 6.4 or later with BTF.
func Add() (*Controllers, error) {
	c := &Controllers{names: map[string]string{}}
	if err := c.add(); err != nil {
		return nil, errors.Join(bpfload.Explain("add TCP congestion controllers", err, requirements()), c.Close())
	}
	return c, nil
}

func (c *Controllers) add() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	for _, of := range []string{"vegas", "yeah"} {
		if err := c.addOne(of); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controllers) addOne(of string) error {
	spec, err := alone(of)
	if err != nil {
		return err
	}
	name, err := rename(spec.Maps[of], of)
	if err != nil {
		return err
	}
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer all.Close()
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: all.Maps[of]})
	if err != nil {
		return err
	}
	c.links = append(c.links, l)
	c.names[of] = name
	return nil
}

// alone returns one controller with its programs, whose names begin with its own. A collection with several would mix
// their functions: cilium/ebpf v0.22 assigns programs by the member of tcp_congestion_ops alone.
func alone(of string) (*ebpf.CollectionSpec, error) {
	spec, err := loadTcpcc()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return name != of })
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !strings.HasPrefix(name, of+"_") })
	return spec, nil
}

// rename gives a controller a name of this process's own, as the kernel accepts each name once.
func rename(m *ebpf.MapSpec, of string) (string, error) {
	const most = 15 // TCP_CA_NAME_MAX, without the final zero
	name := of + "_" + strconv.FormatInt(int64(os.Getpid()), 36)
	value, ok := m.Contents[0].Value.([]byte)
	at := bytes.Index(value, []byte(of+"_bpf\x00"))
	if !ok || at < 0 || len(name) > most {
		return "", fmt.Errorf("tcpcc: cannot name %s", of)
	}
	copy(value[at:at+most+1], append([]byte(name), make([]byte, most+1-len(name))...))
	return name, nil
}

// Name returns the kernel's name of a controller, vegas or yeah, for TCP_CONGESTION.
func (c *Controllers) Name(of string) (name string, ok bool) {
	name, ok = c.names[of]
	return name, ok
}

// Close removes the controllers. Sockets that use them keep them.
func (c *Controllers) Close() (err error) {
	for _, l := range c.links {
		err = errors.Join(err, l.Close())
	}
	c.links = nil
	return err
}
