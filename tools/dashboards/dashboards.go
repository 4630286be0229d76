package main

var dashboards = []dashboard{relay, cluster, capture, pair, viewers}

var relay = dashboard{
	file: "holocast-relay", title: "Holocast / Relay", instances: "holocast_relay_tracks",
	rows: []row{
		{"Now", []panel{
			stat("Sessions", "none", `sum(holocast_relay_sessions{instance=~"$instance"})`),
			stat("Tracks", "none", `sum(holocast_relay_tracks{instance=~"$instance"})`),
			stat("Subscriptions", "none", `sum(holocast_relay_viewers{instance=~"$instance"})`),
			stat(
				"Received", "bps",
				`8 * sum(rate(holocast_relay_received_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
			),
			stat("Sent", "bps", `8 * sum(rate(holocast_relay_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))`),
			stat(
				"Late", "percentunit",
				`sum(rate(holocast_relay_dropped_subgroups_total{reason="late",instance=~"$instance"}[$__rate_interval])) / sum(rate(holocast_relay_sent_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
			),
		}},
		{"Traffic", []panel{
			{title: "Bytes of objects", unit: "bps", from: []query{
				{
					`8 * sum by (instance) (rate(holocast_relay_received_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} received",
				},
				{
					`8 * sum by (instance) (rate(holocast_relay_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} sent",
				},
			}},
			{title: "Objects received, subgroups sent", unit: "cps", from: []query{
				{
					`sum by (instance) (rate(holocast_relay_received_objects_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} objects",
				},
				{
					`sum by (instance) (rate(holocast_relay_sent_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} subgroups",
				},
			}},
			{title: "Sessions", unit: "none", from: []query{
				{`sum by (transport) (holocast_relay_sessions{instance=~"$instance"})`, "{{transport}}"},
			}},
			{title: "Subscriptions by track", unit: "none", from: []query{
				{`sum by (track) (holocast_relay_viewers{instance=~"$instance"})`, "{{track}}"},
			}},
			{
				title: "Cache by track",
				unit:  "bytes",
				help:  "Objects kept for late joiners, at most cache.maxBytes per track.",
				from: []query{
					{`sum by (track) (holocast_relay_cached_bytes{instance=~"$instance"})`, "{{track}}"},
				},
			},
		}},
		{"Losses by reason", []panel{
			{
				title: "Subgroups dropped",
				unit:  "cps",
				help:  "Late: missed the delivery timeout on a congested path. Behind: the viewer reads too slowly.",
				from: []query{
					{
						`sum by (instance) (rate(holocast_relay_dropped_subgroups_total{reason="late",instance=~"$instance"}[$__rate_interval]))`,
						"{{instance}} late",
					},
					{
						`sum by (instance) (rate(holocast_relay_dropped_subgroups_total{reason="behind",instance=~"$instance"}[$__rate_interval]))`,
						"{{instance}} behind",
					},
				},
			},
			{
				title: "Subgroups refused",
				unit:  "cps",
				help:  "Duplicate: also sent by another publisher. Evicted: older than the cache.",
				from: []query{
					{
						`sum by (instance) (rate(holocast_relay_duplicate_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
						"{{instance}} duplicate",
					},
					{
						`sum by (instance) (rate(holocast_relay_evicted_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
						"{{instance}} evicted",
					},
					{
						`sum by (instance) (rate(holocast_relay_session_refused_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
						"{{instance}} not accepted in time",
					},
				},
			},
			{title: "Datagrams dropped", unit: "cps", from: []query{
				{
					`sum by (instance) (rate(holocast_relay_dropped_datagrams_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}}",
				},
			}},
		}},
		{"Paths to peers", []panel{
			{title: "Round trip", unit: "s", from: []query{
				{`holocast_relay_session_rtt_seconds{instance=~"$instance"}`, "{{peer}}"},
				{`holocast_relay_session_min_rtt_seconds{instance=~"$instance"}`, "{{peer}} minimum"},
			}},
			{title: "Estimated bandwidth", unit: "bps", help: "Congestion control's estimate.", from: []query{
				{`8 * holocast_relay_session_bandwidth_bytes_per_second{instance=~"$instance"}`, "{{peer}} {{controller}}"},
			}},
			{
				title: "Application-limited sessions",
				unit:  "none",
				kind:  "state-timeline",
				help:  "Yes: the path carries more than is sent.",
				from: []query{
					{`holocast_relay_session_app_limited{instance=~"$instance"}`, "{{peer}}"},
				},
			},
			{title: "In flight, congestion window", unit: "bytes", from: []query{
				{`holocast_relay_session_in_flight_bytes{instance=~"$instance"}`, "{{peer}} in flight"},
				{`holocast_relay_session_congestion_window_bytes{instance=~"$instance"}`, "{{peer}} window"},
			}},
			{title: "Packets lost", unit: "pps", from: []query{
				{`rate(holocast_relay_session_lost_packets_total{instance=~"$instance"}[$__rate_interval])`, "{{peer}}"},
			}},
		}},
		process("holocast_relay_tracks"),
	},
}

var cluster = dashboard{
	file: "holocast-cluster", title: "Holocast / Cluster of relays", instances: "holocast_relay_cluster_info",
	rows: []row{
		{"Now", []panel{
			stat("Relays", "none", `count(holocast_relay_cluster_info{instance=~"$instance"})`),
			stat("Regions", "none", `count(count by (region) (holocast_relay_cluster_info{instance=~"$instance"}))`),
			stat("Clients and relays connected", "none", `sum(holocast_relay_sessions{instance=~"$instance"})`),
			stat("Sessions published", "none", `sum(holocast_relay_cluster_published_namespaces{instance=~"$instance"})`),
			stat(
				"Between relays", "bps",
				`8 * sum(rate(holocast_relay_cluster_link_received_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
			),
			stat("Clock error", "s", `max(holocast_relay_cluster_clock_error_seconds{instance=~"$instance"})`),
		}},
		{"By region", []panel{
			{title: "Connections", unit: "none", from: []query{
				{inRegions(`sum by (instance) (holocast_relay_sessions{instance=~"$instance"})`), "{{region}}"},
			}},
			{title: "Bytes of objects sent", unit: "bps", from: []query{
				{
					inRegions(`8 * sum by (instance) (rate(holocast_relay_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))`),
					"{{region}}",
				},
			}},
			{title: "Subscriptions", unit: "none", from: []query{
				{inRegions(`sum by (instance) (holocast_relay_viewers{instance=~"$instance"})`), "{{region}}"},
			}},
			{
				title: "Bytes between and within regions", unit: "bps",
				help: "Each session enters a region once.",
				from: []query{
					{
						`sum by (from_region, region) (8 * rate(holocast_relay_cluster_link_received_bytes_total{instance=~"$instance"}[$__rate_interval]) * on (instance) group_left (region) holocast_relay_cluster_info)`,
						"{{from_region}} to {{region}}",
					},
				},
			},
		}},
		{"By relay", []panel{
			{title: "Connections", unit: "none", from: []query{
				{byRelay(`sum by (instance) (holocast_relay_sessions{instance=~"$instance"})`), "{{relay}}"},
			}},
			{title: "Bytes of objects sent", unit: "bps", from: []query{
				{
					byRelay(`8 * sum by (instance) (rate(holocast_relay_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))`),
					"{{relay}}",
				},
			}},
			{title: "Sessions published", unit: "none", from: []query{
				{byRelay(`holocast_relay_cluster_published_namespaces{instance=~"$instance"}`), "{{relay}}"},
			}},
			{title: "Bytes from other relays", unit: "bps", from: []query{
				{
					`8 * rate(holocast_relay_cluster_link_received_bytes_total{instance=~"$instance"}[$__rate_interval])`,
					"{{from}} to {{instance}}",
				},
			}},
			{title: "Round trip to other relays", unit: "s", from: []query{
				{`holocast_relay_cluster_link_rtt_seconds{instance=~"$instance"}`, "{{from}} to {{instance}}"},
			}},
			{title: "Packets lost to other relays", unit: "pps", from: []query{
				{
					`rate(holocast_relay_cluster_link_lost_packets_total{instance=~"$instance"}[$__rate_interval])`,
					"{{instance}} to {{from}}",
				},
			}},
		}},
		{"Agreement", []panel{
			{
				title: "Other relays known", unit: "none",
				help: "In a whole cluster all relays know the same number.",
				from: []query{{byRelay(`holocast_relay_cluster_relays{instance=~"$instance"}`), "{{relay}}"}},
			},
			{
				title: "Other relays not heard or not reached", unit: "none",
				help: "Not heard: the relay is cut off from the bus. Not reached: viewers miss that relay's sessions.",
				from: []query{
					{byRelay(`holocast_relay_cluster_silent_relays{instance=~"$instance"}`), "{{relay}} not heard"},
					{byRelay(`holocast_relay_cluster_unreachable_relays{instance=~"$instance"}`), "{{relay}} not reached"},
				},
			},
			{title: "Clock error", unit: "s", help: "Half the round trip to the relay that the others follow, at least.", from: []query{
				{byRelay(`holocast_relay_cluster_clock_error_seconds{instance=~"$instance"}`), "{{relay}}"},
			}},
			{title: "Messages received", unit: "cps", from: []query{
				{
					byRelay(`rate(holocast_relay_cluster_messages_total{direction="received",instance=~"$instance"}[$__rate_interval])`),
					"{{relay}}",
				},
			}},
			{title: "Peers and messages refused", unit: "cps", from: []query{
				{
					`sum by (reason) (rate(holocast_relay_cluster_refused_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{reason}}",
				},
			}},
		}},
	},
}

// inRegions sums values by the region of their instance.
func inRegions(expr string) string {
	return `sum by (region) (` + expr + ` * on (instance) group_left (region) holocast_relay_cluster_info)`
}

// byRelay labels values with the relay of their instance.
func byRelay(expr string) string {
	return expr + ` * on (instance) group_left (relay) holocast_relay_cluster_info`
}

var capture = dashboard{
	file: "holocast-capture", title: "Holocast / Capture server", instances: "holocast_capture_connected",
	rows: []row{
		{"Now", []panel{
			stat("Connected", "none", `min(holocast_capture_connected{instance=~"$instance"})`),
			stat(
				"Frames published", "cps",
				`sum(rate(holocast_capture_frames_total{instance=~"$instance",result="published"}[$__rate_interval]))`,
			),
			stat(
				"Published", "bps",
				`8 * sum(rate(holocast_capture_published_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
			),
			stat("Rows kept", "percentunit", `min(holocast_capture_rows_kept_ratio{instance=~"$instance"})`),
			stat(
				"Captured to published, p95", "s",
				`histogram_quantile(0.95, sum by (le) (rate(holocast_capture_to_published_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
			),
			stat("Clock error", "s", `max(holocast_capture_clock_error_seconds{instance=~"$instance"})`),
		}},
		{"Frames", []panel{
			{
				title: "Captures by result",
				unit:  "cps",
				help:  "Dropped: superseded by a newer one. Idle: no subscribers.",
				from: []query{
					{
						`sum by (camera, result) (rate(holocast_capture_frames_total{instance=~"$instance"}[$__rate_interval]))`,
						"{{camera}} {{result}}",
					},
				},
			},
			{title: "Captured to published", unit: "s", help: "From the middle of the exposure.", from: []query{
				{
					`histogram_quantile(0.5, sum by (camera, le) (rate(holocast_capture_to_published_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"{{camera}} median",
				},
				{
					`histogram_quantile(0.95, sum by (camera, le) (rate(holocast_capture_to_published_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"{{camera}} p95",
				},
			}},
			{title: "Stages, p95", unit: "s", help: "Wait for a free core, mapping to points, encoding.", from: []query{
				{
					`histogram_quantile(0.95, sum by (stage, le) (rate(holocast_capture_stage_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"{{stage}}",
				},
			}},
			{title: "Frames lost or thinned", unit: "cps", from: []query{
				{
					`sum by (camera) (rate(holocast_capture_source_dropped_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{camera}} not delivered",
				},
				{
					`sum by (camera) (rate(holocast_capture_thinned_frames_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{camera}} thinned",
				},
			}},
			{title: "Rows kept", unit: "percentunit", max: 1, help: "Below 1 while this machine is overloaded.", from: []query{
				{`holocast_capture_rows_kept_ratio{instance=~"$instance"}`, "{{instance}}"},
			}},
		}},
		{"To the relay", []panel{
			{title: "Bytes published, by track", unit: "bps", from: []query{
				{
					`8 * sum by (track) (rate(holocast_capture_published_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{track}}",
				},
			}},
			{title: "Bytes sent", unit: "bps", from: []query{
				{
					`8 * sum by (instance) (rate(holocast_capture_sent_bytes_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}}",
				},
				{
					`8 * holocast_capture_relay_bandwidth_bytes_per_second{instance=~"$instance"}`,
					"{{instance}} estimated bandwidth",
				},
			}},
			{title: "Subgroups dropped", unit: "cps", from: []query{
				{
					`sum by (instance) (rate(holocast_capture_late_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} late",
				},
				{
					`sum by (instance) (rate(holocast_capture_behind_subgroups_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} behind",
				},
			}},
			{title: "Round trip to the relay", unit: "s", from: []query{
				{`holocast_capture_relay_rtt_seconds{instance=~"$instance"}`, "{{instance}}"},
				{`holocast_capture_relay_min_rtt_seconds{instance=~"$instance"}`, "{{instance}} minimum"},
			}},
			{title: "Packets lost", unit: "pps", from: []query{
				{`rate(holocast_capture_relay_lost_packets_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}}"},
			}},
			{title: "Clock", unit: "s", help: "Relay clock minus local clock, with error bound.", from: []query{
				{`holocast_capture_clock_offset_seconds{instance=~"$instance"}`, "{{instance}} offset"},
				{`holocast_capture_clock_error_seconds{instance=~"$instance"}`, "{{instance}} error"},
			}},
			{title: "Subscriptions by track", unit: "none", help: "A relay counts as one subscriber.", from: []query{
				{`sum by (track) (holocast_capture_viewers{instance=~"$instance"})`, "{{track}}"},
			}},
			{title: "Cache by track", unit: "bytes", from: []query{
				{`sum by (track) (holocast_capture_cached_bytes{instance=~"$instance"})`, "{{track}}"},
			}},
		}},
		{"360° video", []panel{
			{title: "Pictures by result", unit: "cps", from: []query{
				{`sum by (result) (rate(holocast_tiles_frames_total{instance=~"$instance"}[$__rate_interval]))`, "{{result}}"},
			}},
			{title: "Captured to published, encoding", unit: "s", from: []query{
				{
					`histogram_quantile(0.95, sum by (le) (rate(holocast_tiles_capture_to_published_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"published, p95",
				},
				{
					`histogram_quantile(0.95, sum by (le) (rate(holocast_tiles_encode_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"encoding, p95",
				},
			}},
			{title: "Qualities encoded", unit: "none", help: "An overloaded machine drops qualities.", from: []query{
				{`holocast_tiles_qualities{instance=~"$instance"}`, "{{instance}}"},
				{`increase(holocast_tiles_quality_drops_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} dropped"},
			}},
		}},
		{"Sound", []panel{
			{
				title: "Microphones delivering",
				unit:  "none",
				kind:  "state-timeline",
				help:  "No: unplugged, or in use by another program.",
				from: []query{
					{`holocast_capture_sound_delivering{instance=~"$instance"}`, "{{microphone}}"},
				},
			},
			{title: "Packets published", unit: "cps", help: "100 per second from each microphone.", from: []query{
				{
					`sum by (microphone) (rate(holocast_capture_sound_packets_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{microphone}}",
				},
			}},
			{title: "Interruptions", unit: "none", help: "Sound lost because this machine was late.", from: []query{
				{
					`sum by (microphone) (increase(holocast_capture_sound_dropouts_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{microphone}}",
				},
			}},
			{title: "Drift", unit: "percentunit", help: "Rate of the microphone's clock minus the local clock's.", from: []query{
				{`holocast_capture_sound_drift_ratio{instance=~"$instance"}`, "{{microphone}}"},
			}},
			{title: "Level", unit: "percentunit", max: 1, help: "Root mean square, relative to full scale.", from: []query{
				{`holocast_capture_sound_level_ratio{instance=~"$instance"}`, "{{microphone}}"},
			}},
		}},
		process("holocast_capture_connected"),
	},
}

var pair = dashboard{
	file: "holocast-pair", title: "Holocast / Duplication pair", instances: "holocast_edge_path_up",
	rows: []row{
		{"Now", []panel{
			stat("Paths up", "none", `sum(holocast_edge_path_up{instance=~"$instance"})`),
			stat("Paths with silent loss", "none", `sum(holocast_edge_path_latent{instance=~"$instance"})`),
			stat("Edges reporting", "none", `sum(holocast_controller_edge_up)`),
			stat("Flows", "none", `sum(holocast_controller_flows)`),
			stat(
				"Duplicated", "pps",
				`sum(rate(holocast_edge_duplicated_packets_total{instance=~"$instance"}[$__rate_interval]))`,
			),
			stat(
				"Reaction, p95", "s",
				`histogram_quantile(0.95, sum by (le) (rate(holocast_controller_reaction_seconds_bucket[1h])))`,
			),
		}},
		{"Paths", []panel{
			{title: "Up", unit: "none", kind: "state-timeline", from: []query{
				{`holocast_edge_path_up{instance=~"$instance"}`, "{{instance}} path {{path}}"},
			}},
			{title: "Round trip of probes", unit: "s", from: []query{
				{`holocast_edge_path_rtt_seconds{instance=~"$instance"}`, "{{instance}} path {{path}}"},
			}},
			{title: "Loss of probes", unit: "percentunit", max: 1, from: []query{
				{`holocast_edge_path_probe_loss{instance=~"$instance"}`, "{{instance}} path {{path}}"},
			}},
			{title: "Sent", unit: "bps", from: []query{
				{
					`8 * rate(holocast_edge_path_sent_bytes_total{instance=~"$instance"}[$__rate_interval])`,
					"{{instance}} path {{path}}",
				},
			}},
			{title: "Received", unit: "bps", from: []query{
				{
					`8 * rate(holocast_edge_path_received_bytes_total{instance=~"$instance"}[$__rate_interval])`,
					"{{instance}} path {{path}}",
				},
			}},
			{title: "First replicas", unit: "pps", help: "Which path delivers first.", from: []query{
				{`rate(holocast_edge_path_first_packets_total{instance=~"$instance"}[$__rate_interval])`, "path {{path}}"},
			}},
			{title: "Later replicas, dropped", unit: "pps", from: []query{
				{`rate(holocast_edge_path_late_packets_total{instance=~"$instance"}[$__rate_interval])`, "path {{path}}"},
			}},
			{title: "Lost", unit: "pps", help: "Received on other paths of the set, but not on this one.", from: []query{
				{`rate(holocast_edge_path_lost_packets_total{instance=~"$instance"}[$__rate_interval])`, "path {{path}}"},
				{`rate(holocast_edge_path_rogue_packets_total{instance=~"$instance"}[$__rate_interval])`, "path {{path}} rogue"},
			}},
			{title: "Not sent", unit: "pps", from: []query{
				{
					`sum by (instance, path, reason) (rate(holocast_edge_path_send_errors_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} path {{path}} {{reason}}",
				},
			}},
		}},
		{"Flows", []panel{
			{
				title: "Paths of a flow",
				unit:  "none",
				help:  "At the edges, and as set by the controller; 0 = plain routing.",
				from: []query{
					{`holocast_edge_flow_paths{instance=~"$instance"}`, "{{instance}} {{destination}} {{side}}"},
					{`holocast_controller_flow_paths`, "controller {{destination}}"},
				},
			},
			{title: "Reward", unit: "none", help: "Per path, over Algorithm 1's window.", from: []query{
				{`holocast_edge_path_reward{instance=~"$instance"}`, "{{destination}} path {{path}}"},
			}},
			{title: "Decisions", unit: "none", from: []query{
				{`sum by (kind) (increase(holocast_controller_decisions_total[$__rate_interval]))`, "{{kind}}"},
				{
					`sum by (destination) (increase(holocast_edge_eliminations_total{instance=~"$instance"}[$__rate_interval]))`,
					"elimination {{destination}}",
				},
			}},
			{title: "Packets passed unchanged", unit: "pps", from: []query{
				{
					`sum by (instance, reason) (rate(holocast_edge_passed_packets_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} {{reason}}",
				},
			}},
			{title: "Receipts seen", unit: "pps", from: []query{
				{`rate(holocast_edge_uplink_packets_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}}"},
			}},
			{title: "Signalling", unit: "none", from: []query{
				{
					`sum by (instance, result) (increase(holocast_edge_signalling_packets_total{instance=~"$instance"}[$__rate_interval]))`,
					"{{instance}} {{result}}",
				},
				{`sum(increase(holocast_controller_signals_total[$__rate_interval]))`, "sent"},
				{`sum(increase(holocast_controller_signals_failed_total[$__rate_interval]))`, "not sent"},
			}},
		}},
		process("holocast_edge_path_up|holocast_controller_flows"),
	},
}

var viewers = dashboard{
	file: "holocast-viewers", title: "Holocast / Viewers", instances: "holocast_viewer_sessions",
	rows: []row{
		{"Now", []panel{
			stat("Viewers", "none", `sum(holocast_viewer_sessions{instance=~"$instance"})`),
			stat("Frame rate, worst", "none", `min(holocast_viewer_frames_per_second{instance=~"$instance"})`),
			stat("Frame rate, median", "none", `quantile(0.5, holocast_viewer_frames_per_second{instance=~"$instance"})`),
			stat(
				"Frame delay, median", "s",
				`histogram_quantile(0.5, sum by (le) (rate(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
			),
			stat(
				"Frame delay, p95", "s",
				`histogram_quantile(0.95, sum by (le) (rate(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
			),
			stat("Monitor connected", "none", `min(holocast_viewer_monitor_connected{instance=~"$instance"})`),
		}},
		{"All viewers", []panel{
			{title: "Viewers", unit: "none", from: []query{
				{`holocast_viewer_sessions{instance=~"$instance"}`, "{{instance}}"},
			}},
			{title: "Frame delay", unit: "s", help: "From capture to decoded, over all viewers.", from: []query{
				{
					`histogram_quantile(0.5, sum by (le) (rate(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"median",
				},
				{
					`histogram_quantile(0.95, sum by (le) (rate(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"p95",
				},
				{
					`histogram_quantile(0.99, sum by (le) (rate(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`,
					"p99",
				},
			}},
			{title: "Distribution of the frame delay", unit: "s", kind: "heatmap", from: []query{
				{
					`sum by (le) (increase(holocast_viewer_frame_delay_seconds_bucket{instance=~"$instance"}[$__rate_interval]))`,
					"{{le}}",
				},
			}},
		}},
		{"Each viewer", []panel{
			{title: "Frame rate", unit: "none", help: "Distinct frames displayed in the last second.", from: []query{
				{`holocast_viewer_frames_per_second{instance=~"$instance"}`, "{{viewer}}"},
			}},
			{title: "Frame delay, median", unit: "s", from: []query{
				{`holocast_viewer_frame_delay_quantile_seconds{instance=~"$instance",quantile="0.5"}`, "{{viewer}}"},
			}},
			{title: "Frame delay, p95", unit: "s", from: []query{
				{`holocast_viewer_frame_delay_quantile_seconds{instance=~"$instance",quantile="0.95"}`, "{{viewer}}"},
			}},
			{title: "Jitter", unit: "s", from: []query{
				{`holocast_viewer_jitter_seconds{instance=~"$instance"}`, "{{viewer}}"},
			}},
			{title: "Frames shown", unit: "cps", from: []query{
				{`rate(holocast_viewer_frames_total{instance=~"$instance"}[$__rate_interval])`, "{{viewer}}"},
			}},
			{title: "Frames lost", unit: "none", help: "Since the viewer joined.", from: []query{
				{`holocast_viewer_lost_frames{instance=~"$instance"}`, "{{viewer}}"},
			}},
		}},
	},
}

func stat(title, unit, expr string) panel {
	return panel{title: title, unit: unit, kind: "stat", from: []query{{expr, ""}}}
}

// process returns the row of process metrics for the instances that export metric.
func process(metric string) row {
	of := ` and on (instance) {__name__=~"` + metric + `",instance=~"$instance"}`
	return row{"Process", []panel{
		{
			title: "Processor",
			unit:  "percentunit",
			help:  "1 is one core.",
			from:  []query{{`rate(process_cpu_seconds_total[$__rate_interval])` + of, "{{instance}}"}},
		},
		{title: "Memory", unit: "bytes", from: []query{{`process_resident_memory_bytes` + of, "{{instance}}"}}},
		{title: "Goroutines", unit: "none", from: []query{{`go_goroutines` + of, "{{instance}}"}}},
	}}
}
