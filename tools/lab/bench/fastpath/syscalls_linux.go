//go:build linux && (amd64 || arm64)

package fastpath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// syscalls counts a process's system calls with a program at the kernel's sys_enter tracepoint. The
// program adds a few nanoseconds to every system call of other processes.
type syscalls struct {
	count   *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

// countSyscalls counts the system calls of a process in our PID namespace.
func countSyscalls(pid int) (_ *syscalls, err error) {
	s := &syscalls{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("count system calls: %w", err), s.close())
		}
	}()
	var namespace unix.Stat_t
	if err = unix.Stat("/proc/self/ns/pid", &namespace); err != nil {
		return nil, err
	}
	if s.count, err = ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: maxSyscall,
	}); err != nil {
		return nil, err
	}
	if s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 8, asm.DWord), // the call's number, after a pointer to its registers
			asm.LoadImm(asm.R1, int64(namespace.Dev), asm.DWord),
			asm.LoadImm(asm.R2, int64(namespace.Ino), asm.DWord),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, -16), // struct bpf_pidns_info: thread, process
			asm.Mov.Imm(asm.R4, 8),
			asm.FnGetNsCurrentPidTgid.Call(),
			asm.JNE.Imm(asm.R0, 0, "other"),
			asm.LoadMem(asm.R0, asm.RFP, -12, asm.Word),
			asm.JNE.Imm(asm.R0, int32(pid), "other"),
			asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, s.count.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "other"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("other"),
			asm.Return(),
		},
	}); err != nil {
		return nil, err
	}
	s.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: s.program})
	return s, err
}

// maxSyscall exceeds every number of a system call.
const maxSyscall = 512

// named are the calls that are counted by name, the most frequent ones of a relay and those that the
// thesis discusses.
var named = map[uint32]string{
	unix.SYS_FUTEX: "futex", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_NANOSLEEP: "nanosleep",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_RECVMSG: "recvmsg", unix.SYS_RECVMMSG: "recvmmsg",
	unix.SYS_READ: "read", unix.SYS_WRITE: "write",
}

// soFar returns the current counts by name.
func (s *syscalls) soFar() (map[string]uint64, error) {
	calls := map[string]uint64{}
	for number := range uint32(maxSyscall) {
		var n uint64
		if err := s.count.Lookup(number, &n); err != nil {
			return nil, err
		}
		if name, ok := named[number]; ok {
			calls[name] = n
		} else {
			calls["other"] += n
		}
	}
	return calls, nil
}

func (s *syscalls) close() (err error) {
	if s.link != nil {
		err = s.link.Close()
	}
	if s.program != nil {
		err = errors.Join(err, s.program.Close())
	}
	if s.count != nil {
		err = errors.Join(err, s.count.Close())
	}
	return err
}
