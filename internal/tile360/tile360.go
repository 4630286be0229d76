// Package tile360 owns what tiled 360° video computes on both sides of the wire: where on
// the sphere a tile lies and what share of a viewport it covers, where a viewer will look,
// how many bytes will fit, and which tiles to ask for at which quality, in which order. It
// does no I/O and knows no network; the TypeScript viewer computes the same from the vectors
// in testdata (see testdata/README.md).
//
// # Terms
//
// A picture is the equirectangular frame of one eye; a source may pack two of them into one
// (Layout). A Grid cuts the picture into tiles, numbered row by row from the top left; a tile
// shows both eyes. Each is encoded at several qualities, 0 being the worst. A GoP is the unit
// of choice: closed, the same for all tiles. A gaze is the direction of the viewport's centre, whose horizon is
// level.
//
// Directions are unit vectors with x to the right, y up and z into the picture's centre. Yaw
// is positive to the right, pitch upwards; both in radians.
//
// # Source
//
// Observation-weighted sorting (OWS) is section 4 of the paper that introduces FBDT, forward
// and backward data transmission over several radios. Solver.Paper is its Algorithm 1 as
// printed; Solver.OWS is ours, and its comment says what differs and why.
package tile360
