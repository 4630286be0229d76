package cluster

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockSteps reports whether stepClock works on this machine.
const clockSteps = true

// stub replaces clock_gettime in the vDSO. It calls the kernel and adds seconds to the wall clock only.
var stub = []byte{
	0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: the clock, 0 for CLOCK_REALTIME
	0x75, 7, // jne ret
	0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
	0xc3, // ret
}

// Offset and length of the seconds in stub, and length of a jump.
const (
	stubSeconds = 14
	secondsLen  = 4
	jumpLen     = 5
)

// stepClock sets the wall clock of one process apart from the machine's, by whole seconds. The process sees
// a step: Go programs read the time from the vDSO, and a process gets its own copy of that when it
// is changed.
func stepClock(pid int, by time.Duration) (err error) {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mem.Close()) }()
	base, image, err := vdso(pid, mem)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("vDSO: %w", err)
	}
	var entry int64
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			entry = int64(s.Value)
		}
	}
	if entry == 0 {
		return errors.New("the vDSO has no clock_gettime")
	}
	code := bytes.Clone(stub)
	binary.LittleEndian.PutUint32(code[stubSeconds:], uint32(int32(by/time.Second)))
	at := int64(bytes.Index(image, stub[:stubSeconds]))
	if at >= 0 { // stepped before
		_, err = mem.WriteAt(code[stubSeconds:stubSeconds+secondsLen], base+at+stubSeconds)
		return err
	}
	used := len(bytes.TrimRight(image, "\x00"))
	if at = int64(used+15) &^ 15; at+int64(len(code)) > int64(len(image)) {
		return errors.New("the vDSO has no room")
	}
	jump := make([]byte, jumpLen)
	jump[0] = 0xe9
	binary.LittleEndian.PutUint32(jump[1:], uint32(int32(at-entry-jumpLen)))
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // no thread executes the bytes that change
		return err
	}
	defer func() { err = errors.Join(err, unix.Kill(pid, unix.SIGCONT)) }()
	for end := time.Now().Add(time.Second); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("the relay does not stop")
		}
	}
	if _, err := mem.WriteAt(code, base+at); err != nil {
		return fmt.Errorf("change the vDSO: %w", err)
	}
	_, err = mem.WriteAt(jump, base+entry)
	return err
}

// vdso returns the address and the content of a process's vDSO.
func vdso(pid int, mem io.ReaderAt) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var end int64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
			return 0, nil, fmt.Errorf("/proc/PID/maps: %w", err)
		}
		image = make([]byte, end-base)
		_, err = mem.ReadAt(image, base)
		return base, image, err
	}
	return 0, nil, errors.New("the process has no vDSO")
}

// stopped reports whether a process is stopped.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") T ")
}
