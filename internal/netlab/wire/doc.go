// Package wire emulates network paths. It contains a model of one direction of a path (rate, queue,
// delay and its variation, loss), which needs neither network nor clock, and a real-time thread
// that carries Ethernet frames between packet sockets according to the model.
//
// Loss precedes the queue, as in Linux's netem: a lost packet uses no capacity. The queue is
// drop-tail. Packets leave in arrival order unless Reorder is set: when the delay falls, later
// packets follow their predecessors at 1.5 times the path's rate until they have caught up.
package wire
