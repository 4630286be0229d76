//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holocast/netfunc/bpf"
)

// advice lists host settings that would lose packets.
func (c *Config) advice() (out []string) {
	strict := func(name string) bool {
		// The larger value applies (Documentation/networking/ip-sysctl.rst of Linux).
		return max(setting("ipv4/conf/all/rp_filter"), setting("ipv4/conf/"+name+"/rp_filter")) == 1
	}
	if c.Role.Receives() {
		for _, name := range c.Receiver.Interfaces {
			if strict(name) {
				out = append(out, fmt.Sprintf("reverse path filtering drops first replicas on interface %s if the "+
					"route back uses another: set net.ipv4.conf.all.rp_filter and net.ipv4.conf.%s.rp_filter to 0 or 2",
					name, name))
			}
		}
		if setting("ipv4/ip_forward") == 0 && len(c.Receiver.Behind) > 0 {
			out = append(out, "this host does not forward IPv4: set net.ipv4.ip_forward to 1 if viewers are behind it")
		}
	}
	if c.Role.Sends() {
		for _, a := range c.Sender.Attach {
			if directions[a.Direction] == bpf.Ingress && setting("ipv4/ip_forward") == 0 {
				out = append(out, fmt.Sprintf("this host does not forward IPv4 and loses packets from %s that are "+
					"not duplicated: set net.ipv4.ip_forward to 1", a.Interface))
				break
			}
		}
	}
	return out
}

// setting reads a number under /proc/sys/net. It returns -1 if the setting does not exist.
func setting(name string) int {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net", name))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}
