package service

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestManyScrapes checks that requests in any format take no more than their share of a processor.
// Each response has the requested format and is recent.
func TestManyScrapes(t *testing.T) {
	const cost = 10 * time.Millisecond // per page
	var read atomic.Int64
	m := NewMetrics("holocast_test_")
	count := m.Counter("read_total", "Times that the metrics were read.")
	m.Read(func(put Put) {
		time.Sleep(cost)
		put(count, float64(read.Add(1)))
	})
	h := MetricsHandler(NewRegistry(m))
	scrape := func(accept, encoding string) string {
		req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		req.Header.Set("Accept", accept)
		req.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding"); got != encoding && (got != "" || encoding != "identity") {
			t.Fatalf("%s asked for: encoding %q", encoding, got)
		} else if got == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil || w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), "text/plain") {
			t.Fatalf("status %d, %v, %v", w.Code, w.Header(), err)
		}
		return string(b)
	}
	for name, c := range map[string]struct {
		scrapes int
		form    func(i int) (accept, encoding string)
	}{
		"same":  {200, func(int) (string, string) { return "text/plain", "identity" }},
		"two":   {200, func(i int) (string, string) { return "text/plain", []string{"identity", "gzip"}[i%2] }},
		"other": {20, func(i int) (string, string) { return fmt.Sprintf("text/plain;q=0.%d", i+1), "gzip" }},
	} {
		t.Run(name, func(t *testing.T) {
			before, began := read.Load(), time.Now()
			for i := range c.scrapes {
				if page := scrape(c.form(i)); !strings.Contains(page, "holocast_test_read_total ") {
					t.Fatalf("page without the metric:\n%s", page)
				}
			}
			made := time.Duration(read.Load()-before) * cost
			// The burst allowance may have been full at the start, and the last page may exceed it.
			if most := scrapeBurst + time.Since(began)/scrapeShare + scrapeDebt; made > most {
				t.Errorf("pages took %s of %s, want at most %s", made, time.Since(began), most)
			}
		})
	}
	now := read.Load()
	for !strings.Contains(scrape("text/plain", "identity"), fmt.Sprintf("holocast_test_read_total %d\n", now+1)) {
		time.Sleep(cost)
	}
}
