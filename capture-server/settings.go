package main

import (
	"holocast/capture-server/source/k4a"
	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/trace"
)

// exampleHeader begins the example file.
const exampleHeader = "Configuration of the Holocast capture server. Every setting but sources is optional; " +
	"the values here are the defaults. Flags override the file."

// settings describes the settings for config.Table.
var settings = append(append(config.Table{
	{
		Key: "relay", Flag: "-",
		Help: "URL of the session to publish: moqt://host:port/session over raw QUIC, or https://host:port/session " +
			"over WebTransport.",
		More: "The URL on the command line overrides it.",
	},
	{
		Key: "otherRelays", Flag: "other-relay",
		Help: "Other relays (URLs) of the session, used when the first fails.",
		More: "A relay in a cluster announces the others itself.",
	},
	{
		Key: "certificateHash", Reload: true,
		Help: "SHA-256 of the relay's certificate in hex (the relay logs it at startup).",
		More: "A relay on this machine needs neither this nor insecure.",
	},
	{
		Key: "insecure", Reload: true,
		Help: "Trust the development certificate that the relay announces over plain HTTP.",
	},
	{
		Key: "token", Reload: true,
		Help: "Token that authorizes the session, or @FILE to read it from a file at every connection (default $" +
			connect.TokenVariable + ").",
		More: "\"relay token --publish SESSION\" issues one.",
	},
	{
		Key: "e2eKey", Flag: "e2e-key", Reload: true,
		Help: "Key file (holocast key) with which to encrypt the session end to end: relays cannot read it.",
		More: "The newest key of the file applies; SIGHUP reads the file again.",
	},
	{
		Key:  "transport",
		Help: "Transport to the relay: quic, tcp (a WebSocket), or auto, which uses tcp where UDP gets no answer.",
		More: "Over tcp, congestion has no effect and a lost packet delays all media.",
	},
	{
		Key:  "congestion",
		Help: "Congestion controller for data to the relay: bbr (the default), cubic, ledbat, newreno, vegas or yeah.",
		More: "A build with the published quic-go has only newreno.",
	},
	{
		Key: "paths", Flag: "path",
		Help: "Networks to use at once, each [NAME=]ADDRESS or [NAME=]INTERFACE of this machine (moqt:// only).",
		More: "Without paths the routing table chooses one.",
	},
	{Key: "client", Help: "Client certificate that authorizes the session, PEM files.", Reload: true},
	{Key: "client.certificate", Help: "PEM certificate that authorizes the session, if the relay requires one."},
	{Key: "client.key", Help: "PEM key of the client certificate."},
	{
		Key: "sources", Flag: "-",
		Help: "Cameras, numbered in this order, and 360° video. Each source is one of",
		More: `
  synthetic          a performer, rendered at startup; needs no hardware
  livescan:DIR       a directory in LiveScan3D's layout: one camera or a studio
  livescan:FILE.bin  points recorded by LiveScan3D
  livescan-tcp:HOST:PORT  a server for LiveScan3D clients at this address;
                     livescan-tcp::48001 listens on all addresses
  k4amkv:FILE        an Azure Kinect recording (k4arecorder, libk4arecord)
  k4a                the first attached camera (see capture-server list)
  k4a:SERIAL         the camera with this serial number
  k4a:INDEX          a camera by its position on the bus, from 0
  equirect:FILE      an equirectangular video of the entire sphere, in any format of FFmpeg
  equirect:URL       a stream: rtmp, rtsp, srt, udp, tcp, http and similar
  equirect:/dev/videoN  a video device
  tiles:FOLDER       prepared video (holocast prepare). As the only source it is a replay, in
                     which each viewer may pause and seek; with cameras it is live.
Azure Kinects with sync cables capture in step: one is the master, the others are subordinates. Depth exposures
of cameras that see the same surface must be at least 160us apart:
  k4a:000841194412,sync=master
  k4a:000123456789,sync=subordinate,depth-delay=160us
  k4a:000987654321,sync=subordinate,depth-delay=320us
depth-delay shifts a camera's depth relative to its colour by less than a frame, positive or negative.
subordinate-delay delays both relative to the master's.`,
	},
	{
		Key: "cameras",
		Help: "Number of cameras: played from a livescan directory (0: all), accepted by livescan-tcp, or in the " +
			"synthetic studio, 1 to 8 (0: one).",
	},
	{
		Key:  "fps",
		Help: "Frames per second of synthetic, k4a and livescan without timestamps; maximum for livescan-tcp.",
		More: "Recordings have their own rate.",
	},
	{
		Key: "depthMode", Help: "Depth mode of livescan, synthetic and k4a.",
		More: "NFOV_2X2BINNED, NFOV_UNBINNED, WFOV_2X2BINNED or WFOV_UNBINNED.",
	},
	{
		Key: "colorMode", Help: "Colour mode of livescan, synthetic and k4a.",
		More: "720P, 1080P, 1440P, 1536P, 2160P or 3072P.",
	},
	{Key: "loop", Help: "Loop recordings and videos."},
	{
		Key: "calibration", Reload: true,
		Help: "Camera poses: a YAML file, auto (stored or from markers) or none (leave cameras at the origin).",
		More: `auto uses a livescan take's Extrinsics_Open3D.log or else solves the poses from the markers; the
synthetic studio has poses of its own. A file has a pose for every camera, from depth camera space
(x right, y down, z forward) to studio space:
  cameras:
    "000841194412":
      rotation: [1, 0, 0, 0, -1, 0, 0, 0, -1]  # 3×3, row-major
      translation: [0, 1200, 0]                # millimetres
      gain: [1.1, 1, 0.9]                      # optional: red, green and blue in linear light`,
	},
	{
		Key:  "markerBox",
		Help: "Box of markers for calibration auto: LiveScan3D's file of marker poses, or a width in millimetres.",
		More: "A width selects a box of four sides. The default is the .txt file of marker poses in the livescan\n" +
			"directory, else 210, for markers printed on A4.",
	},
	{Key: "k4a.library", Help: "Path of libk4a or its directory (default $" + k4a.LibraryEnv + ", else the system's)."},
	{
		Key:  "k4a.format",
		Help: "Colour format of k4a: NV12 or YUY2 (720P only), MJPG or BGRA (default: NV12 at 720P, else MJPG).",
		More: "NV12 and YUY2 are uncompressed and need no decoding.",
	},
	{
		Key: "points.geometry", Flag: "geometry", Help: "Camera whose pixels become points: depth or color.",
		More: "color gives more points at a higher cost.",
	},
	{Key: "points.depthMin", Flag: "depth-min", Help: "Minimum depth, millimetres."},
	{Key: "points.depthMax", Flag: "depth-max", Help: "Maximum depth, millimetres; 0: unlimited."},
	{
		Key: "points.crop", Flag: "-",
		Help: "Crop box in studio space, millimetres: [min x, y, z, max x, y, z]; [] keeps everything.",
	},
	{
		Key: "points.grazing", Flag: "grazing",
		Help: "Drop points where the surface on both sides is seen at less than this angle, degrees; 0: off.",
		More: "10 removes 44 % of a simulated sensor's flying pixels, which mix foreground and background, and 0.2 % of " +
			"the other points. Azure Kinects remove most themselves.",
	},
	{Key: "points.erode", Help: "Drop points near holes and depth edges."},
	{
		Key: "points.erode.radius", Flag: "erode",
		Help: "Drop points within this many pixels of a hole or depth edge, 0 (off) to 8.",
	},
	{Key: "points.erode.step", Flag: "-", Help: "Depth step of an edge, millimetres; 0 means the default, 50."},
	{Key: "points.isolated", Help: "Drop points with few neighbours."},
	{
		Key: "points.isolated.neighbors", Flag: "isolated",
		Help: "Drop points with fewer neighbours than this; 0: off.",
	},
	{Key: "points.isolated.radius", Flag: "-", Help: "Radius of the window, pixels, 1 to 3; 0 means the default, 1."},
	{
		Key: "points.isolated.band", Flag: "-",
		Help: "Maximum depth difference from a neighbour, millimetres; 0 means the default, 30.",
	},
	{
		Key: "points.colorInset", Flag: "color-inset",
		Help: "Take the colours of points on the edge of a surface from this many pixels inside, 0 (off) to 3.",
		More: "Otherwise the background's colour bleeds onto them. It applies to geometry depth.",
	},
	{
		Key: "points.matchColors", Flag: "match-colors",
		Help: "Match the colours of cameras that see the same surfaces.",
		More: "The gains are in the calibration file; calibration auto solves them for a livescan directory.",
	},
	{Key: "tiles", Help: "360° video."},
	{
		Key: "tiles.stereo", Flag: "stereo",
		Help: "Stereo layout of equirect: auto, mono, top-bottom or side-by-side.",
		More: "auto uses the file's metadata, then the aspect ratio. In top-bottom, the left eye is on top.",
	},
	{
		Key: "tiles.size", Flag: "size",
		Help: "Scale one eye's picture of equirect to WIDTHxHEIGHT pixels (default: its own size).",
	},
	{Key: "tiles.grid", Flag: "grid", Help: "Tiles of equirect, COLUMNSxROWS."},
	{Key: "tiles.qualities", Flag: "qualities", Help: "Number of qualities per tile, 1 to 8."},
	{
		Key: "tiles.quantisers", Flag: "-",
		Help: "H.264 quantisers of the qualities, worst first; [] spreads them from 38 to 22.",
	},
	{
		Key: "tiles.preset", Flag: "-",
		Help: "libx264's preset: ultrafast, superfast, veryfast and so on to veryslow.",
		More: "Slower presets give better pictures at the same bit rate.",
	},
	{
		Key: "tiles.maxBitrate", Flag: "-",
		Help: "Maximum bits per second of the entire sphere at the best quality; 0 derives it from the size.",
	},
	{
		Key: "tiles.latency", Flag: "-",
		Help: "Time from capture to display. Later data is dropped.",
	},
	{
		Key: "audio", Flag: "-", Help: "Microphones, numbered in this order. Each is one of",
		More: `
  default            the system's default microphone
  NAME               a microphone by name (see capture-server list)
  FILE.wav           a recording, mono or stereo, of 8 to 32 bits or float
  synthetic          the sound of the synthetic performer
  none               no sound; [] is the audio.wav of a LiveScan3D take, if any
A position in studio space, in millimetres, makes the sound spatial: default,position=0/1600/0`,
	},
	{
		Key:  "audioDelivery",
		Help: "Delivery of sound: datagram (each also carries the previous packet) or stream.",
	},
	{
		Key: "layout", Help: "Frame layout: a (pixel grid, smallest), b (points) or c (LiveScan3D's records).",
	},
	{
		Key: "descriptions", Help: "Independently decodable parts of a frame: 1, or 4 for lossy or congested paths.",
		More: "With 4, frames lose density instead of arriving late.",
	},
	{
		Key: "low", Help: "Also publish each camera with a quarter of its points.",
		More: "The track is points/<camera>/low.",
	},
	{
		Key: "high", Help: "Also publish each camera as lossy video, at a tenth of the bit rate or less.",
		More: "The tracks are points/<camera>/high, medium (7/8 of its bit rate), fair (2/3) and low (1/5, a " +
			"quarter of the points), encoded only while watched.",
	},
	{
		Key: "bitrate", Help: "Total bit rate of all cameras in quality high, such as 16M; implies high.",
		More: "Cameras share it by content, and it falls when the path to the relay shrinks. \"\": constant quality.",
	},
	{
		Key:  "delivery",
		Help: "Delivery of point frames: stream, or datagram (in parts; viewers fetch lost ones).",
	},
	{Key: "deliveryTimeout", Help: "Age at which the rest of a frame is dropped; 0: never."},
	{
		Key: "alwaysEncode", Help: "Encode every frame of every track, even without viewers.",
		More: "Otherwise tracks without viewers get one frame a second, so that a late joiner has a picture at once.",
	},
	{
		Key: "thin", Help: "Under overload, drop rows of points from all cameras before dropping frames.",
		More: "The log and the metric holocast_capture_rows_kept_ratio report it.",
	},
	{
		Key:  "http",
		Help: "TCP address for /metrics (Prometheus) and /healthz, such as 127.0.0.1:9190; \"\" disables it.",
	},
}, config.LogSettings()...), trace.Settings()...)

// Settings implements config.Described.
func (c *Config) Settings() config.Table { return settings }
