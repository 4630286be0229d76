//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"holocast/internal/netlab/probe"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
)

// frameOverhead is the size of the Ethernet, IPv4 and UDP headers around a UDP payload.
const frameOverhead = 14 + 20 + 8

// A Load describes the traffic that CheckTopology sends.
type Load struct {
	Duration time.Duration // duration of each of the two phases
	Size     int           // bytes of UDP payload
	Fill     float64       // fraction of each path's rate, in the second phase
}

// A Check reports how closely a lab matches its topology.
type Check struct {
	Report
	Flows []CheckedFlow `json:"flows"`
}

// A CheckedFlow compares the configuration of a path's forward direction with a measurement by UDP
// packets.
type CheckedFlow struct {
	Path        string       `json:"path"`
	AskedMbps   float64      `json:"asked_mbps"`   // of frames; 0 = unlimited
	Mbps        float64      `json:"mbps"`         // under load
	AskedDelay  float64      `json:"asked_ms"`     // including serialization
	DelayError  float64      `json:"error_p50_us"` // measured − AskedDelay, for a single packet in flight
	DelayErr99  float64      `json:"error_p99_us"`
	AskedLoss   float64      `json:"asked_loss"`
	Loss        float64      `json:"loss"` // lost to the loss model, as a fraction of all packets
	Quiet       probe.Result `json:"quiet"`
	Loaded      probe.Result `json:"loaded"`
	packetBits  float64
	Unexplained int64 `json:"unexplained"` // packets sent that neither arrived nor were dropped on purpose
}

// CheckTopology builds a network with the topology's initial conditions and measures all its paths
// at once: first with few packets, then with the load's share of each path's rate.
func CheckTopology(ctx context.Context, t *topology.Topology, load Load, options Options) (*Check, error) {
	l, err := Start(t, options)
	if err != nil {
		return nil, err
	}
	flows, err := l.probe(ctx, load)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	report, err := l.Finish()
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	check := &Check{Report: *report, Flows: flows}
	check.compare()
	return check, nil
}

// unlimited is the load in bit/s for a path without a rate limit.
const unlimited = 1e9

func (l *Lab) probe(ctx context.Context, load Load) ([]CheckedFlow, error) {
	cables := l.cables()[len(l.topology.Links):]
	flows := make([]CheckedFlow, len(cables))
	probes := make([]probe.Flow, len(cables))
	for i, c := range cables {
		path := l.topology.Paths[i]
		conditions := path.Forward[0].Conditions
		bits := 8 * float64(load.Size+frameOverhead+conditions.Overhead)
		flows[i] = CheckedFlow{
			packetBits: bits, Path: path.Name, AskedMbps: conditions.Rate / 1e6, AskedLoss: conditions.LossRate(),
			AskedDelay: float64(conditions.Delay) / 1e6,
		}
		rate := conditions.Rate
		if rate > 0 {
			flows[i].AskedDelay += bits / rate * 1e3
		} else {
			rate = unlimited
		}
		probes[i] = probe.Flow{Size: load.Size, Duration: load.Duration, PacketRate: load.Fill * rate / bits}
		for k, conn := range []**net.UDPConn{&probes[i].Send, &probes[i].Receive} {
			address := netip.AddrPortFrom(c.addr(k).Addr(), uint16(9000))
			probes[i].To = address
			err := l.nodes[c.between[k]].Namespace.Do(func() (err error) {
				*conn, err = probe.Listen(ctx, address)
				return err
			})
			if err != nil {
				return nil, err
			}
			defer func() { _ = (*conn).Close() }()
		}
		probes[i].Linger = 300*time.Millisecond + longest(conditions)
	}
	for _, quiet := range []bool{true, false} {
		errs := make([]error, len(probes))
		var wait sync.WaitGroup
		for i, p := range probes {
			if quiet {
				p.PacketRate = min(200, p.PacketRate/10)
			}
			wait.Go(func() {
				r, err := p.Run(ctx)
				errs[i] = err
				if quiet {
					flows[i].Quiet = r
				} else {
					flows[i].Loaded = r
					flows[i].Mbps = r.PacketRate * flows[i].packetBits / 1e6
				}
			})
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return flows, ctx.Err()
}

// longest bounds a packet's time on a path.
func longest(c wire.Conditions) time.Duration {
	d := c.Delay
	if c.Variation != nil {
		d = c.Variation.Max
	}
	if c.Rate > 0 {
		queue := max(float64(c.QueueBytes), 1514*float64(c.QueuePackets))
		d += time.Duration(8 * queue / c.Rate * float64(time.Second))
	}
	return d
}

// compare fills in the measured values and appends failures.
func (c *Check) compare() {
	for i := range c.Flows {
		f := &c.Flows[i]
		p := c.Paths[2*i] // forward direction
		f.DelayError = (f.Quiet.DelayP50 - f.AskedDelay) * 1e3
		f.DelayErr99 = (f.Quiet.DelayP99 - f.AskedDelay) * 1e3
		if p.Arrived > 0 {
			f.Loss = float64(p.Lost+p.Burst) / float64(p.Arrived)
		}
		sent, received := f.Quiet.Sent+f.Loaded.Sent-f.Quiet.Refused-f.Loaded.Refused,
			f.Quiet.Received+f.Loaded.Received
		f.Unexplained = int64(sent) - int64(received) - int64(p.Lost+p.Burst+p.Full+p.Faults.Any())
		if p.Wifi != nil {
			f.Unexplained -= int64(p.Wifi.Dropped)
		}
		if spread := 6*math.Sqrt(p.Asked) + 6; p.Burst == 0 && math.Abs(float64(p.Lost)-p.Asked) > spread {
			c.Failures = append(c.Failures, fmt.Sprintf("%s lost %d packets, want %.0f ± %.0f", p.Name, p.Lost, p.Asked,
				spread))
		}
	}
}
