package ffmpeg

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// TestDiesWithParent kills a process that runs ffmpeg, which must then end too. Both hold the write
// end of a pipe, so the pipe ends when both have ended.
func TestDiesWithParent(t *testing.T) {
	if _, err := Find("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestParent$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "HOLOCAST_TEST_PARENT=1"), []*os.File{w}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if b, err := io.ReadAll(io.LimitReader(out, 5)); string(b) != "plays" {
		t.Fatalf("the parent says %q, %v", b, err)
	}
	_ = cmd.Process.Kill()
	if _, err := io.Copy(io.Discard, r); err != nil { // until ffmpeg has ended
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed above
}

// TestParent is the process killed by TestDiesWithParent.
func TestParent(t *testing.T) {
	if os.Getenv("HOLOCAST_TEST_PARENT") == "" {
		t.Skip("a part of TestDiesWithParent")
	}
	started := make(chan Pipe)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine; ffmpeg must not
		_, pipes, err := Start(t.Context(), 1, os.NewFile(3, "pipe"), "-f", "lavfi", "-i", "testsrc2=size=32x16", "-f",
			"rawvideo", "pipe:3")
		if err != nil {
			panic(err)
		}
		started <- pipes[0]
	}()
	pictures := <-started
	if _, err := io.CopyN(io.Discard, pictures, 1<<20); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("plays")
	_, _ = io.Copy(io.Discard, pictures)
}
