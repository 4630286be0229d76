package wan

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"holocast/internal/pause"
	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/program"
)

// CameraRun holds what a player receives of four cameras in quality high, all programs on this machine.
type CameraRun struct {
	Rate       float64 `json:"captured_fps"` // of each camera
	Seconds    float64 `json:"seconds"`      // of the CPU figures
	Processors int     `json:"processors"`
	Others     float64 `json:"load_before"` // average of a minute; later runs' includes the earlier ones

	FPS      float64 `json:"fps"` // received, mean of the cameras
	Frames   int     `json:"frames"`
	Lost     int     `json:"frames_lost"`
	DelayP50 float64 `json:"delay_p50_ms"`
	DelayP95 float64 `json:"delay_p95_ms"`
	Mbps     float64 `json:"mbps_four"`
	Points   float64 `json:"points_per_frame"`
	RowsKept float64 `json:"rows_kept"` // at the end; 1 unless the capture server was overloaded

	// CPU time in percent of one processor.
	Capture float64 `json:"capture_percent"`
	Relay   float64 `json:"relay_percent"`
	Player  float64 `json:"player_percent"`
}

// measureCameras measures four cameras at 30 and at 15 frames per second.
func (r *Result) measureCameras(ctx context.Context, o Options) error {
	temp := ""
	defer func() { _ = os.RemoveAll(temp) }() // nothing without a folder
	paths := map[string]string{"relay": "", "capture-server": "", "holocast": ""}
	for name := range paths {
		path, err := program.Path(ctx, name, func() (_ string, err error) {
			if temp == "" {
				temp, err = os.MkdirTemp("", "holocast-bench")
			}
			return temp, err
		})
		if err != nil {
			return err
		}
		paths[name] = path
	}
	settle, measured := 12*time.Second, 25*time.Second
	if o.Quick {
		settle, measured = 5*time.Second, 5*time.Second
	}
	for _, rate := range []float64{fps, fps / 2} {
		run, err := runCameras(ctx, paths, rate, settle, measured)
		if err != nil {
			return fmt.Errorf("%g frames per second: %w", rate, err)
		}
		fmt.Fprintf(o.Log, "four cameras at %g frames/s: %.1f frames/s, %d of %d lost, 1/%.0f of the rows, CPU %.0f + "+
			"%.0f + %.0f %%\n", rate, run.FPS, run.Lost, run.Lost+run.Frames, 1/run.RowsKept, run.Capture, run.Relay, run.Player)
		r.Cameras = append(r.Cameras, run)
	}
	return nil
}

