package topology

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holocast/internal/netlab/wire"
)

const ms = time.Millisecond

func TestTable1(t *testing.T) {
	table, err := Builtin("table1-varying")
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		rate, loss float64
		delay      time.Duration
		low, high  time.Duration
	}{
		{400e6, 0.0005, 20 * ms, 20 * ms, 70 * ms},
		{400e6, 0.0005, 30 * ms, 30 * ms, 35 * ms},
		{150e6, 0.0005, 100 * ms, 100 * ms, 110 * ms},
		{50e6, 0.0005, 100 * ms, 100 * ms, 110 * ms},
		{50e6, 0, 30 * ms, 30 * ms, 35 * ms},
	}
	if len(table.Paths) != len(want) {
		t.Fatalf("%d paths", len(table.Paths))
	}
	for i, p := range table.Paths {
		w := want[i]
		calm := wire.Conditions{Rate: w.rate, Delay: w.delay, Loss: w.loss, QueuePackets: 1000}
		varied := calm
		varied.Variation = &wire.Variation{Min: w.low, Max: w.high, EveryMin: 50 * ms, EveryMax: 200 * ms}
		timeline := []wire.Change{
			{Conditions: calm},
			{At: 10 * time.Second, Conditions: varied},
			{At: 50 * time.Second, Conditions: calm},
		}
		if !reflect.DeepEqual(p.Forward, timeline) || !reflect.DeepEqual(p.Backward, timeline) {
			t.Errorf("%s: %+v", p.Name, p.Forward)
		}
	}
	if calm := table.WithoutVariation(); calm.Varies() || !table.Varies() || len(calm.Paths[0].Forward) != 1 {
		t.Errorf("without variation: %+v", calm.Paths[0].Forward)
	}
}

