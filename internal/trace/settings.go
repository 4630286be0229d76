package trace

import "holocast/internal/config"

// Settings describes the section trace of a configuration, a Config.
func Settings() config.Table {
	return config.Table{
		{Key: "trace", Help: "Tracing of single frames."},
		{
			Key: "trace.endpoint", OldFlag: "trace",
			Help: "Collector of OpenTelemetry traces (OTLP over HTTP), such as http://localhost:4318.",
			More: "\"\" uses the environment variable OTEL_EXPORTER_OTLP_ENDPOINT; without it nothing is traced.",
		},
		{
			Key: "trace.every", Help: "Trace one frame in this many.", Range: config.Positive,
			More: "Use the same value in all programs.",
		},
	}
}
