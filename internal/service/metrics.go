package service

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the given collectors, the Go runtime's and the
// process's.
func NewRegistry(cs ...prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(cs...)
	return reg
}

// maxScrapes bounds the requests for metrics at a time; further ones are answered 503.
const maxScrapes = 8

// MetricsHandler serves a registry in Prometheus' format. It reads the metrics for one request
// after the other: many of them leave time for what the program is there for.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	var mu sync.Mutex
	serve := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	waiting := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case waiting <- struct{}{}:
			defer func() { <-waiting }()
		default:
			http.Error(w, "too many requests for metrics at a time", http.StatusServiceUnavailable)
			return
		}
		page := &page{header: w.Header()}
		mu.Lock()
		serve.ServeHTTP(page, r)
		mu.Unlock()
		if page.code != 0 {
			w.WriteHeader(page.code)
		}
		_, _ = w.Write(page.Bytes())
	})
}

// page is a response that is not sent yet: whoever takes long to receive it holds up nobody.
type page struct {
	bytes.Buffer
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Metrics are figures of a program that are read when Prometheus asks for them, instead of
// being kept up to date. They implement prometheus.Collector.
type Metrics struct {
	prefix string
	all    []Metric
	read   func(Put)
}

// Metric is one of the figures, with or without labels.
type Metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Put reports the value of a metric, with as many label values as it has labels.
type Put func(m Metric, value float64, labels ...string)

// NewMetrics returns metrics whose names begin with prefix. Declare them with Gauge and
// Counter, say how they are read with Read, and then register them.
func NewMetrics(prefix string) *Metrics { return &Metrics{prefix: prefix} }

// Gauge declares a figure that goes up and down.
func (m *Metrics) Gauge(name, help string, labels ...string) Metric {
	return m.add(prometheus.GaugeValue, name, help, labels)
}

// Counter declares a figure that only grows; its name ends in _total.
func (m *Metrics) Counter(name, help string, labels ...string) Metric {
	return m.add(prometheus.CounterValue, name, help, labels)
}

func (m *Metrics) add(kind prometheus.ValueType, name, help string, labels []string) Metric {
	one := Metric{prometheus.NewDesc(m.prefix+name, help, labels, nil), kind}
	m.all = append(m.all, one)
	return one
}

// Read sets the function that reports every metric's present values.
func (m *Metrics) Read(f func(put Put)) { m.read = f }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range m.all {
		ch <- one.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.read(func(one Metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(one.desc, one.kind, value, labels...)
	})
}

// Bool is 1 or 0, as metrics say yes or no.
func Bool(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
