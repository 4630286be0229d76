// Package tile360 computes the decisions of tiled 360° video: the geometry of tiles and viewports,
// predictions of a viewer's gaze and the network's capacity, and which tiles to request at which
// quality and in which order. It does no I/O. The TypeScript viewer implements the same algorithms
// and is tested with the same vectors (testdata/README.md).
//
// # Terms
//
// A picture is the equirectangular frame of one eye; a source may pack two of them into one
// (Layout). A Grid divides the picture into tiles, numbered row by row from the top left; a tile
// contains both eyes. Each is encoded at several qualities, 0 being the worst. Decisions are per
// GoP; GoPs are closed and aligned across tiles. A gaze is the direction of the viewport's centre;
// the horizon is level.
//
// Directions are unit vectors with x to the right, y up and z into the picture's centre. Yaw is
// positive to the right, pitch upwards; both in radians.
//
// # Source
//
// Observation-weighted sorting (OWS) is section 4 of the paper that introduces FBDT, forward and
// backward data transmission over several radios. Solver.Paper is its Algorithm 1 as printed.
// Solver.OWS is our version; its comment explains the differences.
package tile360
