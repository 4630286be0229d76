package points

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the counters of all pipelines.
type metrics struct {
	frames  *prometheus.CounterVec
	thinned *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	latency *prometheus.HistogramVec
}

func newMetrics() *metrics {
	buckets := []float64{
		.0005,
		.001,
		.002,
		.003,
		.004,
		.005,
		.006,
		.008,
		.010,
		.012,
		.015,
		.020,
		.030,
		.050,
		.1,
		.2,
		.5,
	}
	return &metrics{
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holocast_capture_frames_total",
			Help: "Captures by result: published, dropped (superseded by a newer one), idle (no viewers) or failed.",
		}, []string{"camera", "result"}),
		thinned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holocast_capture_thinned_frames_total",
			Help: "Frames published with some rows omitted because of overload.",
		}, []string{"camera"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holocast_capture_stage_seconds",
			Help: "Time per frame and stage: waiting for a processor, mapping to points, encoding.", Buckets: buckets,
		}, []string{"camera", "stage"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holocast_capture_to_published_seconds", Help: "Time from the middle of the exposure to publication.",
			Buckets: buckets,
		}, []string{"camera"}),
	}
}

func (m *metrics) observe(camera, stage string, d time.Duration) {
	m.stages.WithLabelValues(camera, stage).Observe(d.Seconds())
}

func (m *metrics) collectors(of *Medium) []prometheus.Collector {
	all := []prometheus.Collector{
		m.frames,
		m.thinned,
		m.stages,
		m.latency,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holocast_capture_rows_kept_ratio",
			Help: "Fraction of rows that frames keep; below 1 during overload.",
		}, func() float64 { return 1 / float64(of.every()) }),
	}
	for _, l := range of.pipelines {
		m.thinned.WithLabelValues(l.label()) // export 0 from the start
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "holocast_capture_source_dropped_total",
			Help:        "Captures lost at the source because they had no depth or were overdue.",
			ConstLabels: prometheus.Labels{"camera": l.label()},
		}, func() float64 { return float64(l.src.Dropped()) }))
		for _, t := range l.tracks {
			if t.video != nil {
				all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
					Name:        "holocast_capture_depth_error_millimeters",
					Help:        "Root mean square error that quantization adds to the newest depth picture; 0 while unwatched.",
					ConstLabels: prometheus.Labels{"camera": l.label(), "quality": t.quality},
				}, t.video.depthError))
			}
		}
	}
	if r := of.rate; r != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holocast_capture_target_bits_per_second",
			Help: "Bit rate that lossy tracks share: the setting bitrate, or less while the path to the relay is full.",
		}, r.current))
	}
	return all
}
