// Package wire emulates network paths: a model of one direction of a path (rate, queue,
// delay and its variation, loss), which needs no network and no clock, and a real-time
// thread that carries Ethernet frames between packet sockets as the model says.
//
// Loss comes before the queue, as in Linux's netem: a lost packet takes no capacity. The
// queue is drop-tail. Packets leave in the order they came, unless Reorder is set: where
// the delay falls, those behind follow the last one ahead half as fast again as the path's rate,
// until they have caught up.
package wire
