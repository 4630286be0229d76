package audio

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/internal/service"
)

// metrics holds the counters of all microphones.
type metrics struct{ packets *prometheus.CounterVec }

func newMetrics() *metrics {
	return &metrics{packets: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holocast_capture_sound_packets_total", Help: "Published sound packets of 10 ms each.",
	}, []string{"microphone"})}
}

func (m *metrics) collectors(of *Medium) []prometheus.Collector {
	all := []prometheus.Collector{m.packets}
	for _, p := range of.microphones {
		m.packets.WithLabelValues(p.Name()) // export 0 from the start
		labels := prometheus.Labels{"microphone": p.Name()}
		all = append(all,
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "holocast_capture_sound_dropouts_total", ConstLabels: labels,
				Help: "Interruptions of a microphone's sound.",
			}, func() float64 { return float64(p.dropouts.Load()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holocast_capture_sound_delivering", ConstLabels: labels,
				Help: "1 while a microphone delivers sound; 0 while it is unplugged or busy.",
			}, func() float64 { return service.Bool(p.delivering()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holocast_capture_sound_drift_ratio", ConstLabels: labels,
				Help: "Rate of a microphone's clock relative to the local clock, minus 1.",
			}, p.Drift),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holocast_capture_sound_level_ratio", ConstLabels: labels,
				Help: "Root mean square of a microphone's newest 10 ms, relative to full scale.",
			}, func() float64 { return math.Float64frombits(p.level.Load()) }),
		)
	}
	return all
}
