package topology

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits of values in a file.
const (
	maxRate  = 100e9 // bit/s
	maxDelay = time.Minute
	maxTime  = 24 * time.Hour
)

// splitUnit splits "400 Mbit/s" into 400 and "Mbit/s".
func splitUnit(s string) (float64, string, error) {
	s = strings.TrimSpace(s)
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	v, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, "", fmt.Errorf("%q does not begin with a number", s)
	}
	return v, strings.TrimSpace(s[end:]), nil
}

// parseRate parses a rate in bit/s.
func parseRate(s string) (float64, error) {
	v, unit, err := splitUnit(s)
	if err != nil {
		return 0, err
	}
	scale, ok := map[string]float64{"bit": 1, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}[strings.TrimSuffix(unit, "/s")]
	if !ok {
		return 0, fmt.Errorf("%q: want a rate such as 400Mbit (bit, kbit, Mbit, Gbit)", s)
	}
	if v *= scale; v < 1000 || v > maxRate {
		return 0, fmt.Errorf("%q: want 1kbit to 100Gbit", s)
	}
	return v, nil
}

// parseShare parses a percentage as a fraction from 0 to 1.
func parseShare(s string) (float64, error) {
	v, unit, err := splitUnit(s)
	if err != nil {
		return 0, err
	}
	if unit != "%" || v > 100 {
		return 0, fmt.Errorf("%q: want a percentage such as 0.05%%", s)
	}
	return v / 100, nil
}

func parseDuration(s string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%q: want a time such as 20ms or 1m30s", s)
	}
	if d < 0 || d > most {
		return 0, fmt.Errorf("%q: want 0s to %v", s, most)
	}
	return d, nil
}

// parseRange parses "20ms-70ms", or a single time for both ends.
func parseRange(s string, most time.Duration) (low, high time.Duration, err error) {
	first, second, two := strings.Cut(s, "-")
	if low, err = parseDuration(first, most); err != nil {
		return 0, 0, err
	}
	if !two {
		return low, low, nil
	}
	if high, err = parseDuration(second, most); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, fmt.Errorf("%q: the end precedes the start", s)
	}
	return low, high, nil
}

// parseQueue parses a queue limit given in packets, in bytes, or as a time at rate bit/s. It returns
// 0, 0 for an unlimited queue.
func parseQueue(s string, rate float64) (bytes, packets int, err error) {
	if strings.TrimSpace(s) == "unlimited" {
		return 0, 0, nil
	}
	if d, err := time.ParseDuration(strings.TrimSpace(s)); err == nil {
		if d <= 0 || d > maxDelay {
			return 0, 0, fmt.Errorf("%q: want more than 0s and at most %v", s, maxDelay)
		}
		if rate == 0 {
			return 0, 0, fmt.Errorf("%q: a queue given as a time needs a rate", s)
		}
		return max(1, int(math.Round(rate/8*d.Seconds()))), 0, nil
	}
	v, unit, err := splitUnit(s)
	if err != nil {
		return 0, 0, err
	}
	scale, ok := map[string]float64{
		"packets": 1, "packet": 1, "B": 1, "kB": 1e3, "MB": 1e6, "KiB": 1 << 10,
		"MiB": 1 << 20,
	}[unit]
	if !ok {
		return 0, 0, fmt.Errorf("%q: want a queue such as 1000 packets, 512kB, 50ms or unlimited", s)
	}
	if v *= scale; v < 1 || v > 1<<30 {
		return 0, 0, fmt.Errorf("%q: want 1 to 2^30", s)
	}
	if strings.HasPrefix(unit, "packet") {
		return 0, int(v), nil
	}
	return int(v), 0, nil
}