func TestBuiltins(t *testing.T) {
	for _, name := range Builtins() {
		b, err := Builtin(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b.Name != name || b.Varies() != strings.HasSuffix(name, "-varying") {
			t.Errorf("%s: named %s, varies %v", name, b.Name, b.Varies())
		}
		if strings.HasPrefix(name, "path") && (len(b.Paths) != 1 || !strings.HasPrefix(name, b.Paths[0].Name)) {
			t.Errorf("%s: %+v", name, b.Paths)
		}
		text, err := b.YAML()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := Parse(text)
		if err != nil {
			t.Errorf("%s: parse the output of YAML: %v\n%s", name, err, text)
			continue
		}
		if !reflect.DeepEqual(b, again) {
			t.Errorf("%s: changed by YAML and Parse:\n%s", name, text)
		}
	}
	if _, err := Builtin("path6"); err == nil || !strings.Contains(err.Error(), "table1") {
		t.Errorf("no path6: %v", err)
	}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// parsed parses a valid topology with lines inserted into its path.
func parsed(lines string) (*Topology, error) {
	path := strings.ReplaceAll(lines, "\n", "\n    ")
	return Parse([]byte("name: x\nhosts: [a, b]\npaths:\n  - name: p\n    between: [a, b]\n    " + path + "\n"))
}

func TestTimelines(t *testing.T) {
	base := wire.Conditions{Rate: 8e6, QueuePackets: 1000}
	with := func(change func(*wire.Conditions)) wire.Conditions {
		c := base
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, lines       string
		forward, backward []wire.Change
	}{
		{name: "nothing", lines: "", forward: []wire.Change{{}}, backward: []wire.Change{{}}},
		{
			name: "backward differs", lines: "rate: 8Mbit\nbackward: {rate: 1Mbit/s, delay: 5ms}",
			forward:  []wire.Change{{Conditions: base}},
			backward: []wire.Change{{Conditions: with(func(c *wire.Conditions) { c.Rate, c.Delay = 1e6, 5*ms })}},
		},
		{
			name: "queue in time follows the rate", lines: "rate: 8Mbit\nqueue: 100ms\nschedule:\n  - {at: 1s, rate: " +
				"4 Mbit, direction: forward}",
			forward: []wire.Change{
				{Conditions: wire.Conditions{Rate: 8e6, QueueBytes: 100000}},
				{At: time.Second, Conditions: wire.Conditions{Rate: 4e6, QueueBytes: 50000}},
			},
			backward: []wire.Change{{Conditions: wire.Conditions{Rate: 8e6, QueueBytes: 100000}}},
		},
		{
			name: "steps out of order, two at once",
			lines: "rate: 8Mbit\nschedule:\n  - {at: 2s, loss: 100%}\n  - {at: 1s, delay: 1ms}\n  - {at: 1s, " +
				"reorder: true}",
			forward: []wire.Change{
				{Conditions: base},
				{At: time.Second, Conditions: with(func(c *wire.Conditions) { c.Delay, c.Reorder = ms, true })},
				{At: 2 * time.Second, Conditions: with(func(c *wire.Conditions) { c.Delay, c.Reorder, c.Loss = ms, true, 1 })},
			},
		},
		{
			name: "bursts that end", lines: "rate: 8Mbit\nburst: {average: 5%, length: 10}\nschedule:\n  - {at: 3s, " +
				"burst: {average: 0%, length: 1}}",
			forward: []wire.Change{
				{Conditions: with(func(c *wire.Conditions) { c.Burst = &wire.BurstLoss{Average: 0.05, Length: 10, InBad: 1} })},
				{At: 3 * time.Second, Conditions: base},
			},
		},
		{
			name: "variation all the time", lines: "rate: 8Mbit\noverhead: 24\nvariation: {delay: 1ms-2ms, every: 5ms}",
			forward: []wire.Change{{Conditions: with(func(c *wire.Conditions) {
				c.Overhead, c.Variation = 24, &wire.Variation{Min: ms, Max: 2 * ms, EveryMin: 5 * ms, EveryMax: 5 * ms}
			})}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			topology, err := parsed(c.lines)
			if err != nil {
				t.Fatal(err)
			}
			if got := topology.Paths[0].Forward; !reflect.DeepEqual(got, c.forward) {
				t.Errorf("forward:\n%+v, not\n%+v", got, c.forward)
			}
			if c.backward == nil {
				c.backward = c.forward
			}
			if got := topology.Paths[0].Backward; !reflect.DeepEqual(got, c.backward) {
				t.Errorf("backward:\n%+v, not\n%+v", got, c.backward)
			}
		})
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"rate: fast", `paths[0]: rate: "fast"`},
		{"rate: 10", `paths[0]: rate: "10"`},
		{"rate: 1bit", `paths[0]: rate: "1bit"`},
		{"delay: 20", `paths[0]: delay: "20"`},
		{"delay: -1ms", `paths[0]: delay: "-1ms"`},
		{"delay: 2m", `paths[0]: delay: "2m"`},
		{"loss: 0.05", `paths[0]: loss: "0.05"`},
		{"loss: 101%", `paths[0]: loss: "101%"`},
		{"overhead: -1", "paths[0]: overhead: -1"},
		{"rate: 1Mbit\nqueue: 0 packets", `paths[0]: queue: "0 packets"`},
		{"queue: plenty", `paths[0]: queue: "plenty"`},
		{"burst: {average: 5, length: 3}", `paths[0]: burst: average: "5"`},
		{"burst: {average: 5%, length: 0.5}", "paths[0]: burst: length: 0.5"},
		{"burst: {average: 5%, length: 3, inBad: 4%}", "paths[0]: burst: average: 5%"},
		{"burst: {average: 50%, length: 3, inBad: x}", "paths[0]: burst: inBad: "},
		{"strays: {share: 5, delay: 5ms}", `paths[0]: strays: share: "5"`},
		{"strays: {share: 5%, delay: x}", `paths[0]: strays: delay: "x"`},
		{"variation: {delay: 70ms-20ms}", `paths[0]: variation: delay: "70ms-20ms"`},
		{"variation: {delay: 1ms, every: 1us}", `paths[0]: variation: every: "1us"`},
		{"variation: {delay: 1ms, from: 5s, to: 5s}", `paths[0]: variation: to: "5s"`},
		{"backward: {loss: 5}", "paths[0]: backward.loss: "},
		{"schedule:\n  - {at: 1s, delay: 1ms}\n  - {at: soon}", `paths[0]: schedule[1].at: "soon"`},
		{"schedule:\n  - {at: 1s, rate: 5}", "paths[0]: schedule[0].rate: "},
		{"schedule:\n  - {at: 1s, direction: up}", "paths[0]: schedule[0].direction: "},
		{"speed: 5", "line 6: field speed is not known"},
	} {
		_, err := parsed(c.lines)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, not %s", c.lines, err, c.want)
		}
	}

	path := "\npaths: [{name: p, between: [a, b]}]"
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"hosts: [a, b]" + path, "name: missing"},
		{"name: x" + path, "hosts: missing"},
		{"name: x\nhosts: [a, b]", "paths: 0"},
		{"name: x\nhosts: [A, b]" + path, `hosts[0]: invalid name "A"`},
		{"name: x\nhosts: [a, b]\nedges: [b]" + path, `edges[0]: duplicate name "b"`},
		{"name: x\nhosts: [a, b]\nlinks: [{between: [a]}]" + path, "links[0].between"},
		{"name: x\nhosts: [a, b]\nlinks: [{between: [a, c]}]" + path, `links[0].between: unknown node "c"`},
		{"name: x\nhosts: [a, b]\nlinks: [{between: [a, b]}, {between: [b, a]}]" + path, "links[1].between"},
		{"name: x\nhosts: [a, b]\npaths: [{name: p, between: [a, a]}]", "paths[0]: between"},
		{"name: x\nhosts: [a, b]\npaths: [{name: a, between: [a, b]}]", `paths[0].name: duplicate name "a"`},
		{"name: x\nduration: long\nhosts: [a, b]" + path, "duration"},
		{"name: x\nlate: long\nhosts: [a, b]" + path, "late"},
		{"name: x\nhosts: [a, b]\nrun: [{host: c, command: x}]" + path, "run[0]: host"},
		{"name: x\nhosts: [a, b]\nrun: [{host: a}]" + path, "run[0]: command"},
		{"name: x\nhosts: [a, b]\nrun: [{host: a, command: x, start: y}]" + path, "run[0]: start"},
		{"name: [x", "line 1"},
		{"name: x\nhosts: {a: b}" + path, "line 2: cannot unmarshal !!map, which does not belong there"},
		{strings.Repeat("#", maxFile+1), "exceeds"},
	} {
		_, err := Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, not %s", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"lan.yaml", "table1.yaml"} {
		data, err := builtin.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("name: x\nhosts: [a, b]\nwifi: {h: {standard: ac, width: 80MHz, stations: [{rate: 1Mbit}]}}\n" +
		"paths: [{name: p, between: [a, b], wifi: h, strays: {share: 1%, delay: 5ms}}]"))
	f.Add([]byte("name: x\nhosts: [a, b]\npaths:\n  - name: p\n    between: [a, b]\n    rate: 1Mbit\n    queue: " +
		"10ms\n" +
		"    burst: {average: 5%, length: 10, inBad: 50%}\n    backward: {delay: 1ms}\n    schedule: [{at: 1s, loss: " +
		"1%}]\n" +
		"run: [{host: a, command: x, background: true}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		topology, err := Parse(data)
		if err != nil {
			return
		}
		for _, p := range topology.Paths {
			for _, timeline := range [][]wire.Change{p.Forward, p.Backward} {
				if len(timeline) == 0 {
					t.Fatal("a path without conditions")
				}
				for _, c := range timeline {
					if loss := c.LossRate(); !(loss >= 0 && loss <= 1) || c.Rate < 0 || c.Delay < 0 {
						t.Fatalf("%+v", c)
					}
				}
			}
		}
		text, err := topology.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("parse the output of YAML: %v\n%s", err, text)
		}
		if !reflect.DeepEqual(topology.Paths, again.Paths) {
			t.Fatalf("changed by YAML and Parse:\n%s", text)
		}
	})
}
