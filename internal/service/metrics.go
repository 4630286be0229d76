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
)

// NewRegistry returns a registry with the given collectors, the Go runtime's and the
// process's.
func NewRegistry(cs ...prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(cs...)
	return reg
}

// Bounds of what metrics may take of a program that is there for something else.
const (
	maxScrapes  = 8                      // requests at a time; further ones are answered 503
	scrapeShare = 10                     // a page made anew takes this part of a processor at most,
	scrapeAhead = 500 * time.Millisecond // or so much at once
	scrapeDebt  = 100 * time.Millisecond // and no page is older than such a debt is
	maxPages    = 4                      // formats and encodings of which the last page is kept
)

// MetricsHandler serves a registry in Prometheus' format. It reads the metrics for one request
// after the other and, where more time goes to that than may, sends the last page again, which is
// up to a second old.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	s := &scrapes{serve: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), last: map[string]*page{}}
	waiting := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case waiting <- struct{}{}:
			defer func() { <-waiting }()
		default:
			http.Error(w, "too many requests for metrics at a time", http.StatusServiceUnavailable)
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

// scrapes makes the pages of metrics.
type scrapes struct {
	serve http.Handler

	mu    sync.Mutex
	ahead time.Duration // that making pages may still take; negative for a debt
	at    time.Time     // of that
	last  map[string]*page
}

// page returns a new page for a request, or the last one.
func (s *scrapes) page(r *http.Request) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	form := r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	if s.earn(); s.ahead <= 0 {
		if last := s.last[form]; last != nil {
			return last
		}
		time.Sleep(scrapeShare * -s.ahead)
		s.earn()
	}
	began := time.Now()
	made := &page{header: http.Header{}}
	s.serve.ServeHTTP(made, r)
	s.ahead = max(s.ahead-time.Since(began), -scrapeDebt)
	if s.last[form] == nil && len(s.last) == maxPages {
		clear(s.last)
	}
	s.last[form] = made
	return made
}

// earn counts the time that has passed. s.mu is held.
func (s *scrapes) earn() {
	now := time.Now()
	if s.at.IsZero() {
		s.ahead = scrapeAhead
	} else {
		s.ahead = min(s.ahead+now.Sub(s.at)/scrapeShare, scrapeAhead)
	}
	s.at = now
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
