package main

import (
	"holocast/internal/service"
	"holocast/relay/record"
)

// newRecordMetrics returns the metrics of recordings, which are 0 without record.dir.
func newRecordMetrics(r *record.Recorder) *service.Metrics {
	m := service.NewMetrics("holocast_relay_")
	var (
		sessions = m.Gauge("recording_sessions", "Sessions being recorded.")
		paused   = m.Gauge("recording_paused", "1 while recording is paused because the directory is full or not writable.")
		objects  = m.Counter("recorded_objects_total", "Objects recorded.")
		written  = m.Counter("recorded_bytes_total", "Payload bytes of recorded objects.")
		dropped  = m.Counter("recording_dropped_total",
			"Subgroups and datagrams not recorded in full because the disk was too slow.")
		failures   = m.Counter("recording_errors_total", "Failures that paused recording.")
		recordings = m.Gauge("recordings", "Finished recordings.")
		bytes      = m.Gauge("recordings_bytes", "Size of all recordings.")
		free       = m.Gauge("recordings_free_bytes", "Free space of the recordings' file system.")
		deleted    = m.Counter("recordings_deleted_total", "Recordings deleted, by the limit that they exceeded.", "limit")
	)
	m.Read(func(put service.Put) {
		s := r.Stats()
		put(sessions, float64(len(s.Sessions)))
		put(paused, service.Bool(s.Paused != nil))
		put(objects, float64(s.Objects))
		put(written, float64(s.Written))
		put(dropped, float64(s.Dropped))
		put(failures, float64(s.Errors))
		put(recordings, float64(len(s.Recordings)))
		put(bytes, float64(s.Bytes))
		put(free, float64(s.Free))
		put(deleted, float64(s.TooOld), "age")
		put(deleted, float64(s.TooLarge), "bytes")
	})
	return m
}
