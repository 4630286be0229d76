package duplication

// Configuration of the pair's programs. Other settings have their defaults.
const (
	controllerConfig = `
http: {listen: ":%d"}
auth: {token: %s}
signal: {key: %s}
state: %s
mode: %s
%s`

	edgeConfig = `
name: %s
pin: %s
socket: %s
http: ""
controller: {url: "http://%s", token: %s}
signal: {key: %s}
`

	// bothWays is for an edge whose LAN interface carries both the duplicated traffic and its
	// destination.
	bothWays = `
role: both
sender: {attach: [{interface: %s, direction: ingress}], towards: [%s/32]}
receiver: {behind: [%s/32]}
`

	// monitor is for the interface that receives the observed packets.
	monitor = "uplink: {interfaces: [%s]%s}\n"
)