func runCameras(ctx context.Context, paths map[string]string, rate float64, settle, measured time.Duration) (
	r CameraRun, err error,
) {
	r = CameraRun{Rate: rate, Processors: runtime.NumCPU(), RowsKept: 1, Others: cputime.LoadAverage()}
	relay, err := load.Start(ctx, paths["relay"])
	if err != nil {
		return r, err
	}
	defer relay.Stop()
	hash := relay.Hash()
	target := []string{"moqt://" + relay.Addr() + "/bench", "--certificate-hash", hex.EncodeToString(hash[:])}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := func(name string, out io.Writer, messages *tail, args ...string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, paths[name], append(args, target...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 5 * time.Second
		cmd.Stdout, cmd.Stderr = out, messages
		return cmd, cmd.Start()
	}
	var captured, played tail
	var report bytes.Buffer
	capture, err := start("capture-server", &captured, &captured,
		"--source", "synthetic", "--cameras", strconv.Itoa(cameras), "--fps", fmt.Sprint(rate), "--high")
	if err != nil {
		return r, err
	}
	defer func() {
		cancel()
		_ = capture.Wait() // interrupted
	}()
	player, err := start("holocast", &report, &played, "play", "--wait", "--json", "--quality", "high",
		"--duration", (settle + measured + 2*time.Second).String())
	if err != nil {
		return r, err
	}
	waited := make(chan error, 1)
	go func() { waited <- player.Wait() }()
	pids := []int{capture.Process.Pid, relay.PID(), player.Process.Pid}
	if err := pause.For(ctx, settle); err != nil {
		return r, err
	}
	began := time.Now()
	before, err := cpuTimes(pids)
	if err == nil {
		err = pause.For(ctx, measured)
	}
	if err != nil {
		return r, err
	}
	r.Seconds = qoe.Round(time.Since(began).Seconds(), 1)
	after, err := cpuTimes(pids)
	if err != nil {
		return r, fmt.Errorf("%w\n%s%s", err, &captured, &played)
	}
	for i, p := range []*float64{&r.Capture, &r.Relay, &r.Player} {
		*p = qoe.Round(100*(after[i]-before[i]).Seconds()/r.Seconds, 0)
	}
	if err := <-waited; err != nil {
		return r, fmt.Errorf("play: %w\n%s", err, &played)
	}
	return r, r.read(report.Bytes(), captured.String())
}

func cpuTimes(pids []int) (list []time.Duration, err error) {
	for _, pid := range pids {
		t, err := cputime.Of(pid)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

var rowsKept = regexp.MustCompile(`rows_kept=([0-9.]+)|overloaded; frames keep all points again`)

// read reads the player's report and the capture server's messages.
func (r *CameraRun) read(report []byte, messages string) error {
	var p struct {
		FPS    float64 `json:"fps"`
		Frames int     `json:"frames"`
		Lost   int     `json:"frames_lost"`
		Delay  struct {
			P50 float64 `json:"p50"`
			P95 float64 `json:"p95"`
		} `json:"frame_delay_ms"`
		Points float64 `json:"points_per_frame"`
		Mbps   float64 `json:"mbit_per_s"`
	}
	if err := json.Unmarshal(report, &p); err != nil {
		return fmt.Errorf("the player's report: %w", err)
	}
	r.FPS, r.Frames, r.Lost, r.Points, r.Mbps = qoe.Round(p.FPS, 1), p.Frames, p.Lost, p.Points, p.Mbps
	r.DelayP50, r.DelayP95 = qoe.Round(p.Delay.P50, 0), qoe.Round(p.Delay.P95, 0)
	r.RowsKept = 1
	if all := rowsKept.FindAllStringSubmatch(messages, -1); len(all) > 0 {
		if last := all[len(all)-1][1]; last != "" {
			kept, err := strconv.ParseFloat(last, 64)
			if err != nil {
				return err
			}
			r.RowsKept = kept
		}
	}
	return nil
}

// tail holds the end of a program's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

func (r Result) camerasMarkdown() string {
	if len(r.Cameras) == 0 {
		return ""
	}
	var b strings.Builder
	one := r.Cameras[0]
	fmt.Fprintf(&b, "## Four cameras on one machine\n\nFour synthetic cameras (NFOV unbinned, MJPG color), capture server, "+
		"relay and a player that decodes all four in quality high, on one machine with %d processors. An overloaded capture "+
		"server drops captures, and thins the rows of all cameras' frames to keep the frame rate; fewer frames "+
		"per second keep more rows. Each row is one run: frames in %.0f s, CPU time over %.0f s in percent of one processor; the "+
		"cameras' simulation is part of the capture server. The load average before the first run, of other programs, was "+
		"%.1f.\n\n", one.Processors, float64(one.Lost+one.Frames)/(cameras*one.Rate), one.Seconds, one.Others)
	row(&b, []string{
		"captured frames/s", "frames/s", "lost", "rows kept", "points per frame", "Mbit/s",
		"delay p50 / p95 ms", "CPU %: capture server", "relay", "player",
	})
	row(&b, right(10))
	for _, c := range r.Cameras {
		row(&b, []string{
			fmt.Sprintf("%g", c.Rate), fmt.Sprintf("%.1f", c.FPS),
			fmt.Sprintf("%d of %d", c.Lost, c.Lost+c.Frames), fmt.Sprintf("1/%.0f", 1/c.RowsKept),
			fmt.Sprintf("%.0f", c.Points), fmt.Sprintf("%.1f", c.Mbps), fmt.Sprintf("%.0f / %.0f", c.DelayP50, c.DelayP95),
			fmt.Sprintf("%.0f", c.Capture), fmt.Sprintf("%.0f", c.Relay), fmt.Sprintf("%.0f", c.Player),
		})
	}
	b.WriteString("\n")
	return b.String()
}
