package main

import (
	"holocast/internal/service"
	"holocast/relay/diskcache"
)

// newDiskMetrics returns the metrics of the cache on disk, which are 0 without cache.disk.dir.
func newDiskMetrics(s *diskcache.Store) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		bytes   = m.Gauge("disk_cache_bytes", "Bytes in the cache on disk.")
		groups  = m.Gauge("disk_cache_groups", "Groups in the cache on disk.")
		written = m.Counter("disk_cache_written_bytes_total", "Bytes written to the cache on disk.")
		read    = m.Counter("disk_cache_read_bytes_total", "Bytes served from the cache on disk.")
		dropped = m.Counter("disk_cache_dropped_groups_total",
			"Groups not written to the cache on disk: larger than 8 MiB, or the disk was too slow or full.")
		damaged = m.Counter("disk_cache_damaged_total", "Files and groups in the cache on disk that were not intact.")
	)
	m.Read(func(put service.Put) {
		st := s.Stats()
		put(bytes, float64(st.Bytes))
		put(groups, float64(st.Groups))
		put(written, float64(st.Written))
		put(read, float64(st.Read))
		put(dropped, float64(st.Dropped))
		put(damaged, float64(st.Damaged))
	})
	return m
}
