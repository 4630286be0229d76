// Package srgb converts between sRGB values and linear light (IEC 61966-2-1).
package srgb

import "math"

// Linear returns the linear light of an sRGB value, both 0 to 1.
func Linear(v float64) float64 {
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

// Encode returns the sRGB value, 0 to 1, of linear light. Light above 1 is 1.
func Encode(light float64) float64 {
	if light <= 0.0031308 {
		return 12.92 * light
	}
	return min(1.055*math.Pow(light, 1/2.4)-0.055, 1)
}
