package cluster

import (
	"fmt"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/relay/auth/authtest"
)

// BenchmarkAnnounce measures the time from a publisher's PUBLISH_NAMESPACE at one relay, with others
// published there, until a viewer at another relay receives it.
func BenchmarkAnnounce(b *testing.B) {
	for _, sessions := range []int{0, 1000} {
		b.Run(fmt.Sprint(sessions, " sessions"), func(b *testing.B) {
			cfg := Config{Secret: authtest.SecretFile(b), Listen: "127.0.0.1:0"}
			here := startNode(b, cfg)
			cfg.Join = []string{here.Stats().Listen}
			there := startNode(b, cfg)
			for len(here.Stats().Members) == 0 || len(there.Stats().Members) == 0 {
				time.Sleep(time.Millisecond)
			}
			found, err := there.dial(moqt.Handler{}).SubscribeNamespace(b.Context(), moqt.Namespace{"holocast"})
			if err != nil {
				b.Fatal(err)
			}
			one, others := here.dial(moqt.Handler{}), here.dial(moqt.Handler{}) // a session has 1024 requests at most
			publish := func(publisher *moqt.Session, name string) {
				if _, err := publisher.PublishNamespace(b.Context(), moqt.Namespace{"holocast", name}); err != nil {
					b.Error(err)
				}
			}
			started := time.Now()
			go func() {
				for i := range sessions {
					publish(others, fmt.Sprint("before", i))
				}
			}()
			for range sessions {
				<-found
			}
			all := time.Since(started)
			i := 0
			for b.Loop() {
				go publish(one, fmt.Sprint(i))
				<-found
				i++
			}
			if sessions > 0 {
				b.ReportMetric(all.Seconds()*1000, "ms/all")
			}
		})
	}
}
