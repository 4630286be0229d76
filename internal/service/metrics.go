package service

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holocast/internal/logqueue"
)

// NewRegistry returns a registry with the given collectors and the metrics of the log, the Go
// runtime and the process.
func NewRegistry(cs ...prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	log := NewMetrics("holocast_log_")
	dropped := log.Counter("records_dropped_total",
		"Log records dropped because the log was read too slowly or writing it failed.")
	log.Read(func(put Put) { put(dropped, float64(logqueue.Stderr.Dropped())) })
	reg.MustRegister(log)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(cs...)
	return reg
}

// Limits on the cost of metrics. promhttp's MaxRequestsInFlight and Timeout do not bound the CPU
// time of successive requests.
const (
	maxScrapes  = 8                      // concurrent requests; further ones get status 503
	scrapeShare = 10                     // new pages take at most this fraction of one processor
	scrapeBurst = 500 * time.Millisecond // CPU time that a burst of new pages may take
	scrapeDebt  = 100 * time.Millisecond // bounds the age of a repeated page
	maxPages    = 4                      // formats and encodings whose last page is kept
)

// MetricsHandler serves a registry in Prometheus' format. It collects the metrics for one request
// at a time. When collecting takes more than its share of CPU time, it repeats the last page, which
// is at most a second old.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	s := &scrapes{serve: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), last: map[string]*page{}}
	waiting := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case waiting <- struct{}{}:
			defer func() { <-waiting }()
		default:
			http.Error(w, "too many concurrent requests for metrics", http.StatusServiceUnavailable)
			return
		}
		page := s.page(r)
		maps.Copy(w.Header(), page.header)
		if page.code != 0 {
			w.WriteHeader(page.code)
		}
		_, _ = w.Write(page.Bytes())
	})
}

// scrapes creates and repeats pages.
type scrapes struct {
	serve http.Handler

	mu       sync.Mutex
	budget   time.Duration // time available for collecting; negative for a debt
	refilled time.Time     // when budget was last updated
	last     map[string]*page
}

// page returns a new page for a request, or the last one.
func (s *scrapes) page(r *http.Request) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	form := r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	if s.refill(); s.budget <= 0 {
		if last := s.last[form]; last != nil {
			return last
		}
		time.Sleep(scrapeShare * -s.budget)
		s.refill()
	}
	began := time.Now()
	made := &page{header: http.Header{}}
	s.serve.ServeHTTP(made, r)
	s.budget = max(s.budget-time.Since(began), -scrapeDebt)
	if s.last[form] == nil && len(s.last) == maxPages {
		clear(s.last)
	}
	s.last[form] = made
	return made
}

// refill adds the share of the elapsed time. The caller holds s.mu.
func (s *scrapes) refill() {
	now := time.Now()
	if s.refilled.IsZero() {
		s.budget = scrapeBurst
	} else {
		s.budget = min(s.budget+now.Sub(s.refilled)/scrapeShare, scrapeBurst)
	}
	s.refilled = now
}

// page is a buffered response, so a slow reader does not block other requests.
type page struct {
	bytes.Buffer
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Metrics are collected when Prometheus asks for them rather than kept up to date. They implement
// prometheus.Collector.
type Metrics struct {
	prefix string
	all    []Metric
	read   func(Put)
}

// Metric is one metric, with or without labels.
type Metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Put reports the value of a metric, with as many label values as it has labels.
type Put func(m Metric, value float64, labels ...string)

// NewMetrics returns metrics whose names begin with prefix. Declare them with Gauge and Counter,
// set the function that reports them with Read, then register them.
func NewMetrics(prefix string) *Metrics { return &Metrics{prefix: prefix} }

// Gauge declares a metric that goes up and down.
func (m *Metrics) Gauge(name, help string, labels ...string) Metric {
	return m.add(prometheus.GaugeValue, name, help, labels)
}

// Counter declares a metric that only grows. Its name ends in _total.
func (m *Metrics) Counter(name, help string, labels ...string) Metric {
	return m.add(prometheus.CounterValue, name, help, labels)
}

func (m *Metrics) add(kind prometheus.ValueType, name, help string, labels []string) Metric {
	one := Metric{prometheus.NewDesc(m.prefix+name, help, labels, nil), kind}
	m.all = append(m.all, one)
	return one
}

// Read sets the function that reports the current values of all metrics.
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

// Bool returns 1 for true and 0 for false.
func Bool(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
