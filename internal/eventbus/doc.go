// Package eventbus listens on the Salt master's local event bus: a Unix stream
// (or a loopback port, with `ipc_mode: tcp`) of msgpack maps {head, body},
// where body is a tag, a blank line and msgpack data. It is not ZeroMQ.
//
// Nothing on the bus is proof: any minion can forge another minion's return,
// and what is fired while nobody listens is gone. So an event here is a hint
// to look, and a Gap is a hint that a hint may be missing.
//
// # Framing
//
// Salt has two framings, which differ inside of one release line: bare maps
// back to back, and maps with a 4-byte big-endian length before each. The
// first byte of a connection tells: a map begins with 0x80 or above, and a
// length within the limit with 0x00 to 0x04. The bytes decide for each
// connection anew, never a version.
//
// An error in the framing leaves nothing to go on from: the stream is closed
// and joined again. An event that is whole and has a content that we can't
// use is counted and skipped.
//
// # Gaps
//
// A Gap comes with every join, the first one too, and with every overflow of
// our own queue. A later Salt drops a listener that doesn't drain, and an
// older one keeps everything in the master's memory instead, so the reader
// never waits for its consumer: what doesn't fit the queue is dropped, and one
// Gap stands in the queue where events are missing. A Gap itself is never
// dropped.
//
// A connection counts as joined when the master's socket took it. The master
// begins to send a moment later, when its loop has accepted it; an event that
// is fired within that moment is lost without another Gap. Whoever waits for
// an answer asks again after some time anyway.
package eventbus
